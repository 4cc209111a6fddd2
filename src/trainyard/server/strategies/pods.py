"""Pods: filled in as the real server does, bound once, deleted with grace once they are on a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainyard.objects import Json, Problem
from trainyard.schema.checks import shown
from trainyard.server.accounts import admit_pod
from trainyard.server.metadata import key_texts
from trainyard.server.quantities import number
from trainyard.server.resources import Resource
from trainyard.server.site import Site
from trainyard.server.strategies import pod_cells
from trainyard.server.strategies.pod_rules import pod_spec_problems
from trainyard.server.strategies.pod_warnings import name_warnings, pod_warnings
from trainyard.server.strategies.refusing import MOST
from trainyard.server.strategies.shapes import fill, text
from trainyard.server.strategies.templates import containers_of, default_pod_spec

ENDED = ("Succeeded", "Failed")
LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_MAY_CHANGE = ("activeDeadlineSeconds", "tolerations", "schedulingGates")


def prepare(new: Json, old: Json | None, site: Site) -> None:
    spec = new["spec"] = new.get("spec") or {}
    default_pod_spec(spec)
    fill(spec, enableServiceLinks=True, preemptionPolicy="PreemptLowerPriority", priority=0)
    account = spec.get("serviceAccountName") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    spec["tolerations"] = _tolerations(spec.get("tolerations") or [])
    if old is None:
        site.warnings.extend(name_warnings(new, "the Pod's hostname"))
        if spec["terminationGracePeriodSeconds"] < 0:
            spec["terminationGracePeriodSeconds"] = 1
        site.warnings.extend(pod_warnings(spec, "spec"))
        spec["priority"] = PRIORITIES.get(text(spec.get("priorityClassName")), spec["priority"])
        new["status"] = {"phase": "Pending", "qosClass": _quality(spec), **_gated(spec, site)}


def _tolerations(given: list[Json]) -> list[Json]:
    """Every pod bears a node that is lost for five minutes, unless it says something else about that."""
    made = list(given)
    for key in LOST:
        if not any(one.get("key") in (key, None, "") and one.get("effect") in ("NoExecute", None, "") for one in given):
            made.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    return made


def _quality(spec: Json) -> str:
    """How sure a pod can be of what it asks for."""
    asked, sure = False, True
    for container in [*containers_of(spec), *containers_of(spec, "initContainers")]:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        most, least = ([number(part.get(name, "0")) for name in ("cpu", "memory")] for part in (limits, requests))
        asked = asked or any((*most, *least))
        sure = sure and all(most) and most == least
    return ("Guaranteed" if sure else "Burstable") if asked else "BestEffort"


def _gated(spec: Json, site: Site) -> Json:
    if not spec.get("schedulingGates"):
        return {}
    message = "Scheduling is blocked due to non-empty scheduling gates"
    words = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message}
    return {"conditions": [{**words, "lastProbeTime": None, "lastTransitionTime": site.stamp}]}


def prepare_status(new: Json, old: Json, sent: Json) -> None:
    """What the real server fills into a status. Who owns the pod is no matter of it."""
    meta, status = new["metadata"], new["status"] = new["metadata"], _told(new.get("status") or {})
    meta.pop("ownerReferences", None)
    if owners := old["metadata"].get("ownerReferences"):
        meta["ownerReferences"] = owners
    if not status.get("qosClass"):
        status["qosClass"] = (old.get("status") or {}).get("qosClass") or _quality(new["spec"])
    if status.get("podIP") and not status.get("podIPs"):
        status["podIPs"] = [{"ip": status["podIP"]}]
    for one in status.get("conditions") or ():
        one.setdefault("lastProbeTime", None)
        one.setdefault("lastTransitionTime", None)
        one.setdefault("type", "")
        one.setdefault("status", "")
    for group in ("containerStatuses", "initContainerStatuses"):
        for one in status.get(group) or ():
            _default_state(one)


def _told(value: Any) -> Any:
    """Without texts that are empty, but for those that are always there."""
    if isinstance(value, list):
        return [_told(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: _told(part) for name, part in value.items() if part != "" or name in _ALWAYS}


_ALWAYS = ("name", "image", "imageID", "type", "status")


def _default_state(one: Json) -> None:
    for name, empty in (("name", ""), ("ready", False), ("restartCount", 0), ("image", ""), ("imageID", "")):
        one.setdefault(name, empty)
    for name in ("state", "lastState"):
        state = one.setdefault(name, {})
        if isinstance(running := state.get("running"), dict):
            fill(running, startedAt=None)
        if isinstance(ended := state.get("terminated"), dict):
            fill(ended, exitCode=0, startedAt=None, finishedAt=None)


def check_status(new: Json, old: Json) -> Iterator[Problem]:
    for index, one in enumerate(new["status"].get("conditions") or ()):
        for why in key_texts(one["type"]):
            yield Problem(f"status.conditions[{index}].Type", f"Invalid value: {shown(one['type'])}: {why}")


def check(new: Json, old: Json | None) -> list[Problem]:
    found = pod_spec_problems(new["spec"], "spec")
    if old is not None:
        return found + _changed(new["spec"], old["spec"])
    if new["spec"].get("ephemeralContainers"):
        found.append(Problem("spec.ephemeralContainers", "Forbidden: cannot be set on create"))
    if new["spec"].get("schedulingGates") and new["spec"].get("nodeName"):
        text = "Forbidden: cannot be set until all schedulingGates have been cleared"
        found.append(Problem("spec.nodeName", text))
    return found


def _changed(new: Json, old: Json) -> list[Problem]:
    """What of a pod's spec may not become what it has become. A change of the containers' number ends the search."""
    for group in ("containers", "initContainers"):
        if len(new.get(group) or ()) != len(old.get(group) or ()):
            return [Problem(f"spec.{group}", "Forbidden: pod updates may not add or remove containers")]
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    place, found = "spec.activeDeadlineSeconds", []
    if after is not None and not 0 <= after <= MOST:
        return [Problem(place, f"Invalid value: {after}: must be between 0 and {MOST}, inclusive")]
    if before is not None and after is not None and before < after:
        return [Problem(place, f"Invalid value: {after}: must be less than or equal to previous value")]
    if before is not None and after is None:
        found.append(Problem(place, "Invalid value: null: must not update from a positive integer to nil value"))
    if any(not _borne(one, new.get("tolerations") or []) for one in old.get("tolerations") or ()):
        found.append(
            Problem(
                "spec.tolerations", "Forbidden: existing toleration can not be modified except its tolerationSeconds"
            )
        )
    known = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    for index, gate in enumerate(new.get("schedulingGates") or ()):
        if gate.get("name") not in known:
            where = f"spec.schedulingGates[{index}].name"
            found.append(Problem(where, "Forbidden: only deletion is allowed, but found new scheduling gate"))
    if gated := bool(known):
        found += _moved(new.get("nodeSelector") or {}, old.get("nodeSelector") or {})
    if _fixed(new, gated) != _fixed(old, gated):
        words = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
        more = "`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds`"
        text = f"Forbidden: pod updates may not change fields other than {words}{more}"
        found.append(Problem("spec", f"{text} (allow it to be set to 1 if it was previously negative)"))
    return found


def _borne(toleration: Json, now: list[Json]) -> bool:
    """Whether it is still there, for however long."""
    bare = {name: part for name, part in toleration.items() if name != "tolerationSeconds"}
    return any({name: part for name, part in one.items() if name != "tolerationSeconds"} == bare for one in now)


def _moved(now: Json, before: Json) -> list[Problem]:
    """A pod that waits at a gate may still become choosier."""
    if before.items() <= now.items():
        return []
    text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
    return [Problem("spec.nodeSelector", f"Invalid value: {shown(now)}: {text}")]


def _fixed(spec: Json, gated: bool) -> Json:
    """The part of a pod's spec that stays as it was made."""
    free = (*_MAY_CHANGE, "nodeSelector") if gated else _MAY_CHANGE
    fixed = {name: part for name, part in spec.items() if name not in free and part not in ([], "")}
    for group in ("containers", "initContainers"):
        if spec.get(group):
            fixed[group] = [{name: part for name, part in one.items() if name != "image"} for one in spec[group]]
    return fixed


