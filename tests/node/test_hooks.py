"""When lifecycle hooks run, and what their results change in a pod, its status and its Events, stepped by hand."""

from __future__ import annotations

import asyncio

import pytest

from tests.node.test_probe_handlers import Answer, replies, server
from trainyard.node.kubelet import events
from trainyard.node.kubelet.lifecycle import step
from trainyard.node.kubelet.pod_state import (
    Blocked,
    Container,
    Ended,
    HookEnded,
    HookKind,
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
from trainyard.node.kubelet.probes import http_get
from trainyard.node.kubelet.status import StatusInputs, phase, status
from trainyard.objects.container_restarts import restart_policy

POST_START, PRE_STOP = HookKind.POST_START, HookKind.PRE_STOP


def container(name: str, *hooks: HookKind, policy: str = "Never", init: bool = False) -> Container:
    rules = restart_policy({"restartPolicy": "Always" if init else None}, policy, init=init)
    return Container(name, init, restart_policy=rules, hooks=frozenset(hooks))


def play(*steps: object, containers: tuple[Container, ...], grace: float = 10) -> tuple[Pod, list[str]]:
    """The pod after these events. The texts: what each step does to its containers, and its Events but those of
    starts."""
    pod, texts = Pod("pod", "uid", "Never", containers, grace=grace), []
    for event in steps:
        after, actions = step(pod, event)  # type: ignore[arg-type]
        for action in actions:
            match action:
                case Signal(name, kill):
                    texts.append(f"{'KILL' if kill else 'TERM'} {name}")
                case Start(name, _):
                    texts.append(f"start {name}")
        recorded = events.of_step(pod, after, event, {})  # type: ignore[arg-type]
        texts += [f"{item.reason}: {item.message}" for item in recorded if item.reason not in _OF_STARTS]
        before = {item.name: item.hook for item in pod.containers}
        texts += [f"{item.hook} {item.name}" for item in after.containers if item.hook and not before[item.name]]
        pod = after
    return pod, texts


_OF_STARTS = ("Pulled", "Created", "Started")
STOPPING = "Killing: Stopping container main"


def test_nothing_after_a_container_starts_before_its_post_start_hook_has_ended() -> None:
    both = container("main", POST_START), container("other")
    pod, texts = play(Tick(0), Started(1, "main"), containers=both)
    assert texts == ["start main", "PostStart main"]
    assert phase(pod) == "Pending"
    shown = status(pod, StatusInputs("", "", {}), [], 1)["containerStatuses"][0]
    assert (shown["state"], shown["started"]) == ({"waiting": {"reason": "ContainerCreating"}}, False)
    ended = HookEnded(2, "main", 1, POST_START, failed=False)
    pod, texts = play(Tick(0), Started(1, "main"), ended, containers=both)
    assert texts[-1] == "start other"
    assert "running" in status(pod, StatusInputs("", "", {}), [], 2)["containerStatuses"][0]["state"]


def test_a_container_that_cannot_be_started_does_not_delay_the_next_by_its_hook() -> None:
    both = container("main", POST_START), container("other")
    _, texts = play(Tick(0), Blocked(1, "main", "ErrImagePull", "no such image"), containers=both)
    assert [text for text in texts if text.startswith("start")] == ["start main", "start other"]


def test_a_hook_whose_time_is_over_asks_for_no_time_while_all_containers_are_restarted() -> None:
    rules = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]
    trigger = Container(
        "trigger",
        restart_policy=restart_policy({"restartPolicy": "Never", "restartPolicyRules": rules}, "Never", init=False),
    )
    containers = trigger, container("main", PRE_STOP, policy="Always"), container("last", policy="Always")
    failed = Probed(5, "main", 1, ProbeKind.LIVENESS, False, 1)
    begun = *(Started(1, name) for name in ("trigger", "main", "last")), failed, Ended(5.5, "trigger", 42)
    pod, _ = play(Tick(0), *begun, containers=containers)
    assert step(pod, Tick(6.5))[1] == [Wake(7.5)]  # the SIGKILL of `last`, whose turn comes first


