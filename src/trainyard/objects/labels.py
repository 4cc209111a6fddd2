"""Labels and annotations of our own, and label selectors.

Everything of ours is under `trainyard.dev/`. OWNER is on every child and every pod template: the operator watches with
the selector "has OWNER", so pods of others never enter its memory. A label alone proves nothing: owner references do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

PREFIX = "trainyard.dev/"
OWNER = PREFIX + "owner"  # the job's uid
ROLE = PREFIX + "role"  # the replica type, as the spec has it
INDEX = PREFIX + "index"
ATTEMPT = PREFIX + "attempt"
DIGEST = PREFIX + "digest"  # of what an object that follows the spec was made from
HOSTS = PREFIX + "hosts"  # annotation: the host names of the whole job, by role: "ps-76no-[0-1],worker-76no-[0-0]"
WORKING_DIRECTORY = PREFIX + "working-directory"
"""Annotation of a job or a pod: the absolute folder on this machine in which its programs run where neither the
container nor its image names one. `run` and `submit` write it for local clusters; other clusters do not read it."""

Selects = Callable[[Mapping[str, str]], bool]

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_LABEL = rf"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?{_NAME}"
_TERM = re.compile(
    r"\s*(?:"
    rf"(?P<key>{_LABEL})\s+(?P<op>in|notin)\s*\((?P<set>[^()]*)\)"
    rf"|!\s*(?P<absent>{_LABEL})"
    rf"|(?P<left>{_LABEL})\s*(?P<eq>==|=|!=)\s*(?P<right>(?:{_NAME})?)"
    rf"|(?P<number>{_LABEL})\s*(?P<than>[<>])\s*(?P<limit>-?[0-9]{{1,18}})"
    rf"|(?P<present>{_LABEL})"
    r")\s*(?:,(?=\s*\S)|$)"
)
_INTEGER = re.compile(r"-?[0-9]{1,18}")


def selector(text: str) -> Selects:
    """A label selector as kubectl writes it (`a=b,c!=d,e in (f,g),h,!i,j>1`). Raises ValueError when it is not one."""
    terms: list[Selects] = []
    at = 0
    text = text.strip()
    while at < len(text):
        found = _TERM.match(text, at)
        if not found:
            raise ValueError(f"cannot parse the label selector {text!r} at {text[at:]!r}")
        terms.append(_term(found))
        at = found.end()
    if len(terms) == 1:  # nearly always, and asked of every object there is
        return terms[0]
    return lambda labels: all(term(labels) for term in terms)


def demanded(text: str) -> tuple[str, str] | None:
    """A label with the value that a selector demands of everything, when there is one."""
    at, text = 0, text.strip()
    while at < len(text) and (found := _TERM.match(text, at)):
        if found["left"] and found["eq"] != "!=":
            return found["left"], found["right"]
        at = found.end()
    return None


def _term(found: re.Match[str]) -> Selects:
    if key := found["key"]:
        values = {value.strip() for value in found["set"].split(",")}
        wanted = found["op"] == "in"
        # As in Kubernetes: `notin` also selects objects without the label.
        return lambda labels: (labels.get(key) in values) if wanted else (labels.get(key) not in values)
    if absent := found["absent"]:
        return lambda labels: absent not in labels
    if left := found["left"]:
        right = found["right"]
        if found["eq"] == "!=":
            return lambda labels: labels.get(left) != right
        return lambda labels: labels.get(left) == right
    if number := found["number"]:
        limit, more = int(found["limit"]), found["than"] == ">"
        return lambda labels: (
            bool(_INTEGER.fullmatch(value := labels.get(number, "")))
            and (int(value) > limit) is more
            and int(value) != limit
        )
    present = found["present"]
    return lambda labels: present in labels


def matches(match_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """True when every pair of `match_labels` is in `labels`. An empty selector selects nothing here."""
    return bool(match_labels) and all(labels.get(key) == value for key, value in match_labels.items())


def spread(hosts: str) -> list[str]:
    """The names behind a HOSTS annotation: "ps-x-[0-1]" -> ["ps-x-0", "ps-x-1"]. What is malformed is left out."""
    names: list[str] = []
    for part in filter(None, hosts.split(",")):
        ranged = re.fullmatch(r"([a-z0-9-]+)\[(\d{1,5})-(\d{1,5})\]", part)
        if ranged:
            names += [f"{ranged[1]}{index}" for index in range(int(ranged[2]), int(ranged[3]) + 1)]
        elif re.fullmatch(r"[a-z0-9-]+", part):
            names.append(part)
    return names
