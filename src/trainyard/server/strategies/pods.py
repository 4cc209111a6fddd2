"""Pods: filled in as the real server does, bound once, deleted with grace once they are on a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainyard.objects import Json, Problem
from trainyard.server.accounts import admit_pod
from trainyard.server.resources import Column, Resource
from trainyard.server.site import Site
from trainyard.server.strategies.shapes import fill, text, whole
from trainyard.server.strategies.templates import POD_SPEC, containers_of, default_pod_spec, pod_spec_problems
from trainyard.server.tables import AGE, NAME, since

ENDED = ("Succeeded", "Failed")
_MAY_CHANGE = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")


def prepare(new: Json, old: Json | None, site: Site) -> None:
    spec = new["spec"]
    default_pod_spec(spec)
    fill(spec, enableServiceLinks=True, preemptionPolicy="PreemptLowerPriority", priority=0)
    account = spec.get("serviceAccountName") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    if old is None:
        new["status"] = {"phase": "Pending"}


def check(new: Json, old: Json | None) -> list[Problem]:
    found = pod_spec_problems(new["spec"], "spec")
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


def ready(pod: Json, now: float) -> str:
    states = containers_of(pod.get("status"), "containerStatuses")
    return f"{sum(one.get('ready') is True for one in states)}/{len(containers_of(pod.get('spec')))}"


def restarts(pod: Json, now: float) -> str:
    states = containers_of(pod.get("status"), "containerStatuses")
    count = sum(one.get("restartCount") or 0 for one in states)
    ends = [
        ended["finishedAt"]
        for one in states
        if isinstance(ended := (one.get("lastState") or {}).get("terminated"), dict) and ended.get("finishedAt")
    ]
    return f"{count} ({since(max(ends), now)} ago)" if count and ends else str(count)


def shown_status(pod: Json, now: float) -> str:
    """One word about a pod: its phase, or what its containers wait for or died of."""
    status = pod.get("status") or {}
    word = text(status.get("reason")) or text(status.get("phase")) or "Unknown"
    first = _init_word(pod)
    if first:
        word = first
    else:
        running = False
        for state in reversed(containers_of(status, "containerStatuses")):
            if found := _state_word(state.get("state")):
                word = found
            elif state.get("ready") is True:
                running = True
        if word == "Completed" and running:
            word = "Running"
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    return word


def _init_word(pod: Json) -> str:
    states = containers_of(pod.get("status"), "initContainerStatuses")
    total = len(containers_of(pod.get("spec"), "initContainers"))
    for index, state in enumerate(states):
        current: Any = state.get("state") or {}
        ended = current.get("terminated")
        if isinstance(ended, dict) and ended.get("exitCode") == 0:
            continue
        word = _state_word(current)
        return f"Init:{word}" if word and word != "PodInitializing" else f"Init:{index}/{total}"
    return ""


def _state_word(state: Any) -> str:
    state = state if isinstance(state, dict) else {}
    if waiting := state.get("waiting"):
        return text(waiting.get("reason"))
    if ended := state.get("terminated"):
        if ended.get("reason"):
            return text(ended["reason"])
        return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode')}"
    return ""


RESOURCES = (
    Resource(
        kind="Pod",
        plural="pods",
        short=("po",),
        categories=("all",),
        status=True,
        generation=True,
        subresources=("log", "exec", "attach", "proxy", "binding"),
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
        columns=(
            NAME,
            Column("Ready", ready),
            Column("Status", shown_status),
            Column("Restarts", restarts),
            AGE,
            Column("IP", lambda pod, now: (pod.get("status") or {}).get("podIP") or "<none>", priority=1),
            Column("Node", lambda pod, now: pod["spec"].get("nodeName") or "<none>", priority=1),
        ),
    ),
)
