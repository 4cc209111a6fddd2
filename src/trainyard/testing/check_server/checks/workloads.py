"""Jobs, Deployments, ReplicaSets, StatefulSets as objects: defaults, selectors, what may change, /scale."""

from __future__ import annotations

from typing import Any

from trainyard.objects import Json
from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import answers, drops, replaced, without
from trainyard.testing.check_server.checks.small import bad, fields_of, make, thing

AREA = "workloads"
MAIN: Json = {"name": "main", "image": "busybox:1"}


def job(name: str, /, **spec: Any) -> Json:
    template = {"spec": {"restartPolicy": "Never", "containers": [MAIN]}}
    return thing("batch/v1", "Job", name, spec={"template": template, "suspend": True, **spec})


def workload(kind: str, name: str, /, **spec: Any) -> Json:
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [MAIN]}}
    whole = {"selector": {"matchLabels": labels}, "template": template, "replicas": 0, **spec}
    return thing("apps/v1", kind, name, spec=whole)


@check(
    "A Job gets one completion, six retries and a selector by its own uid, which its pods carry as labels.",
    area=AREA,
    breaks=without("spec.selector"),
)
async def jobs(yard: Subject) -> None:
    made = await make(yard, "jobs", job("a"))
    spec, uid = made["spec"], made["metadata"]["uid"]
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
    assert made["metadata"]["labels"] == spec["template"]["metadata"]["labels"]


@check("A Job with parallelism and no completions keeps it so.", area=AREA, breaks=drops("spec.parallelism"))
async def work_queue(yard: Subject) -> None:
    made = await make(yard, "jobs", job("a", parallelism=3))
    assert made["spec"]["parallelism"] == 3 and "completions" not in made["spec"]


@check("A Job's pods end: restartPolicy is Never or OnFailure.", area=AREA, breaks=answers(422, 201))
async def job_policy(yard: Subject) -> None:
    template = {"spec": {"containers": [MAIN]}}
    found = await bad(yard, "jobs", job("a", template=template))
    assert found == {("spec.template.spec.restartPolicy", "Required")}


@check("An Indexed Job needs completions; numbers are not negative.", area=AREA, breaks=answers(422, 201))
async def job_numbers(yard: Subject) -> None:
    found = await bad(yard, "jobs", job("a", completionMode="Indexed", parallelism=1))
    assert found == {("spec.completions", "Required")}
    for name in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
        assert await bad(yard, "jobs", job("a", **{name: -1})) == {(f"spec.{name}", "Invalid")}


@check(
    "A Job's template, selector and completions stay; suspend and parallelism may change.",
    area=AREA,
    breaks=answers(422, 200),
)
async def fixed_jobs(yard: Subject) -> None:
    await make(yard, "jobs", job("a", suspend=False))
    path = yard.at("jobs", "a")
    for spec, place in (
        ({"template": {"spec": {"containers": [{**MAIN, "image": "b:2"}]}}}, "spec.template"),
        ({"completions": 3}, "spec.completions"),
        ({"selector": {"matchLabels": {"a": "b"}}}, "spec.selector"),
        ({"completionMode": "Indexed"}, "spec.completionMode"),
    ):
        said = (await yard.ask("PATCH", path, {"spec": spec})).refused(422, "Invalid")
        assert (place, "Invalid") in fields_of(said), (spec, fields_of(said))
    changed = (await yard.ask("PATCH", path, {"spec": {"suspend": True, "parallelism": 0}})).must(200)
    assert changed["spec"]["suspend"] is True and changed["metadata"]["generation"] == 2


