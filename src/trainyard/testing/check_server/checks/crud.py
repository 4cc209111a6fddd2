"""Objects are made, read, written over and taken away."""

from __future__ import annotations

from typing import Any

from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import answers, drops, hears, ignores, replaced, sets, swaps, without

AREA = "objects"


def config_map(name: str, **more: Any) -> dict[str, Any]:
    meta = {"name": name, **more.pop("meta", {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, **more}


@check(
    "A created object is answered with 201, has a uid, a creationTimestamp and a resourceVersion, and reads the same.",
    area=AREA,
    breaks=answers(201, 200),
)
async def created(yard: Subject) -> None:
    made = await yard.map("one", data={"a": "b"})
    meta = made["metadata"]
    assert len(meta["uid"]) == 36 and meta["creationTimestamp"].endswith("Z") and meta["resourceVersion"].isdigit()
    assert meta["namespace"] == yard.namespace and made["data"] == {"a": "b"}
    assert (await yard.ask("GET", yard.at("configmaps", "one"))).must(200) == made


@check("A name that is taken is refused with 409 AlreadyExists.", area=AREA, breaks=sets("reason", "Conflict"))
async def taken(yard: Subject) -> None:
    await yard.map("one")
    said = (await yard.ask("POST", yard.at("configmaps"), config_map("one"))).refused(409, "AlreadyExists")
    assert said["message"] == 'configmaps "one" already exists'
    assert said["details"] == {"name": "one", "kind": "configmaps"}


@check(
    "What is not there is 404 NotFound, its name, group and kind in the details.", area=AREA, breaks=without("details")
)
async def missing(yard: Subject) -> None:
    said = (await yard.ask("GET", yard.at("jobs", "none"))).refused(404, "NotFound")
    assert said["message"] == 'jobs.batch "none" not found'
    assert said["details"] == {"name": "none", "group": "batch", "kind": "jobs"}


@check(
    "In a namespace that does not exist nothing can be made, a list is empty, and a name is not found.",
    area=AREA,
    breaks=replaced("registry.writes:Writes.require_creatable", lambda *_: None, "makes things anywhere"),
)
async def nowhere(yard: Subject) -> None:
    where = yard.name("nowhere")
    path = yard.at("configmaps", namespace=where)
    (await yard.ask("POST", path, config_map("one"))).refused(404, "NotFound", f'namespaces "{where}" not found')
    assert (await yard.ask("GET", path)).must(200)["items"] == []
    (await yard.ask("GET", f"{path}/one")).refused(404, "NotFound")


@check(
    "A generateName gets five characters appended, and the answer says both names.",
    area=AREA,
    breaks=replaced("registry.metadata:generate_name", lambda prefix: prefix + "x"),
)
async def generated(yard: Subject) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "made-"}}
    one = (await yard.ask("POST", yard.at("configmaps"), obj)).must(201)["metadata"]
    two = (await yard.ask("POST", yard.at("configmaps"), obj)).must(201)["metadata"]
    assert one["generateName"] == "made-" and one["name"].startswith("made-") and len(one["name"]) == 10
    assert one["name"] != two["name"]


@check(
    "A generateName that is too long is cut, so that the name has 63 characters.",
    area=AREA,
    breaks=replaced("registry.metadata:generate_name", lambda prefix: prefix + "bcdfg"),
)
async def generated_long(yard: Subject) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x" * 80}}
    assert len((await yard.ask("POST", yard.at("configmaps"), obj)).must(201)["metadata"]["name"]) == 63


@check("Beside a name, a generateName is only remembered.", area=AREA, breaks=drops("metadata.name"))
async def name_wins(yard: Subject) -> None:
    made = await yard.map("one", generateName="two-")
    assert made["metadata"]["name"] == "one" and made["metadata"]["generateName"] == "two-"


