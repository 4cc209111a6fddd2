from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import pytest

from tests.workloads.workload_values import NOW, deleted_in, is_ready, made_in, status_in
from trainyard.objects import Json, format_time, labels_of, name_of
from trainyard.objects.resources import PERSISTENT_VOLUME_CLAIM
from trainyard.objects.writes import Create, Delete
from trainyard.workloads.statefulsets import REVISION_LABEL, decide, ordinal
from trainyard.workloads.writes import CreateIfAbsent, Decision, UpdateStatus

LATER = NOW + 100


def stateful(replicas: int | None = 2, status: Json | None = None, image: str = "x", **spec: Any) -> Json:
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": image}]}}
    spec = {"serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template, **spec}
    if replicas is not None:
        spec["replicas"] = replicas
    meta = {"name": "db", "namespace": "n", "uid": "u-set", "generation": 3}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec, "status": status or {}}


def stored(pod: Json, phase: str = "Pending") -> Json:
    meta = {**pod["metadata"], "uid": f"u-{name_of(pod)}", "creationTimestamp": format_time(NOW)}
    return {**copy.deepcopy(pod), "metadata": meta, "status": {"phase": phase}}


def going(pod: Json) -> Json:
    return {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": format_time(NOW)}}


def pods_of(workload: Json, count: int) -> list[Json]:
    """The pods of a set of that many, as its controller makes them."""
    parallel = {**workload, "spec": {**workload["spec"], "replicas": count, "podManagementPolicy": "Parallel"}}
    return [stored(pod) for pod in made_in(decide(parallel, [], NOW))]


def all_ready(workload: Json, count: int) -> list[Json]:
    return [is_ready(pod) for pod in pods_of(workload, count)]


def test_a_pod_has_the_labels_of_its_set_and_ordinal() -> None:
    (pod,) = made_in(decide(stateful(), [], NOW))
    assert name_of(pod) == "db-0" and pod["spec"]["hostname"] == "db-0" and pod["spec"]["subdomain"] == "db"
    revision = status_in(decide(stateful(), [], NOW))["updateRevision"]
    assert labels_of(pod) == {
        "app": "db",
        "statefulset.kubernetes.io/pod-name": "db-0",
        "apps.kubernetes.io/pod-index": "0",
        "controller-revision-hash": revision,
    }
    assert [ref["uid"] for ref in pod["metadata"]["ownerReferences"]] == ["u-set"]


def test_the_next_pod_is_made_when_the_one_before_runs_and_is_ready() -> None:
    workload = stateful(3)
    first, second, _ = pods_of(workload, 3)
    assert [name_of(pod) for pod in made_in(decide(workload, [], NOW))] == ["db-0"]
    assert not made_in(decide(workload, [first], NOW))
    assert [name_of(pod) for pod in made_in(decide(workload, [is_ready(first)], NOW))] == ["db-1"]
    assert not made_in(decide(workload, [is_ready(first), second], NOW))


def test_a_parallel_set_makes_and_takes_all_at_once() -> None:
    workload = stateful(3, podManagementPolicy="Parallel")
    assert [name_of(pod) for pod in made_in(decide(workload, [], NOW))] == ["db-0", "db-1", "db-2"]
    workload["spec"]["replicas"] = 0
    assert deleted_in(decide(workload, pods_of(workload, 3), NOW)) == ["u-db-2", "u-db-1", "u-db-0"]


def test_an_ordered_set_is_scaled_down_from_the_top_one_at_a_time() -> None:
    workload = stateful(0)
    pods = all_ready(workload, 3)
    assert deleted_in(decide(workload, pods, NOW)) == ["u-db-2"]
    assert not deleted_in(decide(workload, [*pods[:2], going(pods[2])], NOW))
    assert deleted_in(decide(workload, pods[:2], NOW)) == ["u-db-1"]


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_ended_is_created_again_under_its_name_once_it_is_gone(policy: str, phase: str) -> None:
    workload = stateful(1, podManagementPolicy=policy)
    (pod,) = pods_of(workload, 1)
    ended = stored(pod, phase)
    early = decide(workload, [ended], NOW + 9)
    assert not deleted_in(early) and early.requeue_at == NOW + 10  # what cannot run makes no hot loop
    late = decide(workload, [ended], NOW + 10)
    assert deleted_in(late) == ["u-db-0"] and not made_in(late)
    assert not made_in(decide(workload, [going(ended)], LATER))
    assert [name_of(pod) for pod in made_in(decide(workload, [], LATER))] == ["db-0"]


def test_an_edit_of_the_template_rolls_the_pods_from_the_top() -> None:
    pods = all_ready(stateful(), 2)
    status = status_in(decide(stateful(), pods, NOW))
    edited = stateful(image="y", status=status)
    assert deleted_in(decide(edited, pods, NOW)) == ["u-db-1"]
    (fresh,) = made_in(decide(edited, pods[:1], NOW))
    assert name_of(fresh) == "db-1" and labels_of(fresh)[REVISION_LABEL] != labels_of(pods[0])[REVISION_LABEL]
    assert not deleted_in(decide(edited, [pods[0], stored(fresh)], NOW))
    half = decide(edited, [pods[0], is_ready(stored(fresh))], NOW)
    assert deleted_in(half) == ["u-db-0"]
    counts = status_in(half)
    assert counts["currentRevision"] != counts["updateRevision"]
    assert (counts["currentReplicas"], counts["updatedReplicas"]) == (1, 1)
    done = status_in(decide(edited, all_ready(edited, 2), NOW))
    assert done["currentRevision"] == done["updateRevision"] and done["currentReplicas"] == 2


def test_a_rolling_update_stops_at_the_partition_and_on_delete_updates_nothing() -> None:
    pods = all_ready(stateful(), 2)
    held = stateful(image="y", updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 1}})
    assert deleted_in(decide(held, pods, NOW)) == ["u-db-1"]
    assert not deleted_in(decide(held, [pods[0], is_ready(pods_of(held, 2)[1])], NOW))
    assert not deleted_in(decide(stateful(image="y", updateStrategy={"type": "OnDelete"}), pods, NOW))


