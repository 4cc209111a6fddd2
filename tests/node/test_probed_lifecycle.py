"""What the results of probes change in the lifecycle of a pod, its status and its Events, stepped by hand."""

from __future__ import annotations

import pytest

from trainyard.node.kubelet import events
from trainyard.node.kubelet.lifecycle import step
from trainyard.node.kubelet.pod_state import (
    Action,
    Container,
    Ended,
    Over,
    Pod,
    Probed,
    ProbeKind,
    Signal,
    Start,
    Started,
    Stop,
    Tick,
    Wake,
)
from trainyard.node.kubelet.status import StatusInputs, is_ready, phase, status
from trainyard.objects import Json, find_condition
from trainyard.objects.container_restarts import restart_policy

STARTUP, LIVENESS, READINESS = ProbeKind.STARTUP, ProbeKind.LIVENESS, ProbeKind.READINESS


def container(
    name: str, policy: str, *probes: ProbeKind, init: bool = False, rules: list[Json] | None = None
) -> Container:
    spec = {"restartPolicy": "Always" if init else None, "restartPolicyRules": rules}
    return Container(name, init, restart_policy=restart_policy(spec, policy, init=init), probes=frozenset(probes))


def pod(policy: str, *containers: Container) -> Pod:
    return Pod("pod", "uid", policy, containers, grace=30)


def play(state: Pod, *steps: object) -> tuple[Pod, list[Action], list[tuple[str, str]]]:
    """The pod after these events, the actions of the last one, and the messages of all Events but those of starts."""
    actions: list[Action] = []
    recorded: list[tuple[str, str]] = []
    for event in steps:
        after, actions = step(state, event)  # type: ignore[arg-type]
        of_step = events.of_step(state, after, event, {})  # type: ignore[arg-type]
        recorded += [(item.reason, item.message) for item in of_step if item.reason in ("Killing", "BackOff")]
        state = after
    return state, actions, recorded


def failed(
    now: float, kind: ProbeKind = LIVENESS, name: str = "main", grace: float | None = None, run: int = 1
) -> Probed:
    return Probed(now, name, run, kind, False, grace)


def passed(now: float, kind: ProbeKind, name: str = "main") -> Probed:
    return Probed(now, name, 1, kind, True)


def shown(state: Pod) -> tuple[bool, bool, str, str]:
    """`started` and `ready` of the last container; the status and message of the condition Ready."""
    written = status(state, StatusInputs("10.0.0.1", "10.0.0.2", {}), [], 1.0)
    (*_, last) = written["containerStatuses"]
    ready = find_condition(written["conditions"], "Ready")
    assert ready is not None
    assert {**ready, "type": ""} == {**(find_condition(written["conditions"], "ContainersReady") or {}), "type": ""}
    assert (ready.get("reason") or "") == ("ContainersNotReady" if ready["status"] == "False" else "")
    return last["started"], last["ready"], ready["status"], str(ready.get("message") or "")


UNREADY = "containers with unready status: [main]"


def test_a_container_is_started_and_ready_when_its_probes_have_succeeded() -> None:
    state, _, _ = play(pod("Always", container("main", "Always", STARTUP, READINESS)), Tick(1), Started(2, "main"))
    assert phase(state) == "Running" and shown(state) == (False, False, "False", UNREADY)
    state, _, _ = play(state, passed(3, STARTUP))
    assert shown(state) == (True, False, "False", UNREADY) and not is_ready(state)
    state, _, _ = play(state, passed(4, READINESS))
    assert shown(state) == (True, True, "True", "") and is_ready(state)
    state, actions, recorded = play(state, failed(5, READINESS))
    assert shown(state) == (True, False, "False", UNREADY) and not actions and not recorded
    # The next run begins anew.
    state, _, _ = play(state, passed(6, READINESS), Ended(7, "main", 1), Started(8, "main"))
    assert shown(state) == (False, False, "False", UNREADY)


def test_results_of_an_earlier_run_change_nothing() -> None:
    state, _, _ = play(pod("Always", container("main", "Always", LIVENESS)), Tick(1), Started(2, "main"))
    state, _, _ = play(state, Ended(3, "main", 1), Started(4, "main"))
    assert play(state, failed(5, run=1)) == (state, [], [])


@pytest.mark.parametrize(("kind", "name"), [(LIVENESS, "liveness"), (STARTUP, "startup")])
@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
@pytest.mark.parametrize("code", [0, 137])
def test_a_container_whose_probe_fails_is_killed_and_restarted(
    kind: ProbeKind, name: str, policy: str, code: int
) -> None:
    state, _, _ = play(pod(policy, container("main", policy, kind)), Tick(1), Started(2, "main"))
    state, actions, recorded = play(state, failed(100, kind))
    assert actions == [Signal("main", False), Wake(130)]
    assert recorded == [("Killing", f"Container main failed {name} probe, will be restarted")]
    assert play(state, failed(110, kind)) == (state, [Wake(130)], [])
    state, actions, recorded = play(state, Tick(130))
    assert actions == [Signal("main", True)] and not recorded
    state, actions, _ = play(state, Ended(131, "main", code))
    assert actions == [Start("main", 2)] and phase(state) == "Running"
    # The second restart waits, as after any other end, and a later end follows the exit code again.
    state, actions, recorded = play(state, Started(132, "main"), failed(140, kind, run=2), Ended(141, "main", code))
    assert actions == [Wake(151)] and [reason for reason, _ in recorded] == ["Killing", "BackOff"]
    state, actions, _ = play(state, Tick(151), Started(152, "main"), Ended(160, "main", 0))
    assert (Over() in actions) is (policy == "OnFailure")


