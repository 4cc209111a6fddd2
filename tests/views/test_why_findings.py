"""`why` as a table: observed objects in, findings out. Each row is one finding that a user may need."""

from __future__ import annotations

from typing import Any

import pytest

from tests.views.why_job_cases import JOB_CASES
from tests.views.why_replica_cases import REPLICA_CASES
from tests.views.why_values import (
    NOW,
    RUNNING,
    WORKERS,
    Case,
    at,
    child,
    diagnose,
    elastic,
    ended,
    everything,
    facts,
    pod,
    pytorch,
    tfjob,
    waits,
)
from trainyard.cli.output.findings import format_findings
from trainyard.kinds import PYTORCHJOB, TFJOB
from trainyard.kinds.elasticjob.diagnosis import rendezvous_endpoint
from trainyard.objects import Json
from trainyard.views.diagnosis import BLOCK, END, FINE, LEVEL_NAMES, NOTE, WAIT, Endpoint, Finding
from trainyard.views.diagnosis.output import printable_lines

CASES = (*JOB_CASES, *REPLICA_CASES)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_each_finding_has_its_place_and_fix(case: Case) -> None:
    findings = diagnose(case.job, *case.pods, **case.more)
    text = everything(findings)
    assert not [message for message in case.says if message not in text], text
    levels = [finding.level for finding in findings]
    assert (case.level in levels and levels[0] != NOTE) if case.level == FINE else levels[0] == case.level, text
    assert all(finding.fix for finding in findings if finding.level in (END, BLOCK)), text


def test_equal_findings_of_several_replicas_are_one() -> None:
    names = [f"WORKER-{number}" for number in range(6)]
    job = tfjob(RUNNING)
    pods = [pod(name, waits("ErrImageNeverPull", "no catalogue has an entry for x"), "Pending") for name in names]
    findings = diagnose(job, *pods)
    assert [finding.summary for finding in findings] == [
        "worker-0, worker-1, worker-2 and 3 others: its image is not on its node, and imagePullPolicy Never "
        "forbids to pull it (ErrImageNeverPull)"
    ]


def test_blocks_precede_waits_and_notes_come_last() -> None:
    job = tfjob(
        RUNNING,
        ("UnknownFields", "UnknownFields", "spec.x"),
        ("Degraded", "ReplicaFailed", "PS 0 has failed"),
    )
    pods = [pod("MASTER-0"), pod("WORKER-0", waits("ContainerCreating"), "Pending")]
    assert [finding.level for finding in diagnose(job, *pods)] == [BLOCK, WAIT, NOTE]


def test_the_newest_pod_of_a_slot_determines_its_findings() -> None:
    old = pod("MASTER-0", waits("ImagePullBackOff", "x"), "Pending", creationTimestamp=at(900))
    assert [finding.level for finding in diagnose(tfjob(RUNNING), old, pod("MASTER-0"), *WORKERS)] == [FINE]


def test_a_retry_has_its_time() -> None:
    """The time is that of the operator's own decision."""
    job = tfjob(RUNNING, ("Restarting", "ReplicaEnded", "MASTER 0: exited with code 130; retryable, tried again"))
    role = {"replicas": 1, "port": 2222, "withoutProgress": 1}
    job["status"]["roles"] = {"MASTER": role, "WORKER": role}
    owner = {"uid": "u", "controller": True, "kind": "TfJob", "name": "mnist"}
    carrier = child("Job", "master-abcd-0", "j1")
    labels = pod("MASTER-0")["metadata"]["labels"]
    carrier["metadata"] |= {"labels": labels, "ownerReferences": [owner]}
    by_job = [{"uid": "j1", "controller": True, "kind": "Job", "name": "master-abcd-0"}]
    orphan = pod("MASTER-0", {"state": ended(130, ago=3)}, "Failed", ownerReferences=by_job)
    orphan["status"]["startTime"] = orphan["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"]
    retry = [line for line in diagnose(job, orphan, children=(carrier,)) if "made again at" in line.summary]
    assert retry and f"at {at(-7)} (in 7s)" in retry[0].summary, everything(diagnose(job, orphan, children=(carrier,)))


