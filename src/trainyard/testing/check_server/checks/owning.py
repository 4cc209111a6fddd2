"""Owners: what is collected when they go, and what is left."""

from __future__ import annotations

from typing import Any

from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import drops, original, replaced
from trainyard.testing.check_server.checks.deleting import AREA, BACKGROUND, HELD, finalizers, owner

CONTROLLERS = ("controllers",)
_START = original("registry.deletion:begin_deletion")


async def family(yard: Subject, **more: Any) -> tuple[Any, Any]:
    """b is owned by a, c by b."""
    one = await yard.map("a")
    two = await yard.map("b", ownerReferences=[owner(one, **more)])
    await yard.map("c", ownerReferences=[owner(two)])
    return one, two


NO_GARBAGE = replaced(
    "registry.deletion:begin_deletion",
    lambda w, r, old, o, s: (
        _START(w, r, old, o, s) if r.plural != "configmaps" or old["metadata"]["name"] == "a" else (b"{}", False)
    ),
    "deletes no dependents",
)


@check(
    "Background: the owner goes at once, then all that it owned, along the chain.",
    area=AREA,
    breaks=NO_GARBAGE,
    needs=CONTROLLERS,
)
async def background(yard: Subject) -> None:
    await family(yard)
    assert (await yard.ask("DELETE", yard.at("configmaps", "a"), BACKGROUND)).must(200)["kind"] == "Status"
    await yard.gone(yard.at("configmaps", "a"))
    await yard.gone(yard.at("configmaps", "b"))
    await yard.gone(yard.at("configmaps", "c"))


@check(
    "Foreground: an owner stays until those that block its deletion have gone.",
    area=AREA,
    breaks=drops("propagationPolicy"),
    needs=CONTROLLERS,
)
async def foreground(yard: Subject) -> None:
    one = await yard.map("a")
    await yard.map("b", ownerReferences=[owner(one, blockOwnerDeletion=True)], finalizers=HELD)
    said = (await yard.ask("DELETE", yard.at("configmaps", "a"), {"propagationPolicy": "Foreground"})).must(200)
    assert finalizers(said) == ["foregroundDeletion"]

    async def marked() -> bool:
        there = (await yard.ask("GET", yard.at("configmaps", "b"))).must(200)
        return "deletionTimestamp" in there["metadata"]

    await yard.until(marked)
    (await yard.ask("GET", yard.at("configmaps", "a"))).must(200)
    (await yard.ask("PATCH", yard.at("configmaps", "b"), {"metadata": {"finalizers": None}})).must(200)
    await yard.gone(yard.at("configmaps", "a"))


@check(
    "Foreground: those that do not block are deleted, and not waited for.",
    area=AREA,
    breaks=NO_GARBAGE,
    needs=CONTROLLERS,
)
async def not_blocking(yard: Subject) -> None:
    one = await yard.map("a")
    await yard.map("b", ownerReferences=[owner(one)], finalizers=HELD)
    (await yard.ask("DELETE", yard.at("configmaps", "a"), {"propagationPolicy": "Foreground"})).must(200)
    await yard.gone(yard.at("configmaps", "a"))
    (await yard.ask("PATCH", yard.at("configmaps", "b"), {"metadata": {"finalizers": None}})).must(200)
    await yard.gone(yard.at("configmaps", "b"))


@check(
    "Orphan: what was owned stays, and loses the reference.",
    area=AREA,
    breaks=drops("propagationPolicy"),
    needs=CONTROLLERS,
)
async def orphaned(yard: Subject) -> None:
    await family(yard)
    (await yard.ask("DELETE", yard.at("configmaps", "a"), {"propagationPolicy": "Orphan"})).must(200)
    await yard.gone(yard.at("configmaps", "a"))
    left = (await yard.ask("GET", yard.at("configmaps", "b"))).must(200)
    assert "ownerReferences" not in left["metadata"]
    (await yard.ask("GET", yard.at("configmaps", "c"))).must(200)


@check(
    "What names an owner that is not there, or one of another uid, is collected.",
    area=AREA,
    breaks=NO_GARBAGE,
    needs=CONTROLLERS,
)
async def no_owner(yard: Subject) -> None:
    one = await yard.map("a")
    stranger = owner(one) | {"uid": "11111111-1111-1111-1111-111111111111"}
    await yard.map("b", ownerReferences=[stranger])
    await yard.gone(yard.at("configmaps", "b"))


@check(
    "What has two owners stays as long as one of them, without the reference to the other.",
    area=AREA,
    breaks=drops("metadata.ownerReferences"),
    needs=CONTROLLERS,
)
async def two_owners(yard: Subject) -> None:
    one, two = await yard.map("a"), await yard.map("b")
    await yard.map("c", ownerReferences=[owner(one), owner(two)])
    (await yard.ask("DELETE", yard.at("configmaps", "a"), BACKGROUND)).must(200)

    async def one_left() -> bool:
        there = (await yard.ask("GET", yard.at("configmaps", "c"))).must(200)
        return [one["name"] for one in there["metadata"].get("ownerReferences", ())] == ["b"]

    await yard.until(one_left)
    (await yard.ask("DELETE", yard.at("configmaps", "b"), BACKGROUND)).must(200)
    await yard.gone(yard.at("configmaps", "c"))
