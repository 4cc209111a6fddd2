"""What becomes of a job in containers of a real kubelet: exit codes, memory, restarts, sidecars, suspend, and what is
kept and deleted. All jobs run at the same time.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.real_node.stage import Stage, container, pytorch_job, template, until
from tests.support.real_node import RealNode
from trainyard.objects import Json

pytestmark = [pytest.mark.node, pytest.mark.slow]

SLEEP = ("sleep", "100000")
ENDS = ("sh", "-c", "exit 0")


def main(*command: str, **fields: Any) -> Json:
    return container("pytorch", *command, **fields)


def training_with_sidecar() -> Json:
    """The sidecar ends by SIGTERM when the training has ended, and says so. The training waits for its file."""
    watch = "trap 'echo sidecar ends; exit 0' TERM; touch /shared/ready; while true; do sleep 1 & wait; done"
    shared = [{"name": "shared", "mountPath": "/shared"}]
    sidecar = container("logger", "sh", "-c", watch, restartPolicy="Always", volumeMounts=shared)
    train = main("sh", "-c", "until [ -e /shared/ready ]; do sleep 0.1; done", volumeMounts=shared)
    volumes: Json = {"name": "shared", "emptyDir": {}}
    return template(train, initContainers=[sidecar], volumes=[volumes], terminationGracePeriodSeconds=30)


def restarted_in_place(code: int) -> Json:
    """The container ends with `code` once; its own rule restarts it, though the pod's restartPolicy is Never."""
    once = f"if [ -e /shared/tried ]; then exit 0; fi; touch /shared/tried; exit {code}"
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [code]}}
    train = main(
        "sh",
        "-c",
        once,
        restartPolicy="Never",
        restartPolicyRules=[rule],
        volumeMounts=[{"name": "shared", "mountPath": "/shared"}],
    )
    return template(train, volumes=[{"name": "shared", "emptyDir": {}}])


def clean(policy: str) -> Json:
    """The master ends at once, the worker never."""
    name = f"clean-{policy.lower()}"
    return pytorch_job(name, template(main(*ENDS)), template(main(*SLEEP)), cleanPodPolicy=policy)


def until_released(name: str) -> Json:
    """The container ends when the folder of this name has a file `released`, on the node."""
    wait = "until [ -e /state/released ]; do sleep 0.1; done"
    state = {"path": f"{STATE}/{name}", "type": "DirectoryOrCreate"}
    train = main("sh", "-c", wait, volumeMounts=[{"name": "state", "mountPath": "/state"}])
    return template(train, volumes=[{"name": "state", "hostPath": state}])


STATE = "/var/tmp/policies"  # of the node
KILLED = pytorch_job("killed", until_released("killed"), until_released("killed"), restart="ExitCode")
ALLOCATES = "print(len(bytearray(1 << 30)))"
FAILING = pytorch_job("failing", template(main("sh", "-c", "echo last words; exit 3")), restart="ExitCode")
HUNGRY = pytorch_job("hungry", template(main("python3", "-c", ALLOCATES, resources={"limits": {"memory": "64Mi"}})))
RULED = pytorch_job("ruled", restarted_in_place(42), restart="ExitCode")
SIDECAR = pytorch_job("sidecar", training_with_sidecar(), cleanPodPolicy="None")
SHORT = pytorch_job("short", template(main(*ENDS)), ttlSecondsAfterFinished=3)
LATE = pytorch_job("late", template(main(*SLEEP)), activeDeadlineSeconds=3)
PAUSED = pytorch_job("paused", template(main(*SLEEP)), template(main(*SLEEP)))
CLEAN = {policy: clean(policy) for policy in ("All", "Running", "None")}


@pytest.fixture(scope="module")
def jobs(stage: Stage) -> Stage:
    """The stage with all jobs."""
    stage.create(KILLED, FAILING, HUNGRY, RULED, SIDECAR, SHORT, LATE, PAUSED, *CLEAN.values())
    return stage


def test_a_process_that_is_killed_restarts_the_gang(jobs: Stage, real_node: RealNode) -> None:
    """SIGKILL from outside its pid namespace: exit code 137, which the policy ExitCode tries again."""
    first = jobs.until_running(KILLED, 2)
    status = first["killed-worker-0"]["status"]["containerStatuses"][0]
    task = status["containerID"].removeprefix("containerd://")
    real_node.inside("ctr", "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", task)
    jobs.until_running(KILLED, 2, but=first)
    real_node.inside("touch", f"{STATE}/killed/released")
    jobs.until_condition(KILLED, "Succeeded")
    assert jobs.job(KILLED)["status"]["restarts"] == 1


def test_an_exit_code_below_128_fails_the_job_for_good(jobs: Stage) -> None:
    message = jobs.until_condition(FAILING, "Failed")["message"]
    assert "Master 0: container pytorch exited with code 3" in message
    assert "last words" in jobs.trainyard("logs", "failing").stdout


def test_a_container_over_its_memory_limit_fails_the_job_with_the_fix(jobs: Stage) -> None:
    message = jobs.until_condition(HUNGRY, "Failed")["message"]
    assert "Master 0: container pytorch exited with code 137 (OOMKilled, its memory limit is 64Mi)" in message
    assert "raise its memory limit" in message


def test_a_restart_by_a_rule_of_the_container_is_no_failure_of_the_job(jobs: Stage) -> None:
    jobs.until_condition(RULED, "Succeeded")
    (pod,) = jobs.pods(RULED).values()
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1


def test_a_sidecar_ends_after_the_training(jobs: Stage) -> None:
    jobs.until_condition(SIDECAR, "Succeeded")
    (name,) = jobs.pods(SIDECAR)
    assert jobs.logs(name, "logger") == "sidecar ends\n"


def test_a_job_is_deleted_with_its_pods_when_its_time_is_over(jobs: Stage) -> None:
    jobs.until(SHORT, "is gone", lambda job: not job)
    until(lambda: "short-master-0" not in jobs.kubectl("get", "pods"), "its pods are gone")


def test_a_deadline_ends_the_pods(jobs: Stage) -> None:
    jobs.until_condition(LATE, "Failed")
    assert jobs.job(LATE)["status"]["cause"] == "DeadlineExceeded"
    until(lambda: not jobs.pods(LATE), "its pods are gone")


@pytest.mark.parametrize(
    ("policy", "kept"), [("All", []), ("Running", ["master"]), ("None", ["master", "worker"])], ids=CLEAN
)
def test_the_pods_that_the_clean_policy_keeps_are_left(jobs: Stage, policy: str, kept: list[str]) -> None:
    jobs.until_condition(CLEAN[policy], "Succeeded")
    names = [f"clean-{policy.lower()}-{role}-0" for role in kept]
    until(lambda: sorted(jobs.pods(CLEAN[policy])) == names, f"only {names} are left")


def test_a_suspended_job_has_no_pods_until_it_is_resumed(jobs: Stage) -> None:
    first = jobs.until_running(PAUSED, 2)
    assert jobs.trainyard("suspend", "paused").returncode == 0
    jobs.until_condition(PAUSED, "Suspended")
    until(lambda: not jobs.pods(PAUSED), "its pods are gone")
    assert jobs.trainyard("resume", "paused").returncode == 0
    jobs.until_running(PAUSED, 2, but=first)
    assert not jobs.job(PAUSED)["status"].get("restarts")
