"""The table of a container, and the rules of a pod, stepped by hand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.node.kubelet.lifecycle import back_off, step
from trainyard.node.kubelet.pod_state import (
    TERMINAL_STATES,
    TRANSITIONS,
    Action,
    Blocked,
    Cancel,
    Container,
    ContainerState,
    Dropped,
    Ended,
    Over,
    Pod,
    Signal,
    Start,
    Started,
    Stop,
    Tick,
    Wake,
)
from trainyard.node.kubelet.status import StatusInputs, phase, status
from trainyard.objects.container_restarts import restart_policy
from trainyard.objects.structs import replace

PLACE = StatusInputs("10.0.0.1", "10.0.0.2", {})


def pod(policy: str = "Never", *names: str, inits: tuple[str, ...] = (), deadline: float | None = None) -> Pod:
    """A pod whose init containers with names that begin with `side` are native sidecars."""
    containers = [*(init_container(name, policy) for name in inits), *(Container(name) for name in names or ("main",))]
    return Pod("pod", "uid", policy, tuple(containers), deadline=deadline)


def init_container(name: str, policy: str) -> Container:
    spec = {"restartPolicy": "Always"} if name.startswith("side") else {}
    return Container(name, init=True, restart_policy=restart_policy(spec, policy, init=True))


def play(pod_: Pod, *events: object) -> tuple[Pod, list[Action]]:
    """Step through all events; the actions of the last one."""
    actions: list[Action] = []
    for event in events:
        pod_, actions = step(pod_, event)  # type: ignore[arg-type]
    return pod_, actions


def test_all_containers_of_a_pod_without_init_containers_start_together() -> None:
    after, actions = play(pod("Never", "a", "b"), Tick(1))
    assert actions == [Start("a", 1), Start("b", 1)]
    assert phase(after) == "Pending"


def test_init_containers_run_in_order() -> None:
    state = pod("Never", "main", inits=("first", "second"))
    state, actions = play(state, Tick(1))
    assert actions == [Start("first", 1)]
    state, actions = play(state, Started(2, "first"), Ended(3, "first", 0))
    assert actions == [Start("second", 1)] and phase(state) == "Pending"
    state, actions = play(state, Started(4, "second"), Ended(5, "second", 0))
    assert actions == [Start("main", 1)]
    assert phase(play(state, Started(6, "main"))[0]) == "Running"


@pytest.mark.parametrize(
    ("policy", "code", "expected", "again"),
    [
        ("Never", 0, "Succeeded", False),
        ("Never", 1, "Failed", False),
        ("OnFailure", 0, "Succeeded", False),
        ("OnFailure", 1, "Running", True),
        ("Always", 0, "Running", True),
        ("Always", 1, "Running", True),
    ],
)
def test_the_restart_policy_determines_what_follows_an_exit(policy: str, code: int, expected: str, again: bool) -> None:
    state, actions = play(pod(policy), Tick(1), Started(2, "main"), Ended(3, "main", code))
    assert phase(state) == expected
    assert (Start("main", 2) in actions) is again
    assert (Over() in actions) is not again


@pytest.mark.parametrize(("policy", "expected"), [("Never", "Failed"), ("OnFailure", "Pending"), ("Always", "Pending")])
def test_a_failed_init_container_is_repeated_unless_the_policy_is_never(policy: str, expected: str) -> None:
    state = pod(policy, "main", inits=("init",))
    state, actions = play(state, Tick(1), Started(2, "init"), Ended(3, "init", 1))
    assert phase(state) == expected
    assert (Start("init", 2) in actions) is (policy != "Never")


def test_a_pod_ends_when_its_last_container_has() -> None:
    state, _ = play(pod("Never", "a", "b"), Tick(1), Started(1, "a"), Started(1, "b"), Ended(2, "a", 1))
    assert phase(state) == "Running" and not state.has_ended
    state, actions = play(state, Ended(3, "b", 0))
    assert phase(state) == "Failed" and actions == [Over()]


def test_the_pauses_are_the_kubelets() -> None:
    assert [back_off(failures) for failures in range(1, 9)] == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_pause_is_counted_from_the_end_and_shown_with_its_length() -> None:
    state, now = play(pod("Always"), Tick(0))[0], 0.0
    waits = []
    for _ in range(5):
        state, actions = play(state, Started(now, "main"), Ended(now + 1, "main", 1))
        if Start("main", state.containers[0].run) not in actions:
            (wake,) = [action for action in actions if isinstance(action, Wake)]
            waits.append(wake.at - (now + 1))
            shown = status(state, PLACE, [], now)["containerStatuses"][0]["state"]["waiting"]
            assert shown["reason"] == "CrashLoopBackOff" and shown["message"].startswith("back-off ")
            state, early = play(state, Tick(wake.at - 0.1))
            assert not [action for action in early if isinstance(action, Start)]
            now = wake.at
            state, actions = play(state, Tick(now))
        assert Start("main", state.containers[0].run) in actions
    assert waits == [10, 20, 40, 80]


def test_ten_minutes_of_running_reset_the_back_off() -> None:
    state, _ = play(pod("Always"), Tick(0), Started(0, "main"), Ended(1, "main", 1), Started(2, "main"))
    state, actions = play(state, Ended(602, "main", 1))
    assert Start("main", 3) in actions


def test_a_container_that_is_starting_again_shows_the_count_of_its_last_run() -> None:
    """A restart is counted when the container runs again, as a kubelet does it."""
    events = (Tick(0), Started(1, "main"), Ended(2, "main", 3), Started(3, "main"))
    counts, ids = [], []
    for count in range(1, 5):
        (shown,) = status(play(pod("OnFailure"), *events[:count])[0], PLACE, [], 3)["containerStatuses"]
        counts.append(shown["restartCount"])
        ids.append(shown.get("containerID", "").rpartition("/")[2])
    assert (counts, ids) == ([0, 0, 0, 1], ["", "1", "1", "2"])


def test_sidecars_start_in_the_order_of_init_containers_and_run_on() -> None:
    state, actions = play(pod("Never", "main", inits=("side-a", "init", "side-b")), Tick(1))
    assert actions == [Start("side-a", 1)]
    state, actions = play(state, Started(2, "side-a"))
    assert actions == [Start("init", 1)] and phase(state) == "Pending"
    state, actions = play(state, Started(3, "init"), Ended(4, "init", 0))
    assert actions == [Start("side-b", 1)]
    state, actions = play(state, Started(5, "side-b"))
    assert actions == [Start("main", 1)] and phase(state) == "Pending"
    state, _ = play(state, Started(6, "main"))
    shown = status(state, PLACE, [], 6)
    assert shown["phase"] == "Running"
    assert {condition["type"]: condition["status"] for condition in shown["conditions"]}["Ready"] == "True"
    assert [(entry["ready"], entry["started"]) for entry in shown["initContainerStatuses"]] == [
        (True, True),
        (True, False),
        (True, True),
    ]


@pytest.mark.parametrize("policy", ["Never", "OnFailure"])
@pytest.mark.parametrize("code", [0, 1])
def test_a_sidecar_is_always_restarted(policy: str, code: int) -> None:
    state, actions = play(pod(policy, inits=("side",)), Tick(0), Started(1, "side"), Ended(2, "side", code))
    assert actions == [Start("side", 2)] and phase(state) == "Pending"  # before the others have started
    state, actions = play(state, Started(3, "side"), Started(4, "main"), Ended(5, "side", code))
    assert actions == [Wake(15)] and phase(state) == "Running"  # in back-off
    (ready,) = [entry for entry in status(state, PLACE, [], 5)["conditions"] if entry["type"] == "Ready"]
    assert ready["status"] == "False" and "[side]" in ready["message"]
    state, actions = play(state, Tick(15))
    assert actions == [Start("side", 3)]


@pytest.mark.parametrize(("code", "expected"), [(0, "Succeeded"), (3, "Failed")])
def test_sidecars_end_after_the_others_the_last_one_first(code: int, expected: str) -> None:
    state, _ = play(pod("Never", inits=("side-a", "side-b")), Tick(0), Started(1, "side-a"), Started(2, "side-b"))
    state, actions = play(state, Started(3, "main"), Ended(10, "main", code))
    assert actions == [Signal("side-b", False), Wake(40)] and phase(state) == "Running"
    state, actions = play(state, Ended(11, "side-b", 143))
    assert actions == [Signal("side-a", False), Wake(40)]
    state, actions = play(state, Tick(40))
    assert actions == [Signal("side-a", True)]
    state, actions = play(state, Ended(41, "side-a", 137))
    assert actions == [Over()] and phase(state) == expected


def test_a_stopped_pod_stops_its_sidecars_last() -> None:
    running = (Tick(0), Started(1, "side-a"), Started(2, "side-b"), Started(3, "main"))
    state, actions = play(pod("Always", inits=("side-a", "side-b")), *running, Stop(10, 30))
    assert actions == [Signal("main", False), Wake(40)]
    _, actions = play(state, Ended(20, "main", 0))
    assert actions == [Signal("side-b", False), Wake(40)]
    # At the end of the grace period no sidecar waits any more; each has two seconds.
    state, actions = play(state, Tick(40))
    assert actions == [Signal("main", True), Signal("side-b", False), Signal("side-a", False), Wake(42)]
    assert play(state, Tick(42))[1] == [Signal("side-b", True), Signal("side-a", True)]
    assert play(state, Stop(41, 0))[1] == [Signal("side-b", True), Signal("side-a", True)]


def test_a_pod_whose_init_container_fails_stops_the_sidecars_before_it() -> None:
    state, _ = play(pod("Never", inits=("side", "init")), Tick(0), Started(1, "side"), Started(2, "init"))
    state, actions = play(state, Ended(3, "init", 1))
    assert actions == [Signal("side", False), Wake(33)]
    state, actions = play(state, Ended(4, "side", 0))
    assert actions == [Over()] and phase(state) == "Failed"


def test_an_eviction_while_the_sidecars_end_does_not_fail_a_pod_that_has_done_its_work() -> None:
    state, _ = play(pod("Never", inits=("side",)), Tick(0), Started(1, "side"), Started(2, "main"), Ended(3, "main", 0))
    state, _ = play(state, Stop(4, 30, deleting=False, failure=("Terminated", "shutdown")), Ended(5, "side", 0))
    assert phase(state) == "Succeeded" and state.failure is None


def with_rule(state: Pod, *names: str, action: str = "RestartAllContainers", code: int = 1) -> Pod:
    """The pod whose containers of these names have that rule."""
    rules = [{"action": action, "exitCodes": {"operator": "In", "values": [code]}}]
    containers = [
        replace(
            container,
            restart_policy=restart_policy(
                {"restartPolicy": "Always" if container.sidecar else "Never", "restartPolicyRules": rules},
                state.policy,
                init=container.init,
            ),
        )
        if container.name in names
        else container
        for container in state.containers
    ]
    return replace(state, containers=tuple(containers))


def test_a_rule_restarts_its_container_with_back_off_and_no_other() -> None:
    state = with_rule(pod("Never", "a", "b"), "a", action="Restart", code=42)
    state, actions = play(state, Tick(0), Started(0, "a"), Started(0, "b"), Ended(1, "a", 42))
    assert actions == [Start("a", 2)] and phase(state) == "Running"
    state, actions = play(state, Started(1, "a"), Ended(2, "a", 42))
    assert actions == [Wake(12)]
    state, _ = play(state, Tick(12), Started(12, "a"), Ended(13, "a", 7), Ended(14, "b", 0))
    assert phase(state) == "Failed" and state.container("a").restarts == 2


def test_a_rule_restarts_all_containers_in_place() -> None:
    state = with_rule(pod("Never", "a", "b", "c", inits=("init", "side")), "b", code=42)
    state, _ = play(state, Tick(0), Started(0, "init"), Ended(1, "init", 0), Started(2, "side"))
    state, _ = play(state, Started(3, "a"), Started(3, "b"), Started(3, "c"), Ended(4, "c", 0))
    state, actions = play(state, Ended(10, "b", 42))
    # One after the other, the last one first, each with two seconds; then the sidecars.
    assert actions == [Signal("a", False), Wake(12)]
    shown = status(state, PLACE, [], 10)
    (condition,) = [entry for entry in shown["conditions"] if entry["type"] == "AllContainersRestarting"]
    assert (condition["status"], condition["reason"]) == ("True", "RestartAllContainersStarted")
    assert shown["containerStatuses"][1]["state"]["terminated"]["exitCode"] == 42 and shown["phase"] == "Running"
    state, actions = play(state, Tick(12))
    assert actions == [Signal("a", True)]
    state, actions = play(state, Ended(12, "a", 137))
    assert actions == [Signal("side", False), Wake(14)]
    state, actions = play(state, Ended(13, "side", 0))
    assert actions == [Wake(13.1)] and not state.has_ended  # the status with the true code is written
    state, actions = play(state, Tick(13.1))
    assert actions == [Start("init", 2)]
    shown = status(state, PLACE, shown["conditions"], 14)
    (condition,) = [entry for entry in shown["conditions"] if entry["type"] == "AllContainersRestarting"]
    assert condition["status"] == "False" and shown["phase"] == "Running"
    for entry in (*shown["initContainerStatuses"], *shown["containerStatuses"]):
        assert (entry["state"]["waiting"]["reason"], entry["restartCount"]) == ("RestartingAllContainers", 1)
        last = entry["lastState"]["terminated"]
        assert (last["exitCode"], last["reason"]) == (137, "RestartingAllContainers")
    state, _ = play(state, Started(15, "init"))
    assert phase(state) == "Pending" and state.container("init").restarts == 1
    state, actions = play(state, Ended(16, "init", 0), Started(17, "side"))
    assert actions == [Start("a", 2), Start("b", 2), Start("c", 2)]


@pytest.mark.parametrize("starts", [True, False])
def test_all_containers_are_restarted_without_back_off_once_a_second_at_most(starts: bool) -> None:
    state, now, removal = play(with_rule(pod("Never"), "main"), Tick(0))[0], 0.0, 0.1
    for count in range(1, 9):
        started = [Started(now, "main")] if starts else []
        state, actions = play(state, *started, Ended(now, "main", 1))
        assert actions == [Wake(removal)]
        state, actions = play(state, Tick(removal))
        assert actions == [Start("main", count + 1)] and state.container("main").restarts == count
        now, removal = removal, removal + 1.0


def test_a_start_in_progress_is_cancelled_when_all_are_restarted() -> None:
    state, _ = play(with_rule(pod("Never", "a", "b"), "a"), Tick(0), Started(1, "a"))
    state, actions = play(state, Ended(2, "a", 1))
    assert actions == [Cancel("b")]
    state, actions = play(state, Stop(3, 30))
    assert Cancel("b") not in actions  # once
    state, actions = play(state, Dropped(4, "b"))
    assert actions == [Over()] and phase(state) == "Failed"


def test_a_pod_that_is_stopped_while_all_are_restarted_has_its_full_grace_period() -> None:
    state, _ = play(with_rule(pod("Never", "a", "b"), "a"), Tick(0), Started(1, "a"), Started(1, "b"), Ended(2, "a", 1))
    state, actions = play(state, Stop(3, 30))
    assert actions == [Wake(33)]  # it has got its SIGTERM
    state, actions = play(state, Ended(20, "b", 0))
    assert actions == [Over()] and phase(state) == "Failed"


def test_the_deadline_of_the_pod_goes_on_while_all_are_restarted() -> None:
    state = with_rule(pod("Never", "a", "b", deadline=3), "a")
    state, actions = play(state, Tick(0), Started(1, "a"), Started(1, "b"), Ended(2, "a", 1))
    assert actions == [Signal("b", False), Wake(3)]
    state, _ = play(state, Tick(3), Ended(3, "b", 143))
    assert phase(state) == "Failed" and state.failure is not None and state.failure[0] == "DeadlineExceeded"


def test_an_init_container_and_a_sidecar_can_restart_all() -> None:
    state, _ = play(with_rule(pod("Never", inits=("init",)), "init"), Tick(0), Started(1, "init"), Ended(2, "init", 1))
    assert play(state, Tick(2.1))[1] == [Start("init", 2)]
    state, _ = play(with_rule(pod("Never", inits=("side",)), "side"), Tick(0), Started(1, "side"), Started(2, "main"))
    assert play(state, Ended(3, "side", 1))[1] == [Signal("main", False), Wake(5)]


def test_stop_sends_sigterm_and_sigkill_after_the_grace_period() -> None:
    state, actions = play(pod(), Tick(0), Started(1, "main"), Stop(10, 30))
    assert actions == [Signal("main", False), Wake(40)]
    state, actions = play(state, Tick(40))
    assert actions == [Signal("main", True)]
    state, actions = play(state, Ended(41, "main", 137))
    assert actions == [Over()] and phase(state) == "Failed"


def test_a_second_stop_can_only_bring_the_end_nearer() -> None:
    state, actions = play(pod(), Tick(0), Started(1, "main"), Stop(10, 30), Stop(11, 60))
    assert actions == [Wake(40)]
    state, actions = play(state, Stop(12, 0))
    assert actions == [Signal("main", True)]


def test_a_stopped_pod_drops_containers_that_have_not_started() -> None:
    state, actions = play(pod("Always", "main", inits=("init",)), Tick(0), Stop(1, 30))
    assert Cancel("init") in actions and not state.has_ended
    state, actions = play(state, Dropped(2, "init"))
    assert state.has_ended and actions == [Over()]


def test_a_container_that_started_too_late_is_stopped_like_the_others() -> None:
    _, actions = play(pod(), Tick(0), Stop(1, 30), Started(2, "main"))
    assert Signal("main", False) in actions
    _, actions = play(pod(), Tick(0), Stop(1, 0), Started(2, "main"))
    assert Signal("main", True) in actions


def test_no_container_is_restarted_while_the_pod_is_stopped() -> None:
    state, actions = play(pod("Always"), Tick(0), Started(1, "main"), Stop(2, 30), Ended(3, "main", 0))
    assert state.has_ended and actions == [Over()]


def test_active_deadline_seconds_stops_the_pod_with_its_reason() -> None:
    state, actions = play(pod("Always", deadline=100), Tick(0), Started(1, "main"))
    assert Wake(100) in actions
    state, actions = play(state, Tick(100))
    assert Signal("main", False) in actions
    state, _ = play(state, Ended(101, "main", 143))
    pod_status = status(state, PLACE, [], 101)
    assert (pod_status["phase"], pod_status["reason"]) == ("Failed", "DeadlineExceeded") and not state.deleting


def test_a_blocked_container_waits_with_its_reason() -> None:
    state, _ = play(pod(), Tick(0), Blocked(1, "main", "ErrImagePull", "no such image"))
    shown = status(state, PLACE, [], 1)["containerStatuses"][0]["state"]
    assert shown == {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}


def test_a_restarted_container_remembers_its_last_end() -> None:
    state, _ = play(pod("Always"), Tick(0), Started(1, "main"), Ended(2, "main", 3), Started(3, "main"))
    shown = status(state, PLACE, [], 3)["containerStatuses"][0]
    assert shown["restartCount"] == 1 and "running" in shown["state"]
    assert shown["lastState"]["terminated"]["exitCode"] == 3
    assert shown["lastState"]["terminated"]["containerID"] != shown["containerID"]


def test_a_run_that_is_starting_is_not_yet_the_current_log() -> None:
    events = (Tick(0), Started(1, "main"), Ended(2, "main", 3), Started(3, "main"), Ended(4, "main", 3))
    shown = [play(pod("OnFailure"), *events[:count])[0].container("main").log_run for count in range(1, 6)]
    assert shown == [0, 1, 1, 2, 2]


def test_a_condition_keeps_its_transition_time_until_its_status_changes() -> None:
    state, _ = play(pod(), Tick(0), Started(1, "main"))
    first = status(state, PLACE, [], 1)["conditions"]
    assert status(state, PLACE, first, 500)["conditions"] == first


def test_conditions_of_others_are_kept() -> None:
    other = {"type": "DisruptionTarget", "status": "True", "reason": "x", "message": "", "lastTransitionTime": None}
    assert other in status(play(pod(), Tick(0))[0], PLACE, [other], 1)["conditions"]


def test_every_move_in_the_table_is_between_places_that_exist() -> None:
    assert {start for start, _ in TRANSITIONS} | set(TRANSITIONS.values()) == set(ContainerState)
    assert [move for _, move in TRANSITIONS if _ is ContainerState.DROPPED] == ["remove"]


class Machine:
    """What carries the actions out, in every order that can happen: a start ends in one of three ways, and so on."""

    def __init__(self, policy: str, inits: tuple[str, ...], rules: bool = False) -> None:
        self.pod = (
            with_rule(pod(policy, "a", "b", inits=inits), "a", "init-0")
            if rules
            else pod(policy, "a", "b", inits=inits)
        )
        self.now = 0.0
        self.starting: set[str] = set()
        self.running: set[str] = set()
        self.overs = 0

    def feed(self, event: object) -> None:
        self.pod, actions = step(self.pod, event)  # type: ignore[arg-type]
        for action in actions:
            match action:
                case Start(name, _):
                    assert name not in self.starting | self.running, "started twice"
                    self.starting.add(name)
                case Cancel(name):
                    assert name in self.starting
                case Signal(name, _):
                    assert name in self.running
                case Over():
                    self.overs += 1
        inits = {container.name for container in self.pod.containers if container.init and not container.sidecar}
        mains = {container.name for container in self.pod.main_containers}
        assert not (self.running & inits and self.running & mains), "init containers run before the others"
        assert self.overs == (1 if self.pod.has_ended else 0)

    def choices(self) -> list[object]:
        self.now += 7
        possible: list[object] = [Tick(self.now)]
        for name in sorted(self.starting):
            possible += [Started(self.now, name), Ended(self.now, name, 127), Blocked(self.now, name, "Waits")]
            if self.pod.container(name).cancelled:
                possible.append(Dropped(self.now, name))
        for name in sorted(self.running):
            possible += [Ended(self.now, name, 0), Ended(self.now, name, 1)]
        if not self.pod.has_ended:
            possible += [Stop(self.now, 30), Stop(self.now, 0)]
        return possible

    def happen(self, event: object) -> None:
        match event:
            case Started(_, name):
                self.starting.discard(name)
                self.running.add(name)
            case Ended(_, name) | Dropped(_, name):
                self.starting.discard(name)
                self.running.discard(name)
        self.feed(event)


@given(
    policy=st.sampled_from(["Always", "OnFailure", "Never"]),
    inits=st.lists(st.sampled_from(["init-0", "init-1", "side-0", "side-1"]), max_size=4, unique=True).map(tuple),
    rules=st.booleans(),
    picks=st.lists(st.integers(0, 99), max_size=40),
)
def test_the_invariants_hold_for_any_order_of_events(
    policy: str, inits: tuple[str, ...], rules: bool, picks: list[int]
) -> None:
    machine = Machine(policy, inits, rules)
    machine.feed(Tick(0.5))
    for pick in picks:
        choices = machine.choices()
        machine.happen(choices[pick % len(choices)])
        pod_status = status(machine.pod, PLACE, [], machine.now)
        assert (pod_status["phase"] in ("Succeeded", "Failed")) == machine.pod.has_ended
        assert all(len(container_status["state"]) == 1 for container_status in pod_status["containerStatuses"])


def test_a_stopped_pod_ends_in_any_state_of_its_containers() -> None:
    for policy, moves in itertools.product(("Always", "Never"), itertools.product(range(4), repeat=3)):
        machine = Machine(policy, ("init-0", "side-0"))
        machine.feed(Tick(0.5))
        for move in moves:
            choices = [choice for choice in machine.choices() if not isinstance(choice, Stop)]
            machine.happen(choices[move % len(choices)])
        machine.happen(Stop(machine.now + 1, 0)) if not machine.pod.has_ended else None
        for name in sorted(machine.starting):
            machine.happen(Dropped(machine.now, name))
        for name in sorted(machine.running):
            machine.happen(Ended(machine.now, name, 137))
        assert machine.pod.has_ended and all(container.state in TERMINAL_STATES for container in machine.pod.containers)


def test_the_termination_messages_of_a_pod_have_twelve_kilobytes_together() -> None:
    """A kubelet shows the beginning of each: with three containers 4096 bytes, which is the most that it reads."""
    for number, expected in ((3, 4096), (4, 3072)):
        names = tuple(f"c{index}" for index in range(number))
        state, _ = play(pod("Never", *names), Tick(1), Started(2, "c0"), Ended(3, "c0", 1, message="x" * 4096))
        shown = status(state, PLACE, [], 3)["containerStatuses"][0]["state"]["terminated"]
        assert len(shown["message"]) == expected


def test_an_init_container_is_ready_once_it_has_succeeded_and_the_others_wait_for_it() -> None:
    state, _ = play(pod("Never", "main", inits=("init",)), Tick(1), Started(2, "init"))
    shown = status(state, PLACE, [], 2)
    assert not shown["initContainerStatuses"][0]["ready"]
    state, _ = play(state, Ended(3, "init", 0))
    shown = status(state, PLACE, [], 3)
    assert shown["initContainerStatuses"][0]["ready"]
    assert shown["containerStatuses"][0]["state"]["waiting"] == {"reason": "PodInitializing"}  # its start has begun


def test_the_sandbox_of_a_pod_is_ready_from_its_first_start_to_its_end() -> None:
    state = pod()
    shown = []
    for event in (Tick(1), Started(2, "main"), Ended(3, "main", 0)):
        state, _ = step(state, event)
        conditions = {item["type"]: item["status"] for item in status(state, PLACE, [], 3)["conditions"]}
        shown.append(conditions["PodReadyToStartContainers"])
    assert shown == ["False", "True", "False"]