@check(
    "Without a name and a generateName a create is refused with 422, and the cause names metadata.name.",
    area=AREA,
    breaks=sets("details.causes", []),
)
async def nameless(yard: Subject) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}
    said = (await yard.ask("POST", yard.at("configmaps"), obj)).refused(422, "Invalid")
    assert said["details"] == {
        "kind": "ConfigMap",
        "causes": [
            {
                "reason": "FieldValueRequired",
                "message": "Required value: name or generateName is required",
                "field": "metadata.name",
            }
        ],
    }


@check(
    "A create that names another namespace than its path is refused with 400.",
    area=AREA,
    breaks=drops("metadata.namespace"),
)
async def other_namespace(yard: Subject) -> None:
    wrong = config_map("one", meta={"namespace": "other"})
    (await yard.ask("POST", yard.at("configmaps"), wrong)).refused(400, "BadRequest", "does not match the namespace")


@check("An update replaces the whole object: what is not sent is gone.", area=AREA, breaks=hears("PUT", "PATCH"))
async def replaced_whole(yard: Subject) -> None:
    await yard.map("one", data={"a": "1", "b": "2"}, labels={"x": "y"})
    said = (await yard.ask("PUT", yard.at("configmaps", "one"), config_map("one", data={"a": "3"}))).must(200)
    assert said["data"] == {"a": "3"} and "labels" not in said["metadata"]


@check("An update of what is not there is 404, and makes nothing.", area=AREA, breaks=answers(404, 200))
async def no_upsert(yard: Subject) -> None:
    (await yard.ask("PUT", yard.at("configmaps", "one"), config_map("one"))).refused(404, "NotFound")
    (await yard.ask("GET", yard.at("configmaps", "one"))).refused(404, "NotFound")


@check("A patch of what is not there is 404.", area=AREA, breaks=answers(404, 200))
async def no_patch(yard: Subject) -> None:
    (await yard.ask("PATCH", yard.at("configmaps", "one"), {"data": {"a": "b"}})).refused(404, "NotFound")


@check("An update must name the object that its path names.", area=AREA, breaks=answers(400, 200))
async def same_name(yard: Subject) -> None:
    await yard.map("one")
    path = yard.at("configmaps", "one")
    (await yard.ask("PUT", path, config_map("two"))).refused(400, "BadRequest", "does not match the name on the URL")
    nameless = {"apiVersion": "v1", "kind": "ConfigMap"}
    (await yard.ask("PUT", path, nameless)).refused(400, "BadRequest", "name must be provided")
    (await yard.ask("PATCH", path, {"metadata": {"name": "two"}})).refused(400, "BadRequest")
    (await yard.ask("PATCH", path, {"metadata": {"namespace": "two"}})).refused(400, "BadRequest")


@check(
    "A write that changes nothing leaves the resourceVersion alone.",
    area=AREA,
    breaks=replaced("registry.writes:json_equal", lambda new, old: False),
)
async def nothing_new(yard: Subject) -> None:
    made = await yard.map("one", data={"a": "b"})
    path = yard.at("configmaps", "one")
    put = (await yard.ask("PUT", path, config_map("one", data={"a": "b"}))).must(200)
    patched = (await yard.ask("PATCH", path, {"data": {"a": "b"}})).must(200)
    versions = {one["metadata"]["resourceVersion"] for one in (made, put, patched)}
    assert len(versions) == 1, versions


