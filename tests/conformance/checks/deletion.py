"""Deletion: finalizers, grace period, propagation, owners."""

from __future__ import annotations

from typing import Any

from tests.conformance import Cluster, check
from tests.conformance.mutations import (
    answers,
    drops,
    ignores,
    original,
    replaced,
    sets,
    without,
    without_header,
)

AREA = "deletion"
FINALIZERS = ["example.org/held"]
BACKGROUND: dict[str, Any] = {"propagationPolicy": "Background"}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"containers": [{"name": "main", "image": "busybox:1"}]},
}


def job(name: str, **meta: Any) -> Any:
    template = {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
    spec = {"suspend": True, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, **meta}, "spec": spec}


def owner_reference(obj: Any, **more: Any) -> Any:
    """An owner reference to the object."""
    meta = obj["metadata"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"], **more}


def finalizers_of(obj: Any) -> list[str]:
    return sorted(obj["metadata"].get("finalizers", []))


@check(
    "A deleted object with finalizers stays, can be updated, and is removed with its last finalizer.",
    area=AREA,
    mutation=drops("metadata.finalizers"),
)
async def finalizer(cluster: Cluster) -> None:
    await cluster.create_config_map("one", finalizers=[*FINALIZERS, "example.org/too"])
    path = cluster.path("configmaps", "one")
    deleted = (await cluster.request("DELETE", path)).expect(200)
    assert deleted["kind"] == "ConfigMap" and deleted["metadata"]["deletionTimestamp"].endswith("Z")
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 0
    changed = (
        await cluster.request("PATCH", path, {"data": {"a": "b"}, "metadata": {"finalizers": FINALIZERS}})
    ).expect(200)
    assert changed["data"] == {"a": "b"} and finalizers_of(changed) == FINALIZERS
    (await cluster.request("PATCH", path, {"metadata": {"finalizers": None}})).expect(200)
    (await cluster.request("GET", path)).expect_error(404, "NotFound")


@check(
    "A second delete of an object with finalizers changes nothing.",
    area=AREA,
    mutation=replaced("registry.writes:json_equal", lambda new, old: False, "writes unchanged objects"),
)
async def second_delete(cluster: Cluster) -> None:
    await cluster.create_config_map("one", finalizers=FINALIZERS)
    first = (await cluster.request("DELETE", cluster.path("configmaps", "one"))).expect(200)
    assert (await cluster.request("DELETE", cluster.path("configmaps", "one"))).expect(200) == first


@check(
    "A deletionTimestamp can be neither removed nor changed.",
    area=AREA,
    mutation=sets("metadata.deletionTimestamp", "2001-01-01T00:00:00Z"),
)
async def deletion_timestamp_is_final(cluster: Cluster) -> None:
    await cluster.create_config_map("one", finalizers=FINALIZERS)
    path = cluster.path("configmaps", "one")
    timestamp = (await cluster.request("DELETE", path)).expect(200)["metadata"]["deletionTimestamp"]
    for value in (None, "2001-01-01T00:00:00Z"):
        patched = (await cluster.request("PATCH", path, {"metadata": {"deletionTimestamp": value}})).expect(200)
        assert patched["metadata"]["deletionTimestamp"] == timestamp != "2001-01-01T00:00:00Z"


@check(
    "A deletionTimestamp is ignored on create and rejected with 422 on update.",
    area=AREA,
    mutation=replaced(
        "registry.metadata:immutable_problems", lambda sent, old: [], "accepts a changed deletionTimestamp"
    ),
)
async def deletion_timestamp_is_read_only(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one", deletionTimestamp="2001-01-01T00:00:00Z")
    assert "deletionTimestamp" not in created["metadata"]
    patch = {"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}}
    error = (await cluster.request("PATCH", cluster.path("configmaps", "one"), patch)).expect_error(
        422, "Invalid", "field is immutable"
    )
    assert error["details"]["causes"][0]["field"] == "metadata.deletionTimestamp"


@check(
    "Adding a finalizer to a deleted object is rejected with 422.",
    area=AREA,
    mutation=replaced("registry.admission:_changed_finalizers", lambda new, old: [], "accepts new finalizers"),
)
async def no_new_finalizers(cluster: Cluster) -> None:
    await cluster.create_config_map("one", finalizers=FINALIZERS)
    path = cluster.path("configmaps", "one")
    (await cluster.request("DELETE", path)).expect(200)
    patch = {"metadata": {"finalizers": [*FINALIZERS, "example.org/new"]}}
    error = (await cluster.request("PATCH", path, patch)).expect_error(422, "Invalid", "no new finalizers can be added")
    assert error["details"]["causes"][0]["reason"] == "FieldValueForbidden"


@check(
    "The update that removes the last finalizer of a deleted object returns the object.",
    area=AREA,
    mutation=answers(200, 404),
)
async def last_finalizer(cluster: Cluster) -> None:
    await cluster.create_config_map("one", finalizers=FINALIZERS)
    path = cluster.path("configmaps", "one")
    deleted = (await cluster.request("DELETE", path)).expect(200)
    updated = (
        await cluster.request("PUT", path, {**deleted, "metadata": {**deleted["metadata"], "finalizers": []}})
    ).expect(200)
    assert updated["metadata"]["uid"] == deleted["metadata"]["uid"] and "finalizers" not in updated["metadata"]
    (await cluster.request("GET", path)).expect_error(404, "NotFound")


@check(
    "A name can be reused after deletion; the new object has another uid.",
    area=AREA,
    mutation=sets("metadata.uid", "same"),
)
async def name_reuse(cluster: Cluster) -> None:
    first = await cluster.create_config_map("one")
    (await cluster.request("DELETE", cluster.path("configmaps", "one"))).expect(200)
    assert (await cluster.create_config_map("one"))["metadata"]["uid"] != first["metadata"]["uid"]


@check(
    "A pod without a node is removed at once; the response is the pod.",
    area=AREA,
    mutation=without("metadata.deletionTimestamp"),
    needs=("pods",),
)
async def unscheduled_pod(cluster: Cluster) -> None:
    await cluster.create_pod("one")
    deleted = (await cluster.request("DELETE", cluster.path("pods", "one"))).expect(200)
    assert deleted["kind"] == "Pod" and deleted["metadata"]["deletionGracePeriodSeconds"] == 0
    assert deleted["metadata"]["deletionTimestamp"]
    (await cluster.request("GET", cluster.path("pods", "one"))).expect_error(404, "NotFound")


_BEGIN_DELETION = original("registry.deletion:begin_deletion")


@check(
    "A pod on a node stays for its terminationGracePeriodSeconds, with a deletionTimestamp at the end of it.",
    area=AREA,
    mutation=drops("spec.nodeName"),
    needs=("pods",),
)
async def grace_period(cluster: Cluster) -> None:
    created = await cluster.create_pod("one", nodeName="nowhere", terminationGracePeriodSeconds=17)
    meta = (await cluster.request("DELETE", cluster.path("pods", "one"))).expect(200)["metadata"]
    assert (
        meta["deletionGracePeriodSeconds"] == 17
        and meta["deletionTimestamp"] > created["metadata"]["creationTimestamp"]
    )
    assert meta["generation"] == created["metadata"]["generation"] + 1
    assert (await cluster.request("GET", cluster.path("pods", "one"))).expect(200)["metadata"] == meta


@check(
    "A second delete can shorten the grace period of a pod but not extend it.",
    area=AREA,
    mutation=drops("gracePeriodSeconds"),
    needs=("pods",),
)
async def shortened_grace(cluster: Cluster) -> None:
    await cluster.create_pod("one", nodeName="nowhere")
    path = cluster.path("pods", "one")
    for grace_period, expected in ((None, 30), (60, 30), (10, 10), (20, 10)):
        body = None if grace_period is None else {"gracePeriodSeconds": grace_period}
        meta = (await cluster.request("DELETE", path, body)).expect(200)["metadata"]
        assert meta["deletionGracePeriodSeconds"] == expected, grace_period


@check(
    "A grace period of 0, in the body or the query, removes a pod at once.",
    area=AREA,
    mutation=drops("gracePeriodSeconds"),
    needs=("pods",),
)
async def zero_grace(cluster: Cluster) -> None:
    for name, body, query in (("a", {"gracePeriodSeconds": 0}, {}), ("b", None, {"gracePeriodSeconds": "0"})):
        await cluster.create_pod(name, nodeName="nowhere")
        assert (await cluster.request("DELETE", cluster.path("pods", name), body, **query)).expect(200)["kind"] == "Pod"
        (await cluster.request("GET", cluster.path("pods", name))).expect_error(404, "NotFound")


@check(
    "A finished pod is removed at once.",
    area=AREA,
    mutation=replaced(
        "registry.deletion:begin_deletion",
        lambda w, r, old, o, s: _BEGIN_DELETION(w, r, {**old, "status": {}}, o, s),
        "ignores the phase of a pod",
    ),
    needs=("pods",),
)
async def finished_pod(cluster: Cluster) -> None:
    await cluster.create_pod("one", nodeName="nowhere")
    (await cluster.request("PATCH", cluster.path("pods", "one", "status"), {"status": {"phase": "Failed"}})).expect(200)
    (await cluster.request("DELETE", cluster.path("pods", "one"))).expect(200)
    (await cluster.request("GET", cluster.path("pods", "one"))).expect_error(404, "NotFound")


@check("A negative grace period means one second.", area=AREA, mutation=drops("gracePeriodSeconds"), needs=("pods",))
async def negative_grace(cluster: Cluster) -> None:
    await cluster.create_pod("one", nodeName="nowhere")
    deleted = (await cluster.request("DELETE", cluster.path("pods", "one"), {"gracePeriodSeconds": -5})).expect(200)
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 1


@check(
    "A pod with a finalizer stays even with a grace period of 0.",
    area=AREA,
    mutation=drops("metadata.finalizers"),
    needs=("pods",),
)
async def pod_with_finalizer(cluster: Cluster) -> None:
    await cluster.create_pod("one", nodeName="nowhere", meta={"finalizers": FINALIZERS})
    path = cluster.path("pods", "one")
    meta = (await cluster.request("DELETE", path, {"gracePeriodSeconds": 0})).expect(200)["metadata"]
    assert meta["deletionGracePeriodSeconds"] == 0 and meta["finalizers"] == FINALIZERS
    (await cluster.request("PATCH", path, {"metadata": {"finalizers": None}})).expect(200)
    (await cluster.request("GET", path)).expect_error(404, "NotFound")


@check(
    "Foreground and Orphan add a finalizer to the deleted object, Background none; the last delete decides.",
    area=AREA,
    mutation=drops("propagationPolicy", "orphanDependents"),
)
async def propagation(cluster: Cluster) -> None:
    for number, (options, expected) in enumerate(
        (
            ({"propagationPolicy": "Foreground"}, ["foregroundDeletion"]),
            ({"propagationPolicy": "Orphan"}, ["orphan"]),
            (BACKGROUND, []),
            ({"orphanDependents": True}, ["orphan"]),
            ({}, []),
        )
    ):
        await cluster.create_config_map(f"m{number}", finalizers=FINALIZERS)
        path = cluster.path("configmaps", f"m{number}")
        assert finalizers_of((await cluster.request("DELETE", path, options)).expect(200)) == sorted(
            [*FINALIZERS, *expected]
        ), options
        assert finalizers_of((await cluster.request("DELETE", path, BACKGROUND)).expect(200)) == FINALIZERS, options


@check(
    "orphanDependents=false means Background, and returns 202 while finalizers remain.",
    area=AREA,
    mutation=answers(202, 200),
)
async def orphan_dependents(cluster: Cluster) -> None:
    await cluster.create_config_map("one", finalizers=FINALIZERS)
    deleted = (await cluster.request("DELETE", cluster.path("configmaps", "one"), {"orphanDependents": False})).expect(
        202
    )
    assert finalizers_of(deleted) == FINALIZERS


@check("propagationPolicy can be a query parameter.", area=AREA, mutation=ignores("propagationPolicy"))
async def propagation_in_query(cluster: Cluster) -> None:
    await cluster.create_config_map("one", finalizers=FINALIZERS)
    response = await cluster.request("DELETE", cluster.path("configmaps", "one"), propagationPolicy="Orphan")
    assert finalizers_of(response.expect(200)) == sorted([*FINALIZERS, "orphan"])


@check(
    "Jobs are deleted with Orphan by default and a warning; other workloads with Background.",
    area=AREA,
    mutation=without_header("Warning"),
)
async def default_propagation(cluster: Cluster) -> None:
    (await cluster.request("POST", cluster.path("jobs"), job("one", finalizers=FINALIZERS))).expect(201)
    response = await cluster.request("DELETE", cluster.path("jobs", "one"))
    assert finalizers_of(response.expect(200)) == sorted([*FINALIZERS, "orphan"])
    assert "child pods are preserved by default when jobs are deleted" in response.headers["warning"]
    (await cluster.request("POST", cluster.path("jobs"), job("two", finalizers=FINALIZERS))).expect(201)
    response = await cluster.request("DELETE", cluster.path("jobs", "two"), BACKGROUND)
    assert finalizers_of(response.expect(200)) == FINALIZERS and "warning" not in response.headers
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
    for plural, kind in (("deployments", "Deployment"), ("statefulsets", "StatefulSet"), ("replicasets", "ReplicaSet")):
        obj = {
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {"name": "one", "finalizers": FINALIZERS},
            "spec": spec,
        }
        (await cluster.request("POST", cluster.path(plural), obj)).expect(201)
        response = await cluster.request("DELETE", cluster.path(plural, "one"))
        assert finalizers_of(response.expect(200)) == FINALIZERS, plural
        await cluster.request("PATCH", cluster.path(plural, "one"), {"metadata": {"finalizers": None}})


@check(
    "A delete increments the generation of an object that has one.", area=AREA, mutation=sets("metadata.generation", 1)
)
async def generation(cluster: Cluster) -> None:
    (await cluster.request("POST", cluster.path("jobs"), job("one", finalizers=FINALIZERS))).expect(201)
    assert (await cluster.request("DELETE", cluster.path("jobs", "one"), BACKGROUND)).expect(200)["metadata"][
        "generation"
    ] == 2


@check(
    "Delete options with an invalid value are rejected with 422, with a wrong type or kind with 400.",
    area=AREA,
    mutation=drops("propagationPolicy", "orphanDependents", "kind"),
)
async def invalid_options(cluster: Cluster) -> None:
    await cluster.create_config_map("one")
    path = cluster.path("configmaps", "one")
    for options in ({"propagationPolicy": "X"}, {"propagationPolicy": "Orphan", "orphanDependents": True}):
        error = (await cluster.request("DELETE", path, options)).expect_error(422, "Invalid")
        assert error["details"]["kind"] == "DeleteOptions"
        assert error["details"]["causes"][0]["field"] == "propagationPolicy"
    error = (await cluster.request("DELETE", path, {"dryRun": ["x"]})).expect_error(422, "Invalid")
    assert error["details"]["causes"][0]["field"] == "dryRun"
    for body in (b"{", b"[]", b'{"gracePeriodSeconds":"x"}', b'{"kind":"Foo","apiVersion":"v1"}'):
        (await cluster.request("DELETE", path, body, headers={"Content-Type": "application/json"})).expect_error(
            400, "BadRequest"
        )
    (await cluster.request("DELETE", path, gracePeriodSeconds="x")).expect_error(400, "BadRequest")
    (await cluster.request("GET", path)).expect(200)