def test_a_container_is_ended_when_its_post_start_hook_fails() -> None:
    failed = HookEnded(3, "main", 1, POST_START, failed=True)
    pod, texts = play(
        Tick(0), Started(1, "main"), failed, Tick(12), Tick(13), containers=(container("main", POST_START),)
    )
    events_of_hook = ["FailedPostStartHook: PostStartHook failed", "Killing: FailedPostStartHook"]
    assert texts == ["start main", "PostStart main", "TERM main", *events_of_hook, "KILL main"]
    assert phase(pod) == "Pending"
    assert phase(step(pod, Ended(14, "main", 0))[0]) == "Succeeded"


def test_sigterm_comes_after_the_pre_stop_hook() -> None:
    main = (container("main", PRE_STOP),)
    stop = Stop(5, 10)
    _, texts = play(Tick(0), Started(1, "main"), stop, Tick(6), containers=main)
    assert texts == ["start main", STOPPING, "PreStop main"]
    ended = HookEnded(8, "main", 1, PRE_STOP, failed=True)
    _, texts = play(Tick(0), Started(1, "main"), stop, ended, Tick(14), Tick(15), containers=main)
    assert texts[2:] == ["PreStop main", "TERM main", "FailedPreStopHook: PreStopHook failed", "KILL main"]


def test_a_pre_stop_hook_that_takes_the_whole_grace_period_leaves_two_seconds() -> None:
    main = (container("main", PRE_STOP),)
    pod, texts = play(Tick(0), Started(1, "main"), Stop(5, 10), Tick(15), Tick(16.9), Tick(17), containers=main)
    assert texts[2:] == ["PreStop main", "TERM main", "KILL main"]
    _, actions = step(play(Tick(0), Started(1, "main"), Stop(5, 10), containers=main)[0], Tick(6))
    assert actions == [Wake(15)]
    assert pod.container("main").pre_stop_at == 5


def test_a_pod_that_is_killed_runs_no_hook_and_waits_for_none() -> None:
    main = (container("main", PRE_STOP),)
    assert play(Tick(0), Started(1, "main"), Stop(5, 0), containers=main)[1] == ["start main", "KILL main", STOPPING]
    stops = Stop(5, 10), Stop(6, 0)
    assert play(Tick(0), Started(1, "main"), *stops, containers=main)[1][-2:] == ["PreStop main", "KILL main"]


def test_the_hook_of_a_sidecar_runs_while_the_sidecar_waits_for_its_turn() -> None:
    containers = container("side", PRE_STOP, init=True), container("main")
    stopped = Tick(0), Started(1, "side"), Started(2, "main"), Stop(5, 10)
    _, texts = play(*stopped, HookEnded(6, "side", 1, PRE_STOP, False), Ended(7, "main", 0), containers=containers)
    hooks = [text for text in texts if "Killing" not in text]
    assert hooks == ["start side", "start main", "TERM main", "PreStop side", "TERM side"]


def test_a_container_whose_liveness_probe_failed_has_its_pre_stop_hook() -> None:
    containers = container("main", PRE_STOP, policy="Always"), container("other", policy="Always")
    failed = Probed(5, "main", 1, ProbeKind.LIVENESS, False, 4)
    begun = Tick(0), Started(1, "main"), Started(1, "other"), failed
    pod, texts = play(*begun, containers=containers)
    assert texts[-1] == "PreStop main"
    assert step(pod, Tick(6))[1] == [Wake(9)]
    assert step(pod, Tick(9))[1] == [Signal("main", False), Wake(11)]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [("HTTP/1.1 200 OK\n\n", True), ("HTTP/1.1 500 No\n\n", True), ("220 smtp\n\n", False), ("", False)],
)
async def test_any_answer_by_http_is_a_success_of_a_hook(reply: str, expected: bool) -> None:
    requests: list[str] = []
    answer: Answer = replies(reply, requests)
    async with server(answer) as port:
        assert await http_get.is_answered({"path": "/a"}, "127.0.0.1", port, asyncio.open_connection) is expected
    assert "User-Agent: kube-lifecycle/1.37" in requests[0]


async def test_a_hook_by_https_falls_back_to_http() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_hello_of_tls = (await reader.read(1)) == b"\x16"
        writer.write(b"HTTP/1.1 400 Bad\r\n\r\n" if is_hello_of_tls else b"HTTP/1.1 204 No\r\n\r\n")

    async with server(answer) as port:
        action = {"path": "/", "scheme": "HTTPS"}
        assert await http_get.is_answered(action, "127.0.0.1", port, asyncio.open_connection)
