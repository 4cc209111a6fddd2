"""What `kubectl get pods` shows: how many containers are ready, one word about the pod, how often it was restarted.

The word is the phase, unless a container says something more telling: what it waits for, what it died of. As long as
init containers are not through, theirs counts.
"""

from __future__ import annotations

from typing import Any

from trainyard.objects import Json, is_true, parse_time
from trainyard.server.resources import Column
from trainyard.server.strategies.shapes import text
from trainyard.server.strategies.templates import containers_of
from trainyard.server.tables import AGE, NAME, human

ENDED = ("Succeeded", "Failed")
_ENDS = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}


def _status(pod: Json) -> Json:
    status: Any = pod.get("status")
    return status if isinstance(status, dict) else {}


def _sidecars(pod: Json) -> set[str]:
    """Init containers that go on running beside the others."""
    return {
        str(one.get("name"))
        for one in containers_of(pod.get("spec"), "initContainers")
        if one.get("restartPolicy") == "Always"
    }


def _word(state: Any) -> str:
    """What a container waits for or died of."""
    state = state if isinstance(state, dict) else {}
    if waiting := state.get("waiting"):
        return text(waiting.get("reason"))
    if ended := state.get("terminated"):
        if ended.get("reason"):
            return text(ended["reason"])
        return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode') or 0}"
    return ""


def _initializing(pod: Json) -> str:
    """The word about init containers that are not through, "" when all are."""
    states = containers_of(_status(pod), "initContainerStatuses")
    total, sidecars = len(containers_of(pod.get("spec"), "initContainers")), _sidecars(pod)
    for index, state in enumerate(states):
        current: Any = state.get("state") or {}
        ended = current.get("terminated")
        if isinstance(ended, dict) and not ended.get("exitCode"):
            continue
        if state.get("name") in sidecars and state.get("started") is True:
            continue
        word = _word(current)
        return f"Init:{word}" if word and word != "PodInitializing" else f"Init:{index}/{total}"
    return ""


def _through(pod: Json) -> bool:
    return not _initializing(pod) or is_true(_status(pod).get("conditions"), "Initialized")


def ready(pod: Json, now: float) -> str:
    status, sidecars = _status(pod), _sidecars(pod)
    count = sum(
        one.get("ready") is True and one.get("name") in sidecars
        for one in containers_of(status, "initContainerStatuses")
    )
    if _through(pod):
        states = containers_of(status, "containerStatuses")
        count += sum(one.get("ready") is True and "running" in (one.get("state") or {}) for one in states)
    return f"{count}/{len(containers_of(pod.get('spec'))) + len(sidecars)}"


def restarts(pod: Json, now: float) -> str:
    status, sidecars = _status(pod), _sidecars(pod)
    counted = containers_of(status, "initContainerStatuses")
    if _through(pod):
        counted = [one for one in counted if one.get("name") in sidecars] + containers_of(status, "containerStatuses")
    count = sum(one.get("restartCount") or 0 for one in counted)
    ended = [(one.get("lastState") or {}).get("terminated") or {} for one in counted]
    moments = [moment for one in ended if (moment := parse_time(one.get("finishedAt"))) is not None]
    return f"{count} ({human(now - max(moments))} ago)" if count and moments else str(count)


def shown_status(pod: Json, now: float) -> str:
    status = _status(pod)
    conditions = status.get("conditions")
    word = text(status.get("reason")) or text(status.get("phase"))
    gates = [one for one in conditions or () if isinstance(one, dict) and one.get("type") == "PodScheduled"]
    if any(one.get("reason") == "SchedulingGated" for one in gates):
        word = "SchedulingGated"
    word = _initializing(pod) or word
    if _through(pod):
        running = False
        for state in reversed(containers_of(status, "containerStatuses")):
            if found := _word(state.get("state")):
                word = found
            elif state.get("ready") is True and "running" in (state.get("state") or {}):
                running = True
        if word == "Completed" and running:
            word = "Running" if is_true(conditions, "Ready") else "NotReady"
    if "deletionTimestamp" in pod["metadata"]:
        if status.get("reason") == "NodeLost":
            return "Unknown"
        return word if status.get("phase") in ENDED else "Terminating"
    return word


def _address(pod: Json, now: float) -> str:
    first: Any = (_status(pod).get("podIPs") or [{}])[0]
    return text(first.get("ip")) or text(_status(pod).get("podIP")) or "<none>"


def _gates(pod: Json, now: float) -> str:
    gates = (pod.get("spec") or {}).get("readinessGates") or ()
    conditions = _status(pod).get("conditions")
    done = sum(is_true(conditions, text(one.get("conditionType"))) for one in gates)
    return f"{done}/{len(gates)}" if gates else "<none>"


def conditions(pod: Json) -> list[Json]:
    """What is known of a pod's row as a whole: it has ended, and how."""
    phase = text(_status(pod).get("phase"))
    if phase not in _ENDS:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": _ENDS[phase]}]


COLUMNS = (
    NAME,
    Column("Ready", ready),
    Column("Status", shown_status),
    Column("Restarts", restarts),
    AGE,
    Column("IP", _address, priority=1),
    Column("Node", lambda pod, now: text((pod.get("spec") or {}).get("nodeName")) or "<none>", priority=1),
    Column("Nominated Node", lambda pod, now: text(_status(pod).get("nominatedNodeName")) or "<none>", priority=1),
    Column("Readiness Gates", _gates, priority=1),
)
