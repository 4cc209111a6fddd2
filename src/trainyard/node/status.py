"""The status of a pod as the API shows it, computed from its lifecycle. Pure.

Rules:
- Always the whole status that the node owns; whoever writes it compares with what was last written.
- Phase and reasons are the kubelet's. What is not the node's (PodScheduled, DisruptionTarget) stays as it was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trainyard.node.lifecycle import OVER, At, Container, Pod, Run
from trainyard.objects import Json, format_time, with_condition


class Place(msgspec.Struct, frozen=True):
    """What a status says of where the pod is. `images` is the image of each container; `qos` never changes.

    `interpreters` is the Python of each container: here it is what an image's id is on a cluster, the very thing used.
    """

    host_ip: str
    pod_ip: str
    images: Mapping[str, str]
    qos: str = "BestEffort"
    interpreters: Mapping[str, str] = msgspec.field(default_factory=dict)


def phase(pod: Pod) -> str:
    if pod.failure and pod.over:
        return "Failed"
    inits = [one for one in pod.containers if one.init]
    if any(one.at is At.ENDED and _code(one) != 0 for one in inits) and pod.over:
        return "Failed"
    if any(_code(one) != 0 or one.at is not At.ENDED for one in inits):
        return "Failed" if pod.over else "Pending"
    mains = [one for one in pod.containers if not one.init]
    if not pod.over:
        return "Pending" if any(_fresh(one) for one in mains) else "Running"
    return "Succeeded" if all(_code(one) == 0 and one.at is At.ENDED for one in mains) else "Failed"


def _code(one: Container) -> int | None:
    return one.last.code if one.last else None


def _fresh(one: Container) -> bool:
    """Never ran so far."""
    return one.at in (At.WAITING, At.STARTING) and one.last is None


def is_ready(pod: Pod) -> bool:
    return all(one.at is At.RUNNING for one in pod.containers if not one.init)


def status(pod: Pod, place: Place, conditions: Sequence[Json], now: float) -> Json:
    """The fields that the node writes. `conditions` are those seen on the object."""
    said: Json = {
        "phase": phase(pod),
        "hostIP": place.host_ip,
        "startTime": format_time(pod.began),
        "conditions": _conditions(pod, list(conditions), now),
        "containerStatuses": [_container(pod, one, place) for one in pod.containers if not one.init],
        "qosClass": place.qos,
    }
    inits = [_container(pod, one, place) for one in pod.containers if one.init]
    if inits:
        said["initContainerStatuses"] = inits
    if place.pod_ip:
        said["podIP"] = place.pod_ip
        said["podIPs"] = [{"ip": place.pod_ip}]
        said["hostIPs"] = [{"ip": place.host_ip}]
    if pod.failure and pod.over:
        said["reason"], said["message"] = pod.failure
    return said


def _conditions(pod: Pod, known: list[Json], now: float) -> list[Json]:
    undone = [one.name for one in pod.containers if one.init and _code(one) != 0]
    unready = [one.name for one in pod.containers if not one.init and one.at is not At.RUNNING]
    completed = phase(pod) == "Succeeded"
    text = f"containers with incomplete status: [{' '.join(undone)}]"
    why = ("ContainersNotInitialized", text) if undone else ("PodCompleted" if completed else "", "")
    found = with_condition(known, "Initialized", not undone, *why, now)
    why = ("ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]") if unready else ("", "")
    why = ("PodCompleted", "") if completed else ("PodFailed", "") if phase(pod) == "Failed" else why
    for kind in ("Ready", "ContainersReady"):
        found = with_condition(found, kind, not unready, *why, now)
    if not any(one.get("type") == "PodScheduled" for one in found):
        found = with_condition(found, "PodScheduled", True, "", "", now)
    return found


def _container(pod: Pod, one: Container, place: Place) -> Json:
    image = place.images.get(one.name, "")
    said: Json = {
        "name": one.name,
        "image": image,
        "imageID": place.interpreters.get(one.name) or image,
        "ready": one.at is At.RUNNING or (one.init and one.at is At.ENDED and _code(one) == 0),
        "started": one.at is At.RUNNING,
        "restartCount": one.restarts,
        "state": _state(pod, one),
        "lastState": {},
    }
    if one.run:
        said["containerID"] = run_id(pod, one.name, one.run)
    earlier = one.before if one.at in OVER else one.last
    if earlier is not None:
        said["lastState"] = {"terminated": _terminated(pod, one, earlier)}
    return said


def _state(pod: Pod, one: Container) -> Json:
    if one.at is At.RUNNING:
        return {"running": {"startedAt": format_time(one.started)}}
    if one.at in OVER and one.last:
        return {"terminated": _terminated(pod, one, one.last)}
    reason, message = one.reason, one.message
    if not reason:
        unfinished = any(each.init and _code(each) != 0 for each in pod.containers)
        reason = "PodInitializing" if unfinished or one.init else "ContainerCreating"
    return {"waiting": {"reason": reason, "message": message} if message else {"reason": reason}}


def _terminated(pod: Pod, one: Container, run: Run) -> Json:
    said: Json = {
        "exitCode": run.code,
        "reason": run.reason,
        "startedAt": format_time(run.started) if run.started else None,
        "finishedAt": format_time(run.finished),
        "containerID": run_id(pod, one.name, run.number),
    }
    if run.message:
        said["message"] = run.message
    return said


def run_id(pod: Pod, container: str, run: int) -> str:
    """The id of one run, as statuses show it: unique over the life of the cluster."""
    return f"trainyard://{pod.uid}/{container}/{run}"
