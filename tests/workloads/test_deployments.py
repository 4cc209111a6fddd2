from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from tests.workloads.workload_values import NOW, deleted_in, is_ready, made_in, owned, scaled_in, status_in
from trainyard.objects import Json, find_condition, is_condition_true, labels_of, name_of, uid_of
from trainyard.objects.writes import Delete, Patch
from trainyard.workloads import replicasets
from trainyard.workloads.deployments import POD_TEMPLATE_HASH, REVISION, decide, pod_template_hash
from trainyard.workloads.writes import Decision


def deployment(replicas: int | None = None, status: Json | None = None, image: str = "x", **spec: object) -> Json:
    template = {"metadata": {"labels": {"app": "tensorboard"}}, "spec": {"containers": [{"image": image}]}}
    spec |= {"template": template, "selector": {"matchLabels": {"app": "tensorboard"}}}
    if replicas is not None:
        spec["replicas"] = replicas
    meta = {"name": "tensorboard-76no", "namespace": "default", "uid": "u-dep", "generation": 3}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec, "status": status or {}}


def replica_set(of: Json, revision: int = 1, **status: int) -> Json:
    """The ReplicaSet that a Deployment gets, as the API server would hand it out."""
    (created,) = made_in(decide(of, [], [], NOW))
    created["metadata"] |= {"uid": f"u-{name_of(created)}"}
    created["metadata"]["annotations"][REVISION] = str(revision)
    return {**created, "status": {"replicas": 0, **status}}


def pod_of(owner: Json, name: str = "p", phase: str = "Running") -> Json:
    pod = {"metadata": {"name": name, "namespace": "default", "uid": f"u-{name}"}, "status": {"phase": phase}}
    return owned(pod, owner)


def revision_in(decision: Decision) -> str:
    """The revision that the Deployment is given."""
    merges = [write for write in decision.writes if isinstance(write, Patch) and write.gvk.kind == "Deployment"]
    return merges[0].body["metadata"]["annotations"][REVISION] if merges else ""


def test_a_deployment_gets_one_replica_set_and_is_not_available_yet() -> None:
    decision = decide(deployment(2), [], [], NOW)
    (created,) = made_in(decision)
    assert created["kind"] == "ReplicaSet" and created["spec"]["replicas"] == 2
    template_hash = labels_of(created)[POD_TEMPLATE_HASH]
    assert name_of(created) == f"tensorboard-76no-{template_hash}"
    expected = {"app": "tensorboard", POD_TEMPLATE_HASH: template_hash}
    assert created["spec"]["selector"]["matchLabels"] == created["spec"]["template"]["metadata"]["labels"] == expected
    assert created["metadata"]["annotations"][REVISION] == revision_in(decision) == "1"
    assert [event.message for event in decision.events] == [f"Scaled up replica set {name_of(created)} from 0 to 2"]
    status = status_in(decision)
    assert status["unavailableReplicas"] == 2 and status["observedGeneration"] == 3
    available = find_condition(status["conditions"], "Available")
    assert available and available["status"] == "False" and available["reason"] == "MinimumReplicasUnavailable"


def test_a_deployment_with_available_pods_needs_no_further_writes() -> None:
    ready = replica_set(deployment(), replicas=1, readyReplicas=1, availableReplicas=1)
    status = status_in(decide(deployment(), [ready], [], NOW))
    assert (status["replicas"], status["readyReplicas"], status["availableReplicas"]) == (1, 1, 1)
    assert is_condition_true(status["conditions"], "Available") and is_condition_true(
        status["conditions"], "Progressing"
    )
    done = deployment(status=status)
    done["metadata"]["annotations"] = {REVISION: "1"}
    assert decide(done, [ready], [pod_of(ready)], NOW + 5) == Decision()


def test_the_template_hash_begins_with_a_letter_and_reads_as_no_number() -> None:
    hashes = {pod_template_hash(deployment(image=f"image-{number}")) for number in range(200)}
    assert len(hashes) == 200
    assert all(re.fullmatch("[bcdf][456789bcdf]{9}", digest) for digest in hashes)
    assert pod_template_hash(deployment()) == pod_template_hash(deployment(5))