@pytest.mark.parametrize(("grace", "kill_at"), [(None, 130), (7, 107), (1, 102), (90, 190)])
def test_the_grace_period_is_that_of_the_probe(grace: float | None, kill_at: float) -> None:
    state, _, _ = play(pod("Always", container("main", "Always", LIVENESS)), Tick(1), Started(2, "main"))
    assert play(state, failed(100, grace=grace))[1] == [Signal("main", False), Wake(kill_at)]


def test_a_pod_that_is_never_restarted_is_stopped_when_its_probe_fails() -> None:
    """As by the kubelet: with the grace period of the pod, whatever the probe says, and the event of a stopped pod."""
    side = container("side", "Never", init=True)
    state, _, _ = play(pod("Never", side, container("main", "Never", LIVENESS)), Tick(1), Started(2, "side"))
    state, actions, recorded = play(state, Started(3, "main"), failed(100, grace=5))
    assert actions == [Signal("main", False), Wake(130)]
    assert recorded == [("Killing", "Stopping container side"), ("Killing", "Stopping container main")]
    state, actions, _ = play(state, Ended(101, "main", 143))
    assert actions == [Signal("side", False), Wake(130)]
    state, actions, _ = play(state, Ended(102, "side", 0))
    assert actions == [Over()] and phase(state) == "Failed"


def test_other_containers_of_a_pod_that_is_never_restarted_go_on() -> None:
    state, _, _ = play(pod("Never", container("main", "Never", LIVENESS), container("other", "Never")), Tick(1))
    state, actions, recorded = play(state, Started(2, "main"), Started(2, "other"), failed(100, grace=5))
    assert actions == [Signal("main", False), Wake(105)]
    assert recorded == [("Killing", "Container main failed liveness probe")]
    state, actions, _ = play(state, Ended(101, "main", 143))
    assert not actions and phase(state) == "Running"


def test_a_rule_may_restart_a_container_that_its_policy_does_not() -> None:
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [143]}}]
    state, _, _ = play(pod("Never", container("main", "Never", LIVENESS, rules=rules)), Tick(1), Started(2, "main"))
    state, _, recorded = play(state, failed(100))
    assert recorded == [("Killing", "Container main failed liveness probe")]
    assert play(state, Ended(101, "main", 143))[1] == [Start("main", 2)]
    assert Over() in play(state, Ended(101, "main", 1))[1]


def test_a_sidecar_lets_the_next_container_start_when_its_startup_probe_has_succeeded() -> None:
    side = container("side", "Never", STARTUP, LIVENESS, init=True)
    state, actions, _ = play(pod("Never", side, container("main", "Never")), Tick(1), Started(2, "side"))
    assert not actions and phase(state) == "Pending"
    initialized = find_condition(status(state, StatusInputs("", "", {}), [], 1.0)["conditions"], "Initialized")
    assert initialized and initialized["message"] == "containers with incomplete status: [side]"
    restarted, actions, recorded = play(state, failed(3, STARTUP, "side"), Ended(4, "side", 0))
    assert actions == [Start("side", 2)] and recorded == [("Killing", "Init container side failed startup probe")]
    assert phase(restarted) == "Pending"
    state, actions, _ = play(state, passed(3, STARTUP, "side"))
    assert actions == [Start("main", 1)]
    # The pod stays Running while the sidecar is restarted for its liveness probe.
    state, _, recorded = play(state, Started(4, "main"), failed(5, LIVENESS, "side"), Ended(6, "side", 0))
    assert recorded == [("Killing", "Init container side failed liveness probe")]
    state, _, _ = play(state, Started(7, "side"))
    assert phase(state) == "Running" and not is_ready(state)


def test_a_probe_that_fails_while_the_pod_is_stopped_changes_nothing() -> None:
    state, _, _ = play(pod("Always", container("main", "Always", LIVENESS)), Tick(1), Started(2, "main"), Stop(3, 10))
    assert play(state, failed(4, grace=1)) == (state, [Wake(13)], [])


def test_a_pod_that_is_stopped_while_a_container_is_killed_for_its_probe_ends_in_its_own_grace_period() -> None:
    state, _, _ = play(pod("Always", container("main", "Always", LIVENESS)), Tick(1), Started(2, "main"))
    state, actions, _ = play(state, failed(100, grace=300), Stop(101, 10))
    assert actions == [Wake(111)]
    state, actions, _ = play(state, Tick(111))
    assert actions == [Signal("main", True)]
    assert play(state, Ended(112, "main", 137))[1] == [Over()]
