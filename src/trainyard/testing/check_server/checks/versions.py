"""generation, status and what else an update may not touch."""

from __future__ import annotations

from typing import Any

from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import answers, replaced, sets, without
from trainyard.testing.check_server.checks.deleting import job

AREA = "spec and status"
SUBRESOURCES: dict[str, Any] = {"subresources": {"status": {}}}
ALL = replaced(
    "registry.admission:update_status",
    lambda resource, obj, old: {**obj, "metadata": {**old["metadata"], **obj["metadata"]}},
    "lets /status change everything",
)


async def patched(yard: Subject, path: str, body: Any) -> Any:
    return (await yard.ask("PATCH", path, body)).must(200)


@check(
    "The generation of a custom object is 1, and grows when its spec changes, and only then.",
    area=AREA,
    breaks=sets("metadata.generation", 2),
)
async def generation(yard: Subject) -> None:
    kind = await yard.crd(version=SUBRESOURCES)
    made = (await yard.ask("POST", kind.path(), kind.obj("one", spec={"a": 1}))).must(201)
    seen = [made["metadata"]["generation"]]
    for path, body in (
        (kind.path("one"), {"metadata": {"labels": {"a": "b"}}}),
        (kind.path("one"), {"spec": {"a": 2}}),
        (kind.path("one"), {"spec": {"a": 2}}),
        (kind.path("one", "status"), {"status": {"a": 3}}),
        (kind.path("one"), {"spec": {"b": 1}}),
    ):
        seen.append((await patched(yard, path, body))["metadata"]["generation"])
    assert seen == [1, 1, 2, 2, 2, 3], seen


@check(
    "Without a status subresource the status is part of the object, and changes its generation.",
    area=AREA,
    breaks=sets("metadata.generation", 1),
)
async def no_subresource(yard: Subject) -> None:
    kind = await yard.crd()
    made = (await yard.ask("POST", kind.path(), kind.obj("one", status={"a": 1}))).must(201)
    assert made["status"] == {"a": 1}
    changed = await patched(yard, kind.path("one"), {"status": {"a": 2}})
    assert changed["status"] == {"a": 2} and changed["metadata"]["generation"] == 2
    (await yard.ask("GET", kind.path("one", "status"))).refused(404, "NotFound")


@check("With one, a create and an update pass over the status.", area=AREA, breaks=sets("status", {"a": 1}))
async def status_kept_out(yard: Subject) -> None:
    kind = await yard.crd(version=SUBRESOURCES)
    made = (await yard.ask("POST", kind.path(), kind.obj("one", status={"a": 1}))).must(201)
    assert "status" not in made
    assert "status" not in await patched(yard, kind.path("one"), {"status": {"a": 1}})


@check(
    "A write of a custom object's /status changes the status alone: no spec, no labels, no annotations.",
    area=AREA,
    breaks=ALL,
)
async def status_alone(yard: Subject) -> None:
    kind = await yard.crd(version=SUBRESOURCES)
    (await yard.ask("POST", kind.path(), kind.obj("one", spec={"a": 1}))).must(201)
    body = {"status": {"a": 3}, "spec": {"a": 9}, "metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}}
    said = await patched(yard, kind.path("one", "status"), body)
    assert said["status"] == {"a": 3} and said["spec"] == {"a": 1}
    assert not {"labels", "annotations"} & set(said["metadata"])
    assert (await yard.ask("GET", kind.path("one", "status"))).must(200) == said


@check("A write of a Job's /status changes no spec; its labels and annotations it may.", area=AREA, breaks=ALL)
async def job_status(yard: Subject) -> None:
    (await yard.ask("POST", yard.at("jobs"), {**job("one"), "status": {"active": 5}})).must(201)
    body = {"status": {"active": 1}, "spec": {"parallelism": 7}, "metadata": {"annotations": {"a": "b"}}}
    said = await patched(yard, yard.at("jobs", "one", "status"), body)
    assert said["spec"]["parallelism"] == 1 and said["metadata"]["annotations"] == {"a": "b"}
    assert said["status"]["active"] == 1 and said["metadata"]["generation"] == 1


@check("A create passes over the status of a built-in object.", area=AREA, breaks=sets("status", {"active": 5}))
async def born_without(yard: Subject) -> None:
    made = (await yard.ask("POST", yard.at("jobs"), {**job("one"), "status": {"active": 5}})).must(201)
    assert not made.get("status") and made["metadata"]["generation"] == 1


@check(
    "An update of a Job changes no status, and counts a change of the spec only.",
    area=AREA,
    breaks=sets("metadata.generation", 1),
)
async def job_update(yard: Subject) -> None:
    (await yard.ask("POST", yard.at("jobs"), job("one"))).must(201)
    path = yard.at("jobs", "one")
    assert (await patched(yard, path, {"spec": {"parallelism": 2}}))["metadata"]["generation"] == 2
    said = await patched(yard, path, {"metadata": {"labels": {"a": "b"}}, "status": {"active": 9}})
    assert said["metadata"]["generation"] == 2 and (said.get("status") or {}).get("active") != 9


@check(
    "What of a spec is immutable stays: 422, with the field in the cause.",
    area=AREA,
    breaks=replaced("registry.admission:_changed", lambda new, old, path: [], "lets everything change")
    | answers(422, 200),
)
async def immutable(yard: Subject) -> None:
    (await yard.ask("POST", yard.at("jobs"), job("one"))).must(201)
    said = (await yard.ask("PATCH", yard.at("jobs", "one"), {"spec": {"completions": 3}})).refused(422, "Invalid")
    cause = {
        "reason": "FieldValueInvalid",
        "message": "Invalid value: 3: field is immutable",
        "field": "spec.completions",
    }
    assert said["details"]["causes"] == [cause]


@check(
    "A ConfigMap or a Secret that says it is immutable is: its data cannot change, its labels can.",
    area=AREA,
    breaks=without("immutable"),
)
async def frozen(yard: Subject) -> None:
    for plural, kind in (("configmaps", "ConfigMap"), ("secrets", "Secret")):
        obj = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "one"}, "immutable": True, "data": {"a": "YQ=="}}
        assert (await yard.ask("POST", yard.at(plural), obj)).must(201)["immutable"] is True
        path = yard.at(plural, "one")
        for body in ({"data": {"a": "Yg=="}}, {"immutable": False}):
            (await yard.ask("PATCH", path, body)).refused(422, "Invalid", "field is immutable when `immutable` is set")
        await patched(yard, path, {"metadata": {"labels": {"a": "b"}}})


@check(
    "Of a running pod only a few fields change: 422 for the others.",
    area=AREA,
    breaks=answers(422, 200),
    needs=("pods",),
)
async def pods(yard: Subject) -> None:
    await yard.pod("one", nodeName="nowhere")
    path = yard.at("pods", "one")
    (await yard.ask("PATCH", path, {"spec": {"hostname": "x"}})).refused(
        422, "Invalid", "pod updates may not change fields other than"
    )
    said = await patched(yard, path, {"spec": {"activeDeadlineSeconds": 60}})
    assert said["spec"]["activeDeadlineSeconds"] == 60


@check(
    "A pod's status may be written with its labels, and its generation stays.",
    area=AREA,
    breaks=sets("status.phase", "Pending"),
    needs=("pods",),
)
async def pod_status(yard: Subject) -> None:
    made = await yard.pod("one", nodeName="nowhere")
    said = await patched(yard, yard.at("pods", "one", "status"), {"status": {"phase": "Running"}})
    assert said["status"]["phase"] == "Running" and said["metadata"]["generation"] == made["metadata"]["generation"]