def test_the_text_has_a_heading_and_a_line_for_each_part() -> None:
    job = tfjob(RUNNING)
    inputs = facts(job, pod("MASTER-0", waits("ErrImageNeverPull", "first\nsecond"), "Pending"))
    from trainyard.views.diagnosis import why

    assert list(format_findings(inputs, why(inputs))) == [
        "TfJob default/mnist:",
        "  problem: master-0: its image is not on its node, and imagePullPolicy Never",
        "    forbids to pull it (ErrImageNeverPull)",
        "    where: pod master-0-abcd-x, container tensorflow: state.waiting",
        "    seen:  first",
        "           second",
        "    do:    load the image into that node, or let imagePullPolicy be IfNotPresent",
    ]
    assert set(LEVEL_NAMES) == {END, BLOCK, WAIT, NOTE, FINE}


def test_the_output_of_a_program_is_shown_as_it_was_written() -> None:
    source = "    total = first_value + second_value + third_value + fourth_value + fifth_value"
    output = ["step  loss   time", source, "            ~~~~~~~~~~~~^~~~~~~~~~~~~~", "KeyError: 'b'", "\ttab  tab"]
    lines = printable_lines("\n".join(output).encode())
    given = facts(tfjob(("Failed", "PermanentFailure", "x")))
    finding = Finding(END, "x", "", lines, "")
    assert list(format_findings(given, [finding]))[2:] == [
        f"    {'seen: ' if line is output[0] else '      '} {line}" for line in output
    ]


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (b"\x1b[1;31mValueError\x1b[0m: x", "ValueError: x"),
        (b"E: " + b"x" * 60_000 + b" end", f"E: {'x' * 997} (58007 more characters) {'x' * 996} end"),
        (b"\x1b]0;title\x07 \x1b[2J\x9b1A", "\\x1b]0;title\\x07 \\x1b[2J\N{REPLACEMENT CHARACTER}1A"),
        ("a\u00a0b\u3000c \u202e".encode(), "a\u00a0b\u3000c \\u202e"),
        (b"not enough slots\n\0\n\0", "not enough slots"),
    ],
)
def test_evidence_cannot_control_the_terminal(output: bytes, shown: str) -> None:
    assert printable_lines(output) == (shown,)


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
def test_the_service_behind_an_endpoint_is_resolved_in_the_jobs_namespace(endpoint: str, service: str) -> None:
    found_at = rendezvous_endpoint(elastic(RUNNING, rdzvEndpoint=endpoint))
    assert found_at is not None and found_at.service == service


def test_the_endpoint_of_a_pytorch_job_is_its_rendezvous_host() -> None:
    endpoint = PYTORCHJOB.diagnosis.endpoint(pytorch())
    assert endpoint == Endpoint("etcd-service:2379", "spec.elasticPolicy.rdzvHost", "etcd-service")
    assert PYTORCHJOB.diagnosis.endpoint(pytorch(elasticPolicy={"minReplicas": 1})) is None


@pytest.mark.parametrize(
    ("spec", "peers"),
    [
        ({}, 2),
        ({"elasticPolicy": {}}, 2),
        ({"elasticPolicy": None, "pytorchReplicaSpecs": {"Master": {}, "Worker": {"replicas": 3}}}, 4),
        ({"elasticPolicy": None, "pytorchReplicaSpecs": "x"}, None),
    ],
)
def test_the_replicas_that_a_pytorch_job_needs_at_once(spec: Json, peers: int | None) -> None:
    assert PYTORCHJOB.diagnosis.peers_needed(pytorch(**spec)["spec"]) == peers


def test_a_kind_without_an_endpoint_has_none() -> None:
    assert rendezvous_endpoint(tfjob()) is None and rendezvous_endpoint(tfjob(rdzvEndpoint=5)) is None
    assert TFJOB.diagnosis.endpoint(tfjob(rdzvEndpoint="a:1")) is None


@pytest.mark.parametrize(
    "status", [None, [], "x", {"conditions": "x"}, {"conditions": [None, 5]}, {"conditions": [{}]}]
)
def test_a_malformed_status_is_still_diagnosed(status: Any) -> None:
    assert diagnose({**tfjob(), "status": status})


def test_the_current_time_is_an_argument() -> None:
    assert facts(tfjob()).age(at(5)) == 5.0 and NOW > 0


def on_failure(*holding: tuple[str, str, str], **spec: Any) -> Json:
    job = elastic(*holding, activeDeadlineSeconds=30, **spec)
    job["spec"]["replicaSpecs"]["Worker"]["restartPolicy"] = "OnFailure"
    return job


