"""What a child is remembered as, and that odd objects never fail a whole list."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders import NOW, UID, batch_job, pod_of, service
from trainyard.core import Child, ChildStatus, decode_child
from trainyard.core.children import ContainerRecord, decode_containers, encode_containers
from trainyard.objects import Json, decode, encode, format_time


def test_a_batch_job_is_remembered_by_slot_attempt_owner_and_end() -> None:
    child = decode_child(batch_job("WORKER", 3, attempt=2, failed="DeadlineExceeded"))
    assert (child.kind, child.role, child.index, child.attempt) == ("Job", "WORKER", 3, 2)
    assert (child.job_uid, child.owner_uid) == (UID, UID)
    assert (child.phase, child.reason, child.finished_at) == ("Failed", "DeadlineExceeded", NOW)


def test_bytes_and_dicts_give_the_same_record() -> None:
    for obj in (batch_job("MASTER", complete=True), pod_of(batch_job("MASTER"), "Failed", code=137), service()):
        assert decode_child(encode(obj)) == decode_child(obj)


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        ({}, ""),
        ({"active": 1}, ""),
        ({"succeeded": 1}, "Complete"),
        ({"succeeded": 0}, ""),
        ({"conditions": [{"type": "Complete", "status": "False"}]}, ""),
        ({"conditions": [{"type": "FailureTarget", "status": "True"}]}, ""),
        ({"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}, ""),
        ({"conditions": [{"type": "Suspended", "status": "True"}, {"type": "Failed", "status": "True"}]}, "Failed"),
        ({"conditions": None}, ""),
    ],
)
def test_a_batch_job_has_ended_by_its_conditions(status: Json, phase: str) -> None:
    assert decode_child({"kind": "Job", "metadata": {"name": "x"}, "status": status}).phase == phase


@pytest.mark.parametrize(
    ("status", "disrupted"),
    [
        ({}, False),
        ({"reason": "Evicted"}, True),
        ({"reason": "Preempting"}, True),
        ({"reason": "NodeLost"}, True),
        ({"reason": "Error"}, False),
        ({"conditions": [{"type": "DisruptionTarget", "status": "True"}]}, True),
        ({"conditions": [{"type": "DisruptionTarget", "status": "False"}]}, False),
        ({"conditions": [{"type": "DisruptionTarget", "status": "Unknown"}]}, False),
    ],
)
def test_a_pod_is_disrupted_by_condition_or_reason(status: Json, disrupted: bool) -> None:
    assert decode_child({"kind": "Pod", "metadata": {"name": "x"}, "status": status}).disrupted is disrupted


def test_a_pods_record_has_the_reason_of_its_wait() -> None:
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    pod = decode_child({"kind": "Pod", "status": {"phase": "Pending", "conditions": [unschedulable]}})
    assert (pod.reason, pod.message) == ("Unschedulable", "0/1 nodes")


def test_init_containers_come_first_and_are_marked() -> None:
    state = {"terminated": {"exitCode": 3, "reason": "Error"}}
    pod = decode_child(
        {
            "kind": "Pod",
            "status": {
                "containerStatuses": [{"name": "tensorflow", "state": {"waiting": {"reason": "PodInitializing"}}}],
                "initContainerStatuses": [{"name": "fetch", "state": state, "restartCount": 4}],
            },
        }
    )
    assert decode_containers(pod) == (
        ContainerRecord("fetch", "terminated", 3, "Error", 4, True),
        ContainerRecord("tensorflow", "waiting", 0, "PodInitializing", 0, False),
    )


NAME = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
WORD = st.from_regex(r"[A-Za-z]{0,20}", fullmatch=True)


@given(
    st.lists(
        st.builds(
            ContainerRecord, NAME, st.sampled_from(["waiting", "running", "terminated"]), st.integers(-1, 255), WORD,
            st.integers(0, 10**6), st.booleans(),
        ),
        max_size=4,
    )
)  # fmt: skip
def test_lines_of_containers_are_read_back(given_containers: list[ContainerRecord]) -> None:
    status = ChildStatus(containers=encode_containers(*given_containers))
    pod = Child(kind="Pod", namespace="", name="", uid="", status=status)
    assert decode_containers(pod) == tuple(given_containers)


@pytest.mark.parametrize("reason", ["a|b", "a\nb", "a|b\nc|d", "\n", "|"])
def test_separators_in_a_reason_are_replaced(reason: str) -> None:
    pod = pod_of(batch_job("MASTER"), "Failed", code=1, reason=reason)
    containers = decode_containers(decode_child(pod))
    assert [(record.name, record.exit_code) for record in containers] == [("tensorflow", 1)]


@pytest.mark.parametrize("labels", [{"trainyard.dev/index": "x"}, {"trainyard.dev/attempt": "-1"}, None, {}])
def test_odd_labels_count_as_missing(labels: Json | None) -> None:
    child = decode_child({"kind": "Job", "metadata": {"name": "x", "labels": labels}})
    assert child.index == -1 and child.attempt == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
PARTS = st.fixed_dictionaries(
    {}, optional={"metadata": JSON, "status": JSON, "kind": st.sampled_from(["Pod", "Job", "Service"]), "spec": JSON}
)


@settings(max_examples=150, deadline=None)
@given(PARTS | JSON)
def test_any_json_is_a_record_or_a_value_error(value: Any) -> None:
    forms: list[Any] = [encode(value), *([value] if isinstance(value, dict) else [])]
    for given_value in forms:
        try:
            child = decode_child(given_value, "Pod")
        except ValueError:
            continue
        decode_containers(child)
        assert decode(encode(child))["name"] == child.name


def test_a_pods_own_message_comes_before_that_of_a_waiting_container() -> None:
    waiting = {"name": "tensorflow", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    status = {"phase": "Pending", "containerStatuses": [waiting]}
    assert decode_child({"kind": "Pod", "status": status}).message == "no such image"
    assert decode_child({"kind": "Pod", "status": {**status, "message": "first"}}).message == "first"


def test_a_pod_that_a_node_took_with_it_ended_when_it_was_disrupted() -> None:
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    pod = pod_of(batch_job("MASTER"), "Running")
    pod["status"] |= {"phase": "Failed", "conditions": [{**disrupted, "lastTransitionTime": format_time(NOW)}]}
    assert decode_child(pod, "Pod").finished_at == NOW
