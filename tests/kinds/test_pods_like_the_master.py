"""Pods that the user did not write, TensorBoard's and a default PS's, are as restricted as the MASTER's."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.builders import NOW, UID, look, replicas, started, tfjob
from trainyard.core import Config, Observed, decode_child, plan, render_object
from trainyard.kinds import TFJOB
from trainyard.objects import Json, find_condition
from trainyard.objects.labels import OWNER

POD = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "imagePullSecrets": [{"name": "registry"}],
}
CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
SIZES = {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi", "nvidia.com/gpu": "1"}}
BOARD: dict[str, Any] = {"tensorboard": {"logDir": "/l"}}


def master(**container: Any) -> Json:
    master = replicas("MASTER")
    spec = master["template"]["spec"]
    spec["containers"][0] |= {"securityContext": CONTAINER, "resources": SIZES, **container}
    return {**master, "template": {"spec": {**spec, **POD}}}


def pods(*items: Json, **spec: Any) -> dict[str, Json]:
    """The pod specs of all that the first pass makes, by name."""
    job = tfjob(*items, **spec)
    first = plan(TFJOB, job, Observed(), NOW)
    rendered = (render_object(TFJOB, {**job, "status": first.status}, create, Config()) for create in first.creates)
    return {
        obj["metadata"]["name"]: obj["spec"]["template"]["spec"]
        for obj in rendered
        if "template" in obj.get("spec", {})
    }


@pytest.mark.parametrize("name", ["tensorboard-76no", "ps-76no-0"])
def test_generated_pods_copy_the_masters_required_fields(name: str) -> None:
    pod = pods(master(), {"tfReplicaType": "PS"}, **BOARD)[name]
    assert {field: pod[field] for field in POD} == POD
    (container,) = pod["containers"]
    assert container["securityContext"] == CONTAINER
    assert container["resources"] == {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}  # it needs no GPU


def test_fields_that_the_master_does_not_set_are_not_set() -> None:
    for pod in pods(replicas("MASTER"), {"tfReplicaType": "PS"}, **BOARD).values():
        assert not {*POD, "resources"} & {*pod, *pod["containers"][0]}


def test_a_container_added_to_a_users_ps_leaves_the_others_unchanged() -> None:
    own = {"tfReplicaType": "PS", "template": {"spec": {"containers": [{"name": "mine", "image": "i"}]}}}
    pod = pods(master(), own)["ps-76no-0"]
    assert not POD.keys() & pod.keys()
    mine, ours = pod["containers"]
    assert "securityContext" not in mine and ours["securityContext"] == CONTAINER


def deployment(*conditions: Json) -> Json:
    meta = {"name": "tensorboard-76no", "uid": "board", "ownerReferences": [{"uid": UID, "controller": True}]}
    return {"kind": "Deployment", "metadata": meta, "status": {"conditions": list(conditions)}}


def board_pod(reason: str) -> Json:
    labels = {OWNER: UID, "app": "tensorboard"}
    status = {"phase": "Pending", "containerStatuses": [{"name": "t", "state": {"waiting": {"reason": reason}}}]}
    meta = {"name": "tensorboard-76no-x", "labels": labels, "ownerReferences": [{"uid": "set", "controller": True}]}
    return {"kind": "Pod", "metadata": meta, "status": status}


FAILURE = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "violates PodSecurity"}
LATE = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "it took too long"}


@pytest.mark.parametrize(
    ("children", "text"),
    [
        ([deployment(FAILURE)], "FailedCreate: violates PodSecurity"),
        ([deployment(LATE)], "ProgressDeadlineExceeded"),
        ([deployment(), board_pod("ErrImagePull")], "Pod tensorboard-76no-x: ErrImagePull"),
    ],
)
def test_an_unavailable_tensorboard_is_reported_and_the_job_continues(children: list[Json], text: str) -> None:
    planned = look(started(**BOARD), *children)
    condition = find_condition(planned.status["conditions"], "Degraded") or {}
    assert (
        condition["status"] == "True"
        and condition["reason"] == "DeploymentUnavailable"
        and text in condition["message"]
    )
    assert planned.creates and not planned.deletes  # its replicas are made


@pytest.mark.parametrize("children", [[deployment()], [deployment(), board_pod("ContainerCreating")]])
def test_a_tensorboard_that_starts_is_no_trouble(children: list[Json]) -> None:
    assert find_condition(look(started(**BOARD), *children).status["conditions"], "Degraded") is None


def test_the_record_of_a_deployment_that_is_well_is_empty() -> None:
    assert (
        decode_child(deployment({"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"})).reason
        == ""
    )