def test_after_the_deadline_no_retry_and_no_permanent_failure_is_reported() -> None:
    job = on_failure(("Failed", "DeadlineExceeded", "ElasticJob mnist is failed: activeDeadlineSeconds (30 s) is over"))
    job["status"]["completionTime"] = at(5)
    dead = pod("Worker-0", {"state": ended(1), "restartCount": 3}, "Failed", "elasticjob-worker")
    findings = diagnose(job, dead, pod("Worker-1", {"state": ended(143, ago=4)}, "Failed", "elasticjob-worker"))
    text = everything(findings)
    assert [finding.level for finding in findings] == [END, END]
    assert "DeadlineExceeded" in findings[0].summary and "raise spec.activeDeadlineSeconds" in findings[0].fix
    assert "worker-0 ended with exit code 1" in text and "worker-1" not in text
    assert "made again later" not in text and "permanent" not in text


@pytest.mark.parametrize(
    "moment",
    [
        pod("Worker-0", waits("CrashLoopBackOff", lastState=ended(1), restartCount=3), container="elasticjob-worker"),
        pod("Worker-0", {"state": ended(1), "restartCount": 3}, container="elasticjob-worker"),
        pod("Worker-0", {"state": ended(1)}, "Failed", "elasticjob-worker", deletionTimestamp=at(1)),
        pod("Worker-0", {"state": {"running": {}}, "lastState": ended(1), "restartCount": 3}),
    ],
    ids=["waits to restart", "has just failed", "is being deleted", "runs again"],
)
def test_the_answer_after_a_deadline_does_not_depend_on_how_far_the_deletion_of_the_pods_is(moment: Json) -> None:
    job = on_failure(("Failed", "DeadlineExceeded", "ElasticJob mnist is failed: activeDeadlineSeconds (30 s) is over"))
    assert everything(diagnose(job, moment)) == everything(diagnose(job))


def test_a_stalled_job_over_its_restart_limit_did_not_fail_by_its_stopped_replicas() -> None:
    stall = "RestartLimitExceeded: restart 3 within 1h; pod mnist-worker-1 stopped first: no step after 4"
    job = tfjob(("Failed", "RestartLimitExceeded", stall))
    stopped = [pod(name, {"state": ended(143)}, "Failed") for name in ("MASTER-0", "WORKER-0")]
    (finding,) = diagnose(job, *stopped)
    assert finding.evidence == (stall,) and "hangs" in finding.fix


def test_a_job_over_its_restart_limit_has_its_last_failure_too() -> None:
    job = tfjob(("Failed", "RestartLimitExceeded", "RestartLimitExceeded: restart 3 within 1h"))
    failed = pod("MASTER-0", {"state": ended(1, message="the data set is gone")}, "Failed")
    first, second = diagnose(job, failed, pod("WORKER-0", {"state": ended(143)}, "Failed"))
    assert "restart 3" in first.evidence[0] and second.summary.startswith("master-0 ended with exit code 1")


def test_what_the_replicas_saved_before_the_last_stop_is_a_note() -> None:
    def stop(pod_name: str, reason: str, message: str) -> Json:
        about = {"kind": "Pod", "name": pod_name, "uid": "gone"}
        level = "Normal" if reason == "FilesSaved" else "Warning"
        event = {"type": level, "reason": reason, "message": message, "lastTimestamp": at(9)}
        return {**event, "involvedObject": about}

    events = [stop("a-0", "FilesSaved", "saved old.pt"), stop("a-0", "FilesSaved", "saved ckpt.pt")]
    pods = [pod(name) for name in ("MASTER-0", "WORKER-0")]
    (note,) = [finding for finding in diagnose(tfjob(RUNNING), *pods, events=tuple(events)) if finding.level == NOTE]
    assert note.summary == "files saved before the last stop: a-0"
    assert note.evidence == ("a-0, 9s ago: saved ckpt.pt",) and not note.fix
    events.append(stop("a-1", "KilledAfterGracePeriod", "was killed while it wrote ckpt.pt"))
    (note,) = [finding for finding in diagnose(tfjob(RUNNING), *pods, events=tuple(events)) if finding.level == NOTE]
    assert note.summary == "killed after the grace period: a-1" and len(note.evidence) == 2
    assert "terminationGracePeriodSeconds" in note.fix