@check(
    "What only the server writes of the metadata (uid, creationTimestamp) a client can neither choose nor change.",
    area=AREA,
    breaks=replaced("registry.metadata:sanitized", lambda meta, old: {**(old or {}), **meta}),
)
async def servers_own(yard: Subject) -> None:
    uid, time = "11111111-1111-1111-1111-111111111111", "2001-01-01T00:00:00Z"
    made = await yard.map("one", uid=uid, creationTimestamp=time)
    assert made["metadata"]["uid"] != uid and made["metadata"]["creationTimestamp"] != time
    changed = config_map("one", meta={"creationTimestamp": time}, data={"a": "b"})
    said = (await yard.ask("PUT", yard.at("configmaps", "one"), changed)).must(200)
    assert said["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert said["metadata"]["uid"] == made["metadata"]["uid"]


@check(
    "A delete is answered with a Status that names what is gone, with its uid.",
    area=AREA,
    breaks=without("details.uid"),
)
async def deleted(yard: Subject) -> None:
    made = await yard.map("one")
    said = (await yard.ask("DELETE", yard.at("configmaps", "one"))).must(200)
    assert said["kind"] == "Status" and said["status"] == "Success" and said["metadata"] == {}
    assert said["details"] == {"name": "one", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    (await yard.ask("DELETE", yard.at("configmaps", "one"))).refused(404, "NotFound")


@check(
    "The delete of a collection takes away what its selectors choose, and answers with that list.",
    area=AREA,
    breaks=ignores("labelSelector"),
)
async def collection(yard: Subject) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        await yard.map(name, labels={"l": label})
    said = (await yard.ask("DELETE", yard.at("configmaps"), labelSelector="l=x")).must(200)
    assert said["kind"] == "ConfigMapList" and [one["metadata"]["name"] for one in said["items"]] == ["a", "b"]
    left = (await yard.ask("GET", yard.at("configmaps"), labelSelector="l")).must(200)["items"]
    assert [one["metadata"]["name"] for one in left] == ["c"]


@check(
    "Nobody deletes a collection in all namespaces at once, or all namespaces: 405.",
    area=AREA,
    breaks=answers(405, 200),
)
async def not_everything(yard: Subject) -> None:
    nothing = {"labelSelector": f"none={yard.name('x')}"}
    for path in ("/api/v1/configmaps", "/api/v1/pods", "/api/v1/namespaces", "/apis/batch/v1/jobs"):
        (await yard.ask("DELETE", path, **nothing)).refused(405, "MethodNotAllowed")


@check("An object that is made in all namespaces at once is refused with 405.", area=AREA, breaks=answers(405, 201))
async def made_nowhere(yard: Subject) -> None:
    (await yard.ask("POST", "/api/v1/configmaps", config_map("one"))).refused(405, "MethodNotAllowed")


@check("A list of all namespaces shows the objects of each.", area=AREA, breaks=swaps(b"check-", b"other-"))
async def everywhere(yard: Subject) -> None:
    await yard.map("one", labels={"l": yard.name("x")})
    found = (await yard.ask("GET", "/api/v1/configmaps", labelSelector=f"l={yard.name('x')}")).must(200)["items"]
    assert [one["metadata"]["namespace"] for one in found] == [yard.namespace]


@check(
    "A fieldManager is 128 bytes at most, that can be printed: 422 before the object is looked for.",
    area=AREA,
    breaks=replaced("patch.dispatch:manager_problems", lambda request: []),
)
async def field_manager(yard: Subject) -> None:
    words = "fieldManager: Too long: may not be more than 128 bytes"
    for method, path, kind in (
        ("POST", yard.at("configmaps"), "CreateOptions"),
        ("PUT", yard.at("configmaps", "one"), "UpdateOptions"),
        ("PATCH", yard.at("configmaps", "one"), "PatchOptions"),
    ):
        for manager in ("m" * 129, "\u00e9" * 65):
            said = (await yard.ask(method, path, config_map("one"), fieldManager=manager)).refused(422, "Invalid")
            assert said["message"] == f'{kind}.meta.k8s.io "" is invalid: {words}'
    said = await yard.ask("POST", yard.at("configmaps"), config_map("one"), fieldManager="a\u00e9\x01")
    where = "invalid character U+0001 (at position 3)"
    said.refused(422, "Invalid", f'fieldManager: Invalid value: "a\u00e9\\x01": {where}')
    (await yard.ask("POST", yard.at("configmaps"), config_map("one"), fieldManager="m" * 128)).must(201)
