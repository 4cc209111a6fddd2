"""Definitions and objects that would stop the server: each is answered, and in time that grows with its length."""

from __future__ import annotations

import pytest

from tests.server.server_clients import CRDS, PODS, THINGS, Cluster, crd, custom_object, pod

MERGE = "application/merge-patch+json"


def patterned(pattern: str) -> dict[str, object]:
    definition = crd()
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["word"] = {
        "type": "string",
        "pattern": pattern,
    }
    return definition


def test_a_pattern_that_doubles_with_each_letter_is_compared_on_create_and_on_patch(cluster: Cluster) -> None:
    cluster.make(CRDS, patterned("^(a+)+$"))
    assert "match" in cluster.refused("POST", THINGS, custom_object("a", word="a" * 5000 + "!")).message
    cluster.make(THINGS, custom_object("a", word="aaa"))
    patch = {"spec": {"word": "a" * 5000 + "!"}}
    assert "match" in cluster.refused("PATCH", f"{THINGS}/a", patch, MERGE).message


NAMES = ["../../../keys", "/etc", "..", ".", "a/b", "a\0b", "a" * 254]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("kind", "field"), [("persistentVolumeClaim", "claimName"), ("configMap", "name"), ("secret", "secretName")]
)
def test_an_invalid_object_name_is_no_path(cluster: Cluster, kind: str, field: str, name: str) -> None:
    refused = cluster.refused("POST", PODS, pod("a", volumes=[{"name": "v", kind: {field: name}}]))
    assert f"spec.volumes[0].{kind}.{field}" in refused.message


@pytest.mark.parametrize("field", ["subPath", "subPathExpr"])
@pytest.mark.parametrize("path", ["../keys", "/etc", "a/../../b"])
def test_a_sub_path_stays_beneath_its_volume(cluster: Cluster, field: str, path: str) -> None:
    mount = {"name": "v", "mountPath": "/m", field: path}
    container = {"name": "c", "image": "i", "volumeMounts": [mount]}
    new_pod = pod("a", volumes=[{"name": "v", "emptyDir": {}}], containers=[container])
    assert field in cluster.refused("POST", PODS, new_pod).message