def test_a_job_with_an_empty_slot_does_not_run_fine() -> None:
    job = on_failure(RUNNING, minReplicas=1)
    findings = diagnose(job, pod("Worker-0", container="elasticjob-worker"))
    assert FINE not in [finding.level for finding in findings]
    assert findings[0].level == BLOCK and findings[0].summary.startswith("worker-1: no pod is there")


def test_a_suspended_jobs_empty_slots_are_not_missed() -> None:
    job = on_failure(("Suspended", "JobSuspended", "no replica runs"), suspend=True)
    assert "no pod is there" not in everything(diagnose(job))


def test_equal_failures_of_several_replicas_are_one_finding() -> None:
    job = tfjob(("Failed", "PermanentFailure", "MASTER 0: exited with 1"))
    trace = ("Traceback (most recent call last):", '  File "/a/train.py", line 7, in f', "    x", "KeyError: 'rate'")
    names = ("MASTER-0", "WORKER-0", "WORKER-1")
    pods = [pod(name, {"state": ended(1)}, "Failed") for name in names]
    (finding,) = diagnose(job, *pods, logs={(f"p-{name}", "tensorflow"): trace for name in names})
    assert finding.summary.startswith(
        "master-0, worker-0, worker-1 ended with exit code 1 (Error): KeyError: 'rate' at"
    )
    assert finding.fix == "mend /a/train.py:7, in f"


def test_the_interpreter_of_the_node_is_named() -> None:
    failed_pod = pod("MASTER-0", {"state": ended(1), "imageID": "/venv/bin/python"}, "Failed")
    lines = ("Traceback (most recent call last):", "ModuleNotFoundError: No module named 'cv2'")
    job, logs = tfjob(("Failed", "PermanentFailure", "x")), {("p-MASTER-0", "tensorflow"): lines}
    (here,) = diagnose(job, failed_pod, logs=logs, process_nodes=frozenset({"here"}))
    (elsewhere,) = diagnose(job, failed_pod, logs=logs)
    assert "`/venv/bin/python -m pip install opencv-python`" in here.fix
    assert "install opencv-python into the image registry/x:1" in elsewhere.fix and "/venv" not in elsewhere.summary


def test_the_holder_of_a_taken_port_is_named() -> None:
    failed_pod = pod("MASTER-0", {"state": ended(1)}, "Failed")
    lines = ("bind ('127.0.0.1', 2222)", "OSError: [Errno 98] Address already in use")
    held = {"listeners": {2222: "process 42 (python serve.py)"}, "logs": {("p-MASTER-0", "tensorflow"): lines}}
    (finding,) = diagnose(tfjob(("Failed", "PermanentFailure", "x")), failed_pod, **held)
    assert "process 42 (python serve.py) listens on 2222" in finding.summary and "end process 42" in finding.fix


def test_the_end_of_a_chainerjob_by_one_exception_is_one_block() -> None:
    case = next(case for case in JOB_CASES if case.name == "one failure of a ChainerJob is told once")
    assert len(diagnose(case.job, *case.pods, **case.more)) == 1


def test_a_replica_that_was_stopped_in_the_second_of_the_failure_is_not_its_cause() -> None:
    job = elastic(("Failed", "ElasticJobFailed", "x"))
    stopped = pod("Worker-0", {"state": ended(143)}, "Failed", "elasticjob-worker")
    failed = pod("Worker-1", {"state": ended(1)}, "Failed", "elasticjob-worker")
    assert [finding.summary.split()[0] for finding in diagnose(job, stopped, failed)] == ["worker-1"]


def test_a_supervised_replica_that_was_stopped_after_a_failure_is_not_its_cause() -> None:
    job = tfjob(("Failed", "PermanentFailure", "WORKER 0: exited with 1"))
    master = pod("MASTER-0", {"state": ended(143, ago=28)}, "Failed")
    worker = pod("WORKER-0", {"state": ended(1, ago=30)}, "Failed")
    assert [finding.summary.split()[0] for finding in diagnose(job, master, worker)] == ["worker-0"]
    evicted = pod("MASTER-0", {"state": ended(143, ago=32)}, "Failed")
    assert diagnose(job, evicted, worker)[0].summary.split()[0] == "master-0"
