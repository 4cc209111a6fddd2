"""`why`, as a table: facts in, sentences out. Each line is one thing that a person may have to be told."""

from __future__ import annotations

from typing import Any

import pytest
from why_job_cases import JOB_CASES
from why_replica_cases import REPLICA_CASES
from why_values import (
    NOW,
    RUNNING,
    Case,
    at,
    child,
    elastic,
    ended,
    everything,
    facts,
    found,
    pod,
    tfjob,
    waits,
)

from trainyard.cli.diagnosis import BLOCK, END, FINE, LEVELS, NOTE, WAIT, told
from trainyard.cli.diagnosis.meeting import address_of

CASES = (*JOB_CASES, *REPLICA_CASES)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_what_is_so_is_said_with_place_and_fix(case: Case) -> None:
    findings = found(case.job, *case.pods, **case.more)
    said = everything(findings)
    assert not [words for words in case.says if words not in said], said
    levels = [one.level for one in findings]
    assert (case.level in levels and levels[0] != NOTE) if case.level == FINE else levels[0] == case.level, said
    assert all(one.fix for one in findings if one.level in (END, BLOCK)), said


def test_equal_findings_of_several_replicas_are_one() -> None:
    names = [f"WORKER-{number}" for number in range(6)]
    job = tfjob(RUNNING)
    pods = [pod(name, waits("ErrImageNeverPull", "nothing says what x is"), "Pending") for name in names]
    findings = found(job, *pods)
    assert [one.what for one in findings] == [
        "WORKER 0, WORKER 1 and 4 others: its image has no entry in the catalogue (ErrImageNeverPull)"
    ]


def test_what_stops_a_job_comes_before_what_passes_and_notes_come_last() -> None:
    job = tfjob(
        RUNNING, ("UnknownFields", "UnknownFields", "spec.x"), ("Degraded", "ReplicaFailed", "PS 0 has given up")
    )
    pods = [pod("MASTER-0"), pod("WORKER-0", waits("ContainerCreating"), "Pending")]
    assert [one.level for one in found(job, *pods)] == [BLOCK, WAIT, NOTE]


def test_the_newest_pod_of_a_slot_speaks_for_it() -> None:
    old = pod("MASTER-0", waits("ImagePullBackOff", "x"), "Pending", creationTimestamp=at(900))
    assert [one.level for one in found(tfjob(RUNNING), old, pod("MASTER-0"))] == [FINE]


def test_a_retry_says_when() -> None:
    """The time is that of the operator's own decision."""
    job = tfjob(RUNNING, ("Restarting", "ReplicaEnded", "MASTER 0: exited with code 130; retryable, tried again"))
    job["status"]["roles"] = {name: {"replicas": 1, "port": 2222} for name in ("MASTER", "WORKER")}
    owner = {"uid": "u", "controller": True, "kind": "TfJob", "name": "mnist"}
    carrier = child("Job", "master-abcd-0", "j1")
    labels = pod("MASTER-0")["metadata"]["labels"]
    carrier["metadata"] |= {"labels": labels, "ownerReferences": [owner]}
    by_job = [{"uid": "j1", "controller": True, "kind": "Job", "name": "master-abcd-0"}]
    one = pod("MASTER-0", {"state": ended(130, ago=3)}, "Failed", ownerReferences=by_job)
    retry = [line for line in found(job, one, children=(carrier,)) if "made again at" in line.what]
    assert retry and f"at {at(-7)} (in 7s)" in retry[0].what, everything(found(job, one, children=(carrier,)))


def test_the_text_has_a_heading_and_a_line_for_each_part() -> None:
    job = tfjob(RUNNING)
    given = facts(job, pod("MASTER-0", waits("ErrImageNeverPull", "first\nsecond"), "Pending"))
    from trainyard.cli.diagnosis import why

    assert list(told(given, why(given))) == [
        "TfJob default/mnist:",
        "  problem: MASTER 0: its image has no entry in the catalogue (ErrImageNeverPull)",
        "    where: pod master-0-abcd-x, container tensorflow: state.waiting",
        "    seen:  first",
        "           second",
        "           image: registry/x:1",
        "    do:    name the image in a catalogue, and give it with --images; docs/images.md",
    ]
    assert set(LEVELS) == {END, BLOCK, WAIT, NOTE, FINE}


@pytest.mark.parametrize(
    ("endpoint", "service"),
    [
        ("etcd-service:2379", "etcd-service"),
        ("http://etcd-service:2379", "etcd-service"),
        ("etcd-service", "etcd-service"),
        ("etcd.default:2379", "etcd"),
        ("etcd.default.svc.cluster.local:2379", "etcd"),
        ("10.100.104.168:2379", "10.100.104.168"),
        ("etcd.elsewhere:2379", ""),
        ("etcd.example.com:2379", ""),
    ],
)
def test_the_service_behind_an_endpoint_is_worked_out_where_it_is_ours(endpoint: str, service: str) -> None:
    found_at = address_of(elastic(RUNNING, rdzvEndpoint=endpoint))
    assert found_at is not None and found_at.service == service


def test_a_kind_without_an_endpoint_has_none() -> None:
    assert address_of(tfjob()) is None and address_of(tfjob(rdzvEndpoint=5)) is None


@pytest.mark.parametrize(
    "status", [None, [], "x", {"conditions": "x"}, {"conditions": [None, 5]}, {"conditions": [{}]}]
)
def test_a_status_that_somebody_has_spoilt_is_still_answered(status: Any) -> None:
    assert found({**tfjob(), "status": status})


def test_now_is_not_asked_of_a_clock() -> None:
    assert facts(tfjob()).age(at(5)) == 5.0 and NOW > 0
