"""Two watches of one pod, a fast one and one that has missed states, give one trace."""

from __future__ import annotations

from typing import Any

from tests.pod_table import kept
from tests.pod_table.rows import Row, pod, sh
from tests.pod_table.trace import Trace, trace_of
from trainyard.objects import Json

STARTED, ENDED = "2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z"


def run(number: int, code: int, **fields: Any) -> Json:
    times = {"startedAt": STARTED, "finishedAt": ENDED}
    return {"containerID": f"containerd://{number}", "exitCode": code, "reason": "Error", **times, **fields}


def observed(state: Json, last: Json | None = None, number: int = 0, phase: str = "Running") -> Json:
    """A pod with one container in that state; `number` is that of its run."""
    entry = {
        "name": "main",
        "ready": "running" in state,
        "restartCount": max(0, number - 1),
        "state": state,
        "lastState": {"terminated": last} if last else {},
        "containerID": f"containerd://{number}" if number else "",
    }
    return {"status": {"phase": phase, "containerStatuses": [entry]}}


WAITING = observed({"waiting": {"reason": "ContainerCreating"}}, phase="Pending")
FIRST = observed({"running": {"startedAt": STARTED}}, number=1)
FIRST_END = observed({"terminated": run(1, 3)}, number=1)
SECOND = observed({"running": {"startedAt": STARTED}}, run(1, 3), number=2)
SECOND_END = observed({"terminated": run(2, 0, reason="Completed", message="done")}, run(1, 3), 2, "Succeeded")
STATES = ["running", "terminated 3 Error", "running", "terminated 0 Completed: done"]


def states(*pods: Json) -> list[str]:
    result: list[str] = trace_of(pods, [], {}, {})["containers.main.states"]
    return result


def test_states_that_a_watch_has_missed_are_taken_from_later_ones() -> None:
    assert states(WAITING, FIRST, FIRST, FIRST_END, SECOND, SECOND_END) == STATES
    assert states(WAITING, SECOND, SECOND_END) == STATES
    assert states(WAITING, SECOND_END) == STATES
    assert states(WAITING) == ["waiting ContainerCreating"]


def test_a_program_that_was_never_started_has_not_run() -> None:
    failed = run(1, 128, reason="StartError", startedAt="1970-01-01T00:00:00Z")
    assert states(WAITING, observed({"terminated": failed}, number=1)) == ["terminated 128 StartError"]


def test_names_of_one_run_are_replaced() -> None:
    about = {"name": "a", "fieldPath": "spec.containers{main}"}
    events = [{"type": "Normal", "reason": "Pulled", "message": "image python:3 of ns", "involvedObject": about}] * 2
    trace = trace_of([WAITING], events, {"main": "10.0.0.12\n"}, {"python:3": "IMAGE", "10.0.0.12": "POD_IP"})
    assert trace["events.main"] == ["Normal Pulled: image IMAGE of ns"]
    assert trace["logs.main"] == "POD_IP\n"


def test_a_difference_is_reported_unless_it_is_named_and_a_named_one_that_is_none() -> None:
    row = Row(name="a", spec=pod(sh("true")))
    known = kept.merged([{"phases": ["Failed"]}, {"phases": ["Running", "Failed"], "ready": ["True"]}])
    answers = kept.Kept({}, {"a": kept.KeptRow(kept.row_digest(row), known)})

    def lines(trace: Trace, **differs: str) -> int:
        named = Row(name="a", spec=row.spec, differs=differs)
        return len(kept.differences(answers, named, trace))

    assert known == {"phases": [["Failed"], ["Running", "Failed"]], "ready": [None, ["True"]]}
    assert lines({"phases": ["Failed"]}) == 0
    assert lines({"phases": ["Succeeded"]}) == 1
    assert lines({"phases": ["Succeeded"]}, phases="topic") == 0
    assert lines({"phases": ["Failed"], "reason": "Evicted"}) == 1
    assert lines({"phases": ["Failed"]}, phases="topic") == 1
    assert kept.differences(answers, Row(name="a", spec=pod(sh("false"))), {})[0].endswith("make kept-pods")
