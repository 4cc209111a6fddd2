"""Jobs, Deployments, ReplicaSets and StatefulSets as API objects: defaults, selectors, allowed changes, /scale."""

from __future__ import annotations

from typing import Any

from tests.conformance import Cluster, check
from tests.conformance.checks.core_types import causes_of, create, manifest, rejected_fields
from tests.conformance.mutations import answers, drops, replaced, without
from trainyard.objects import Json

AREA = "workloads"
MAIN_CONTAINER: Json = {"name": "main", "image": "busybox:1"}


def job_manifest(name: str, /, **spec: Any) -> Json:
    template = {"spec": {"restartPolicy": "Never", "containers": [MAIN_CONTAINER]}}
    return manifest("batch/v1", "Job", name, spec={"template": template, "suspend": True, **spec})


def workload_manifest(kind: str, name: str, /, **spec: Any) -> Json:
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [MAIN_CONTAINER]}}
    workload_spec = {"selector": {"matchLabels": labels}, "template": template, "replicas": 0, **spec}
    return manifest("apps/v1", kind, name, spec=workload_spec)


@check(
    "A Job gets defaults, a selector by its uid, and matching labels in its pod template.",
    area=AREA,
    mutation=without("spec.selector"),
)
async def jobs(cluster: Cluster) -> None:
    created = await create(cluster, "jobs", job_manifest("a"))
    spec, uid = created["spec"], created["metadata"]["uid"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (1, 1, 6)
    assert spec["completionMode"] == "NonIndexed" and spec["manualSelector"] is False
    assert spec["podReplacementPolicy"] == "TerminatingOrFailed"
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert spec["template"]["metadata"]["labels"] == {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "a",
        "controller-uid": uid,
        "job-name": "a",
    }
    assert created["metadata"]["labels"] == spec["template"]["metadata"]["labels"]


@check(
    "A Job with parallelism and no completions gets no default for completions.",
    area=AREA,
    mutation=drops("spec.parallelism"),
)
async def work_queue(cluster: Cluster) -> None:
    created = await create(cluster, "jobs", job_manifest("a", parallelism=3))
    assert created["spec"]["parallelism"] == 3 and "completions" not in created["spec"]


@check("A Job requires restartPolicy Never or OnFailure.", area=AREA, mutation=answers(422, 201))
async def job_policy(cluster: Cluster) -> None:
    template = {"spec": {"containers": [MAIN_CONTAINER]}}
    causes = await rejected_fields(cluster, "jobs", job_manifest("a", template=template))
    assert causes == {("spec.template.spec.restartPolicy", "Required")}


@check("An Indexed Job requires completions; negative numbers are rejected.", area=AREA, mutation=answers(422, 201))
async def job_numbers(cluster: Cluster) -> None:
    causes = await rejected_fields(cluster, "jobs", job_manifest("a", completionMode="Indexed", parallelism=1))
    assert causes == {("spec.completions", "Required")}
    for name in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
        assert await rejected_fields(cluster, "jobs", job_manifest("a", **{name: -1})) == {(f"spec.{name}", "Invalid")}


@check(
    "Template, selector and completions of a Job cannot change; suspend and parallelism can.",
    area=AREA,
    mutation=answers(422, 200),
)
async def fixed_jobs(cluster: Cluster) -> None:
    await create(cluster, "jobs", job_manifest("a", suspend=False))
    path = cluster.path("jobs", "a")
    for spec, field in (
        ({"template": {"spec": {"containers": [{**MAIN_CONTAINER, "image": "b:2"}]}}}, "spec.template"),
        ({"completions": 3}, "spec.completions"),
        ({"selector": {"matchLabels": {"a": "b"}}}, "spec.selector"),
        ({"completionMode": "Indexed"}, "spec.completionMode"),
    ):
        error = (await cluster.request("PATCH", path, {"spec": spec})).expect_error(422, "Invalid")
        assert (field, "Invalid") in causes_of(error), (spec, causes_of(error))
    changed = (await cluster.request("PATCH", path, {"spec": {"suspend": True, "parallelism": 0}})).expect(200)
    assert changed["spec"]["suspend"] is True and changed["metadata"]["generation"] == 2


@check(
    "Deployments, ReplicaSets and StatefulSets get the defaults of their kind.",
    area=AREA,
    mutation=without("spec.strategy", "spec.updateStrategy"),
)
async def defaults(cluster: Cluster) -> None:
    deployment = (await create(cluster, "deployments", workload_manifest("Deployment", "a", replicas=None)))["spec"]
    assert deployment["replicas"] == 1 and deployment["revisionHistoryLimit"] == 10
    assert deployment["progressDeadlineSeconds"] == 600
    rolling_update = {"maxSurge": "25%", "maxUnavailable": "25%"}
    assert deployment["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling_update}
    replica_set = (await create(cluster, "replicasets", workload_manifest("ReplicaSet", "a", replicas=None)))["spec"]
    assert replica_set["replicas"] == 1
    stateful = (await create(cluster, "statefulsets", workload_manifest("StatefulSet", "a", serviceName="s")))["spec"]
    assert stateful["podManagementPolicy"] == "OrderedReady"
    assert stateful["updateStrategy"]["type"] == "RollingUpdate"
    assert stateful["updateStrategy"]["rollingUpdate"]["partition"] == 0
    assert stateful["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}


SETS = (("deployments", "Deployment"), ("replicasets", "ReplicaSet"), ("statefulsets", "StatefulSet"))


@check(
    "Empty or mismatched selectors, restartPolicy other than Always and negative replicas are rejected.",
    area=AREA,
    mutation=answers(422, 201),
)
async def invalid_sets(cluster: Cluster) -> None:
    for plural, kind in SETS:
        mismatched = workload_manifest(kind, "a", selector={"matchLabels": {"app": "y"}})
        assert ("spec.template.metadata.labels", "Invalid") in await rejected_fields(cluster, plural, mismatched)
        empty_selector = workload_manifest(kind, "a", selector={})
        assert ("spec.selector", "Invalid") in await rejected_fields(cluster, plural, empty_selector)
        never_restarts = workload_manifest(kind, "a")
        never_restarts["spec"]["template"]["spec"]["restartPolicy"] = "Never"
        assert await rejected_fields(cluster, plural, never_restarts) == {
            ("spec.template.spec.restartPolicy", "NotSupported")
        }
        assert await rejected_fields(cluster, plural, workload_manifest(kind, "a", replicas=-1)) == {
            ("spec.replicas", "Invalid")
        }


@check("The selector of a Deployment or ReplicaSet cannot change.", area=AREA, mutation=drops("spec.selector"))
async def fixed_selector(cluster: Cluster) -> None:
    for plural, kind in SETS[:2]:
        await create(cluster, plural, workload_manifest(kind, "a"))
        labels = {"app": "x", "more": "y"}
        spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}
        error = (await cluster.request("PATCH", cluster.path(plural, "a"), {"spec": spec})).expect_error(422, "Invalid")
        assert causes_of(error) == {("spec.selector", "Invalid")}


@check(
    "serviceName and podManagementPolicy of a StatefulSet cannot change; minReadySeconds can.",
    area=AREA,
    mutation=replaced("registry.admission:_changed", lambda new, old, path: [])
    | replaced("builtin.app_rules:_set_fixed", lambda spec: {}),
)
async def fixed_sets(cluster: Cluster) -> None:
    await create(cluster, "statefulsets", workload_manifest("StatefulSet", "a", serviceName="s"))
    path = cluster.path("statefulsets", "a")
    (await cluster.request("PATCH", path, {"spec": {"minReadySeconds": 5}})).expect(200)
    for field, value in (("serviceName", "t"), ("podManagementPolicy", "Parallel")):
        error = (await cluster.request("PATCH", path, {"spec": {field: value}})).expect_error(422, "Invalid")
        assert causes_of(error) == {(f"spec.{field}", "Invalid")}


@check(
    "/scale of workloads is an autoscaling/v1 Scale; a change of it increases the generation.",
    area=AREA,
    mutation=replaced("registry.scale:with_replicas", lambda scaled, obj, number: dict(obj)),
)
async def scale(cluster: Cluster) -> None:
    for plural, kind in SETS:
        await create(cluster, plural, workload_manifest(kind, "a"))
        path = cluster.path(plural, "a", "scale")
        scale = (await cluster.request("GET", path)).expect(200)
        assert scale["kind"] == "Scale" and scale["spec"] in ({}, {"replicas": 0})
        assert scale["status"]["selector"] == "app=x"
        scale["spec"]["replicas"] = 2
        del scale["metadata"]["resourceVersion"]  # a controller may write in between
        updated = (await cluster.request("PUT", path, scale)).expect(200)
        assert updated["spec"] == {"replicas": 2}
        obj = (await cluster.request("GET", cluster.path(plural, "a"))).expect(200)
        assert obj["spec"]["replicas"] == 2 and obj["metadata"]["generation"] == 2
        response = await cluster.request("PATCH", path, {"spec": {"replicas": -1}})
        response.expect_error(422, "Invalid", "must be greater than or equal to 0")
