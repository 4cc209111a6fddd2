"""A container that its kubelet restarts has not failed, and its restart is counted once, for every kind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.test_policies_of_every_kind import PLAYERS
from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.samples import kubeflow_job
from trainyard.kinds import PYTORCHJOB
from trainyard.objects import Json, format_time, is_condition_true
from trainyard.objects.container_restarts import RESTARTING_ALL_CONTAINERS, restart_policy

RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
RULE_ALL = {**RULE, "action": "RestartAllContainers"}
NOT_RULE = {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [42]}}
ALL, NO = "RestartAllContainers", ""
# The kinds whose operator reads the exit code; the master of a ChainerJob is left to the Job controller.
OPERATOR_DECIDES = [kind for kind in PLAYERS if kind != "ChainerJob"]
ACTIONS: list[tuple[Json, str, bool, dict[int, str]]] = [
    # container, policy of the pod, init container, exit code -> what the kubelet does
    ({}, "Never", False, {0: NO, 1: NO}),
    ({}, "OnFailure", False, {0: NO, 1: "Restart"}),
    ({}, "Always", False, {0: "Restart", 1: "Restart"}),
    ({}, "Always", True, {0: NO, 1: "Restart"}),
    ({"restartPolicy": "Always"}, "Never", False, {0: "Restart", 1: "Restart"}),
    ({"restartPolicy": "Always"}, "Never", True, {0: "Restart", 1: "Restart"}),
    ({"restartPolicy": "Never"}, "Always", False, {0: NO, 1: NO}),
    ({"restartPolicy": "OnFailure"}, "Never", True, {0: NO, 1: "Restart"}),
    ({"restartPolicy": "Never", "restartPolicyRules": [RULE]}, "Never", False, {0: NO, 42: "Restart", 1: NO}),
    ({"restartPolicy": "Never", "restartPolicyRules": [NOT_RULE]}, "Never", False, {42: NO, 1: "Restart"}),
    ({"restartPolicy": "Never", "restartPolicyRules": [RULE_ALL, RULE]}, "Never", False, {42: ALL, 1: NO}),
    ({"restartPolicy": "Never", "restartPolicyRules": [RULE, RULE_ALL]}, "Never", False, {42: "Restart"}),
    ({"restartPolicy": "OnFailure", "restartPolicyRules": [RULE_ALL]}, "Never", False, {42: ALL, 1: "Restart"}),
    ({"restartPolicyRules": [{**RULE_ALL, "exitCodes": {"operator": "In", "values": [0]}}]}, "Never", True, {0: ALL}),
    ({"restartPolicy": 5, "restartPolicyRules": [None, {"action": "Restart"}, {}]}, "Never", False, {1: NO}),
]  # fmt: skip


@pytest.mark.parametrize(("container", "pod_policy", "init", "expected"), ACTIONS, ids=lambda row: str(row)[:60])
def test_what_follows_an_exit(container: Json, pod_policy: str, init: bool, expected: dict[int, str]) -> None:
    policy = restart_policy(container, pod_policy, init=init)
    assert {code: policy.action(code) for code in expected} == expected


def with_rules(simulated: SimulatedJob, workload: str, **fields: Any) -> Json:
    """The only pod of the workload, whose main container gets these fields."""
    simulated.run()
    pod = simulated.get("Pod", simulated.pods(workload)[0])
    pod["spec"]["containers"][0] |= fields
    return pod


def exited(simulated: SimulatedJob, pod: Json, code: int) -> None:
    """The first container has exited, and the phase is still Running: the kubelet restarts it."""
    terminated = {"exitCode": code, "reason": "Error", "finishedAt": format_time(simulated.now)}
    pod["status"]["containerStatuses"][0]["state"] = {"terminated": terminated}


@pytest.mark.parametrize("rule", [RULE, RULE_ALL], ids=["Restart", "RestartAllContainers"])
@pytest.mark.parametrize("kind", PLAYERS)
def test_an_exit_that_a_rule_restarts_is_no_failure(kind: str, rule: Json) -> None:
    player = PLAYERS[kind]
    simulated = simulate(player.kind, player.job)
    pod = with_rules(simulated, player.first, restartPolicy="Never", restartPolicyRules=[rule])
    exited(simulated, pod, 42)
    simulated.settle()
    assert not is_condition_true(simulated.job["status"].get("conditions"), "Failed")
    assert pod["metadata"]["uid"] == simulated.get("Pod", simulated.pods(player.first)[0])["metadata"]["uid"]
    assert not simulated.job["status"].get("restarts")


@pytest.mark.parametrize("kind", OPERATOR_DECIDES)
def test_an_exit_with_0_under_the_containers_policy_always_is_no_success(kind: str) -> None:
    player = PLAYERS[kind]
    simulated = simulate(player.kind, player.job)
    exited(simulated, with_rules(simulated, player.first, restartPolicy="Always"), 0)
    assert not is_condition_true(simulated.settle().get("conditions"), "Succeeded")


def test_containers_that_are_killed_while_all_are_restarted_have_not_failed() -> None:
    simulated = simulate(PYTORCHJOB, kubeflow_job("PyTorchJob", Master={"restartPolicy": "Never"}))
    pod = with_rules(simulated, "example-master-0")
    exited(simulated, pod, 143)
    pod["status"]["conditions"] = [{"type": "AllContainersRestarting", "status": "True"}]
    assert not is_condition_true(simulated.settle()["conditions"], "Failed")
    pod["status"]["conditions"] = [{"type": "AllContainersRestarting", "status": "False"}]
    assert is_condition_true(simulated.settle()["conditions"], "Failed")


def test_a_restart_of_all_containers_is_counted_once() -> None:
    """RestartAllContainers raises restartCount of every container, init containers and sidecars too."""
    job = kubeflow_job("PyTorchJob", run_policy={"backoffLimit": 2}, Master={"restartPolicy": "OnFailure"})
    simulated = simulate(PYTORCHJOB, job)
    pod = with_rules(simulated, "example-master-0")
    pod["spec"]["initContainers"] = [{"name": "fetch"}, {"name": "proxy", "restartPolicy": "Always"}]
    removed = {"terminated": {"exitCode": 137, "reason": RESTARTING_ALL_CONTAINERS}}
    (main,) = pod["status"]["containerStatuses"]
    main |= {"restartCount": 2, "lastState": removed}
    restarted = {"state": main["state"], "restartCount": 2, "lastState": removed}
    pod["status"]["initContainerStatuses"] = [{"name": name, **restarted} for name in ("fetch", "proxy")]
    pod["status"]["containerStatuses"].append({"name": "logger", **restarted})
    assert simulated.settle()["restarts"] == 2
    main["restartCount"] = 3
    status = simulated.settle()
    (failed,) = (condition for condition in status["conditions"] if condition["type"] == "Failed")
    assert "3 failed attempts, backoffLimit is 2" in failed["message"]
    assert "all containers were restarted by a rule" in failed["message"] and "137" not in failed["message"]


@pytest.mark.parametrize(
    ("statuses", "restarts"),
    [
        ({"containerStatuses": [("pytorch", 1), ("logger", 5)]}, 1),
        ({"containerStatuses": [("pytorch", 0)], "initContainerStatuses": [("proxy", 9), ("fetch", 3)]}, 3),
        ({"containerStatuses": [("pytorch", 4)], "initContainerStatuses": [("fetch", 1)]}, 4),
    ],
)
def test_restarts_of_the_main_container_and_of_init_containers_before_it_count(
    statuses: dict[str, list[tuple[str, int]]], restarts: int
) -> None:
    simulated = simulate(PYTORCHJOB, kubeflow_job("PyTorchJob", Master={"restartPolicy": "OnFailure"}))
    pod = with_rules(simulated, "example-master-0")
    pod["spec"]["initContainers"] = [{"name": "fetch"}, {"name": "proxy", "restartPolicy": "Always"}]
    state: Json = {"running": {}}
    for field, counts in statuses.items():
        pod["status"][field] = [{"name": name, "restartCount": count, "state": state} for name, count in counts]
    assert simulated.settle().get("restarts", 0) == restarts


@pytest.mark.parametrize("kind", OPERATOR_DECIDES)
def test_a_sidecar_that_is_stopped_after_the_others_is_not_the_cause(kind: str) -> None:
    """A program without a handler of SIGTERM ends with 143, and its status comes before that of the main container."""
    player = PLAYERS[kind]
    simulated = simulate(player.kind, player.job)
    pod = with_rules(simulated, player.first)
    pod["spec"]["initContainers"] = [{"name": "proxy", "restartPolicy": "Always"}]
    stopped = {"terminated": {"exitCode": 143, "reason": "Error", "finishedAt": format_time(simulated.now)}}
    pod["status"]["initContainerStatuses"] = [{"name": "proxy", "restartCount": 0, "state": stopped}]
    simulated.end(player.first, 3)
    status = simulated.settle()
    text = str(status)
    assert is_condition_true(status.get("conditions"), "Failed") and "proxy" not in text and "143" not in text, text