def test_the_status_has_the_current_counts_and_is_written_once() -> None:
    pods = all_ready(stateful(), 2)
    status = status_in(decide(stateful(), pods, NOW))
    revision = status.pop("currentRevision")
    assert status == {
        "observedGeneration": 3,
        "replicas": 2,
        "readyReplicas": 2,
        "availableReplicas": 2,
        "currentReplicas": 2,
        "updatedReplicas": 2,
        "updateRevision": revision,
        "collisionCount": 0,
    }
    assert decide(stateful(status={**status, "currentRevision": revision}), pods, NOW) == Decision()


def test_the_current_revision_moves_only_when_every_pod_is_of_the_new_one() -> None:
    old = status_in(decide(stateful(), all_ready(stateful(), 2), NOW))
    more = stateful(3, image="y", status=old, podManagementPolicy="Parallel")
    half = status_in(decide(more, all_ready(more, 2), NOW))
    assert half["currentRevision"] == old["currentRevision"] != half["updateRevision"]
    by_hand = stateful(2, image="y", status=old, updateStrategy={"type": "OnDelete"})
    whole = status_in(decide(by_hand, all_ready(by_hand, 2), NOW))
    assert whole["currentRevision"] == old["currentRevision"] and "currentReplicas" not in whole


def test_a_pod_that_is_being_deleted_is_there_but_neither_ready_nor_of_a_revision() -> None:
    pods = all_ready(stateful(), 2)
    status = status_in(decide(stateful(), [pods[0], going(pods[1])], NOW))
    assert (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (2, 1, 1)


def test_an_old_pod_that_failed_at_once_waits_its_time_also_in_a_roll() -> None:
    workload = stateful(1, image="y", podManagementPolicy="Parallel")
    (pod,) = pods_of(stateful(1), 1)
    assert not deleted_in(decide(workload, [stored(pod, "Failed")], NOW + 1))


def test_a_ready_pod_is_available_after_min_ready_seconds_and_only_then_the_next_one_is_made() -> None:
    workload = stateful(minReadySeconds=30)
    (pod, _) = all_ready(workload, 2)
    pod["status"]["conditions"][0]["lastTransitionTime"] = format_time(NOW)
    soon = decide(workload, [pod], NOW + 1)
    assert soon.requeue_at == NOW + 30 and not made_in(soon) and status_in(soon)["availableReplicas"] == 0
    then = decide(workload, [pod], NOW + 30)
    assert status_in(then)["availableReplicas"] == 1 and [name_of(pod) for pod in made_in(then)] == ["db-1"]


def test_every_place_has_its_claims_in_front_of_its_pod() -> None:
    template = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    workload = stateful(1, volumeClaimTemplates=[template])
    workload["spec"]["template"]["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}, {"name": "tmp"}]
    _, claim, created = decide(workload, [], NOW).writes
    assert isinstance(claim, CreateIfAbsent) and claim.gvk == PERSISTENT_VOLUME_CLAIM and isinstance(created, Create)
    assert name_of(claim.obj) == "data-db-0" and labels_of(claim.obj) == {"app": "db"}
    assert claim.obj["spec"] == {"accessModes": ["ReadWriteOnce"]} and "ownerReferences" not in claim.obj["metadata"]
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0", "readOnly": False}}
    assert created.obj["spec"]["volumes"] == [{"name": "tmp"}, volume]


def test_ordinals_may_start_elsewhere() -> None:
    workload = stateful(2, ordinals={"start": 5}, podManagementPolicy="Parallel")
    assert [name_of(pod) for pod in made_in(decide(workload, [], NOW))] == ["db-5", "db-6"]


def test_a_pod_name_without_an_ordinal_is_neither_counted_nor_deleted() -> None:
    stray = {**all_ready(stateful(), 1)[0], "metadata": {"name": "db-x", "namespace": "n", "uid": "u-stray"}}
    decision = decide(stateful(0), [stray], NOW)
    assert status_in(decision)["replicas"] == 0 and not deleted_in(decision)
    names = ("db-0", "db-17", "db-01", "db-", "db--1", "d-0", "db-x", "db-0-0", "0", "db-²")
    assert [ordinal(stateful(), name) for name in names] == [0, 17, None, None, None, None, None, None, None, None]


def test_a_terminating_set_writes_nothing() -> None:
    assert decide(going(stateful()), [], NOW) == Decision()


def test_a_long_name_still_gives_a_label_value() -> None:
    workload = stateful(1)
    workload["metadata"]["name"] = "a" * 60
    (pod,) = made_in(decide(workload, [], NOW))
    assert len(labels_of(pod)[REVISION_LABEL]) == 63


# --- every small world


class Place(NamedTuple):
    """What is there under one ordinal."""

    state: str  # "absent", "pending", "ready", "unready", "failed", "succeeded", "going"
    fresh: bool  # of the template that holds now


PLACES = [Place("absent", True), Place("going", True), Place("going", False)] + [
    Place(state, fresh) for state in ("pending", "ready", "unready", "failed", "succeeded") for fresh in (True, False)
]
STRATEGIES: list[Json] = [
    {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
    {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}},
    {"type": "OnDelete"},
]


class Small:
    """One set, and every world of its pods. `resting` are worlds that are known to come to rest."""

    def __init__(self, policy: str, replicas: int, strategy: Json, ordinals: int) -> None:
        self.workload = stateful(replicas, podManagementPolicy=policy, updateStrategy=strategy)
        old = stateful(replicas, image="old", podManagementPolicy=policy)
        self.pods_by_template = {
            fresh: pods_of(place, ordinals) for fresh, place in ((True, self.workload), (False, old))
        }
        self.fresh = labels_of(self.pods_by_template[True][0])[REVISION_LABEL]
        self.ordered, self.replicas, self.partition = policy == "OrderedReady", replicas, _partition(strategy)
        self.resting: set[tuple[Place, ...]] = set()

    def pods(self, world: tuple[Place, ...]) -> Iterator[Json]:
        for at, (state, fresh) in enumerate(world):
            pod = self.pods_by_template[fresh][at]
            if state == "ready":
                yield is_ready(pod)
            elif state in ("failed", "succeeded"):
                yield stored(pod, state.capitalize())
            elif state == "unready":
                yield stored(pod, "Running")
            elif state != "absent":
                yield going(is_ready(pod)) if state == "going" else pod

    def comes_to_rest(self, world: tuple[Place, ...]) -> int:
        """Let everything work: the look, whole; then the node. Returns how many worlds were new."""
        path: list[tuple[Place, ...]] = []
        while world not in self.resting:
            assert world not in path, f"goes round for ever: {path}"
            path.append(world)
            pods = list(self.pods(world))
            decision = decide(self.workload, pods, LATER)
            self.check(world, decision)
            after = node(obey(world, decision, self.fresh))
            if after == world:
                self.at_rest(world, pods, decision)
                break
            world = after
        self.resting.update(path)
        return len(path)

    def check(self, world: tuple[Place, ...], decision: Decision) -> None:
        """The rules of one look."""
        created = [_at(pod) for pod in made_in(decision)]
        gone = [int(uid.rpartition("-")[2]) for uid in deleted_in(decision)]
        for at in created:
            assert world[at].state == "absent" and at < self.replicas, "a second pod of an ordinal, or one too many"
            if self.ordered:
                assert all(world[below].state == "ready" for below in range(at)), "made before the one below was ready"
        for at in gone:
            assert world[at].state not in ("absent", "going") and at not in created
            kept = at < self.replicas and world[at].state in ("pending", "ready", "unready")
            if kept:
                assert not world[at].fresh and at >= self.partition, "a good pod was taken down"
                above = world[at + 1 : self.replicas]
                assert all(place == Place("ready", True) for place in above), "rolled before those above were ready"
        if self.ordered:
            assert len(created) + len(gone) <= 1, "more than one at a time"
        beyond = [at for at in gone if at >= self.replicas]
        if self.ordered and beyond:
            assert all(place.state == "absent" for place in world[beyond[0] + 1 :]), "not from the top"

    def at_rest(self, world: tuple[Place, ...], pods: list[Json], decision: Decision) -> None:
        assert all(place.state == "absent" for place in world[self.replicas :])
        for at, place in enumerate(world[: self.replicas]):
            assert place.state == "ready" and (place.fresh or at < self.partition)
        assert all(isinstance(write, UpdateStatus) for write in decision.writes)
        status = status_in(decision)
        assert status["replicas"] == status.get("readyReplicas", 0) == len(pods) == min(self.replicas, len(world))
        again = decide({**self.workload, "status": status}, pods, LATER)
        assert again == Decision()


def _partition(strategy: Json) -> int:
    return 99 if strategy["type"] == "OnDelete" else int(strategy["rollingUpdate"]["partition"])


def _at(pod: Json) -> int:
    return int(name_of(pod).rpartition("-")[2])


def obey(world: tuple[Place, ...], decision: Decision, fresh: str) -> tuple[Place, ...]:
    places = list(world)
    for write in decision.writes:
        match write:
            case Create(_, obj):
                places[_at(obj)] = Place("pending", labels_of(obj)[REVISION_LABEL] == fresh)
            case Delete(_, _, name):
                at = int(name.rpartition("-")[2])
                places[at] = Place("going", places[at].fresh)
    return tuple(places)


def node(world: tuple[Place, ...]) -> tuple[Place, ...]:
    """What goes has gone, what starts has started."""
    after = {"going": "absent", "pending": "ready", "unready": "ready"}
    moved = (Place(after.get(state, state), fresh) for state, fresh in world)
    return tuple(Place("absent", True) if place.state == "absent" else place for place in moved)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=["roll", "partition", "on-delete"])
@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_every_world_of_two_ordinals_keeps_the_rules_and_comes_to_rest(policy: str, strategy: Json) -> None:
    for replicas in range(3):
        small = Small(policy, replicas, strategy, 2)
        worlds = sum(small.comes_to_rest(world) for world in product(PLACES, repeat=2))
        assert worlds >= len(PLACES) ** 2


@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_every_world_of_three_ordinals_keeps_the_rules_and_comes_to_rest(policy: str, replicas: int) -> None:
    small = Small(policy, replicas, STRATEGIES[0], 3)
    assert sum(small.comes_to_rest(world) for world in product(PLACES, repeat=3)) >= len(PLACES) ** 3
