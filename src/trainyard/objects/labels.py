"""The labels and annotations that Trainyard sets, and label selectors.

All of them have the prefix `trainyard.dev/`. OWNER is on every child and every pod template: the operator watches with
the selector `trainyard.dev/owner` (the label exists), so its caches never hold pods of other programs. The label does
not prove ownership: only owner references do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from trainyard.objects.meta import Json, labels_of, name_of
from trainyard.objects.patterns import lazy_pattern

PREFIX = "trainyard.dev/"
OWNER = PREFIX + "owner"  # the uid of the job
ROLE = PREFIX + "role"  # the replica type, as written in the spec
INDEX = PREFIX + "index"
POD_INDEX = "apps.kubernetes.io/pod-index"  # set by the StatefulSet controller: the only label with the pod's index
ATTEMPT = PREFIX + "attempt"
DIGEST = PREFIX + "digest"  # of the part of the job's spec from which the object was generated
HOSTS = PREFIX + "hosts"  # annotation: the host names of all replicas, by role: "ps-76no-[0-1],worker-76no-[0-0]"
WORKING_DIRECTORY = PREFIX + "working-directory"
"""Annotation of a job or a pod: absolute path of the directory on this machine in which its containers run when neither
the container nor its image sets one. `run` and `submit` set the annotation for local clusters; others ignore it."""

EXEC_SESSION = PREFIX + "ExecSession"
"""Type of a condition of a pod: whether a command was executed in it. A Trainyard node sets it for pods of training
jobs, to False before their start; of a pod without the condition it is not known."""
CONTAINER_ID_SCHEME = "trainyard://"

Selector = Callable[[Mapping[str, str]], bool]

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_LABEL = rf"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?{_NAME}"
_REQUIREMENT = lazy_pattern(
    r"\s*(?:"
    rf"(?P<key>{_LABEL})\s+(?P<op>in|notin)\s*\((?P<set>[^()]*)\)"
    rf"|!\s*(?P<absent>{_LABEL})"
    rf"|(?P<left>{_LABEL})\s*(?P<eq>==|=|!=)\s*(?P<right>(?:{_NAME})?)"
    rf"|(?P<number>{_LABEL})\s*(?P<than>[<>])\s*(?P<limit>-?[0-9]{{1,18}})"
    rf"|(?P<present>{_LABEL})"
    r")\s*(?:,(?=\s*\S)|$)"
)
_INTEGER = re.compile(r"-?[0-9]{1,18}")


def role_of(pod: Json) -> str:
    """The replica type of a pod, as written in the spec; "" for a pod that is no replica."""
    return str(labels_of(pod).get(ROLE) or "")


def index_of(pod: Json) -> str:
    """The index of a replica within its role; "" for a pod that is no replica."""
    labels = labels_of(pod)
    return str(labels.get(POD_INDEX) or labels.get(INDEX) or "")


def replica_name(pod: Json) -> str:
    """`role-index` in lower case; for a pod that is no replica (TensorBoard) its label app, else its name."""
    role, index = role_of(pod).lower(), index_of(pod)
    return f"{role}-{index}" if role and index else str(labels_of(pod).get("app") or name_of(pod))


def parse_selector(text: str) -> Selector:
    """A function that matches labels against a selector in kubectl's syntax (`a=b,c!=d,e in (f,g),h,!i,j>1`).

    Raises ValueError when the text is no label selector.
    """
    requirements: list[Selector] = []
    position = 0
    text = text.strip()
    while position < len(text):
        match = _REQUIREMENT.match(text, position)
        if not match:
            raise ValueError(f"cannot parse the label selector {text!r} at {text[position:]!r}")
        requirements.append(_requirement(match))
        position = match.end()
    if len(requirements) == 1:  # the usual case, evaluated for every object of a list or watch
        return requirements[0]
    return lambda labels: all(requirement(labels) for requirement in requirements)


def equality_requirement(text: str) -> tuple[str, str] | None:
    """(label, value) of the first equality requirement of a selector, None when it has none."""
    position, text = 0, text.strip()
    while position < len(text) and (match := _REQUIREMENT.match(text, position)):
        if match["left"] and match["eq"] != "!=":
            return match["left"], match["right"]
        position = match.end()
    return None


def _requirement(match: re.Match[str]) -> Selector:
    if key := match["key"]:
        values = {value.strip() for value in match["set"].split(",")}
        is_in = match["op"] == "in"
        # As in Kubernetes: `notin` also selects objects without the label.
        return lambda labels: (labels.get(key) in values) if is_in else (labels.get(key) not in values)
    if absent := match["absent"]:
        return lambda labels: absent not in labels
    if left := match["left"]:
        right = match["right"]
        if match["eq"] == "!=":
            return lambda labels: labels.get(left) != right
        return lambda labels: labels.get(left) == right
    if number := match["number"]:
        limit, is_greater_than = int(match["limit"]), match["than"] == ">"
        return lambda labels: (
            bool(_INTEGER.fullmatch(value := labels.get(number, "")))
            and (int(value) > limit) is is_greater_than
            and int(value) != limit
        )
    present = match["present"]
    return lambda labels: present in labels


def matches_labels(match_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """True when every pair of `match_labels` is in `labels`. An empty selector selects nothing here."""
    return bool(match_labels) and all(labels.get(key) == value for key, value in match_labels.items())


def expand_hosts(hosts: str) -> list[str]:
    """The host names of a HOSTS annotation: "ps-x-[0-1]" -> ["ps-x-0", "ps-x-1"]. Malformed parts are left out."""
    names: list[str] = []
    for part in filter(None, hosts.split(",")):
        ranged = re.fullmatch(r"([a-z0-9-]+)\[(\d{1,5})-(\d{1,5})\]", part)
        if ranged:
            names += [f"{ranged[1]}{index}" for index in range(int(ranged[2]), int(ranged[3]) + 1)]
        elif re.fullmatch(r"[a-z0-9-]+", part):
            names.append(part)
    return names
