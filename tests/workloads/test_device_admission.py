"""Which pods that request devices are bound, in what order: a table, and every small history of a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import pytest

from trainyard.controller_runtime.reflector import ListReplaced
from trainyard.kinds import kind_named
from trainyard.objects import Json
from trainyard.objects.resources import NODE, PERSISTENT_VOLUME_CLAIM, POD
from trainyard.objects.writes import Patch
from trainyard.workloads import decisions
from trainyard.workloads.device_admission import Gang, GangPod, changes_what_is_free, placements
from trainyard.workloads.gangs import Gangs
from trainyard.workloads.graph import Graph
from trainyard.workloads.scheduler import DeviceChoice
from trainyard.workloads.scheduler import decide as decide_pod
from trainyard.workloads.writes import Bind, Decision

GPU = "nvidia.com/gpu"
MACHINE = {"local": {GPU: 4}}


def gang(key: str, order: int, members: int = 0, count: int = 1) -> Gang:
    """A gang of that many replicas with `count` devices each."""
    return Gang(key, (float(order), 0, key), {f"worker/{index}": {GPU: count} for index in range(members)})


def pods(of: Gang, indices: Iterable[int], count: int = 1, node: str = "", has_ended: bool = False) -> list[GangPod]:
    return [GangPod(f"{of.key}-{index}", of, f"worker/{index}", {GPU: count}, node, has_ended) for index in indices]


A, B, C = gang("a", 1, 3), gang("b", 2, 3), gang("c", 3, 1)
LARGE = gang("large", 1, 5)
LONE, OTHER = Gang("lone", (1.0, 0, "lone")), Gang("other", (2.0, 0, "other"))
ELASTIC = gang("elastic", 1, 2)

WHOLE = pods(A, range(3), node="local")
BEGUN = pods(A, [0], node="local")
ENDED = pods(A, range(3), node="local", has_ended=True)

TABLE = [
    ("a job that fits is bound", pods(A, range(3)), "a-0 a-1 a-2"),
    ("two jobs of three: the older one", [*pods(B, range(3)), *pods(A, range(3))], "a-0 a-1 a-2"),
    ("then the other one", [*ENDED, *pods(B, range(3))], "b-0 b-1 b-2"),
    ("a gang takes no part of what it needs", [*WHOLE, *pods(B, [0])], ""),
    ("the rest of an admitted gang is kept", [*BEGUN, *pods(B, range(3))], ""),
    ("and given to its pods", [*BEGUN, *pods(A, [1]), *pods(B, range(3))], "a-1"),
    ("a gang that waits holds back later ones", [*BEGUN, *pods(B, range(3)), *pods(C, [0])], ""),
    ("what an admitted gang leaves is given out", [*BEGUN, *pods(C, [0])], "c-0"),
    ("a job that can never fit holds nobody back", [*pods(LARGE, range(5)), *pods(B, range(3))], "b-0 b-1 b-2"),
    ("a replica that ended needs nothing", [*BEGUN, *ENDED[1:], *pods(B, range(3))], "b-0 b-1 b-2"),
    ("pods of no job, one by one", [*pods(LONE, [0], 3), *pods(OTHER, [0], 2)], "lone-0"),
    ("replicas beyond minAvailable when they fit", pods(ELASTIC, range(6)), "elastic-0 elastic-1 elastic-2 elastic-3"),
    ("a job whose pods have ended keeps nothing", [*ENDED, *pods(C, [0])], "c-0"),
]


@pytest.mark.parametrize(("what", "present", "bound"), TABLE)
def test_which_pods_are_bound_now(what: str, present: list[GangPod], bound: str) -> None:
    assert sorted(placements(present, MACHINE)) == bound.split()


def test_a_node_has_what_its_own_pods_leave() -> None:
    machines = {"one": {GPU: 2}, "two": {GPU: 2}}
    whole = gang("w", 1, 2, count=2)
    assert placements(pods(whole, [0, 1], 2), machines) == {"w-0": "one", "w-1": "two"}
    assert placements([*pods(C, [0], node="one"), *pods(whole, [0, 1], 2)], machines) == {}


def test_resources_are_counted_apart() -> None:
    mig = "nvidia.com/mig-1g.10gb"
    of_mig = Gang("m", (9.0, 0, "m"), {"worker/0": {mig: 1}})
    pending = [*pods(A, [0, 1, 2], node="local"), *pods(B, range(3)), GangPod("m-0", of_mig, "worker/0", {mig: 1})]
    assert placements(pending, {"local": {GPU: 4, mig: 1}}) == {"m-0": "local"}


class Job(NamedTuple):
    gang: Gang
    size: int


JOBS = {"a": Job(A, 3), "b": Job(B, 3), "c": Job(gang("c", 3, 2), 2)}
World = frozenset[tuple[str, int, str]]  # job, index, state of the pod: pending, bound or ended


def as_pods(world: World) -> list[GangPod]:
    return [
        pods(JOBS[job].gang, [index], node="" if state == "pending" else "local", has_ended=state == "ended")[0]
        for job, index, state in sorted(world)
    ]


def steps(world: World) -> Iterable[World]:
    """What can happen next: a pod is created, one that may be bound is bound, one ends, a finished job is deleted."""
    allowed = placements(as_pods(world), MACHINE)
    for job, (_, count) in JOBS.items():
        states = {index: state for name, index, state in world if name == job}
        if len(states) < count:
            yield world | {(job, len(states), "pending")}
        for index, state in states.items():
            rest = world - {(job, index, state)}
            if f"{job}-{index}" in allowed:
                yield rest | {(job, index, "bound")}
            if state == "bound":
                yield rest | {(job, index, "ended")}


def test_in_every_history_devices_are_not_given_twice_and_gangs_are_whole() -> None:
    known: set[World] = {frozenset()}
    frontier: list[World] = [frozenset()]
    while frontier:
        world = frontier.pop()
        states = Counter((job, state) for job, _, state in world)
        bound = sum(count for (_, state), count in states.items() if state == "bound")
        assert bound <= 4, "a device is given twice"
        admitted = [job for job in JOBS if states[job, "bound"]]
        needed = sum(JOBS[job].size - states[job, "ended"] for job in admitted)
        assert needed <= 4, "an admitted gang cannot become whole"
        allowed = placements(as_pods(world), MACHINE)
        assert bound + len(allowed) <= 4
        pending = [job for job, _, state in world if state == "pending"]
        assert not pending or admitted or allowed, "nobody gets the devices that are free"
        assert all(f"{job}-{index}" in allowed for job, index, state in world if job in admitted and state == "pending")
        for following in steps(world):
            if following not in known:
                known.add(following)
                frontier.append(following)
    assert len(known) > 400


# --- the decision about a pod, from objects


def pod(name: str, count: int | str = 1, **metadata: object) -> Json:
    container = {"name": "c", "resources": {"limits": {GPU: count}}}
    meta = {"name": name, "namespace": "n", "uid": f"u-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {
        "kind": "Pod",
        "metadata": {**meta, **metadata},
        "spec": {"containers": [container]},
        "status": {"phase": "Pending"},
    }


def node(capacity: dict[str, str], allocatable: dict[str, str] | None = None) -> Json:
    status = {"capacity": capacity, "allocatable": capacity if allocatable is None else allocatable}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return {"kind": "Node", "metadata": {"name": "local", "uid": "u-local"}, "spec": {}, "status": {**status, **ready}}


def graph(*objects: Json) -> Graph:

    result = Graph()
    for gvk in (NODE, POD, PERSISTENT_VOLUME_CLAIM):
        own = [
            obj for obj in objects if ("containers" in obj["spec"]) is (gvk == POD) and gvk != PERSISTENT_VOLUME_CLAIM
        ]
        list(result.add_store(gvk).apply(ListReplaced(tuple(own), "1")))
    return result


def decide(pod: Json, *others: Json, assumed: dict[str, str] | None = None) -> Decision:
    return decisions.decide_placement(graph(pod, *others), pod, 0.0, (), assumed or {})


def message(decision: Decision) -> str:
    (write,) = decision.writes
    assert isinstance(write, Patch)
    (condition,) = write.body["status"]["conditions"]
    assert [event.reason for event in decision.events] == ["FailedScheduling"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")
    return str(condition["message"])


def is_bound(decision: Decision) -> bool:
    return [type(write) for write in decision.writes] == [Bind]


def test_a_pod_waits_for_devices_with_the_message_of_kube_scheduler_and_one_event() -> None:
    waiting, running = pod("p", 2), pod("r", 3)
    running["spec"]["nodeName"] = "local"
    decision = decide(waiting, running, node({GPU: "4"}))
    assert message(decision) == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    (write,) = decision.writes
    assert isinstance(write, Patch)
    waiting["status"] |= write.body["status"]
    assert decide(waiting, running, node({GPU: "4"})) == Decision()
    running["status"]["phase"] = "Succeeded"
    assert is_bound(decide(waiting, running, node({GPU: "4"})))


def test_a_pod_whose_binding_is_not_shown_yet_has_its_devices() -> None:
    assert is_bound(decide(pod("p", 2), pod("r", 3), node({GPU: "5"}), assumed={"u-r": "local"}))
    assert message(decide(pod("p", 2), pod("r", 3), node({GPU: "4"}), assumed={"u-r": "local"}))


def test_a_machine_without_devices_runs_pods_that_request_some() -> None:
    assert is_bound(decide(pod("p", 8), node({})))
    assert is_bound(decide(pod("p", 8), node({"amd.com/gpu": "2"})))


def test_a_node_that_looks_for_its_devices_is_waited_for_in_silence() -> None:
    assert decide(pod("p", 1), node({GPU: "0"})) == Decision()
    plain = pod("p", "0")
    assert is_bound(decide(plain, node({GPU: "0"})))


def test_lost_devices_are_not_counted() -> None:
    assert is_bound(decide(pod("p", 3), node({GPU: "4"}, {GPU: "3"})))
    assert "Insufficient" in message(decide(pod("p", 4), node({GPU: "4"}, {GPU: "3"})))
    assert "Insufficient" in message(decide(pod("p", 1), node({GPU: "4"}, {GPU: "0"})))


def test_the_old_name_of_the_resource_is_the_same_resource() -> None:
    old = pod("p")
    old["spec"]["containers"][0]["resources"] = {"limits": {"alpha.kubernetes.io/nvidia-gpu": 2}}
    assert "Insufficient nvidia.com/gpu" in message(decide(old, node({GPU: "1"})))


def test_a_gang_says_that_it_starts_together() -> None:

    decision = decide_pod(pod("p"), [node({GPU: "4"})], Counter(), 0.0, None, DeviceChoice("", (GPU,), 3))
    text = (
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. The 3 replicas of its job with devices start together."
    )
    assert message(decision) == text


def test_a_deleted_pod_without_a_node_needs_nothing() -> None:
    gone = pod("old", 4, deletionTimestamp="2026-01-01T00:00:00Z", creationTimestamp="2025-01-01T00:00:00Z")
    assert is_bound(decide(pod("p", 4), gone, node({GPU: "4"})))


def test_pods_are_decided_again_when_devices_become_free() -> None:
    before = pod("p")
    bound, ended, plain = pod("p"), pod("p"), pod("p", "0")
    bound["spec"]["nodeName"] = "local"
    ended["status"]["phase"] = "Failed"
    assert changes_what_is_free(None, before) and changes_what_is_free(before, bound)
    assert changes_what_is_free(bound, None) and changes_what_is_free(before, ended)
    assert not changes_what_is_free(before, pod("p", labels={"a": "b"})) and not changes_what_is_free(None, plain)


def pytorch_job(master: bool = True, **spec: object) -> Json:
    """A PyTorchJob with three workers of two GPUs each."""
    kind = kind_named("pytorchjob")
    assert kind is not None
    container = {"name": "pytorch", "image": "x"}
    workers = {"spec": {"containers": [{**container, "resources": {"limits": {GPU: 2}}}]}}
    roles: Json = {"Worker": {"replicas": 3, "template": workers}}
    if master:
        roles["Master"] = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    meta = {"name": "j", "namespace": "n", "uid": "u-j", "creationTimestamp": "2026-01-01T00:00:00Z"}
    job = {"apiVersion": kind.gvk.api_version, "kind": kind.gvk.kind, "metadata": meta}
    return {**job, "spec": {"pytorchReplicaSpecs": roles, **spec}}


def gang_of(job: Json, labels: dict[str, str]) -> tuple[Gang, str]:
    kind = kind_named("pytorchjob")
    assert kind is not None
    objects = graph(node({GPU: "4"}))
    list(objects.add_store(kind.gvk).apply(ListReplaced((job,), "1")))
    return Gangs(objects, {GPU}).of(pod("p", 2, labels=labels))


@pytest.mark.parametrize(
    ("what", "job", "members"),
    [
        ("all replicas with devices", pytorch_job(), 3),
        ("minAvailable counts the master", pytorch_job(runPolicy={"schedulingPolicy": {"minAvailable": 2}}), 1),
        ("an elastic job", pytorch_job(master=False, elasticPolicy={"minReplicas": 2, "maxReplicas": 3}), 2),
    ],
)
def test_the_gang_of_a_replica_is_read_from_its_job(what: str, job: Json, members: int) -> None:
    labels = {"trainyard.dev/owner": "u-j", "trainyard.dev/role": "Worker", "trainyard.dev/index": "1"}
    gang, member = gang_of(job, labels)
    assert (gang.key, member) == ("u-j", "Worker/1")
    assert dict(gang.members) == {f"Worker/{index}": {GPU: 2} for index in range(members)}


def test_a_pod_of_no_job_is_a_gang_of_one() -> None:
    gang, _ = gang_of(pytorch_job(), {})
    assert (gang.key, gang.members) == ("u-p", {})
