"""Which fields of a pod have no effect on one machine, and which have one and are not reported."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.objects import Json
from trainyard.objects.ineffective_fields import NO_DEVICES, NO_SUCH_GPU, ineffective_fields

PROBE = {"exec": {"command": ["true"]}}
POD_ROWS: list[tuple[Json, list[str]]] = [
    ({"nodeSelector": {"a": "b"}}, ["spec.nodeSelector"]),
    ({"tolerations": [{"operator": "Exists"}]}, ["spec.tolerations"]),
    ({"affinity": {"nodeAffinity": {}}}, ["spec.affinity"]),
    ({"topologySpreadConstraints": [{"maxSkew": 1}]}, ["spec.topologySpreadConstraints"]),
    ({"priorityClassName": "high"}, ["spec.priorityClassName"]),
    (
        {"schedulerName": "volcano"},
        ["spec.schedulerName"],
    ),  # placed all the same
    ({"runtimeClassName": "gvisor"}, ["spec.runtimeClassName"]),
    ({"hostNetwork": True, "hostPID": True}, ["spec.hostPID", "spec.hostNetwork"]),
    ({"imagePullSecrets": [{"name": "x"}]}, ["spec.imagePullSecrets"]),
    (
        {"securityContext": {"runAsUser": 0, "fsGroup": 5}},
        ["spec.securityContext.runAsUser", "spec.securityContext.fsGroup"],
    ),
    # These say nothing, or what happens anyhow, or have an effect.
    ({"nodeSelector": {}, "tolerations": [], "affinity": None, "hostNetwork": False, "securityContext": {}}, []),
    ({"serviceAccountName": "x", "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 5}, []),
    ({"hostname": "a", "subdomain": "b", "restartPolicy": "Never", "activeDeadlineSeconds": 5, "volumes": [{}]}, []),
    ({"schedulerName": "default-scheduler"}, []),
    ({"schedulingGates": [{"name": "x"}]}, []),  # such a pod waits here as well
]
CONTAINER_ROWS: list[tuple[Json, list[str]]] = [
    ({"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}, ["resources.limits.cpu"]),
    ({"resources": {"limits": {"nvidia.com/gpu": 1}}}, ["resources.limits.nvidia.com/gpu"]),
    ({"resources": {"requests": {"cpu": 1, "memory": "1Gi"}}}, ["resources.requests"]),
    ({"resources": {"limits": {"amd.com/gpu": 1}, "requests": {}}}, ["resources.limits.amd.com/gpu"]),
    ({"livenessProbe": PROBE, "readinessProbe": PROBE, "startupProbe": PROBE}, []),
    ({"lifecycle": {"preStop": PROBE}}, []),
    ({"tty": True}, ["tty"]),
    ({"imagePullPolicy": "Always"}, ["imagePullPolicy"]),
    ({"securityContext": {"privileged": False}}, ["securityContext.privileged"]),
    ({"command": ["x"], "args": ["y"], "env": [{}], "workingDir": "/", "ports": [{"containerPort": 1}]}, []),
    ({"resources": {}, "lifecycle": None, "securityContext": {}, "tty": False}, []),
]  # fmt: skip


def paths(spec: Json, **how: Any) -> list[str]:
    return [ineffective_field.path for ineffective_field in ineffective_fields({"spec": spec}, **how)]


@pytest.mark.parametrize(("spec", "expected"), POD_ROWS, ids=lambda row: str(row)[:40])
def test_fields_of_a_pod(spec: Json, expected: list[str]) -> None:
    assert paths(spec) == expected


@pytest.mark.parametrize(("container", "expected"), CONTAINER_ROWS, ids=lambda row: str(row)[:40])
@pytest.mark.parametrize("listed", ["containers", "initContainers"])
def test_fields_of_a_container(listed: str, container: Json, expected: list[str]) -> None:
    assert paths({listed: [{"name": "first"}, container]}) == [f"spec.{listed}[1].{path}" for path in expected]


def test_a_field_of_several_containers_has_one_name() -> None:
    listed = [{"name": name, "tty": True} for name in "ab"]
    assert {ineffective_field.field for ineffective_field in ineffective_fields({"spec": {"containers": listed}})} == {
        "containers.tty"
    }


def test_defaults_of_an_api_server_are_not_reported_for_a_stored_pod() -> None:
    container = {"name": "a", "imagePullPolicy": "Always"}
    spec = {"containers": [container], "tolerations": [{"key": "x"}], "priority": 5, "nodeSelector": {"a": "b"}}
    assert paths(spec, stored=True) == ["spec.nodeSelector"]


def test_scheduling_fields_are_effective_where_there_is_a_scheduler() -> None:
    container = {"name": "a", "resources": {"requests": {"cpu": 1}}, "tty": True}
    scheduling = {"nodeSelector": {"a": "b"}, "affinity": {"podAffinity": {}}, "schedulerName": "volcano"}
    spec = {"containers": [container], **scheduling}
    assert paths(spec, scheduled=True) == ["spec.containers[0].tty"]


@pytest.mark.parametrize("pod", [{}, {"spec": None}, {"spec": {"containers": [None, 5], "securityContext": 7}}])
def test_a_malformed_pod_has_no_ineffective_fields(pod: Json) -> None:
    assert ineffective_fields(pod) == []


def test_a_gpu_of_another_vendor_is_not_there_and_other_devices_are_seen() -> None:
    def reasons(resource: str) -> list[str]:
        container = {"name": "main", "resources": {"limits": {resource: 1}}}
        pod = {"spec": {"containers": [container]}}
        return [field.reason for field in ineffective_fields(pod, is_given_out=lambda name: name == "nvidia.com/gpu")]

    assert reasons("amd.com/gpu") == [NO_SUCH_GPU] and reasons("google.com/tpu") == [NO_DEVICES]
    assert reasons("alpha.kubernetes.io/nvidia-gpu") == []