def admitted(pod: Json) -> list[tuple[str, str]]:
    """What the server gives a new pod after its defaults, as fields of server-side apply: whoever made it has not."""
    names = ("priority", "preemptionPolicy", "serviceAccount", "serviceAccountName", "tolerations")
    return [("f:spec", f"f:{name}") for name in names]


def grace(pod: Json, asked: int | None) -> int:
    """A pod that no node has, or that has ended, goes at once."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ENDED:
        return 0
    if asked is not None:
        return asked
    seconds = spec.get("terminationGracePeriodSeconds")
    return seconds if isinstance(seconds, int) else 30


def fields(pod: Json) -> Mapping[str, str]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    return {
        "spec.nodeName": text(spec.get("nodeName")),
        "spec.restartPolicy": text(spec.get("restartPolicy")),
        "spec.schedulerName": text(spec.get("schedulerName")),
        "spec.serviceAccountName": text(spec.get("serviceAccountName")),
        "status.phase": text(status.get("phase")),
        "status.podIP": text(status.get("podIP")),
    }


RESOURCES = (
    Resource(
        kind="Pod",
        plural="pods",
        short=("po",),
        categories=("all",),
        status=True,
        generation=True,
        subresources=("log", "exec", "attach", "proxy", "binding", "eviction"),
        prepare=prepare,
        prepare_status=prepare_status,
        admit=admit_pod,
        check=check,
        check_status=check_status,
        grace=grace,
        unowned=admitted,
        fields=fields,
        field_names=(
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
        ),
        columns=pod_cells.COLUMNS,
        row_conditions=pod_cells.conditions,
    ),
)