def test_a_changed_template_takes_the_old_pods_down_before_new_ones_are_made() -> None:
    old = replica_set(deployment(2), replicas=2)
    changed = deployment(2, image="y")
    down = decide(changed, [old], [pod_of(old)], NOW)
    assert scaled_in(down) == {name_of(old): 0} and not made_in(down)
    assert [event.message for event in down.events] == [f"Scaled down replica set {name_of(old)} from 2 to 0"]
    old["spec"]["replicas"] = 0
    going = pod_of(old)
    going["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    assert not made_in(decide(changed, [old], [going], NOW))
    up = decide(changed, [old], [], NOW)
    (new,) = made_in(up)
    assert name_of(new) != name_of(old) and new["spec"]["replicas"] == 2
    assert new["metadata"]["annotations"][REVISION] == revision_in(up) == "2"


def test_an_older_template_gets_its_replica_set_back_as_the_newest_revision() -> None:
    first, second = deployment(1), deployment(1, image="y")
    old, current = replica_set(first, 1), replica_set(second, 2, replicas=1)
    old["spec"]["replicas"] = 0
    undone = decide(first, [old, current], [pod_of(current)], NOW)
    assert scaled_in(undone) == {name_of(current): 0} and revision_in(undone) == "3"
    current["spec"]["replicas"] = 0
    again = decide(first, [old, current], [], NOW)
    assert scaled_in(again) == {name_of(old): 1} and not made_in(again)


def test_scaling_changes_the_replica_set_alone() -> None:
    current = replica_set(deployment(3), replicas=3)
    assert scaled_in(decide(deployment(1), [current], [pod_of(current)], NOW)) == {name_of(current): 1}
    assert scaled_in(decide(deployment(0), [current], [pod_of(current)], NOW)) == {name_of(current): 0}
    assert scaled_in(decide(deployment(5), [current], [pod_of(current)], NOW)) == {name_of(current): 5}


def test_a_paused_deployment_is_scaled_and_not_rolled_out() -> None:
    old = replica_set(deployment(1), replicas=1)
    paused = decide(deployment(2, image="y", paused=True), [old], [pod_of(old)], NOW)
    assert scaled_in(paused) == {name_of(old): 2} and not made_in(paused)


def test_pods_of_an_older_version_without_replica_sets_are_deleted_first() -> None:
    direct = pod_of(deployment())
    first = decide(deployment(), [], [direct], NOW)
    assert deleted_in(first) == ["u-p"] and not made_in(first)


@pytest.mark.parametrize(("limit", "kept"), [(None, 10), (2, 2), (0, 0)])
def test_empty_replica_sets_beyond_the_history_limit_are_deleted(limit: int | None, kept: int) -> None:
    history = []
    for number in range(1, 13):
        old = replica_set(deployment(image=f"v{number}"), number)
        old["spec"]["replicas"] = 0
        history.append(old)
    spec: dict[str, Any] = {} if limit is None else {"revisionHistoryLimit": limit}
    deleted = [write for write in decide(deployment(**spec), history, [], NOW).writes if isinstance(write, Delete)]
    assert [deletion.uid for deletion in deleted] == [uid_of(deletion) for deletion in history[: 12 - kept]]


def test_a_replica_set_makes_the_pods_that_are_missing_and_the_same_ones_after_a_crash() -> None:
    owner = replica_set(deployment(2))
    first, again = (made_in(replicasets.decide(owner, [], now)) for now in (NOW, NOW + 5))
    assert len({name_of(pod) for pod in first}) == 2 and [*map(name_of, first)] == [*map(name_of, again)]
    assert all(re.fullmatch(f"{name_of(owner)}-[a-z0-9]{{5}}", name_of(pod)) for pod in first)
    assert labels_of(first[0])[POD_TEMPLATE_HASH] == labels_of(owner)[POD_TEMPLATE_HASH]


def test_a_replica_set_replaces_a_pod_that_is_being_deleted_under_another_name() -> None:
    owner = replica_set(deployment())
    (pod,) = made_in(replicasets.decide(owner, [], NOW))
    going = copy.deepcopy(pod)
    going["metadata"] |= {"uid": "u-1", "deletionTimestamp": "2024-01-01T00:00:00Z"}
    going["status"] = {"phase": "Running"}
    (new,) = made_in(replicasets.decide(owner, [going], NOW))
    assert name_of(new) != name_of(pod)


def test_a_replica_set_deletes_surplus_pods_those_that_are_not_ready_first() -> None:
    owner = replica_set(deployment(1))
    pods = [is_ready(pod_of(owner, "old")), pod_of(owner, "starting"), is_ready(pod_of(owner, "young"))]
    for pod, born in zip(pods, ("05", "06", "07"), strict=True):
        pod["metadata"]["creationTimestamp"] = f"2024-01-01T00:00:{born}Z"
    assert deleted_in(replicasets.decide(owner, pods, NOW)) == ["u-starting", "u-young"]


def test_a_replica_set_replaces_a_pod_that_ended() -> None:
    owner = replica_set(deployment())
    decision = replicasets.decide(owner, [pod_of(owner, "p", "Failed")], NOW)
    assert deleted_in(decision) == ["u-p"] and len(made_in(decision)) == 1
