"""metadata.generation, status, and immutable fields."""

from __future__ import annotations

from typing import Any

from tests.conformance import Cluster, check
from tests.conformance.checks.deletion import job
from tests.conformance.mutations import answers, replaced, sets, without
from trainyard.server.registry.admission import Result

AREA = "spec and status"
SUBRESOURCES: dict[str, Any] = {"subresources": {"status": {}}}
STATUS_CHANGES_ALL = replaced(
    "registry.admission:update_status",
    lambda resource, sent, old: Result({**sent.object, "metadata": {**old["metadata"], **sent.object["metadata"]}}),
    "allows /status to change everything",
)


async def patch(cluster: Cluster, path: str, body: Any) -> Any:
    return (await cluster.request("PATCH", path, body)).expect(200)


@check(
    "The generation of a custom object starts at 1 and increases only when its spec changes.",
    area=AREA,
    mutation=sets("metadata.generation", 2),
)
async def generation(cluster: Cluster) -> None:
    resource = await cluster.create_crd(version=SUBRESOURCES)
    created = (await cluster.request("POST", resource.path(), resource.obj("one", spec={"a": 1}))).expect(201)
    generations = [created["metadata"]["generation"]]
    for path, body in (
        (resource.path("one"), {"metadata": {"labels": {"a": "b"}}}),
        (resource.path("one"), {"spec": {"a": 2}}),
        (resource.path("one"), {"spec": {"a": 2}}),
        (resource.path("one", "status"), {"status": {"a": 3}}),
        (resource.path("one"), {"spec": {"b": 1}}),
    ):
        generations.append((await patch(cluster, path, body))["metadata"]["generation"])
    assert generations == [1, 1, 2, 2, 2, 3], generations


@check(
    "Without a status subresource a change of the status increases the generation.",
    area=AREA,
    mutation=sets("metadata.generation", 1),
)
async def no_subresource(cluster: Cluster) -> None:
    resource = await cluster.create_crd()
    created = (await cluster.request("POST", resource.path(), resource.obj("one", status={"a": 1}))).expect(201)
    assert created["status"] == {"a": 1}
    changed = await patch(cluster, resource.path("one"), {"status": {"a": 2}})
    assert changed["status"] == {"a": 2} and changed["metadata"]["generation"] == 2
    (await cluster.request("GET", resource.path("one", "status"))).expect_error(404, "NotFound")


@check(
    "With a status subresource a create and an update ignore the status.", area=AREA, mutation=sets("status", {"a": 1})
)
async def status_ignored(cluster: Cluster) -> None:
    resource = await cluster.create_crd(version=SUBRESOURCES)
    created = (await cluster.request("POST", resource.path(), resource.obj("one", status={"a": 1}))).expect(201)
    assert "status" not in created
    assert "status" not in await patch(cluster, resource.path("one"), {"status": {"a": 1}})


