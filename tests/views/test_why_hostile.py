"""`why` answers for every status that a client may write, and for pods with missing fields."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.views.why_values import RUNNING, child, elastic, ended, facts, pod, refused, tfjob, unplaced, waits
from trainyard.cli.output.findings import format_findings
from trainyard.objects import Json
from trainyard.views.diagnosis import why

JUNK = st.sampled_from([None, "", "x", 5, -1.5, True, [], {}, [None], {"a": None}, ["x"]])
JOBS = (
    tfjob(RUNNING, ("Restarting", "ReplicaEnded", "x"), ("Degraded", "ReplicaFailed", "x"), activeDeadlineSeconds=5),
    tfjob(("Failed", "PermanentFailure", "x")),
    tfjob(("Suspended", "JobSuspended", "x"), suspend=True),
    elastic(RUNNING),
)
PODS = (
    pod("MASTER-0", waits("CrashLoopBackOff", restartCount=2, lastState=ended(1))),
    pod("WORKER-0", {"state": ended(137, "OOMKilled")}, "Failed"),
    pod("Worker-0"),
    unplaced("WORKER-1", "0/3 nodes are available"),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in inside for place in places(child, (*path, key)))]


def spoilt(obj: Json, path: tuple[Any, ...], junk: Any, drop: bool) -> Json:
    """The object with one place changed, or gone."""
    fresh = copy.deepcopy(obj)
    at: Any = fresh
    for key in path[:-1]:
        at = at[key]
    if drop and isinstance(at, dict):
        del at[path[-1]]
    else:
        at[path[-1]] = junk
    return fresh


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_any_status_of_a_job_is_diagnosed(data: st.DataObject) -> None:
    job = data.draw(st.sampled_from(JOBS))
    inside = [path for path in places(job) if len(path) > 1 and path[0] in ("spec", "status")]
    path = data.draw(st.sampled_from([("spec",), ("status",), *inside]))
    inputs = facts(spoilt(job, path, data.draw(JUNK), data.draw(st.booleans())), *PODS)
    assert list(format_findings(inputs, why(inputs)))


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_a_pod_with_missing_fields_is_diagnosed(data: st.DataObject) -> None:
    which = data.draw(st.sampled_from(range(len(PODS))))
    inside = [path for path in places(PODS[which]) if len(path) > 1 or path in (("status",), ("spec",))]
    inside = [path for path in inside if path[:2] != ("metadata", "name") and not isinstance(path[-1], int)]
    holed = spoilt(PODS[which], data.draw(st.sampled_from(inside)), None, data.draw(st.booleans()))
    pods = [holed if at == which else intact for at, intact in enumerate(PODS)]
    children = (child("Job", "master-abcd-0"), child("StatefulSet", "s", spec={"replicas": 2}))
    inputs = facts(data.draw(st.sampled_from(JOBS)), *pods, children=children, events=(refused("c", "exceeded quota"),))
    assert list(format_findings(inputs, why(inputs)))
