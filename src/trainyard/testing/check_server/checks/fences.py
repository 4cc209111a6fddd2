"""Optimistic concurrency and preconditions: whoever names a version or a uid means exactly that object."""

from __future__ import annotations

import asyncio

from trainyard.server.registry.deletion import DeleteOptions
from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import answers, drops, replaced, sets
from trainyard.testing.check_server.checks.crud import config_map

AREA = "preconditions"
OTHER = "11111111-1111-1111-1111-111111111111"
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@check("An update of an old version is refused with 409 Conflict.", area=AREA, breaks=drops("metadata.resourceVersion"))
async def stale_update(yard: Subject) -> None:
    made = await yard.map("one")
    path = yard.at("configmaps", "one")
    (await yard.ask("PATCH", path, {"data": {"a": "b"}})).must(200)
    said = (await yard.ask("PUT", path, {**made, "data": {"c": "d"}})).refused(409, "Conflict", MODIFIED)
    assert said["message"].startswith('Operation cannot be fulfilled on configmaps "one": ')
    assert said["details"] == {"name": "one", "kind": "configmaps"}
    assert (await yard.ask("GET", path)).must(200)["data"] == {"a": "b"}


@check(
    "An update of the version that is stored is taken, and gives another version.", area=AREA, breaks=answers(200, 409)
)
async def fresh_update(yard: Subject) -> None:
    made = await yard.map("one")
    said = (await yard.ask("PUT", yard.at("configmaps", "one"), {**made, "data": {"c": "d"}})).must(200)
    assert said["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]


@check("An update of a built-in resource that names no version is taken as it is.", area=AREA, breaks=answers(200, 422))
async def blind_update(yard: Subject) -> None:
    await yard.map("one")
    (await yard.ask("PUT", yard.at("configmaps", "one"), config_map("one", data={"c": "d"}))).must(200)


@check(
    "An update of a custom resource that names no version is refused with 422 on metadata.resourceVersion.",
    area=AREA,
    breaks=answers(422, 200),
)
async def blind_custom_update(yard: Subject) -> None:
    kind = await yard.crd()
    (await yard.ask("POST", kind.path(), kind.obj("one"))).must(201)
    said = (await yard.ask("PUT", kind.path("one"), kind.obj("one", spec={"a": 1}))).refused(422, "Invalid")
    assert said["details"]["causes"][0]["field"] == "metadata.resourceVersion"


@check("A patch that holds an old version is refused with 409.", area=AREA, breaks=drops("metadata.resourceVersion"))
async def stale_patch(yard: Subject) -> None:
    made = await yard.map("one")
    path = yard.at("configmaps", "one")
    fenced = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"a": "b"}}
    (await yard.ask("PATCH", path, fenced)).must(200)
    (await yard.ask("PATCH", path, {**fenced, "data": {"a": "c"}})).refused(409, "Conflict", MODIFIED)


@check("Of many updates of one version exactly one is taken.", area=AREA, breaks=drops("metadata.resourceVersion"))
async def one_wins(yard: Subject) -> None:
    made = await yard.map("one")
    path = yard.at("configmaps", "one")
    sent = [yard.ask("PUT", path, {**made, "data": {"who": str(number)}}) for number in range(8)]
    codes = sorted(reply.code for reply in await asyncio.gather(*sent))
    assert codes == [200] + [409] * 7, codes


@check("Of many creates of one name exactly one is taken.", area=AREA, breaks=answers(409, 201))
async def one_is_born(yard: Subject) -> None:
    sent = [yard.ask("POST", yard.at("configmaps"), config_map("one")) for _ in range(8)]
    codes = sorted(reply.code for reply in await asyncio.gather(*sent))
    assert codes == [201] + [409] * 7, codes