@check(
    "Deployments, ReplicaSets and StatefulSets are filled in as their kind has it.",
    area=AREA,
    breaks=without("spec.strategy", "spec.updateStrategy"),
)
async def filled(yard: Subject) -> None:
    deployment = (await make(yard, "deployments", workload("Deployment", "a", replicas=None)))["spec"]
    assert deployment["replicas"] == 1 and deployment["revisionHistoryLimit"] == 10
    assert deployment["progressDeadlineSeconds"] == 600
    rolling = {"maxSurge": "25%", "maxUnavailable": "25%"}
    assert deployment["strategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}
    replica_set = (await make(yard, "replicasets", workload("ReplicaSet", "a", replicas=None)))["spec"]
    assert replica_set["replicas"] == 1
    stateful = (await make(yard, "statefulsets", workload("StatefulSet", "a", serviceName="s")))["spec"]
    assert stateful["podManagementPolicy"] == "OrderedReady"
    assert stateful["updateStrategy"]["type"] == "RollingUpdate"
    assert stateful["updateStrategy"]["rollingUpdate"]["partition"] == 0
    assert stateful["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}


SETS = (("deployments", "Deployment"), ("replicasets", "ReplicaSet"), ("statefulsets", "StatefulSet"))


@check(
    "A selector must match the template's labels and not be empty; its pods restart always; no count is negative.",
    area=AREA,
    breaks=answers(422, 201),
)
async def wrong(yard: Subject) -> None:
    for plural, kind in SETS:
        other = workload(kind, "a", selector={"matchLabels": {"app": "y"}})
        assert ("spec.template.metadata.labels", "Invalid") in await bad(yard, plural, other)
        empty = workload(kind, "a", selector={})
        assert ("spec.selector", "Invalid") in await bad(yard, plural, empty)
        ending = workload(kind, "a")
        ending["spec"]["template"]["spec"]["restartPolicy"] = "Never"
        assert await bad(yard, plural, ending) == {("spec.template.spec.restartPolicy", "NotSupported")}
        assert await bad(yard, plural, workload(kind, "a", replicas=-1)) == {("spec.replicas", "Invalid")}


@check("The selector of a Deployment or ReplicaSet cannot change.", area=AREA, breaks=drops("spec.selector"))
async def fixed_selector(yard: Subject) -> None:
    for plural, kind in SETS[:2]:
        await make(yard, plural, workload(kind, "a"))
        labels = {"app": "x", "more": "y"}
        spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}
        said = (await yard.ask("PATCH", yard.at(plural, "a"), {"spec": spec})).refused(422, "Invalid")
        assert fields_of(said) == {("spec.selector", "Invalid")}


@check(
    "Of a StatefulSet's spec only replicas, template and the like may change.",
    area=AREA,
    breaks=replaced("builtin.app_rules:STATEFUL_SET_IMMUTABLE", ())
    | replaced("builtin.app_rules:_set_fixed", lambda spec: {}),
)
async def fixed_sets(yard: Subject) -> None:
    await make(yard, "statefulsets", workload("StatefulSet", "a", serviceName="s"))
    path = yard.at("statefulsets", "a")
    (await yard.ask("PATCH", path, {"spec": {"minReadySeconds": 5}})).must(200)
    for word, value in (("serviceName", "t"), ("podManagementPolicy", "Parallel")):
        said = (await yard.ask("PATCH", path, {"spec": {word: value}})).refused(422, "Invalid")
        assert fields_of(said) == {(f"spec.{word}", "Invalid")}


@check(
    "/scale of the three is an autoscaling/v1 Scale; a change of it is a new generation.",
    area=AREA,
    breaks=replaced("registry.scale:with_replicas", lambda scaled, obj, number: dict(obj)),
)
async def scale(yard: Subject) -> None:
    for plural, kind in SETS:
        await make(yard, plural, workload(kind, "a"))
        path = yard.at(plural, "a", "scale")
        seen = (await yard.ask("GET", path)).must(200)
        assert seen["kind"] == "Scale" and seen["spec"] in ({}, {"replicas": 0})
        assert seen["status"]["selector"] == "app=x"
        seen["spec"]["replicas"] = 2
        del seen["metadata"]["resourceVersion"]  # a controller may write at any time
        put = (await yard.ask("PUT", path, seen)).must(200)
        assert put["spec"] == {"replicas": 2}
        after = (await yard.ask("GET", yard.at(plural, "a"))).must(200)
        assert after["spec"]["replicas"] == 2 and after["metadata"]["generation"] == 2
        said = await yard.ask("PATCH", path, {"spec": {"replicas": -1}})
        said.refused(422, "Invalid", "must be greater than or equal to 0")
