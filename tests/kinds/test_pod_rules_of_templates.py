"""What an API server refuses in pods is a problem of their template, with its path, before there are pods."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.support.builders import tfjob
from tests.support.samples import ALL_WITH_TEMPLATES, sample
from trainyard import kinds
from trainyard.cli.command import manifests
from trainyard.core import Kind
from trainyard.kinds.pods.templates import containers_of
from trainyard.objects import Json, encode, templates_of
from trainyard.objects.manifest import read

VOLUME: Json = {"name": "v", "emptyDir": {}}
BAD: dict[str, tuple[Json, Json, str, str]] = {
    # what is changed in the pod spec, in its first container; the end of the path, a part of the text
    "mount": ({}, {"volumeMounts": [{"name": "v", "mountPath": "/x"}]}, "volumeMounts[0].name", "Not found"),
    "mounts": (
        {"volumes": [VOLUME]},
        {"volumeMounts": [{"name": "v", "mountPath": "/x"}] * 2},
        "volumeMounts[1].mountPath",
        "must be unique",
    ),
    "volumes": ({"volumes": [VOLUME, VOLUME]}, {}, "spec.volumes[1].name", "write it once"),
    "port": ({}, {"ports": [{"name": "a" * 16, "containerPort": 1}]}, "ports[0].name", "no more than 15"),
    "requests": (
        {},
        {"resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}},
        "resources.requests",
        "less than or equal to cpu limit of 1",
    ),
    "pull policy": ({}, {"imagePullPolicy": "always"}, "imagePullPolicy", '"IfNotPresent"'),
    "DNS policy": ({"dnsPolicy": "clusterfirst"}, {}, "spec.dnsPolicy", '"ClusterFirst"'),
    "message policy": ({}, {"terminationMessagePolicy": "file"}, "terminationMessagePolicy", '"File"'),
    "variable": ({}, {"env": [{"name": "a=b", "value": ""}]}, "env[0].name", "must not contain '='"),
    "no source": ({}, {"env": [{"name": "A", "valueFrom": {}}]}, "env[0].valueFrom", "must specify one of"),
    "grace period": ({"terminationGracePeriodSeconds": 2**63}, {}, "terminationGracePeriodSeconds", "an integer"),
}
GOOD: dict[str, tuple[Json, Json]] = {
    "fields of a newer Kubernetes": (
        {"newField": {"a": [None]}, "volumes": [{"name": "v", "newSource": {}}]},
        {"newField": 1, "volumeMounts": [{"name": "v", "mountPath": "/x"}]},
    ),
    "sources and handlers of a newer Kubernetes": (
        {},
        {
            "env": [{"name": "A", "valueFrom": {"newRef": {"name": "x"}}}],
            "envFrom": [{"newRef": {"name": "x"}}],
            "livenessProbe": {"newHandler": {}},
            "lifecycle": {"preStop": {"newHandler": {}}},
        },
    ),
    "null": ({"volumes": None, "securityContext": None}, {"ports": None, "env": [{"name": "A", "value": None}]}),
    "what a server takes as empty": (
        {
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}},
            "securityContext": {"sysctls": [{"name": "kernel.shm_rmid_forced"}]},
        },
        {"livenessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "Accept"}]}}},
    ),
    "native sidecar": ({"initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always"}]}, {}),
}
of_every_kind = pytest.mark.parametrize(
    "kind", ALL_WITH_TEMPLATES, ids=lambda kind: f"{kind.gvk.kind}.{kind.gvk.group}"
)


def job_with(kind: Kind, pod: Json, container: Json, **meta: Any) -> tuple[Json, str]:
    """A sample of the kind with changes in its first template, and the path of that template."""
    job = copy.deepcopy(sample(kind.gvk.kind))
    path, template = next(templates_of(job["spec"], "spec"))
    template["spec"].update(pod)
    containers_of(template)[0].update(container)
    template.update(meta)
    return job, path


@of_every_kind
@pytest.mark.parametrize(("pod", "container", "path", "text"), BAD.values(), ids=BAD)
def test_pods_that_an_api_server_refuses_are_a_problem(
    kind: Kind, pod: Json, container: Json, path: str, text: str
) -> None:
    job, template = job_with(kind, pod, container)
    (problem,) = kinds.admit(kind, job)[1]
    assert problem.path.startswith(template) and problem.path.endswith(path) and text in problem.text, problem


@of_every_kind
@pytest.mark.parametrize(("pod", "container"), GOOD.values(), ids=GOOD)
def test_what_an_api_server_accepts_is_none(kind: Kind, pod: Json, container: Json) -> None:
    assert kinds.admit(kind, job_with(kind, pod, container)[0])[1] == []


def test_a_label_that_is_none_has_the_line_of_the_labels() -> None:
    job, path = job_with(kinds.TFJOB, {}, {}, metadata={"labels": {"team": "not a label!"}})
    (document,) = read(encode(job), "job.yaml")
    (problem,) = manifests.admit(document, kinds.TFJOB)[1]
    assert problem.path == f"job.yaml:1: {path}.metadata.labels" and "a valid label must be" in problem.text


def test_a_volume_that_the_kind_adds_may_be_mounted() -> None:
    """A default parameter server, as the operator stores it."""
    mounts = [{"name": "ps-config-volume", "mountPath": "/ps-server"}]
    server = {"name": "tensorflow", "image": "tensorflow/tensorflow", "volumeMounts": mounts}
    job = tfjob()
    job["spec"]["replicaSpecs"].append(
        {"tfReplicaType": "PS", "replicas": 1, "IsDefaultPS": True, "template": {"spec": {"containers": [server]}}}
    )
    assert kinds.admit(kinds.TFJOB, job)[1] == []
