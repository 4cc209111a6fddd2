"""The CRDs' schema of a pod template agrees with Kubernetes' validation of pods."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.control_plane.job_life import path_of
from tests.control_plane.test_definitions_on_a_real_server import wire
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_process import ControlPlaneError
from tests.support.samples import ALL_WITH_TEMPLATES, KUBEFLOW_ROLES, elasticjob, sample
from tools import generate_pod_types
from trainyard import kinds
from trainyard.core import Kind
from trainyard.kinds.pods.pod_templates import fields_of_types
from trainyard.objects import Json, encode

pytestmark = pytest.mark.cluster
every_kind = pytest.mark.parametrize("kind", ALL_WITH_TEMPLATES, ids=lambda kind: f"{kind.gvk.kind}.{kind.gvk.group}")
PLACE = {
    "TfJob": "replicaSpecs.template",
    "MxJob": "replicaSpecs.template",
    "ChainerJob": "workerSets.template",
    "ElasticJob": "replicaSpecs.template",
    **{kind: f"{field}.template" for kind, (field, _, _) in KUBEFLOW_ROLES.items()},
}
TYPES = fields_of_types()


def test_the_types_are_those_of_the_pinned_version(control_plane: ControlPlane) -> None:
    _, document = control_plane.ask("GET", "/openapi/v3/api/v1")
    version = control_plane.ask("GET", "/version")[1]["gitVersion"].removeprefix("v")
    assert generate_pod_types.PLACE.read_text() == generate_pod_types.written(document, version), "run `make pod-types`"


def required(kind: str) -> Json:
    """The least value of a type, with everything that it must have."""
    return {field.removesuffix("!"): least(part) for field, part in TYPES[kind].items() if field.endswith("!")}


def least(kind: str) -> Any:
    if kind.startswith("["):
        return [least(kind[1:-1])]
    return {"string": "x", "integer": 1, "boolean": True, "int-or-string": 80}.get(kind) or required(kind)


def paths_to_types() -> dict[str, list[tuple[str, str]]]:
    """For each type the shortest way to it from a PodSpec: fields and their types."""
    pod_schemas: dict[str, list[tuple[str, str]]] = {"PodSpec": []}
    due = ["PodSpec"]
    for name in due:
        for field, kind in TYPES[name].items():
            inner = kind.strip("[]")
            if inner in TYPES and inner not in pod_schemas:
                pod_schemas[inner] = [*pod_schemas[name], (field.removesuffix("!"), kind)]
                due.append(inner)
    return pod_schemas


def pod_without(kind: str, field: str) -> Json:
    """A pod that has a value of that type, without that field."""
    spec: Json = {"containers": [{"name": "c", "image": "i"}]}
    node = spec
    for name, part in paths_to_types()[kind]:
        value = {"name": "c", "image": "i"} if name == "containers" else required(part.strip("[]"))
        node[name] = [value] if part.startswith("[") else value
        node = value
    node.pop(field)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def test_the_server_requires_the_fields_that_our_schema_requires(control_plane: ControlPlane) -> None:
    count = 0
    for kind in paths_to_types():
        for field in required(kind):
            path = "/api/v1/namespaces/default/pods?dryRun=All"
            code, answer = control_plane.ask("POST", path, pod_without(kind, field))
            assert code == 422, (kind, field, answer)
            count += 1
    assert count > 60


@every_kind
def test_kubectl_explain_shows_the_template(installed: ControlPlane, kind: Kind) -> None:
    place = f"{kind.gvk.plural}.spec.{PLACE[kind.gvk.kind]}.spec.containers"
    output = installed.kubectl("explain", place, f"--api-version={kind.gvk.api_version}")
    for field in ("command\t<[]string>", "env\t<[]Object>", "resources\t<Object>", "volumeMounts\t<[]Object>"):
        assert field in output
    assert "configMapKeyRef" in installed.kubectl(
        "explain", f"{place}.env.valueFrom", f"--api-version={kind.gvk.api_version}"
    )


WRONG: list[tuple[str, str, Json]] = [
    ("containers is an object", "containers", {"containers": {}}),
    ("a value that is a number", "containers[0].env[0].value", {"env": [{"name": "A", "value": 5}]}),
    ("a command that is text", "containers[0].command", {"command": "python train.py"}),
    ("limits as a list", "containers[0].resources.limits", {"resources": {"limits": ["1"]}}),
    ("a port as text", "containers[0].ports[0].containerPort", {"ports": [{"containerPort": "80"}]}),
    ("a mount without a place", "containers[0].volumeMounts[0].mountPath", {"volumeMounts": [{"name": "v"}]}),
]


@pytest.mark.parametrize(("path", "part"), [pytest.param(*row[1:], id=row[0]) for row in WRONG])
def test_a_dry_run_reports_the_path_of_a_template_error(installed: ControlPlane, path: str, part: Json) -> None:
    job = wire(kinds.ELASTICJOB, elasticjob())
    spec = job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]
    (spec if "containers" in part else spec["containers"][0]).update(part)
    with pytest.raises(ControlPlaneError) as error:
        installed.kubectl("apply", "--dry-run=server", "-f", "-", stdin=encode(job).decode())
    place = f"spec.replicaSpecs.Worker.template.spec.{path}"
    assert place in str(error.value)
    assert any(problem.path == place for problem in kinds.admit(kinds.ELASTICJOB, job)[1])


RICH: Json = {
    "metadata": {"labels": {"a": "b"}, "annotations": None, "creationTimestamp": None, "name": "x", "newer": 1},
    "spec": {
        "nodeSelector": None,
        "hostNetwork": None,
        "terminationGracePeriodSeconds": 5,
        "tolerations": [{"key": "gpu", "operator": "Exists", "newer": []}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}},
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}, {"name": "w", "ofLater": {}}],
        "ofLater": {"x": [None]},
    },
}
CONTAINER: Json = {
    "image": "example/train:1",
    "command": None,
    "env": [{"name": "A"}, {"name": "A", "value": ""}, {"name": "B", "valueFrom": None}],
    "resources": {"limits": {"cpu": 0.5, "memory": "1Gi", "nvidia.com/gpu": 1}, "requests": None},
    "livenessProbe": {"httpGet": {"port": "http", "httpHeaders": [{"name": "X"}]}, "periodSeconds": 5},
    "lifecycle": {"preStop": {"sleep": {}}},
    "imagePullPolicy": "",
    "newer": {"a": 1},
}


@every_kind
def test_a_valid_pod_template_is_stored_unchanged(installed: ControlPlane, namespace: str, kind: Kind) -> None:
    job = wire(kind, sample(kind.gvk.kind))
    templates = list(each_template(job["spec"]))
    for template in templates:
        name = template["spec"]["containers"][0]["name"]
        spec = {**copy.deepcopy(RICH["spec"]), "containers": [{"name": name, **copy.deepcopy(CONTAINER)}]}
        template |= {"metadata": copy.deepcopy(RICH["metadata"]), "spec": spec}
    code, created = installed.ask("POST", path_of(kind, namespace), job)
    assert code == 201, created
    assert templates and list(each_template(created["spec"])) == templates
    full, problems = kinds.admit(kind, job)
    assert not problems and list(each_template(full["spec"])) == templates


def each_template(part: Any) -> list[Json]:
    if isinstance(part, dict):
        here = [part["template"]] if "template" in part else []
        return [
            *here,
            *(template for name, value in part.items() if name != "template" for template in each_template(value)),
        ]
    return [template for element in part for template in each_template(element)] if isinstance(part, list) else []
