"""What a joined node computes: pods from before its restart, its Node object, allowed clients, its lease."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from trainyard.app.kubeconfig import ClusterAccess
from trainyard.app.node_agent import HolderIdentity, JoinedNode, JoinOptions, host_name
from trainyard.controller_runtime.lease import LeaseRecord, ObservedLease
from trainyard.node.kubelet import lifecycle
from trainyard.node.kubelet.api.authentication import API_SERVERS, certificate_refusal
from trainyard.node.kubelet.pod_state import Container, ContainerState, Ended, Pod, Start, Started, Stop, Tick
from trainyard.node.kubelet.registration import (
    CORDONED_ANNOTATION,
    CREATED_ANNOTATION,
    NodeConfig,
    has_annotation,
    node_object,
    node_status,
)
from trainyard.node.kubelet.restore import LOST, returned
from trainyard.node.network.pod_network import ClusterNetwork
from trainyard.objects import Json, find_condition

THEN, LATER = "2026-11-21T12:00:00Z", "2026-11-21T12:05:00Z"
AT = 1795262400.0  # THEN


class Election:
    """It fails in a way that nobody has foreseen, and then somebody else has the lease."""

    observed, leads = ObservedLease(), False

    def __init__(self) -> None:
        steps: list[Exception | LeaseRecord] = [ValueError("what is this"), LeaseRecord("somebody", 1.0, 1, "1")]
        self.moves = iter(steps)

    async def step(self) -> float:
        move = next(self.moves)
        if isinstance(move, Exception):
            raise move
        self.observed = ObservedLease(move)
        return 0.0


async def test_an_unforeseen_fault_does_not_end_the_renewal_of_the_lease(tmp_path: Path) -> None:
    messages: list[str] = []
    access = ClusterAccess("http://127.0.0.1:1")
    joined = JoinedNode(JoinOptions(access=access, name="one", state=tmp_path, lease_seconds=0.04, say=messages.append))
    joined._election = Election()  # type: ignore[assignment]  # a scripted one
    await asyncio.wait_for(joined._renew_lease(), 10)
    assert joined.lease_taken.is_set()
    assert messages == [
        "node: the lease kube-node-lease/one could not be renewed: ValueError('what is this')",
        "node: somebody has taken the name one; stopping",
    ]
    await joined.stop()


def container_status(name: str = "main", restarts: int = 0, last: Json | None = None, **state: Json) -> Json:
    container_status = {"name": name, "state": state, "restartCount": restarts, "containerID": "trainyard://u/main/1"}
    return container_status | ({"lastState": {"terminated": last}} if last else {})


def ended(code: int) -> Json:
    return {"exitCode": code, "reason": "Error" if code else "Completed", "startedAt": THEN, "finishedAt": LATER}


def life(policy: str = "Never", *containers: Container) -> Pod:
    return Pod("p_default", "u", policy, containers or (Container("main"),))


def back(policy: str, *statuses: Json, containers: tuple[Container, ...] = (), **more: Any) -> tuple[Pod, list[object]]:
    """The pod when the node has come back to it, and what must be done."""
    pod, lost = returned(life(policy, *containers), {"containerStatuses": list(statuses), "startTime": THEN, **more})
    actions: list[object] = []
    events: list[Any] = [Ended(AT + 600, name, 137, *LOST) for name in lost] or [Tick(AT + 600)]
    for event in events:
        pod, more_actions = lifecycle.step(pod, event)
        actions += more_actions
    return pod, actions


RUNNING = container_status(running={"startedAt": THEN})


def test_a_pod_that_was_never_started_is_new() -> None:
    waiting = {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}, "restartCount": 0}
    assert returned(life(), {"containerStatuses": [waiting], "startTime": THEN}) == (life(), ())
    assert returned(life(), {}) == (life(), ())


def test_a_pod_that_may_run_once_is_not_run_twice() -> None:
    pod, actions = back("Never", RUNNING)
    assert pod.has_ended and not [action for action in actions if isinstance(action, Start)]
    last = pod.container("main").last
    assert last is not None and (last.code, last.reason, last.started) == (137, LOST[0], AT)


@pytest.mark.parametrize(
    "statuses", [(), (container_status(waiting={"reason": "ContainerCreating"}) | {"containerID": ""},)]
)
def test_a_pod_killed_before_its_status_was_written_is_not_run_twice(statuses: tuple[Json, ...]) -> None:
    pod, lost = returned(life(), {"containerStatuses": list(statuses)}, {"main": 1})
    assert lost == ("main",)
    pod, actions = lifecycle.step(pod, Ended(AT, "main", 137, *LOST))
    assert pod.has_ended and not [action for action in actions if isinstance(action, Start)]
    again, _ = returned(life("OnFailure"), {"containerStatuses": [RUNNING], "startTime": THEN}, {"main": 1})
    assert again.container("main").started == AT  # what the status knows is believed


@pytest.mark.parametrize("policy", ["OnFailure", "Always"])
def test_a_restartable_container_is_restarted_and_counted(policy: str) -> None:
    pod, actions = back(policy, RUNNING)
    assert [action for action in actions if isinstance(action, Start)] == [Start("main", 2)]
    assert (pod.container("main").restarts, pod.started) == (0, AT)  # as a kubelet shows it until the run has started
    assert lifecycle.step(pod, Started(AT + 1, "main"))[0].container("main").restarts == 1


def test_a_container_that_all_restarted_had_removed_starts_again() -> None:
    """The node was killed between the removal of all containers and their start."""
    removed = {**ended(137), "reason": "RestartingAllContainers"}
    waits = container_status(restarts=2, last=removed, waiting={"reason": "RestartingAllContainers"})
    pod, actions = back("Never", waits)
    assert actions == [Start("main", 3)] and pod.container("main").restarts == 2


def test_many_restarts_make_the_next_one_wait() -> None:
    pod, actions = back("Always", container_status(restarts=4, last=ended(1), waiting={"reason": "CrashLoopBackOff"}))
    container = pod.container("main")
    assert container.state is ContainerState.STARTING and container.run == 6  # ten minutes later it is due
    recent = ended(1) | {"finishedAt": "2026-11-21T12:09:59Z"}
    pod, actions = back("Always", container_status(restarts=4, last=recent, waiting={"reason": "CrashLoopBackOff"}))
    assert pod.container("main").state is ContainerState.PAUSING and pod.container("main").restarts == 4
    assert not [action for action in actions if isinstance(action, Start)]


def test_a_terminated_container_stays_terminated() -> None:
    pod, actions = back("OnFailure", container_status(terminated=ended(0)))
    assert pod.has_ended and not [action for action in actions if isinstance(action, Start)]
    pod, actions = back("OnFailure", container_status(terminated=ended(3)))
    assert [action for action in actions if isinstance(action, Start)] == [Start("main", 2)]
    first = pod.container("main").last
    assert first is not None and first.code == 3


def test_init_containers_that_have_succeeded_are_not_run_again() -> None:
    containers = (Container("first", init=True), Container("main"))
    inits = [container_status("first", terminated=ended(0))]
    pod, actions = back("Never", containers=containers, initContainerStatuses=inits)
    assert [action for action in actions if isinstance(action, Start)] == [Start("main", 1)]
    assert pod.container("first").state is ContainerState.ENDED


def test_a_pod_whose_deletion_was_pending_is_not_started() -> None:
    pod, lost = returned(life("Always"), {"containerStatuses": [RUNNING]})
    pod, actions = lifecycle.step(pod, Stop(AT, 30.0))
    for name in lost:
        pod, more = lifecycle.step(pod, Ended(AT, name, 137, *LOST))
        actions += more
    assert pod.has_ended and not [action for action in actions if isinstance(action, Start)]


def test_the_node_object_has_the_created_annotation_and_its_taints() -> None:
    taint = {"key": "laptop", "value": "true", "effect": "NoSchedule"}
    node = node_object("here", NodeConfig(taints=[taint]))
    assert (
        has_annotation(node, CREATED_ANNOTATION)
        and not has_annotation(node, CORDONED_ANNOTATION)
        and node["spec"]["taints"] == [taint]
    )
    assert (
        node["metadata"]["labels"]["kubernetes.io/hostname"] == "here" and node_object("x", NodeConfig())["spec"] == {}
    )


def test_a_status_keeps_the_conditions_of_others_and_the_times_of_its_own() -> None:
    other = {"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated"}
    first = node_status(10250, NodeConfig(extra_resources={"nvidia.com/gpu": "2"}), [other], AT)
    second = node_status(10250, NodeConfig(), first["conditions"], AT + 300)
    ready = find_condition(second["conditions"], "Ready")
    assert ready is not None and (ready["lastTransitionTime"], ready["lastHeartbeatTime"]) == (THEN, LATER)
    assert (
        other in second["conditions"]
        and first["capacity"]["nvidia.com/gpu"] == "2" == first["allocatable"]["nvidia.com/gpu"]
    )
    gone = find_condition(
        node_status(10250, NodeConfig(), second["conditions"], AT + 300, stopping=True)["conditions"], "Ready"
    )
    assert gone is not None and (gone["status"], gone["lastTransitionTime"]) == ("False", LATER)
    assert {address["type"] for address in first["addresses"]} == {"InternalIP"}  # a Hostname would be tried first


@pytest.mark.parametrize("name", API_SERVERS)
def test_the_api_server_is_known_by_its_name(name: str) -> None:
    assert certificate_refusal({"subject": ((("organizationName", "x"),), (("commonName", name),))}, API_SERVERS) == ""


@pytest.mark.parametrize("shown", [None, {}, {"subject": ()}, {"subject": ((("commonName", "ann"),),)}])
def test_any_other_client_certificate_is_refused(shown: object) -> None:
    assert certificate_refusal(shown, API_SERVERS)


def test_a_holder_identity_tells_whether_its_process_has_ended() -> None:
    mine = HolderIdentity.new("here")
    assert HolderIdentity.parse(mine.text) == mine and not mine.has_ended()
    name, machine, process, token = mine.text.split("_")
    pid, start = process.split(".")
    assert HolderIdentity.parse(
        f"{name}_{machine}_{pid}.{int(start) - 1}_{token}"
    ).has_ended()  # its number is ours now
    assert not HolderIdentity.parse(f"{name}_other.1_{pid}.1_{token}").has_ended()  # of another machine nobody can know
    for text in ("", "here", "here_x", f"here_{machine}__", f"here_{machine}_x.y_z", "a_b_c_d_e"):
        assert not HolderIdentity.parse(text).has_ended()
    assert host_name() == host_name().lower() and host_name()


def test_service_ranges_are_published_and_pod_ranges_in_use_are_not_taken() -> None:
    from trainyard.node.network.directory import Directory
    from trainyard.node.network.namespaced import NamespaceNetwork
    from trainyard.node.sandbox.supervisor_client import Sandbox, SandboxCallbacks

    def ranges(*services: str) -> list[str]:
        sandbox = Sandbox("namespace", SandboxCallbacks())
        network = NamespaceNetwork(sandbox, Directory(), print, ClusterNetwork(services=services))
        around = network.environment({"metadata": {"name": "p", "namespace": "default"}})["no_proxy"].split(",")
        return [entry for entry in around if "/" in entry]

    assert ranges("10.0.0.0/16", "fd00::/108") == ["10.244.0.0/16", "10.0.0.0/16"]
    assert ranges("10.0.0.0/8") == ["10.244.0.0/16"]
