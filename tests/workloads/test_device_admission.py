"""Which pods that request devices are bound, in what order: a table, and every small history of a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from trainyard.controller_runtime.reflector import ListReplaced
from trainyard.objects import Json
from trainyard.objects.resources import NATIVE_POD_GROUP, NODE, PERSISTENT_VOLUME_CLAIM, POD
from trainyard.objects.writes import Patch
from trainyard.workloads import decisions
from trainyard.workloads.device_admission import Attempt, Gang, GangPod, attempts, changes_what_is_free, placements
from trainyard.workloads.gangs import Gangs
from trainyard.workloads.graph import Graph
from trainyard.workloads.writes import Bind, Decision

GPU = "nvidia.com/gpu"
MACHINE = {"local": {GPU: 4}}


def gang(key: str, order: int, min_count: int = 1, is_held: bool = False) -> Gang:
    return Gang(key, (float(order), 0, key), min_count, is_held)


def pods(of: Gang, indices: Iterable[int], count: int = 1, node: str = "", has_ended: bool = False) -> list[GangPod]:
    return [GangPod(f"{of.key}-{index}", of, {GPU: count}, node, has_ended) for index in indices]


A, B, C = gang("a", 1, 3), gang("b", 2, 3), gang("c", 3)
LARGE = gang("large", 1, 5)
LONE, OTHER = gang("lone", 1), gang("other", 2)
ELASTIC = gang("elastic", 1, 2)
HELD = gang("held", 1, 3, is_held=True)

WHOLE = pods(A, range(3), node="local")
BEGUN = pods(A, [0, 1], node="local")
ENDED = pods(A, range(3), node="local", has_ended=True)

TABLE = [
    ("a gang that fits is bound", pods(A, range(3)), "a-0 a-1 a-2"),
    ("two gangs of three: the older one", [*pods(B, range(3)), *pods(A, range(3))], "a-0 a-1 a-2"),
    ("then the other one", [*ENDED, *pods(B, range(3))], "b-0 b-1 b-2"),
    ("a gang takes no part of what it needs", [*WHOLE, *pods(B, range(3))], ""),
    ("the rest of one that has begun goes first", [*pods(B, range(3)), *BEGUN, *pods(A, [2])], "a-2"),
    ("a lost member is replaced where there is room", [*pods(A, [0, 1], node="local"), *pods(A, [2])], "a-2"),
    ("and waits where there is none", [*BEGUN, *pods(C, [0], 2, node="local"), *pods(A, [2])], ""),
    ("a gang that waits holds back later ones", [*WHOLE, *pods(B, range(3)), *pods(C, [0])], ""),
    ("what an admitted gang leaves is given out", [*BEGUN, *pods(C, [0])], "c-0"),
    ("a gang that can never fit holds nobody back", [*pods(LARGE, range(5)), *pods(B, range(3))], "b-0 b-1 b-2"),
    ("a gang that is held holds nobody back", [*pods(HELD, range(2)), *pods(B, range(3))], "b-0 b-1 b-2"),
    ("the devices of a gang that is held are its own", [*pods(HELD, [0, 1], node="local"), *pods(B, range(3))], ""),
    ("pods of no group, one by one", [*pods(LONE, [0], 3), *pods(OTHER, [0], 2)], "lone-0"),
    ("members beyond minCount when they fit", pods(ELASTIC, range(6)), "elastic-0 elastic-1 elastic-2 elastic-3"),
    ("and later when there is room", [*pods(ELASTIC, range(3), node="local"), *pods(ELASTIC, [3, 4])], "elastic-3"),
    ("they hold nobody back", [*pods(ELASTIC, [0, 1], node="local"), *pods(ELASTIC, [2], 4), *pods(C, [0])], "c-0"),
    ("a gang whose pods have ended keeps nothing", [*ENDED, *pods(C, [0])], "c-0"),
]


@pytest.mark.parametrize(("what", "present", "bound"), TABLE)
def test_which_pods_are_bound_now(what: str, present: list[GangPod], bound: str) -> None:
    assert sorted(placements(present, MACHINE)) == bound.split()


def test_a_node_has_what_its_own_pods_leave() -> None:
    machines = {"one": {GPU: 2}, "two": {GPU: 2}}
    whole = gang("w", 1, 2)
    assert placements(pods(whole, [0, 1], 2), machines) == {"w-0": "one", "w-1": "two"}
    assert placements([*pods(C, [0], node="one"), *pods(whole, [0, 1], 2)], machines) == {}


def test_resources_are_counted_apart() -> None:
    mig = "nvidia.com/mig-1g.10gb"
    pending = [*WHOLE, *pods(B, range(3)), GangPod("m-0", gang("m", 9), {mig: 1})]
    assert placements(pending, {"local": {GPU: 4, mig: 1}}) == {"m-0": "local"}


def test_the_placement_ends_where_too_few_can_be_placed_any_more() -> None:
    """kube-scheduler 1.37.1 says of four pods of 600 CPUs on a node of 1,000, minCount 3: 1 scheduled, 1 remaining."""
    large = gang("l", 1, 3)
    assert attempts(pods(large, range(4), 3), MACHINE) == {
        "l": Attempt({"l-0": "local"}, frozenset({"l-1", "l-2"}), 1, 1, False)
    }
    assert attempts([*pods(C, [0, 1], node="local"), *pods(A, range(3))], MACHINE)["a"][2:] == (2, 0, False)


def test_a_member_that_fits_nowhere_holds_its_gang() -> None:
    members = [*pods(A, range(2)), GangPod("a-2", A, {}, is_blocked=True)]
    assert attempts(members, MACHINE)["a"].failed == {"a-2"} and not placements(members, MACHINE)


SIZES = {"a": (A, 3), "b": (B, 3), "c": (gang("c", 3, 2), 2)}
World = frozenset[tuple[str, int, str]]  # gang, index, state of the pod: pending, bound or ended


def as_pods(world: World) -> list[GangPod]:
    """With the groups as the operator and the API server have them: held until all members exist, and without those
    that have ended."""
    result = []
    for name, (of, size) in SIZES.items():
        states = {index: state for group, index, state in sorted(world) if group == name}
        left = size - sum(state == "ended" for state in states.values())
        now = Gang(of.key, of.order, max(left, 1), is_held=len(states) < size)
        for index, state in states.items():
            result += pods(now, [index], node="" if state == "pending" else "local", has_ended=state == "ended")
    return result


def steps(world: World) -> Iterable[World]:
    """What can happen next: a pod is created, a gang that may be bound is bound, a pod ends or is replaced."""
    allowed = placements(as_pods(world), MACHINE)
    for name, (_, size) in SIZES.items():
        states = {index: state for group, index, state in world if group == name}
        if len(states) < size:
            yield world | {(name, len(states), "pending")}
        bound = {(name, index, "bound") for index in states if f"{name}-{index}" in allowed}
        if bound:
            yield frozenset(pod for pod in world if (*pod[:2], "bound") not in bound) | bound
        for index, state in states.items():
            if state == "bound":
                rest = world - {(name, index, state)}
                yield rest | {(name, index, "ended")}
                yield rest | {(name, index, "pending")}


def test_in_every_history_devices_are_not_given_twice_and_gangs_are_whole() -> None:
    known: set[World] = {frozenset()}
    frontier: list[World] = [frozenset()]
    while frontier:
        world = frontier.pop()
        states = Counter((group, state) for group, _, state in world)
        bound = sum(count for (_, state), count in states.items() if state == "bound")
        allowed = placements(as_pods(world), MACHINE)
        assert bound + len(allowed) <= 4, "a device is given twice"
        for name, (_, size) in SIZES.items():
            pending, taken = states[name, "pending"], sum(uid.startswith(name) for uid in allowed)
            exist = sum(states[name, state] for state in ("pending", "bound", "ended"))
            assert taken in (0, pending), "a part of a gang starts"
            assert not taken or exist == size, "a gang starts before all of it exists"
        waiting = [name for name, (_, size) in SIZES.items() if states[name, "pending"] and not _misses(name, states)]
        assert not waiting or bound or allowed, "nobody gets the devices that are free"
        for following in steps(world):
            if following not in known:
                known.add(following)
                frontier.append(following)
    assert len(known) > 400


def _misses(name: str, states: Counter[tuple[str, str]]) -> bool:
    return sum(states[name, state] for state in ("pending", "bound", "ended")) < SIZES[name][1]


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
    for gvk in (NODE, POD, NATIVE_POD_GROUP, PERSISTENT_VOLUME_CLAIM):
        store = result.add_store(gvk)
        own = tuple(obj for obj in objects if obj["kind"] == gvk.kind)
        for change in store.apply(ListReplaced(own, "1")):
            result.index(gvk, change)
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


# --- the decision about a PodGroup, from objects


def group(min_count: int = 3, **status: object) -> Json:
    meta = {"name": "g", "namespace": "n", "uid": "u-g", "creationTimestamp": "2026-01-01T00:00:00Z"}
    gvk = NATIVE_POD_GROUP
    spec = {"schedulingPolicy": {"gang": {"minCount": min_count}}}
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": meta, "spec": spec, "status": status}


def member(name: str, count: int | str = 1, **spec: object) -> Json:
    result = pod(name, count)
    result["spec"] |= {"schedulingGroup": {"podGroupName": "g"}, **spec}
    return result


def decide_group(of: Json, *others: Json, gpus: str = "4") -> Decision:
    return decisions.decide_group_placement(graph(*others, of, node({GPU: gpus})), of, 0.0, (), {})


def bound_names(decision: Decision) -> list[str]:
    return [write.name for write in decision.writes if isinstance(write, Bind)]


def conditions(decision: Decision) -> dict[str, str]:
    """Object -> message of its new condition."""
    patches = [write for write in decision.writes if isinstance(write, Patch)]
    return {write.name: write.body["status"]["conditions"][0]["message"] for write in patches}


GATES = [{"name": "a.b/c"}]
ENDED_STATUS = {"phase": "Succeeded"}


@pytest.mark.parametrize(
    ("what", "members"),
    [
        ("too few members exist", [member("p"), member("q")]),
        ("one that has ended is no member", [member("p"), member("q"), {**member("r"), "status": ENDED_STATUS}]),
        ("one has a scheduling gate", [*(member(name) for name in "pqr"), member("s", schedulingGates=GATES)]),
    ],
)
def test_a_gang_is_held_in_silence(what: str, members: list[Json]) -> None:
    assert decide_group(group(), *members) == Decision()


def test_members_of_a_group_that_does_not_exist_are_held() -> None:
    waiting = [member(name) for name in "pqr"]
    assert Gangs(graph(*waiting)).of(waiting[0]).is_held


def test_a_whole_gang_is_bound_at_once_and_its_group_is_scheduled() -> None:
    decision = decide_group(group(), *(member(name) for name in "pqr"))
    assert bound_names(decision) == ["p", "q", "r"] and conditions(decision) == {"g": ""}
    condition = decision.writes[-1].body["status"]["conditions"][0]  # type: ignore[union-attr]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "PodGroupInitiallyScheduled",
        "True",
        "Scheduled",
    )


def test_a_gang_without_room_has_the_messages_of_kube_scheduler_once() -> None:
    members = [member(name, 2) for name in "pqr"]
    decision = decide_group(group(), *members)
    reason = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
    whole = f"{reason}, pod group preemption: No preemption victims found for incoming preemptor"
    assert conditions(decision) == {
        "p": f"pod group is unschedulable, {whole}",
        "q": f"pod group is unschedulable, {whole}",
        "r": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        "g": whole,
    }
    assert [event.reason for _, event in decision.pod_events] == ["FailedScheduling"] * 3
    waiting = group()
    for write in decision.writes:
        assert isinstance(write, Patch)
        target = waiting if write.name == "g" else next(pod for pod in members if pod["metadata"]["name"] == write.name)
        target["status"] |= write.body["status"]
    assert decide_group(waiting, *members) == Decision()
    assert bound_names(decide_group(waiting, *members, gpus="6")) == ["p", "q", "r"]


def test_members_without_devices_wait_with_the_others() -> None:
    members = [member("master", "0"), member("p", 3), member("q", 3)]
    assert bound_names(decide_group(group(), *members)) == []
    assert bound_names(decide_group(group(), *members, gpus="6")) == ["master", "p", "q"]


def test_a_gang_waits_for_the_claim_of_one_member() -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    members = [member("p"), member("q"), member("r", volumes=[volume])]
    decision = decide_group(group(), *members)
    assert bound_names(decision) == [] and 'persistentvolumeclaim "data" not found' in conditions(decision)["r"]


def test_members_that_are_deleted_count_until_they_are_gone() -> None:
    """As with kube-scheduler: so a new attempt needs a group of its own."""
    old = [member(name, nodeName="local") for name in "pq"]
    for ending in old:
        ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert bound_names(decide_group(group(), *old, member("r"))) == ["r"]


def test_the_condition_of_a_group_stays_true() -> None:
    scheduled = {"type": "PodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled", "message": ""}
    decision = decide_group(group(conditions=[scheduled]), *(member(name, 2) for name in "pqr"))
    assert "g" not in conditions(decision) and set(conditions(decision)) == {"p", "q", "r"}


def test_a_node_that_looks_for_its_devices_is_waited_for_by_the_gang() -> None:
    assert decide_group(group(), *(member(name) for name in "pqr"), gpus="0") == Decision()


def test_a_basic_group_is_bound_pod_by_pod() -> None:
    basic = group()
    basic["spec"] = {"schedulingPolicy": {"basic": {}}}
    assert bound_names(decide_group(basic, member("p", 3), member("q", 3))) == ["p"]
