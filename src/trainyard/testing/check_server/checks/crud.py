"""Objects are made, read, written over and taken away."""

from __future__ import annotations

from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import answers, ignores, replaced, sets, without

AREA = "objects"


@check(
    "A created object is answered with 201, has a uid, a creationTimestamp and a resourceVersion, and reads the same.",
    area=AREA,
    breaks=answers(201, 200),
)
async def created(yard: Subject) -> None:
    made = await yard.map("one", data={"a": "b"})
    meta = made["metadata"]
    assert len(meta["uid"]) == 36 and meta["creationTimestamp"].endswith("Z") and meta["resourceVersion"].isdigit()
    assert (await yard.ask("GET", yard.at("configmaps", "one"))).must(200) == made


@check("A name that is taken is refused with 409 AlreadyExists.", area=AREA, breaks=sets("reason", "Conflict"))
async def taken(yard: Subject) -> None:
    await yard.map("one")
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
    said = (await yard.ask("POST", yard.at("configmaps"), obj)).refused(409, "AlreadyExists")
    assert said["message"] == 'configmaps "one" already exists'
    assert said["details"] == {"name": "one", "kind": "configmaps"}


@check("What is not there is 404 NotFound, its name and kind in the details.", area=AREA, breaks=without("details"))
async def missing(yard: Subject) -> None:
    said = (await yard.ask("GET", yard.at("jobs", "none"))).refused(404, "NotFound")
    assert said["message"] == 'jobs.batch "none" not found'
    assert said["details"] == {"name": "none", "group": "batch", "kind": "jobs"}


@check(
    "A generateName gets five characters appended, and the answer says both.",
    area=AREA,
    breaks=replaced("metadata:generated", lambda prefix: prefix + "x"),
)
async def generated(yard: Subject) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}}
    one = (await yard.ask("POST", yard.at("configmaps"), obj)).must(201)["metadata"]
    assert one["generateName"] == "made-" and one["name"].startswith("made-") and len(one["name"]) == 10


@check("A dry-run create answers 201 and stores nothing.", area=AREA, breaks=ignores("dryRun"))
async def dry_create(yard: Subject) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
    said = (await yard.ask("POST", yard.at("configmaps"), obj, dryRun="All")).must(201)
    assert said["metadata"]["uid"] and "resourceVersion" not in said["metadata"]
    (await yard.ask("GET", yard.at("configmaps", "one"))).refused(404, "NotFound")