@check("An update that names another uid is refused with 409.", area=AREA, breaks=drops("metadata.uid"))
async def other_uid(yard: Subject) -> None:
    await yard.map("one")
    wrong = config_map("one", meta={"uid": OTHER})
    (await yard.ask("PUT", yard.at("configmaps", "one"), wrong)).refused(
        409, "Conflict", f"Precondition failed: UID in precondition: {OTHER}, UID in object meta: "
    )


@check("A patch of the uid is refused with 422: it is immutable.", area=AREA, breaks=drops("metadata.uid"))
async def patched_uid(yard: Subject) -> None:
    await yard.map("one")
    said = (await yard.ask("PATCH", yard.at("configmaps", "one"), {"metadata": {"uid": OTHER}})).refused(422, "Invalid")
    assert said["details"]["causes"] == [
        {
            "reason": "FieldValueInvalid",
            "message": f'Invalid value: "{OTHER}": field is immutable',
            "field": "metadata.uid",
        }
    ]


@check(
    "Versions grow with every write, whatever object it is about.",
    area=AREA,
    breaks=sets("metadata.resourceVersion", "7"),
)
async def versions_grow(yard: Subject) -> None:
    seen = []
    for name in "abc":
        seen.append(int((await yard.map(name))["metadata"]["resourceVersion"]))
        changed = await yard.ask("PATCH", yard.at("configmaps", "a"), {"data": {"last": name}})
        seen.append(int(changed.must(200)["metadata"]["resourceVersion"]))
    assert seen == sorted(set(seen)), seen


@check(
    "A delete with the uid of another object is refused with 409, and one with its own is done.",
    area=AREA,
    breaks=drops("preconditions"),
)
async def delete_uid(yard: Subject) -> None:
    made = await yard.map("one")
    path = yard.at("configmaps", "one")
    said = (await yard.ask("DELETE", path, {"preconditions": {"uid": OTHER}})).refused(409, "Conflict")
    assert f"the UID in the precondition ({OTHER}) does not match the UID in record" in said["message"]
    assert said["details"] == {"name": "one", "kind": "ConfigMap"}
    (await yard.ask("DELETE", path, {"preconditions": {"uid": made["metadata"]["uid"]}})).must(200)


@check(
    "A delete with an old resourceVersion is refused with 409, and one with the present is done.",
    area=AREA,
    breaks=drops("preconditions"),
)
async def delete_version(yard: Subject) -> None:
    made = await yard.map("one")
    path = yard.at("configmaps", "one")
    old = {"preconditions": {"resourceVersion": made["metadata"]["resourceVersion"]}}
    now = (await yard.ask("PATCH", path, {"data": {"a": "b"}})).must(200)["metadata"]
    (await yard.ask("DELETE", path, old)).refused(409, "Conflict", "does not match the ResourceVersion in record")
    both = {"preconditions": {"resourceVersion": now["resourceVersion"], "uid": now["uid"]}}
    (await yard.ask("DELETE", path, both)).must(200)


@check(
    "A pod that is being deleted already still refuses a delete with another uid.",
    area=AREA,
    breaks=replaced("registry.deletion:read_options", lambda request: DeleteOptions()),
    needs=("pods",),
)
async def delete_uid_again(yard: Subject) -> None:
    await yard.pod("one", nodeName="nowhere")
    (await yard.ask("DELETE", yard.at("pods", "one"))).must(200)
    (await yard.ask("DELETE", yard.at("pods", "one"), {"preconditions": {"uid": OTHER}})).refused(409, "Conflict")


@check(
    "A version that the object never had is a conflict for a status update, too.",
    area=AREA,
    breaks=drops("metadata.resourceVersion"),
)
async def stale_status(yard: Subject) -> None:
    kind = await yard.crd(version={"subresources": {"status": {}}})
    made = (await yard.ask("POST", kind.path(), kind.obj("one"))).must(201)
    (await yard.ask("PATCH", kind.path("one"), {"spec": {"a": 1}})).must(200)
    late = {**made, "status": {"a": 1}}
    (await yard.ask("PUT", kind.path("one", "status"), late)).refused(409, "Conflict", MODIFIED)