@check(
    "A write to the /status of a custom object changes no spec, labels or annotations.",
    area=AREA,
    mutation=STATUS_CHANGES_ALL,
)
async def status_alone(cluster: Cluster) -> None:
    resource = await cluster.create_crd(version=SUBRESOURCES)
    (await cluster.request("POST", resource.path(), resource.obj("one", spec={"a": 1}))).expect(201)
    body = {"status": {"a": 3}, "spec": {"a": 9}, "metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}}
    updated = await patch(cluster, resource.path("one", "status"), body)
    assert updated["status"] == {"a": 3} and updated["spec"] == {"a": 1}
    assert not {"labels", "annotations"} & set(updated["metadata"])
    assert (await cluster.request("GET", resource.path("one", "status"))).expect(200) == updated


@check(
    "A write to the /status of a Job changes no spec; labels and annotations can change.",
    area=AREA,
    mutation=STATUS_CHANGES_ALL,
)
async def job_status(cluster: Cluster) -> None:
    (await cluster.request("POST", cluster.path("jobs"), {**job("one"), "status": {"active": 5}})).expect(201)
    body = {"status": {"active": 1}, "spec": {"parallelism": 7}, "metadata": {"annotations": {"a": "b"}}}
    updated = await patch(cluster, cluster.path("jobs", "one", "status"), body)
    assert updated["spec"]["parallelism"] == 1 and updated["metadata"]["annotations"] == {"a": "b"}
    assert updated["status"]["active"] == 1 and updated["metadata"]["generation"] == 1


@check("A create of a built-in object ignores the status.", area=AREA, mutation=sets("status", {"active": 5}))
async def status_on_create(cluster: Cluster) -> None:
    created = (await cluster.request("POST", cluster.path("jobs"), {**job("one"), "status": {"active": 5}})).expect(201)
    assert not created.get("status") and created["metadata"]["generation"] == 1


@check(
    "An update of a Job ignores the status; only a change of the spec increases the generation.",
    area=AREA,
    mutation=sets("metadata.generation", 1),
)
async def job_update(cluster: Cluster) -> None:
    (await cluster.request("POST", cluster.path("jobs"), job("one"))).expect(201)
    path = cluster.path("jobs", "one")
    assert (await patch(cluster, path, {"spec": {"parallelism": 2}}))["metadata"]["generation"] == 2
    updated = await patch(cluster, path, {"metadata": {"labels": {"a": "b"}}, "status": {"active": 9}})
    assert updated["metadata"]["generation"] == 2 and (updated.get("status") or {}).get("active") != 9


@check(
    "A change of an immutable spec field gives 422 with the field in the cause.",
    area=AREA,
    mutation=replaced("registry.admission:_changed", lambda new, old, path: [], "allows changes of immutable fields")
    | answers(422, 200),
)
async def immutable_spec_field(cluster: Cluster) -> None:
    (await cluster.request("POST", cluster.path("jobs"), job("one"))).expect(201)
    error = (await cluster.request("PATCH", cluster.path("jobs", "one"), {"spec": {"completions": 3}})).expect_error(
        422, "Invalid"
    )
    cause = {
        "reason": "FieldValueInvalid",
        "message": "Invalid value: 3: field is immutable",
        "field": "spec.completions",
    }
    assert error["details"]["causes"] == [cause]


@check(
    "The labels of an immutable ConfigMap or Secret can change, its data cannot.",
    area=AREA,
    mutation=without("immutable"),
)
async def immutable_data(cluster: Cluster) -> None:
    for plural, kind in (("configmaps", "ConfigMap"), ("secrets", "Secret")):
        obj = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "one"}, "immutable": True, "data": {"a": "YQ=="}}
        assert (await cluster.request("POST", cluster.path(plural), obj)).expect(201)["immutable"] is True
        path = cluster.path(plural, "one")
        for body in ({"data": {"a": "Yg=="}}, {"immutable": False}):
            (await cluster.request("PATCH", path, body)).expect_error(
                422, "Invalid", "field is immutable when `immutable` is set"
            )
        await patch(cluster, path, {"metadata": {"labels": {"a": "b"}}})


@check(
    "Most spec fields of a scheduled pod cannot change: 422.",
    area=AREA,
    mutation=answers(422, 200),
    needs=("pods",),
)
async def pods(cluster: Cluster) -> None:
    await cluster.create_pod("one", nodeName="nowhere")
    path = cluster.path("pods", "one")
    (await cluster.request("PATCH", path, {"spec": {"hostname": "x"}})).expect_error(
        422, "Invalid", "pod updates may not change fields other than"
    )
    updated = await patch(cluster, path, {"spec": {"activeDeadlineSeconds": 60}})
    assert updated["spec"]["activeDeadlineSeconds"] == 60


@check(
    "A write to the /status of a pod keeps the generation.",
    area=AREA,
    mutation=sets("status.phase", "Pending"),
    needs=("pods",),
)
async def pod_status(cluster: Cluster) -> None:
    created = await cluster.create_pod("one", nodeName="nowhere")
    updated = await patch(cluster, cluster.path("pods", "one", "status"), {"status": {"phase": "Running"}})
    assert (
        updated["status"]["phase"] == "Running"
        and updated["metadata"]["generation"] == created["metadata"]["generation"]
    )
