from __future__ import annotations

import copy

from workload_values import NOW, deleted_in, is_ready, made_in, status_in

from trainyard.objects import Json, condition, is_true, name_of
from trainyard.workloads.deployments import decide


def deployment(replicas: int | None = None, status: Json | None = None, image: str = "x") -> Json:
    spec: Json = {
        "template": {"metadata": {"labels": {"app": "tensorboard"}}, "spec": {"containers": [{"image": image}]}}
    }
    if replicas is not None:
        spec["replicas"] = replicas
    meta = {"name": "tensorboard-76no", "namespace": "default", "uid": "u-dep", "generation": 3}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec, "status": status or {}}


def stored(pod: Json) -> Json:
    return {**pod, "metadata": {**pod["metadata"], "uid": f"u-{name_of(pod)}"}, "status": {"phase": "Pending"}}


def test_a_deployment_gets_its_pods_and_says_that_it_is_not_available_yet() -> None:
    decision = decide(deployment(2), [], NOW)
    assert len({name_of(pod) for pod in made_in(decision)}) == 2
    status = status_in(decision)
    assert status["unavailableReplicas"] == 2 and status["observedGeneration"] == 3
    found = condition(status["conditions"], "Available")
    assert found and found["status"] == "False" and found["reason"] == "MinimumReplicasUnavailable"


def test_a_deployment_whose_pods_are_ready_is_available_and_wants_nothing_more() -> None:
    pods = [is_ready(stored(pod)) for pod in made_in(decide(deployment(), [], NOW))]
    status = status_in(decide(deployment(), pods, NOW))
    assert (status["replicas"], status["readyReplicas"], status["availableReplicas"]) == (1, 1, 1)
    assert is_true(status["conditions"], "Available") and is_true(status["conditions"], "Progressing")
    assert decide(deployment(status=status), pods, NOW + 5).writes == ()


def test_the_same_pods_are_asked_for_again_after_a_crash() -> None:
    first, again = (made_in(decide(deployment(2), [], now)) for now in (NOW, NOW + 5))
    assert [name_of(pod) for pod in first] == [name_of(pod) for pod in again]


def test_a_changed_template_takes_the_old_pods_down_before_new_ones_are_made() -> None:
    (old,) = [is_ready(stored(pod)) for pod in made_in(decide(deployment(), [], NOW))]
    changed = decide(deployment(image="y"), [old], NOW)
    assert deleted_in(changed) == [old["metadata"]["uid"]] and not made_in(changed)
    going = copy.deepcopy(old)
    going["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    waiting = decide(deployment(image="y"), [going], NOW)
    assert not made_in(waiting) and not deleted_in(waiting)
    (new,) = made_in(decide(deployment(image="y"), [], NOW))
    assert name_of(new) != name_of(old)


def test_scaling_down_stops_the_pods_that_are_too_many_and_zero_stops_all() -> None:
    pods = [is_ready(stored(pod)) for pod in made_in(decide(deployment(3), [], NOW))]
    assert len(deleted_in(decide(deployment(1), pods, NOW))) == 2
    assert len(deleted_in(decide(deployment(0), pods, NOW))) == 3


def test_a_pod_that_ended_is_taken_away_so_that_its_place_is_filled_again() -> None:
    (pod,) = [stored(pod) for pod in made_in(decide(deployment(), [], NOW))]
    pod["status"]["phase"] = "Failed"
    assert deleted_in(decide(deployment(), [pod], NOW)) == [pod["metadata"]["uid"]]
