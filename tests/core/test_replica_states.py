"""The state of each replica in the status."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import batch_job, look, pod_of, replicas, started, template
from trainyard.objects import Json

OUT_OF_MEMORY: dict[str, Any] = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}


def test_replica_statuses_are_in_the_order_of_the_spec() -> None:
    job = started(replicas("MASTER"), replicas("WORKER"), replicas("PS"))
    job["status"]["roles"] = dict(sorted(job["status"]["roles"].items()))
    roles_shown = [replica_status["tf_replica_type"] for replica_status in look(job).status["replicaStatuses"]]
    assert roles_shown == ["MASTER", "WORKER", "PS"]


def test_replicas_stopped_at_the_end_do_not_count_as_running() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    planned = look(started(activeDeadlineSeconds=60), master, worker, pod_of(master), pod_of(worker))
    assert planned.status["state"] == "Failed" and len(planned.deletes) == 2
    assert [replica_status["ReplicasStates"] for replica_status in planned.status["replicaStatuses"]] == [
        {"Unknown": 1},
        {"Unknown": 1},
    ]


def test_replicas_kept_after_the_end_count_as_running() -> None:
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    planned = look(started(), master, worker, pod_of(master, "Succeeded", code=0), pod_of(worker))
    assert [replica_status["state"] for replica_status in planned.status["replicaStatuses"]] == ["Succeeded", "Running"]


def test_a_drain_is_called_by_its_name() -> None:
    master = batch_job("MASTER")
    drained = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]
    planned = look(started(), master, pod_of(master, "Failed", code=143, conditions=drained))
    by_condition_type = {condition["type"]: condition["message"] for condition in planned.status["conditions"]}
    assert by_condition_type["Restarting"] == "MASTER 0 ended: EvictionByEvictionAPI; disrupted, tried again"


def test_replicas_over_the_limit_are_named() -> None:
    job = started(replicas("MASTER"), replicas("WORKER", 2), replicas("PS", template=template()), backoffLimit=2)
    master, first, other = batch_job("MASTER"), batch_job("WORKER"), batch_job("WORKER", 1)
    pods = pod_of(master), pod_of(first, restarts=2), pod_of(other, "Failed", code=9)
    planned = look(job, master, first, other, *pods, batch_job("PS"))
    assert planned.status["reason"] == (
        "3 failed attempts, backoffLimit is 2; WORKER 0 was restarted 2 times; a pod of WORKER 1 failed: see its logs"
    )


def test_the_exit_code_of_an_in_place_restart_is_reported() -> None:
    job = started(replicas("MASTER"), replicas("WORKER"), backoffLimit=0)
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    pod = pod_of(worker, restarts=1)
    pod["status"]["containerStatuses"][0]["lastState"] = {"terminated": {"exitCode": 9, "reason": "Error"}}
    reason = look(job, master, worker, pod_of(master), pod).status["reason"]
    assert reason.endswith("WORKER 0 was restarted once: container tensorflow exited with code 9")


def test_a_master_that_is_not_tried_again_is_shown_as_failed_at_the_end() -> None:
    master = batch_job("MASTER", failed="BackoffLimitExceeded")
    planned = look(started(backoffLimit=0), master, pod_of(master, "Failed", code=137))
    assert planned.status["state"] == "Failed"
    assert planned.status["replicaStatuses"][0]["ReplicasStates"] == {"Failed": 1}


@pytest.mark.parametrize(
    "ended_state",
    [
        {"state": {"running": {}}, "lastState": OUT_OF_MEMORY},
        {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": OUT_OF_MEMORY},
        {"state": OUT_OF_MEMORY, "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}},
    ],
    ids=["runs again", "waits", "terminated in its back-off"],
)
def test_memory_that_ran_out_in_place_is_in_the_message_of_the_limit(ended_state: Json) -> None:
    """The job ends with BackoffLimitExceeded, and its pods are deleted: the message is all that is left."""
    limited = template()
    limited["spec"]["containers"][0]["resources"] = {"limits": {"memory": "64Mi"}}
    job = started(replicas("MASTER"), replicas("WORKER", template=limited), backoffLimit=0)
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    pod = pod_of(worker, restarts=1)
    pod["status"]["containerStatuses"][0] |= ended_state
    reason = look(job, master, worker, pod_of(master), pod).status["reason"]
    expected = "container tensorflow exited with code 137 (OOMKilled, its memory limit is 64Mi)"
    assert reason.endswith(f"WORKER 0 was restarted once: {expected}")


def test_a_restarted_sidecar_is_not_the_reason_of_the_limit() -> None:
    job = started(replicas("MASTER"), replicas("WORKER"), backoffLimit=0)
    master, worker = batch_job("MASTER"), batch_job("WORKER")
    pod = pod_of(worker, restarts=1)
    pod["spec"] = {"initContainers": [{"name": "proxy", "restartPolicy": "Always"}]}
    ended = {"restartCount": 5, "state": {"running": {}}, "lastState": OUT_OF_MEMORY}
    pod["status"]["initContainerStatuses"] = [{"name": "proxy", **ended}]
    assert "proxy" not in look(job, master, worker, pod_of(master), pod).status["reason"]


def test_a_pod_over_its_own_deadline_has_that_reason() -> None:
    """kubelet: the status of the pod has the reason, that of its container is Error with 137 or 143."""
    job = started(replicas("MASTER"), replicas("WORKER"), backoffLimit=0)
    master, worker = batch_job("MASTER", failed="BackoffLimitExceeded"), batch_job("WORKER")
    pod = pod_of(master, "Failed", code=137)
    pod["status"] |= {"reason": "DeadlineExceeded", "message": "Pod was active on the node longer than the deadline"}
    reason = look(job, master, worker, pod, pod_of(worker)).status["reason"]
    assert "container tensorflow exited with code 137 (DeadlineExceeded): Pod was active on the node longer" in reason
