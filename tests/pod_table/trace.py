"""From the states of a pod, its events and logs to a trace: what can be observed of it, as facts that do not depend on
how fast the machine is.

A trace is flat: `containers.main.states` -> a list of texts, `phases`, `conditions.Ready`, `events.pod`, `logs.main`.

Rules:
- States of a container are in their order, each once. A run that no status has shown as running, or as terminated,
  because it was too short, is taken from `lastState` and `startedAt`.
- That a container waits for its first start, also after RestartAllContainers, is no state unless it is the last: it may
  last for no time. Each container, and the pod, begins as not ready.
- Equal events are one event, as in the count of an Event.
- Names of one run (`Names`) are replaced, and so are durations of pulls and identifiers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from trainyard.objects import Json

Trace = dict[str, Any]
Names = Mapping[str, str]
"""Text of one run -> what stands for it in a trace: NAMESPACE, UID, IMAGE, NODE, POD_IP, HOST_IP."""

STATUSES = ("initContainerStatuses", "containerStatuses")
_NEVER = (None, "1970-01-01T00:00:00Z")  # startedAt of a container whose program was never started
_NOT_READY = "not ready, not started"
_FIRST_START = re.compile(r"waiting (ContainerCreating$|PodInitializing$|RestartingAllContainers)")
_REPLACED = (
    (re.compile(r"\b[0-9a-f]{64}\b"), "ID"),
    (re.compile(r"(Successfully pulled image \S+).*"), r"\1"),
    # containerd numbers the mounts of a start that has failed.
    (re.compile(r"/var/lib/(containerd|kubelet)/\S+"), "PATH"),
)


def trace_of(
    pods: Sequence[Json], events: Iterable[Json], logs: Mapping[str, str], names: Names, with_fields: bool = False
) -> Trace:
    """`pods`: the states of a pod in their order; `logs`: `main`, `main.previous` -> text. `with_fields`: also which
    fields the statuses have had."""
    statuses = [pod.get("status") or {} for pod in pods]
    last = statuses[-1]
    trace: Trace = {"phases": _runs_of_equal(phase for status in statuses if (phase := status.get("phase")))}
    trace |= {field: last[field] for field in ("reason", "message") if last.get(field)}
    for condition in last.get("conditions") or []:
        parts = (condition.get(part) for part in ("status", "reason", "message"))
        trace[f"conditions.{condition['type']}"] = " ".join(part for part in parts if part)
    trace["ready"] = _runs_of_equal(_ready(statuses))
    for name in _container_names(statuses):
        trace |= _container(name, [entry for status in statuses if (entry := container_status(status, name))])
    trace |= _events(events)
    trace |= {f"logs.{name}": text for name, text in logs.items()}
    if with_fields:
        trace |= _fields(statuses)
    return {key: _normalised(value, names) for key, value in sorted(trace.items())}


def container_status(status: Json, name: str) -> Json:
    """The status of a container or init container; empty before there is any."""
    return next((entry for field in STATUSES for entry in status.get(field) or [] if entry["name"] == name), {})


def _container_names(statuses: Sequence[Json]) -> list[str]:
    return _distinct(entry["name"] for status in statuses for field in STATUSES for entry in status.get(field) or [])


def _ready(statuses: Sequence[Json]) -> Iterator[str]:
    """The status of the condition Ready: also the False of a restart that is over before the next status."""
    yield "False"
    restarts = 0
    for status in statuses:
        entries = [entry for field in STATUSES for entry in status.get(field) or []]
        if restarts < (restarts := sum(entry["restartCount"] for entry in entries)):
            yield "False"
        yield from (item["status"] for item in status.get("conditions") or [] if item["type"] == "Ready")


def _container(name: str, statuses: Sequence[Json]) -> Trace:
    ready = [_NOT_READY]
    restarts = 0
    for status in statuses:
        if restarts < (restarts := status["restartCount"]):
            ready.append(_NOT_READY)
        parts = "ready" if status["ready"] else "not ready", "started" if status.get("started") else "not started"
        ready.append(", ".join(parts))
    return {
        f"containers.{name}.states": _states(statuses),
        f"containers.{name}.ready": _runs_of_equal(ready),
        f"containers.{name}.restarts": restarts,
    }


def _states(statuses: Sequence[Json]) -> list[str]:
    states: list[str] = []
    running: set[object] = set()  # container IDs
    terminated: set[object] = set()

    def add_end(run: Json) -> None:
        ident = run.get("containerID") or (run.get("startedAt"), run.get("finishedAt"))
        text = f"terminated {run['exitCode']} {run.get('reason')}"
        text += f" signal {run['signal']}" if run.get("signal") else ""
        text += f": {run['message']}" if run.get("message") else ""
        if run.get("startedAt") not in _NEVER and ident not in running and (ident, text) not in terminated:
            states.append("running")
        running.add(ident)
        if (ident, text) not in terminated:
            terminated.add((ident, text))
            states.append(text)

    for status in statuses:
        state = status.get("state") or {}
        if run := (status.get("lastState") or {}).get("terminated"):
            add_end(run)
        if run := state.get("terminated"):
            add_end(run)
        elif "running" in state and status.get("containerID") not in running:
            running.add(status.get("containerID"))
            states.append("running")
        elif waiting := state.get("waiting"):
            text = f"waiting {waiting.get('reason')}"
            text += f": {waiting['message']}" if waiting.get("message") else ""
            if not states or states[-1] != text:
                states.append(text)
    return [text for text in states[:-1] if not _FIRST_START.match(text)] + states[-1:]


def _events(events: Iterable[Json]) -> Trace:
    """By what they are about, as those of two containers have no order."""
    trace: dict[str, list[str]] = {}
    for event in events:
        part = re.search(r"{(.+)}", event["involvedObject"].get("fieldPath") or "")
        texts = trace.setdefault(f"events.{part[1] if part else 'pod'}", [])
        text = f"{event['type']} {event['reason']}: {event['message']}"
        if text not in texts:
            texts.append(text)
    return dict(trace)


def _fields(statuses: Sequence[Json]) -> Trace:
    containers = [entry for status in statuses for field in STATUSES for entry in status.get(field) or []]
    conditions = [entry for status in statuses for entry in status.get("conditions") or []]
    groups = (("status", statuses), ("containers", containers), ("conditions", conditions))
    return {f"fields.{name}": sorted({key for entry in entries for key in entry}) for name, entries in groups}


def _normalised(value: Any, names: Names) -> Any:
    if isinstance(value, list):
        return [_normalised(item, names) for item in value]
    if not isinstance(value, str):
        return value
    for name in sorted(names, key=len, reverse=True):
        value = value.replace(name, names[name])
    for pattern, replacement in _REPLACED:
        value = pattern.sub(replacement, value)
    return value


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _runs_of_equal(values: Iterable[str]) -> list[str]:
    result: list[str] = []
    for value in values:
        if not result or result[-1] != value:
            result.append(value)
    return result
