"""dryRun=All: everything happens but the write."""

from __future__ import annotations

from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import answers, ignores, sets
from trainyard.testing.check_server.checks.crud import config_map

AREA = "dry run"
DRY = {"dryRun": "All"}


@check(
    "A dry-run create answers 201 without a resourceVersion, and stores nothing.", area=AREA, breaks=ignores("dryRun")
)
async def dry_create(yard: Subject) -> None:
    said = (await yard.ask("POST", yard.at("configmaps"), config_map("one"), **DRY)).must(201)
    assert said["metadata"]["uid"] and "resourceVersion" not in said["metadata"]
    (await yard.ask("GET", yard.at("configmaps", "one"))).refused(404, "NotFound")


@check("A dry-run create is refused as a real one would be.", area=AREA, breaks=answers(409, 201))
async def dry_taken(yard: Subject) -> None:
    await yard.map("one")
    (await yard.ask("POST", yard.at("configmaps"), config_map("one"), **DRY)).refused(409, "AlreadyExists")
    (await yard.ask("POST", yard.at("configmaps"), config_map("B"), **DRY)).refused(422, "Invalid")


@check(
    "A dry-run update and patch show what would be, with the old version, and change nothing.",
    area=AREA,
    breaks=ignores("dryRun"),
)
async def dry_update(yard: Subject) -> None:
    made = await yard.map("one", data={"a": "1"})
    path = yard.at("configmaps", "one")
    put = (await yard.ask("PUT", path, config_map("one", data={"a": "2"}), **DRY)).must(200)
    patched = (await yard.ask("PATCH", path, {"data": {"b": "3"}}, **DRY)).must(200)
    assert put["data"] == {"a": "2"} and patched["data"] == {"a": "1", "b": "3"}
    assert put["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert (await yard.ask("GET", path)).must(200) == made


@check(
    "A dry-run delete answers as a real one, in the query or in the body, and deletes nothing.",
    area=AREA,
    breaks=ignores("dryRun"),
)
async def dry_delete(yard: Subject) -> None:
    made = await yard.map("one")
    path = yard.at("configmaps", "one")
    assert (await yard.ask("DELETE", path, **DRY)).must(200)["status"] == "Success"
    assert (await yard.ask("DELETE", path, {"dryRun": ["All"]})).must(200)["status"] == "Success"
    assert (await yard.ask("DELETE", yard.at("configmaps"), labelSelector="!none", **DRY)).must(200)
    assert (await yard.ask("GET", path)).must(200) == made


@check("A dry-run status update changes nothing.", area=AREA, breaks=ignores("dryRun"))
async def dry_status(yard: Subject) -> None:
    kind = await yard.crd(version={"subresources": {"status": {}}})
    await yard.ask("POST", kind.path(), kind.obj("one"))
    said = (await yard.ask("PATCH", kind.path("one", "status"), {"status": {"a": 1}}, **DRY)).must(200)
    assert said["status"] == {"a": 1}
    assert "status" not in (await yard.ask("GET", kind.path("one"))).must(200)


@check(
    "Any other word than All is refused with 422, and says which options are wrong.",
    area=AREA,
    breaks=sets("details.kind", "Options"),
)
async def dry_word(yard: Subject) -> None:
    await yard.map("one")
    path = yard.at("configmaps", "one")
    for method, where, body, kind in (
        ("POST", yard.at("configmaps"), config_map("two"), "CreateOptions"),
        ("PUT", path, config_map("one"), "UpdateOptions"),
        ("PATCH", path, {"data": {}}, "PatchOptions"),
        ("DELETE", path, None, "DeleteOptions"),
    ):
        said = (await yard.ask(method, where, body, dryRun="Some")).refused(422, "Invalid")
        assert said["details"]["kind"] == kind and said["details"]["group"] == "meta.k8s.io", said
        assert said["details"]["causes"][0]["field"] == "dryRun"
