"""Every way to go: at once, by the last finalizer, after a grace period, with a namespace, with a definition."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.server_clients import (
    CRDS,
    JOBS,
    MAPS,
    PODS,
    THINGS,
    Cluster,
    config_map,
    crd,
    custom_object,
    job,
    pod,
)
from trainyard.objects import find_condition
from trainyard.server.patch.dispatch import APPLY


def test_an_object_without_finalizers_is_deleted_at_once(cluster: Cluster) -> None:
    created = cluster.make(MAPS, config_map("a"))
    response = cluster.delete(f"{MAPS}/a")
    assert response["status"] == "Success"
    assert response["details"] == {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]}
    assert cluster.refused("GET", f"{MAPS}/a").code == 404


def test_only_the_object_with_the_given_uid_is_deleted(cluster: Cluster) -> None:
    created = cluster.make(MAPS, config_map("a"))
    no = cluster.refused("DELETE", f"{MAPS}/a", {"preconditions": {"uid": "other"}})
    assert (no.code, no.reason) == (409, "Conflict")
    assert f"in the precondition (other) does not match the UID in record ({created['metadata']['uid']})" in no.message
    no = cluster.refused("DELETE", f"{MAPS}/a", {"preconditions": {"resourceVersion": "1"}})
    assert no.code == 409
    meant = {"uid": created["metadata"]["uid"], "resourceVersion": created["metadata"]["resourceVersion"]}
    cluster.delete(f"{MAPS}/a", {"preconditions": meant})


@pytest.mark.parametrize(
    ("options", "query", "code"),
    [
        ({"preconditions": {"uid": "other"}}, {}, 409),
        ({"dryRun": ["All"]}, {}, 0),
        ({}, {"dryRun": "All"}, 0),
        ({"gracePeriodSeconds": 0}, {"dryRun": "All"}, 0),
    ],
)
def test_an_eviction_with_another_uid_or_dry_run_deletes_nothing(
    cluster: Cluster, options: dict[str, object], query: dict[str, str], code: int
) -> None:
    created = cluster.make(PODS, pod("a"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}, "deleteOptions": options}
    if code:
        assert cluster.refused("POST", f"{PODS}/a/eviction", eviction, **query).code == code
    else:
        cluster.make(f"{PODS}/a/eviction", eviction, **query)
    assert cluster.get(f"{PODS}/a") == created


def test_an_evicted_pod_says_so(cluster: Cluster) -> None:
    cluster.make(PODS, pod("a"))
    cluster.merge(f"{PODS}/a", {"metadata": {"finalizers": ["example.org/held"]}})
    cluster.make(f"{PODS}/a/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}})
    evicted = cluster.get(f"{PODS}/a")
    condition = find_condition(evicted["status"]["conditions"], "DisruptionTarget") or {}
    assert "deletionTimestamp" in evicted["metadata"]
    assert (condition["status"], condition["reason"]) == ("True", "EvictionByEvictionAPI")
    assert condition["message"] == "Eviction API: evicting"


def test_no_custom_resource_is_created_for_a_terminating_crd(cluster: Cluster) -> None:
    cluster.make(CRDS, crd())
    cluster.make(THINGS, {**custom_object("a"), "metadata": {"name": "a", "finalizers": ["x.io/a"]}})
    cluster.delete(f"{CRDS}/things.example.org")
    no = cluster.refused("POST", THINGS, custom_object("b"))
    assert (no.code, no.message) == (405, "create not allowed while custom resource definition is terminating")
    assert cluster.refused("PATCH", f"{THINGS}/b", custom_object("b"), APPLY, fieldManager="me").code == 405
    cluster.merge(f"{THINGS}/a", {"metadata": {"finalizers": None}})
    assert cluster.get(CRDS)["items"] == []


def test_a_finalizer_holds_an_object_until_it_is_removed(cluster: Cluster) -> None:
    cluster.make(MAPS, config_map("a", metadata={"finalizers": ["x.io/a", "x.io/b"]}))
    held = cluster.delete(f"{MAPS}/a")
    assert held["metadata"]["deletionTimestamp"] == "2027-01-15T08:00:00Z"
    before = cluster.log.revision
    cluster.now += 100
    assert cluster.delete(f"{MAPS}/a") == held and cluster.log.revision == before
    no = cluster.refused("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": ["x.io/c"]}}, "application/merge-patch+json")
    assert "no new finalizers can be added if the object is being deleted" in no.message
    cluster.merge(f"{MAPS}/a", {"metadata": {"finalizers": ["x.io/b"]}})
    assert cluster.get(f"{MAPS}/a")["metadata"]["finalizers"] == ["x.io/b"]
    cluster.merge(f"{MAPS}/a", {"metadata": {"finalizers": None}})
    assert cluster.refused("GET", f"{MAPS}/a").code == 404


@pytest.mark.parametrize(
    ("options", "finalizers"),
    [
        ({}, ["orphan"]),
        ({"propagationPolicy": "Background"}, None),
        ({"propagationPolicy": "Orphan"}, ["orphan"]),
        ({"propagationPolicy": "Foreground"}, ["foregroundDeletion"]),
        ({"orphanDependents": False}, None),
    ],
)
def test_propagation_becomes_a_finalizer_and_a_job_orphans_by_default(
    cluster: Cluster, options: dict[str, object], finalizers: list[str] | None
) -> None:
    cluster.make(JOBS, job("j"))
    cluster.delete(f"{JOBS}/j", options)
    if finalizers is None:
        assert cluster.refused("GET", f"{JOBS}/j").code == 404
    else:
        assert cluster.get(f"{JOBS}/j")["metadata"]["finalizers"] == finalizers


def test_a_pod_without_a_node_is_deleted_at_once(cluster: Cluster) -> None:
    cluster.make(PODS, pod("a"))
    assert cluster.delete(f"{PODS}/a")["kind"] == "Pod"
    assert cluster.refused("GET", f"{PODS}/a").code == 404


def test_a_second_delete_of_a_pod_returns_it_as_it_was(cluster: Cluster) -> None:
    new_pod = pod("a")
    cluster.make(PODS, {**new_pod, "metadata": {**new_pod["metadata"], "finalizers": ["foregroundDeletion"]}})
    marked = cluster.delete(f"{PODS}/a")["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 0 and marked["finalizers"] == ["foregroundDeletion"]
    response = cluster.delete(f"{PODS}/a", {"gracePeriodSeconds": 30, "orphanDependents": False})["metadata"]
    assert response["finalizers"] == ["foregroundDeletion"]
    assert cluster.refused("GET", f"{PODS}/a").code == 404


def test_a_pod_on_a_node_gets_its_grace(cluster: Cluster) -> None:
    cluster.make(PODS, pod("a", nodeName="n"))
    marked = cluster.delete(f"{PODS}/a")["metadata"]
    assert marked["deletionTimestamp"] == "2027-01-15T08:00:30Z" and marked["deletionGracePeriodSeconds"] == 30
    assert marked["generation"] == 2
    shorter = cluster.delete(f"{PODS}/a", {"gracePeriodSeconds": 5})["metadata"]
    assert shorter["deletionTimestamp"] == "2027-01-15T08:00:05Z" and shorter["deletionGracePeriodSeconds"] == 5
    assert cluster.delete(f"{PODS}/a", {"gracePeriodSeconds": 60})["metadata"] == shorter
    cluster.delete(f"{PODS}/a", {"gracePeriodSeconds": 0, "preconditions": {"uid": shorter["uid"]}})
    assert cluster.refused("GET", f"{PODS}/a").code == 404


def test_a_finished_pod_is_deleted_at_once(cluster: Cluster) -> None:
    cluster.make(PODS, pod("a", nodeName="n"))
    cluster.merge(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}})
    cluster.delete(f"{PODS}/a")
    assert cluster.refused("GET", f"{PODS}/a").code == 404


def test_a_pod_with_grace_and_finalizer_needs_both_to_end(cluster: Cluster) -> None:
    cluster.make(PODS, pod("a", nodeName="n", metadata={"finalizers": ["x.io/a"]}))
    cluster.delete(f"{PODS}/a")
    cluster.delete(f"{PODS}/a", gracePeriodSeconds="0")
    assert cluster.get(f"{PODS}/a")["metadata"]["deletionGracePeriodSeconds"] == 0
    cluster.merge(f"{PODS}/a", {"metadata": {"finalizers": []}})
    assert cluster.refused("GET", f"{PODS}/a").code == 404


def test_removing_a_finalizer_does_not_shorten_the_grace_period(cluster: Cluster) -> None:
    cluster.make(PODS, pod("a", nodeName="n", metadata={"finalizers": ["x.io/a"]}))
    cluster.delete(f"{PODS}/a")
    cluster.merge(f"{PODS}/a", {"metadata": {"finalizers": []}})
    assert cluster.get(f"{PODS}/a")["metadata"]["deletionGracePeriodSeconds"] == 30


def test_a_collection_is_deleted_by_selector(cluster: Cluster) -> None:
    for name in "abc":
        cluster.make(MAPS, config_map(name, metadata={"labels": {"x": "1" if name < "c" else "2"}}))
    gone = cluster.delete(MAPS, labelSelector="x=1")
    assert [item["metadata"]["name"] for item in gone["items"]] == ["a", "b"]
    assert [item["metadata"]["name"] for item in cluster.get(MAPS)["items"]] == ["c"]


def test_options_that_make_no_sense_are_refused(cluster: Cluster) -> None:
    cluster.make(MAPS, config_map("a"))
    nonsense: tuple[Any, ...] = (
        [],
        {"gracePeriodSeconds": "x"},
        {"preconditions": 5},
        {"preconditions": {"uid": 5}},
    )
    for options in nonsense:
        assert cluster.refused("DELETE", f"{MAPS}/a", options).code == 400, options
    for options in ({"propagationPolicy": "Sideways"}, {"propagationPolicy": "Orphan", "orphanDependents": True}):
        assert cluster.refused("DELETE", f"{MAPS}/a", options).code == 422, options
    assert cluster.get(f"{MAPS}/a")


def test_a_namespace_takes_its_content_along(cluster: Cluster) -> None:
    cluster.make("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
    maps = "/api/v1/namespaces/x/configmaps"
    cluster.make(maps, config_map("free"))
    cluster.make(maps, config_map("held", metadata={"finalizers": ["x.io/a"]}))
    cluster.delete("/api/v1/namespaces/x")
    assert cluster.get("/api/v1/namespaces/x")["status"]["phase"] == "Terminating"
    assert [item["metadata"]["name"] for item in cluster.get(maps)["items"]] == ["held"]
    no = cluster.refused("POST", maps, config_map("late"))
    assert (no.code, no.reason) == (403, "Forbidden") and "because it is being terminated" in no.message
    cluster.merge(f"{maps}/held", {"metadata": {"finalizers": None}})
    assert cluster.refused("GET", "/api/v1/namespaces/x").code == 404


@pytest.mark.parametrize("meant", [{"uid": "other"}, {"resourceVersion": "1"}])
def test_finalizers_of_another_namespace_or_version_are_not_removed(cluster: Cluster, meant: dict[str, str]) -> None:
    kinds = {"apiVersion": "v1", "kind": "Namespace"}
    created = cluster.make("/api/v1/namespaces", {**kinds, "metadata": {"name": "x"}})
    sent = {**kinds, "metadata": {**created["metadata"], **meant}, "spec": {"finalizers": []}}
    assert cluster.refused("PUT", "/api/v1/namespaces/x/finalize", sent).code == 409
    assert cluster.get("/api/v1/namespaces/x") == created
    sent["metadata"] = created["metadata"]
    assert cluster.ask("PUT", "/api/v1/namespaces/x/finalize", sent)["spec"] == {}


def test_finalizers_of_objects_keep_a_namespace_until_they_are_removed(cluster: Cluster) -> None:
    kinds = {"apiVersion": "v1", "kind": "Namespace"}
    spec = {"finalizers": ["x.io/a"]}
    created = cluster.make("/api/v1/namespaces", {**kinds, "metadata": {"name": "x"}, "spec": spec})
    assert created["spec"]["finalizers"] == ["x.io/a", "kubernetes"]
    cluster.delete("/api/v1/namespaces/x")
    left = cluster.get("/api/v1/namespaces/x")
    assert left["status"]["phase"] == "Terminating" and left["spec"] == spec
    cluster.ask("PUT", "/api/v1/namespaces/x/finalize", {**left, "spec": {}})
    assert cluster.refused("GET", "/api/v1/namespaces/x").code == 404


def test_an_empty_namespace_is_deleted_at_once_and_default_never(cluster: Cluster) -> None:
    cluster.make("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}})
    cluster.delete("/api/v1/namespaces/x")
    assert cluster.refused("GET", "/api/v1/namespaces/x").code == 404
    assert cluster.refused("DELETE", "/api/v1/namespaces/default").code == 403


def test_a_definition_takes_its_instances_along(cluster: Cluster) -> None:
    cluster.make(CRDS, crd())
    cluster.make(THINGS, custom_object("free"))
    cluster.make(THINGS, {**custom_object("held"), "metadata": {"name": "held", "finalizers": ["x.io/a"]}})
    cluster.delete(f"{CRDS}/things.example.org")
    assert [item["metadata"]["name"] for item in cluster.get(THINGS)["items"]] == ["held"]
    cluster.merge(f"{THINGS}/held", {"metadata": {"finalizers": None}})
    assert cluster.refused("GET", THINGS).code == 404
    assert cluster.refused("GET", f"{CRDS}/things.example.org").code == 404
    cluster.make(CRDS, crd())
    assert cluster.get(THINGS)["items"] == []
