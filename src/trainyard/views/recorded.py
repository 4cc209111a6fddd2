"""Pods and events in a record of the history: from API objects to the entries of result.json and events.yaml
(`pod_entry`, `event_entry`), and back (`recorded_pod`, `recorded_view`, `recorded_event`). app/history/records.py has
the files.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.core import Config, parse_job
from trainyard.core.carriers.terminations import restarts_of_pod
from trainyard.kinds import kind_of
from trainyard.objects import Json, as_dict, is_condition_true, labels_of, name_of, uid_of
from trainyard.objects.container_restarts import RESTARTING_ALL_CONTAINERS
from trainyard.objects.container_statuses import ContainerStatus, container_statuses
from trainyard.objects.labels import ATTEMPT, INDEX, OWNER, ROLE, index_of, replica_name, role_of
from trainyard.objects.structs import replace
from trainyard.objects.usage import PEAK_DEVICE_MEMORY, PEAK_MEMORY, peak_annotation, peaks_of
from trainyard.views.replica_view import ReplicaView, read_pod, replica_view

ID_LENGTH = 8  # characters of a uid in the names of folders
LOST = "ContainerStatusUnknown"  # the reason of a container run that ended with its node
_ENDED = ("Succeeded", "Failed")


def attempt_of(pod: Json) -> int:
    """The attempt in the pod's label; 0 without one."""
    text = str(labels_of(pod).get(ATTEMPT) or "0")
    return int(text) if text.isdecimal() else 0


def pod_log_folder(pod: Json) -> str:
    """The path of a pod's log folder, relative to the log folder of its job."""
    return f"{replica_name(pod)}/attempt-{attempt_of(pod)}-{uid_of(pod)[:ID_LENGTH]}"


def pod_entry(pod: Json, previous: Json | None = None, job: Json | None = None) -> Json:
    """The entry of a pod in result.json. The ends of earlier container runs, which the pod's status no longer has, are
    taken from `previous`, the entry of the pod so far. `job`: as in replica_view."""
    meta, status = as_dict(pod.get("metadata")), as_dict(pod.get("status"))
    earlier = {str(container.get("name")): container for container in (previous or {}).get("containers") or []}
    annotations = as_dict(meta.get("annotations"))
    peaks = {field: peaks_of(annotations, name) for field, name in PEAK_FIELDS.items()}
    containers = [
        _container_entry(container, earlier.get(container.name), peaks) for container in container_statuses(status)
    ]
    ends = [end for container in containers for run in container["runs"] if (end := str(run.get("ended") or ""))]
    return {
        "name": name_of(pod),
        "uid": uid_of(pod),
        "replica": replica_name(pod),
        "role": role_of(pod),
        "index": index_of(pod),
        "node": str(as_dict(pod.get("spec")).get("nodeName") or ""),
        "attempt": attempt_of(pod),
        "phase": str(status.get("phase") or "Pending"),
        "reason": str(status.get("reason") or ""),
        "message": str(status.get("message") or ""),
        "created": str(meta.get("creationTimestamp") or ""),
        "started": str(status.get("startTime") or ""),
        "ended": max(ends, default="") if status.get("phase") in _ENDED else "",
        "restarts": _restarts(pod, job) if any(container["restarts"] for container in containers) else 0,
        "stopped": _ended_with_node(status, containers),
        "containers": containers,
        "logs": pod_log_folder(pod),
        **({"deletionTimestamp": str(meta["deletionTimestamp"])} if meta.get("deletionTimestamp") else {}),
    }


def _restarts(pod: Json, job: Json | None) -> int:
    """As ReplicaView.restarts."""
    kind = kind_of(job) if job else None
    return restarts_of_pod(read_pod(pod), parse_job(kind, job, Config()) if job and kind else None)


def _ended_with_node(status: Json, containers: list[Json]) -> bool:
    """True when the pod ended because its node did, not by itself: the pod that replaces it is no restart."""
    lost = any(container["runs"] and container["runs"][-1].get("reason") == LOST for container in containers)
    return status.get("phase") == "Failed" and (lost or is_condition_true(status.get("conditions"), "DisruptionTarget"))


PEAK_FIELDS = {"peakMemory": PEAK_MEMORY, "peakDeviceMemory": PEAK_DEVICE_MEMORY}
"""Fields of a run in result.json -> annotations of a Pod."""
KEPT_RUNS = 10  # runs of a container that are kept: so many first and so many last ones


def _container_entry(container: ContainerStatus, previous: Json | None, peaks: Mapping[str, Mapping[str, int]]) -> Json:
    restarts = container.restarts

    def run_entry(number: int, terminated: Json) -> Json:
        of_run = {field: by_run.get(f"{container.name}/{number}", 0) for field, by_run in peaks.items()}
        return _run_entry(number, terminated, of_run)

    runs = {run["run"]: run for run in (previous or {}).get("runs") or [] if run.get("run") is not None}
    if terminated := container.previous_terminated:
        is_last = container.state("waiting") is not None and not container.removed
        number = restarts + 1 if is_last else restarts
        # RestartAllContainers hides the true exit code, which an earlier status had.
        if number not in runs or terminated.get("reason") != RESTARTING_ALL_CONTAINERS:
            runs[number] = run_entry(number, terminated)
    if terminated := container.state("terminated"):
        runs[restarts + 1] = run_entry(restarts + 1, terminated)
    kept = [runs[number] for number in sorted(runs)]
    if len(kept) > 2 * KEPT_RUNS:
        kept = [*kept[:KEPT_RUNS], *kept[-KEPT_RUNS:]]
    running = str((container.state("running") or {}).get("startedAt") or "")  # the start of the present run
    return {
        "name": container.name,
        "init": container.init,
        "restarts": restarts,
        "runs": kept,
        **({"running": running} if running else {}),
    }


