"""`plan` returns for every stored spec, status and child, and returns the same again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.builders import NOW, batch_job, look, pod_of, replicas, started, template, tfjob
from trainyard import kinds
from trainyard.core import Child, Observed, decode_child, plan, render_object
from trainyard.core.model import Config
from trainyard.kinds import TFJOB
from trainyard.objects import Json, encode, format_time

pytestmark = pytest.mark.slow

WORDS = st.sampled_from(
    ["", "MASTER", "WORKER", "PS", "True", "False", "Succeeded", "Failed", "Suspended", "Running", "Done", "tensorflow"]
) | st.text(max_size=5)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | WORDS
ANY = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=8
)
NAMES = st.sampled_from(
    ["replicaSpecs", "replica_specs", "tensorboard", "tensorBoard", "tfImage", "RuntimeId", "backoffLimit", "suspend",
     "cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "managedBy", "tfPort"]
)  # fmt: skip
ITEMS = st.fixed_dictionaries(
    {},
    optional={
        "tfReplicaType": WORDS | SCALARS,
        "replicas": st.integers(-3, 5) | SCALARS,
        "tfPort": SCALARS,
        "template": st.just(template()) | ANY,
        "IsDefaultPS": SCALARS,
    },
)
SPECS = st.dictionaries(NAMES, ANY, max_size=4) | st.fixed_dictionaries(
    {"replicaSpecs": st.lists(ITEMS | ANY, max_size=4)}, optional={"suspend": st.booleans(), "tensorboard": ANY}
)
CONDITIONS = st.lists(
    st.fixed_dictionaries(
        {"type": WORDS, "status": WORDS | SCALARS}, optional={"reason": ANY, "lastTransitionTime": ANY}
    )
    | ANY,
    max_size=4,
)
ROLES = st.dictionaries(
    WORDS,
    st.fixed_dictionaries({}, optional=dict.fromkeys(("attempt", "failures", "replicas", "port", "template"), ANY)),
    max_size=3,
)
STATUSES = st.dictionaries(WORDS, ANY, max_size=3) | st.fixed_dictionaries(
    {},
    optional={
        "conditions": CONDITIONS | ANY,
        "roles": ROLES | ANY,
        "counted": st.lists(ANY, max_size=3) | ANY,
        "startTime": WORDS | ANY,
        "completionTime": st.just("2017-10-20T22:27:38Z") | ANY,
        "runtimeId": ANY,
        "resumes": ANY,
        "phase": ANY,
    },
)


def children() -> tuple[Child, ...]:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    objects = [master, worker, pod_of(master, "Failed", code=137), pod_of(worker)]
    return tuple(decode_child(obj) for obj in objects)


def settled(job: Json, observed: Observed) -> None:
    """The plan is made, its children can be rendered, and the status it writes is not written again."""
    first = plan(TFJOB, job, observed, NOW)
    for create in first.creates:
        encode(render_object(TFJOB, {**job, "status": first.status}, create, Config()))
    encode(first.status)
    again = plan(TFJOB, {**job, "status": first.status}, observed, NOW)
    if not first.spec_patch and not again.urgent:
        third = plan(TFJOB, {**job, "status": again.status}, observed, NOW)
        assert not third.status_changed


@settings(max_examples=80, deadline=None)
@given(spec=SPECS | ANY, observe_children=st.booleans())
@example(spec={"replicaSpecs": [{"replicas": float("inf")}]}, observe_children=False)
def test_any_json_as_spec_gives_a_plan(spec: Any, observe_children: bool) -> None:
    job = {**tfjob(), "spec": spec}
    settled(job, Observed(children() if observe_children else ()))


@settings(max_examples=80, deadline=None)
@given(status=STATUSES | ANY, observe_children=st.booleans())
def test_any_json_as_status_gives_a_plan(status: Any, observe_children: bool) -> None:
    settled({**tfjob(), "status": status}, Observed(children() if observe_children else ()))


@settings(max_examples=60, deadline=None)
@given(spec=SPECS, status=STATUSES)
def test_any_json_as_both_gives_a_plan(spec: Json, status: Json) -> None:
    settled({**tfjob(), "spec": spec, "status": status}, Observed(children()))


@settings(max_examples=60, deadline=None)
@given(spec=SPECS | ANY)
def test_any_json_as_spec_is_admitted_or_refused_with_texts(spec: Any) -> None:
    _, problems = kinds.admit(TFJOB, {**tfjob(), "spec": spec})
    assert all(problem.text for problem in problems)
    if isinstance(spec, dict):
        kinds.warnings(TFJOB, {**tfjob(), "spec": spec})


@settings(max_examples=60, deadline=None)
@given(new=SPECS, old=SPECS, status=STATUSES)
def test_any_two_specs_can_be_compared(new: Json, old: Json, status: Json) -> None:
    kinds.rules_check(TFJOB)({**tfjob(), "spec": new}, {**tfjob(), "spec": old, "status": status})


@pytest.mark.parametrize("status", [None, [], "x", {"conditions": None, "roles": None}, {"roles": {"MASTER": None}}])
def test_a_removed_status_counts_as_never_written(status: Any) -> None:
    planned = plan(TFJOB, {**tfjob(), "status": status}, Observed(), NOW)
    assert planned.status["phase"] == "Creating"


def test_a_forged_count_is_no_reason_to_fail_and_a_forged_end_is_kept() -> None:
    forged: Json = {"restarts": 10**6, "roles": {"MASTER": {"failures": -5, "attempt": True, "replicas": 1}}}
    job = tfjob(replicas("MASTER"), status=forged, backoffLimit=3)
    assert plan(TFJOB, job, Observed(), NOW).status["state"] != "Failed"
    ended = tfjob(status={"conditions": [{"type": "Succeeded", "status": "True"}]})
    assert plan(TFJOB, ended, Observed(), NOW).idle


TIMES = ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-23:59"]


@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("end", [[], [{"type": "Succeeded", "status": "True"}]])
def test_times_at_the_end_of_the_calendar_are_only_times(time: str, end: list[Json]) -> None:
    status = {"startTime": time, "completionTime": time, "conditions": end, "roles": {"MASTER": {"replicas": 1}}}
    job = tfjob(replicas("MASTER"), status=status, activeDeadlineSeconds=2**31 - 1, ttlSecondsAfterFinished=2**31 - 1)
    planned = plan(TFJOB, job, Observed(), NOW)
    format_time(planned.requeue_at or 0.0)


@pytest.mark.parametrize("time", TIMES)
def test_pods_from_the_end_of_the_calendar_are_only_pods(time: str) -> None:
    job = started()
    master = batch_job("MASTER", failed="Stopped")
    pod = pod_of(master, "Failed", code=137)
    pod["metadata"]["creationTimestamp"] = pod["status"]["startTime"] = time
    pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = time
    planned = look(job, master, pod)
    format_time(planned.requeue_at or 0.0)
    assert planned.status["roles"]["MASTER"]["failures"] == 1


@pytest.mark.parametrize("suspended", ["True", "False"])
def test_a_forged_number_of_replicas_does_not_cost_more_than_the_most_there_may_be(suspended: str) -> None:
    conditions = [{"type": "Suspended", "status": suspended}]
    forged = {
        "conditions": conditions,
        "roles": {"MASTER": {"replicas": 2**31 - 1}},
        "startTime": "2020-01-01T00:00:00Z",
    }
    job = tfjob(replicas("MASTER", 2**31 - 1), status=forged)
    planned = plan(TFJOB, job, Observed(), NOW)
    assert planned.status["replicaStatuses"][0]["ReplicasStates"] == {"Unknown": 10000}
