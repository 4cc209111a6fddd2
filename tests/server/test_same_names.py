"""Definitions of several groups may give their resources the same names, as MxJobs do."""

from __future__ import annotations

from typing import Any

from tests.server.server_clients import CRDS, Client, Cluster, crd, following

GROUPS = ("mlkube.io", "mxnet.mlkube.io")


def definition(group: str) -> dict[str, Any]:
    definition = crd("mxjobs", "MxJob", group)
    definition["spec"]["names"]["shortNames"] = ["mxj"]
    return definition


def path(group: str) -> str:
    return f"/apis/{group}/v1/namespaces/default/mxjobs"


def job(group: str, name: str = "a", replicas: int = 1) -> dict[str, Any]:
    meta = {"name": name}
    return {"apiVersion": f"{group}/v1", "kind": "MxJob", "metadata": meta, "spec": {"replicas": replicas}}


def test_the_same_plural_in_two_groups_is_two_resources(cluster: Cluster) -> None:
    for replicas, group in enumerate(GROUPS):
        conditions = cluster.make(CRDS, definition(group))["status"]["conditions"]
        assert {condition["type"]: condition["status"] for condition in conditions} == {
            "NamesAccepted": "True",
            "Established": "True",
        }
        cluster.make(path(group), job(group, replicas=replicas))
    for replicas, group in enumerate(GROUPS):
        (only,) = cluster.get(path(group))["items"]
        assert only["apiVersion"] == f"{group}/v1" and only["spec"]["replicas"] == replicas
        (entry, _) = cluster.get(f"/apis/{group}/v1")["resources"]
        assert (entry["name"], entry["shortNames"]) == ("mxjobs", ["mxj"])
    assert set(GROUPS) <= {group["name"] for group in cluster.get("/apis")["groups"]}
    assert cluster.refused("POST", path(GROUPS[0]), job(GROUPS[1], "b")).code == 400


def test_deleting_one_of_two_crds_of_the_same_kind_keeps_the_other(cluster: Cluster) -> None:
    for group in GROUPS:
        cluster.make(CRDS, definition(group))
        cluster.make(path(group), job(group))
    cluster.delete(f"{CRDS}/mxjobs.{GROUPS[0]}")
    assert cluster.refused("GET", path(GROUPS[0])).code == 404
    assert [item["metadata"]["name"] for item in cluster.get(path(GROUPS[1]))["items"]] == ["a"]
    cluster.make(CRDS, definition(GROUPS[0]))
    assert cluster.get(path(GROUPS[0]))["items"] == []


async def test_a_watch_of_one_group_gets_no_events_of_the_other(client: Client) -> None:
    for group in GROUPS:
        await client.make(CRDS, definition(group))
    async with client.watch(path(GROUPS[1])) as lines:
        await client.make(path(GROUPS[0]), job(GROUPS[0], "first"))
        await client.make(path(GROUPS[1]), job(GROUPS[1], "second"))
        assert await following(lines, 1) == [("ADDED", "second")]


def test_kubectl_may_leave_the_checking_of_each_to_the_server(cluster: Cluster) -> None:
    """Before it sends a manifest it looks for `fieldValidation` at the PATCH of the kind."""
    for group in GROUPS:
        cluster.make(CRDS, definition(group))
    places = cluster.get("/openapi/v3")["paths"]
    for group, kind, place in (("apps", "StatefulSet", "apis/apps/v1"), ("", "Pod", "api/v1"),
                               *((group, "MxJob", f"apis/{group}/v1") for group in GROUPS)):  # fmt: skip
        document = cluster.get(places[place]["serverRelativeURL"].partition("?")[0])
        patches = [
            item["patch"]
            for path, item in document["paths"].items()
            if "patch" in item and not path.endswith("/status")
        ]
        wanted = {"group": group, "version": "v1", "kind": kind}
        (schema,) = [patch for patch in patches if patch["x-kubernetes-group-version-kind"] == wanted]
        assert "fieldValidation" in [parameter["name"] for parameter in schema["parameters"]]
    assert cluster.refused("GET", "/openapi/v3/apis/nope/v1").code == 404


def test_kubectl_can_explain_a_custom_resource(cluster: Cluster) -> None:
    cluster.make(CRDS, definition(GROUPS[1]))
    schemas = cluster.get(f"/openapi/v3/apis/{GROUPS[1]}/v1")["components"]["schemas"]
    assert {"io.mlkube.mxnet.v1.MxJob", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"} < set(schemas)
    schema = schemas["io.mlkube.mxnet.v1.MxJob"]
    assert schema["x-kubernetes-group-version-kind"] == [{"group": GROUPS[1], "version": "v1", "kind": "MxJob"}]
    assert {"apiVersion", "kind", "metadata", "spec", "status"} <= set(schema["properties"])
    assert schema["properties"]["spec"]["properties"]["mode"]["default"] == "fast"