def _run_entry(number: int, terminated: Json, peaks: Mapping[str, int]) -> Json:
    """`peaks`: field -> the largest memory of the run in bytes, 0 if unknown."""
    return {
        "run": number,
        "exitCode": terminated.get("exitCode"),
        "reason": str(terminated.get("reason") or ""),
        "message": str(terminated.get("message") or ""),
        "started": str(terminated.get("startedAt") or ""),
        "ended": str(terminated.get("finishedAt") or ""),
        **{field: peak for field, peak in peaks.items() if peak},
    }


def event_entry(event: Json) -> Json:
    """The entry of a core/v1 Event in events.yaml."""
    involved, series = as_dict(event.get("involvedObject")), as_dict(event.get("series"))
    meta = as_dict(event.get("metadata"))
    last = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return {
        "time": str(last or meta.get("creationTimestamp") or ""),
        "type": str(event.get("type") or ""),
        "reason": str(event.get("reason") or ""),
        "object": f"{involved.get('kind', '')}/{involved.get('name', '')}",
        "message": str(event.get("message") or ""),
        "count": int(series.get("count") or event.get("count") or 1),
        "source": str(as_dict(event.get("source")).get("component") or event.get("reportingComponent") or ""),
        "uid": uid_of(event),
    }


def recorded_pod(data: Json, entry: Json, template: Json | None = None) -> Json:
    """A pod of a record as an API object. `data`: the content of result.json; `template`: the pod template of its role,
    for the spec."""
    labels = {OWNER: str(data.get("uid") or ""), ATTEMPT: str(entry.get("attempt") or 0)}
    labels |= {ROLE: str(entry["role"]), INDEX: str(entry.get("index") or "")} if entry.get("role") else {}
    labels |= {} if entry.get("role") else {"app": str(entry.get("replica"))}
    meta = {"name": entry.get("name"), "uid": entry.get("uid"), "namespace": data.get("namespace"), "labels": labels}
    meta["creationTimestamp"] = entry.get("created")
    if annotations := {
        name: text
        for field, annotation in PEAK_FIELDS.items()
        for name, text in peak_annotation(_peaks(entry, field), annotation).items()
    }:
        meta["annotations"] = annotations
    if entry.get("deleted") and not entry.get("endedBeforeDeletion"):  # its deletion may have ended it
        meta["deletionTimestamp"] = entry.get("ended") or entry.get("created")
    parts: dict[str, list[Json]] = {"initContainerStatuses": [], "containerStatuses": []}
    for container in entry.get("containers") or []:
        parts["initContainerStatuses" if container.get("init") else "containerStatuses"].append(_status(container))
    status = {name: entry.get(name) for name in ("phase", "reason", "message")} | {"startTime": entry.get("started")}
    status["conditions"] = [{"type": "DisruptionTarget", "status": "True"}] if entry.get("stopped") else None
    spec = {**as_dict(as_dict(template).get("spec")), "nodeName": entry.get("node")}
    for name in ("initContainers", "containers"):
        if not isinstance(spec.get(name), list):  # of a job whose file is damaged, or whose spec is refused
            spec.pop(name, None)
    status = _present({**status, **parts})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _present(meta), "spec": spec, "status": status}


def recorded_view(data: Json, entry: Json) -> ReplicaView:
    """The displayed state of a pod of a record, with the restarts that were counted when its job was known."""
    return replace(replica_view(recorded_pod(data, entry)), restarts=int(entry.get("restarts") or 0))


def _peaks(entry: Json, field: str) -> dict[str, int]:
    runs = [(container, run) for container in entry.get("containers") or [] for run in container.get("runs") or []]
    return {f"{container.get('name')}/{run.get('run')}": int(run.get(field) or 0) for container, run in runs}


def _present(fields: Json) -> Json:
    """The fields that have a value: as in the API, there are no nulls."""
    return {name: value for name, value in fields.items() if value not in (None, "")}


def _status(container: Json) -> Json:
    """A ContainerStatus from the last recorded runs: the container's current run (run == restarts + 1) is `state`, the
    one before `lastState`."""
    restarts, runs = int(container.get("restarts") or 0), container.get("runs") or []
    status: Json = {"name": container.get("name"), "restartCount": restarts, "state": {}}
    for run in runs[-2:]:
        ended = {"exitCode": run.get("exitCode"), "reason": run.get("reason"), "message": run.get("message")}
        ended |= {"startedAt": run.get("started"), "finishedAt": run.get("ended")}
        status["state" if run.get("run") == restarts + 1 else "lastState"] = {"terminated": _present(ended)}
    return status


def recorded_event(data: Json, entry: Json) -> Json:
    """An event of a record as an API object. `data`: the content of result.json."""
    namespace = str(data.get("namespace") or "")
    kind, _, name = str(entry.get("object")).partition("/")
    meta = {"name": entry.get("uid"), "uid": entry.get("uid"), "namespace": namespace}
    involved_object = {"kind": kind, "name": name, "namespace": namespace}
    fields = {field: entry.get(field) for field in ("type", "reason", "message", "count")}
    source = {"component": entry.get("source")}
    event = {"apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": involved_object, "source": source}
    return event | fields | {"lastTimestamp": entry.get("time")}
