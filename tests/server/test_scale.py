"""/scale: one way to say "so many", for StatefulSets, Deployments and every custom resource that names its fields."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.server_clients import CRDS, MAPS, THINGS, Cluster, config_map, crd, custom_object

APPS = "/apis/apps/v1/namespaces/default"
SETS, DEPLOYMENTS = f"{APPS}/statefulsets", f"{APPS}/deployments"
PATHS = {
    "specReplicasPath": ".spec.worker.replicas",
    "statusReplicasPath": ".status.worker.replicas",
    "labelSelectorPath": ".status.selector",
}


def workload(kind: str, name: str = "w", **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"app": "w"}}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def scale(name: str, replicas: Any, **meta: Any) -> dict[str, Any]:
    spec = {"replicas": replicas}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": name, **meta}, "spec": spec}


@pytest.fixture
def scaled(cluster: Cluster) -> Cluster:
    """With one StatefulSet, one Deployment and one custom resource whose number is deep inside."""
    wide = crd(subresources={"status": {}, "scale": PATHS})
    schema = wide["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    schema["required"], schema["properties"]["worker"] = [], {
        "type": "object",
        "properties": {"replicas": {"type": "integer", "minimum": 0, "maximum": 9}, "kept": {"type": "string"}},
    }  # fmt: skip
    cluster.make(CRDS, wide)
    cluster.make(THINGS, custom_object("w", worker={"replicas": 2, "kept": "yes"}))
    cluster.make(SETS, workload("StatefulSet", serviceName="w"))
    cluster.make(DEPLOYMENTS, workload("Deployment"))
    return cluster


ALL = [(SETS, 1), (DEPLOYMENTS, 1), (THINGS, 2)]


@pytest.mark.parametrize(("path", "replicas"), ALL)
def test_a_scale_has_the_replicas_and_nothing_else(scaled: Cluster, path: str, replicas: int) -> None:
    whole, scale = scaled.get(f"{path}/w"), scaled.get(f"{path}/w/scale")
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"], scale["status"]["replicas"]) == ({"replicas": replicas}, 0)
    for field in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp"):
        assert scale["metadata"][field] == whole["metadata"][field]


@pytest.mark.parametrize(("path", "replicas"), ALL)
def test_a_scale_is_changed_by_put_and_patch(scaled: Cluster, path: str, replicas: int) -> None:
    before = scaled.get(f"{path}/w")
    assert scaled.ask("PUT", f"{path}/w/scale", scale("w", 5))["spec"] == {"replicas": 5}
    after = scaled.get(f"{path}/w")
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert scaled.merge(f"{path}/w/scale", {"spec": {"replicas": 0}})["spec"] == {}
    steps = [{"op": "add", "path": "/spec/replicas", "value": 7}]
    assert scaled.ask("PATCH", f"{path}/w/scale", steps, "application/json-patch+json")["spec"] == {"replicas": 7}
    assert scaled.get(f"{path}/w/scale")["spec"] == {"replicas": 7}


def test_only_the_number_changes(scaled: Cluster) -> None:
    scaled.merge(f"{THINGS}/w/scale", {"spec": {"replicas": 3}, "metadata": {"labels": {"a": "b"}}})
    now = scaled.get(f"{THINGS}/w")
    assert now["spec"]["worker"] == {"replicas": 3, "kept": "yes"} and "labels" not in now["metadata"]
    scaled.merge(f"{THINGS}/w/status", {"status": {"worker": {"replicas": 2}, "selector": "a=b"}})
    assert scaled.get(f"{THINGS}/w/scale")["status"] == {"replicas": 2, "selector": "a=b"}


def test_the_selector_is_text(scaled: Cluster) -> None:
    terms = [
        {"key": "b", "operator": "In", "values": ["y", "x"]}, {"key": "c", "operator": "NotIn", "values": ["z"]},
        {"key": "d", "operator": "Exists"}, {"key": "e", "operator": "DoesNotExist"},
    ]  # fmt: skip
    selector = {"matchLabels": {"app": "w"}, "matchExpressions": terms}
    deployment = workload("Deployment", "x", selector=selector)
    deployment["spec"]["template"]["metadata"]["labels"].update(b="x", d="")
    scaled.make(DEPLOYMENTS, deployment)
    label_selector = scaled.get(f"{DEPLOYMENTS}/x/scale")["status"]["selector"]
    assert label_selector == "app=w,b in (x,y),c notin (z),d,!e"


def test_a_scale_is_fenced_like_any_update(scaled: Cluster) -> None:
    old = scaled.get(f"{SETS}/w/scale")["metadata"]
    scaled.merge(f"{SETS}/w/scale", {"spec": {"replicas": 4}})
    fence = {"resourceVersion": old["resourceVersion"]}
    assert scaled.refused("PUT", f"{SETS}/w/scale", scale("w", 5, **fence)).code == 409
    assert scaled.refused("PUT", f"{SETS}/w/scale", scale("w", 5, uid="another")).code == 409
    assert scaled.get(f"{SETS}/w/scale")["spec"] == {"replicas": 4}
    revision = scaled.log.revision
    scaled.ask("PUT", f"{SETS}/w/scale", scale("w", 5), dryRun="All")
    assert scaled.log.revision == revision


REFUSED = [
    (SETS, scale("w", -1), 422, "must be greater than or equal to 0"),
    (SETS, scale("w", "x"), 400, "spec.replicas"),
    (SETS, scale("w", True), 400, "spec.replicas"),
    (SETS, scale("w", 2**31), 400, "spec.replicas"),
    (SETS, scale("other", 1), 400, "the name on the URL"),
    (SETS, {"kind": "StatefulSet"}, 400, "must be a Scale"),
    (SETS, [], 400, "must be a Scale"),
    (THINGS, scale("w", 10), 422, "spec.worker.replicas"),
]


@pytest.mark.parametrize(("path", "body", "code", "text"), REFUSED)
def test_a_wrong_scale_is_refused(scaled: Cluster, path: str, body: Any, code: int, text: str) -> None:
    before = scaled.get(f"{path}/w")
    refused = scaled.refused("PUT", f"{path}/w/scale", body)
    assert refused.code == code and text in refused.message
    assert scaled.get(f"{path}/w") == before


def test_a_resource_without_scale_cannot_be_scaled(scaled: Cluster) -> None:
    scaled.make(MAPS, config_map("a"))
    assert scaled.refused("GET", f"{MAPS}/a/scale").code == 404
    assert scaled.refused("GET", f"{SETS}/nope/scale").code == 404
    assert scaled.refused("DELETE", f"{SETS}/w/scale").code == 405
    assert scaled.refused("POST", f"{SETS}/w/scale", scale("w", 1)).code == 405
    scaled.make(THINGS, custom_object("none"))
    assert "does not exist" in scaled.refused("GET", f"{THINGS}/none/scale").message
    assert scaled.merge(f"{THINGS}/none/scale", {"spec": {"replicas": 3}})["spec"] == {"replicas": 3}


def test_discovery_lists_the_scale_subresources(scaled: Cluster) -> None:
    for path, name in (("/apis/apps/v1", "statefulsets/scale"), ("/apis/example.org/v1", "things/scale")):
        entries = {resource["name"]: resource for resource in scaled.get(path)["resources"]}
        entry = entries[name]
        assert (entry["group"], entry["version"], entry["kind"]) == ("autoscaling", "v1", "Scale")
        assert entry["verbs"] == ["get", "patch", "update"]


@pytest.mark.parametrize("value", ["resourceVersion", "uid"])
def test_a_patch_of_a_scale_that_leaves_no_scale_is_refused_by_name(scaled: Cluster, value: str) -> None:
    refused = scaled.refused("PATCH", f"{SETS}/w/scale", {"metadata": {value: -1}}, "application/merge-patch+json")
    assert refused.code == 422 and f"metadata.{value}: Invalid value: -1: must be a string" in refused.message


@pytest.mark.parametrize(
    ("paths", "field"),
    [
        ({"statusReplicasPath": ".status.x"}, "specReplicasPath"),
        ({**PATHS, "specReplicasPath": ".status.x"}, "specReplicasPath"),
        ({**PATHS, "statusReplicasPath": ".spec.x"}, "statusReplicasPath"),
        ({**PATHS, "labelSelectorPath": "x"}, "labelSelectorPath"),
    ],
)
def test_a_definition_names_its_fields_rightly(cluster: Cluster, paths: Any, field: str) -> None:
    refused = cluster.refused("POST", CRDS, crd(subresources={"scale": paths}))
    assert refused.code == 422 and field in (refused.details or {})["causes"][0]["field"]
