"""Pods: filled in as the real server does, bound once, deleted with grace once they are on a node."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.objects import Json, Problem
from trainyard.server.accounts import admit_pod
from trainyard.server.resources import Resource
from trainyard.server.site import Site
from trainyard.server.strategies import pod_cells
from trainyard.server.strategies.shapes import fill, text, whole
from trainyard.server.strategies.templates import POD_SPEC, containers_of, default_pod_spec, pod_spec_problems

ENDED = ("Succeeded", "Failed")
LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_MAY_CHANGE = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")


def prepare(new: Json, old: Json | None, site: Site) -> None:
    spec = new["spec"]
    default_pod_spec(spec)
    fill(spec, enableServiceLinks=True, preemptionPolicy="PreemptLowerPriority", priority=0)
    account = spec.get("serviceAccountName") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    if old is None:
        spec["priority"] = PRIORITIES.get(text(spec.get("priorityClassName")), spec["priority"])
        spec["tolerations"] = _tolerations(spec.get("tolerations") or [])
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
        asked = asked or any(name in limits or name in requests for name in ("cpu", "memory"))
        sure = sure and all(limits.get(name) and limits[name] == requests.get(name) for name in ("cpu", "memory"))
    return ("Guaranteed" if sure else "Burstable") if asked else "BestEffort"


def _gated(spec: Json, site: Site) -> Json:
    if not spec.get("schedulingGates"):
        return {}
    message = "Scheduling is blocked due to non-empty scheduling gates"
    words = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message}
    return {"conditions": [{**words, "lastProbeTime": None, "lastTransitionTime": site.stamp}]}


def check(new: Json, old: Json | None) -> list[Problem]:
    found = pod_spec_problems(new["spec"], "spec")
    if old is None and new["spec"].get("schedulingGates") and new["spec"].get("nodeName"):
        text = "Forbidden: cannot be set until all schedulingGates have been cleared"
        found.append(Problem("spec.nodeName", text))
    if old is not None and _fixed(new["spec"]) != _fixed(old["spec"]):
        words = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
        more = "`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds`"
        text = f"Forbidden: pod updates may not change fields other than {words}{more}"
        found.append(Problem("spec", text))
    return found


def _fixed(spec: Json) -> Json:
    """The part of a pod's spec that stays as it was made."""
    fixed = {name: part for name, part in spec.items() if name not in _MAY_CHANGE}
    for group in ("containers", "initContainers"):
        if spec.get(group):
            fixed[group] = [
                {name: part for name, part in one.items() if name not in ("image", "imagePullPolicy")}
                for one in spec[group]
            ]
    return fixed


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
        schema=whole(POD_SPEC),
        prepare=prepare,
        admit=admit_pod,
        check=check,
        grace=grace,
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
