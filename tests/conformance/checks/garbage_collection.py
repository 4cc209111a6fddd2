"""Garbage collection of dependents."""

from __future__ import annotations

from typing import Any

from tests.conformance import Cluster, check
from tests.conformance.checks.deletion import AREA, BACKGROUND, FINALIZERS, finalizers_of, owner_reference
from tests.conformance.mutations import drops, original, replaced

CONTROLLERS = ("controllers",)
_BEGIN_DELETION = original("registry.deletion:begin_deletion")


async def create_owner_chain(cluster: Cluster, **more: Any) -> tuple[Any, Any]:
    """Create ConfigMaps a, b and c, where a owns b and b owns c."""
    owner = await cluster.create_config_map("a")
    dependent = await cluster.create_config_map("b", ownerReferences=[owner_reference(owner, **more)])
    await cluster.create_config_map("c", ownerReferences=[owner_reference(dependent)])
    return owner, dependent


NO_DEPENDENT_DELETION = replaced(
    "registry.deletion:begin_deletion",
    lambda w, r, old, o, s: (
        _BEGIN_DELETION(w, r, old, o, s)
        if r.plural != "configmaps" or old["metadata"]["name"] == "a"
        else (b"{}", False)
    ),
    "deletes no dependents",
)


@check(
    "Background: the owner is deleted at once, then its dependents, transitively.",
    area=AREA,
    mutation=NO_DEPENDENT_DELETION,
    needs=CONTROLLERS,
)
async def background(cluster: Cluster) -> None:
    await create_owner_chain(cluster)
    assert (await cluster.request("DELETE", cluster.path("configmaps", "a"), BACKGROUND)).expect(200)[
        "kind"
    ] == "Status"
    await cluster.wait_gone(cluster.path("configmaps", "a"))
    await cluster.wait_gone(cluster.path("configmaps", "b"))
    await cluster.wait_gone(cluster.path("configmaps", "c"))


@check(
    "Foreground: the owner stays until the dependents that block its deletion are gone.",
    area=AREA,
    mutation=drops("propagationPolicy"),
    needs=CONTROLLERS,
)
async def foreground(cluster: Cluster) -> None:
    owner = await cluster.create_config_map("a")
    await cluster.create_config_map(
        "b", ownerReferences=[owner_reference(owner, blockOwnerDeletion=True)], finalizers=FINALIZERS
    )
    deleted = (
        await cluster.request("DELETE", cluster.path("configmaps", "a"), {"propagationPolicy": "Foreground"})
    ).expect(200)
    assert finalizers_of(deleted) == ["foregroundDeletion"]

    async def is_marked() -> bool:
        dependent = (await cluster.request("GET", cluster.path("configmaps", "b"))).expect(200)
        return "deletionTimestamp" in dependent["metadata"]

    await cluster.wait_until(is_marked)
    (await cluster.request("GET", cluster.path("configmaps", "a"))).expect(200)
    (await cluster.request("PATCH", cluster.path("configmaps", "b"), {"metadata": {"finalizers": None}})).expect(200)
    await cluster.wait_gone(cluster.path("configmaps", "a"))


@check(
    "Foreground: dependents that do not block are deleted but not waited for.",
    area=AREA,
    mutation=NO_DEPENDENT_DELETION,
    needs=CONTROLLERS,
)
async def not_blocking(cluster: Cluster) -> None:
    owner = await cluster.create_config_map("a")
    await cluster.create_config_map("b", ownerReferences=[owner_reference(owner)], finalizers=FINALIZERS)
    (await cluster.request("DELETE", cluster.path("configmaps", "a"), {"propagationPolicy": "Foreground"})).expect(200)
    await cluster.wait_gone(cluster.path("configmaps", "a"))
    (await cluster.request("PATCH", cluster.path("configmaps", "b"), {"metadata": {"finalizers": None}})).expect(200)
    await cluster.wait_gone(cluster.path("configmaps", "b"))


@check(
    "Orphan: dependents stay and lose the owner reference.",
    area=AREA,
    mutation=drops("propagationPolicy"),
    needs=CONTROLLERS,
)
async def orphaned(cluster: Cluster) -> None:
    await create_owner_chain(cluster)
    (await cluster.request("DELETE", cluster.path("configmaps", "a"), {"propagationPolicy": "Orphan"})).expect(200)
    await cluster.wait_gone(cluster.path("configmaps", "a"))
    dependent = (await cluster.request("GET", cluster.path("configmaps", "b"))).expect(200)
    assert "ownerReferences" not in dependent["metadata"]
    (await cluster.request("GET", cluster.path("configmaps", "c"))).expect(200)


@check(
    "An object whose owner does not exist is deleted.",
    area=AREA,
    mutation=NO_DEPENDENT_DELETION,
    needs=CONTROLLERS,
)
async def missing_owner(cluster: Cluster) -> None:
    owner = await cluster.create_config_map("a")
    reference = owner_reference(owner) | {"uid": "11111111-1111-1111-1111-111111111111"}
    await cluster.create_config_map("b", ownerReferences=[reference])
    await cluster.wait_gone(cluster.path("configmaps", "b"))


@check(
    "An object with two owners stays while one exists and loses the reference to the other.",
    area=AREA,
    mutation=drops("metadata.ownerReferences"),
    needs=CONTROLLERS,
)
async def two_owners(cluster: Cluster) -> None:
    first_owner, second_owner = await cluster.create_config_map("a"), await cluster.create_config_map("b")
    await cluster.create_config_map("c", ownerReferences=[owner_reference(first_owner), owner_reference(second_owner)])
    (await cluster.request("DELETE", cluster.path("configmaps", "a"), BACKGROUND)).expect(200)

    async def one_reference_left() -> bool:
        dependent = (await cluster.request("GET", cluster.path("configmaps", "c"))).expect(200)
        return [reference["name"] for reference in dependent["metadata"].get("ownerReferences", ())] == ["b"]

    await cluster.wait_until(one_reference_left)
    (await cluster.request("DELETE", cluster.path("configmaps", "b"), BACKGROUND)).expect(200)
    await cluster.wait_gone(cluster.path("configmaps", "c"))
