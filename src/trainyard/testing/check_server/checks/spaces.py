"""Namespaces: how they begin and how they end."""

from __future__ import annotations

from trainyard.server.registry.deletion import PROTECTED_NAMESPACES
from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import answers, drops, replaced, sets, without
from trainyard.testing.check_server.checks.crud import config_map

AREA = "namespaces"
HELD = ["example.org/held"]


async def space(yard: Subject, word: str = "space") -> str:
    name = yard.name(word)
    obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    (await yard.ask("POST", yard.at("namespaces"), obj)).must(201)
    yard.remove(yard.at("namespaces", name))
    return name


async def terminating(yard: Subject) -> tuple[str, str]:
    """A namespace that cannot end yet, and the path of what holds it."""
    name = await space(yard)
    path = yard.at("configmaps", namespace=name)
    (await yard.ask("POST", path, config_map("held", meta={"finalizers": HELD}))).must(201)
    (await yard.ask("DELETE", yard.at("namespaces", name))).must(200)
    return name, f"{path}/held"


async def release(yard: Subject, name: str, path: str) -> None:
    (await yard.ask("PATCH", path, {"metadata": {"finalizers": None}})).must(200)
    await yard.gone(yard.at("namespaces", name))


@check(
    "A new namespace is Active, has the finalizer kubernetes in its spec, and a label with its name.",
    area=AREA,
    breaks=without("spec.finalizers"),
)
async def born(yard: Subject) -> None:
    made = (await yard.ask("GET", yard.at("namespaces", await space(yard)))).must(200)
    assert made["status"]["phase"] == "Active" and made["spec"]["finalizers"] == ["kubernetes"]
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": made["metadata"]["name"]}


@check(
    "The label with the name of a namespace cannot be changed.",
    area=AREA,
    breaks=sets("metadata.labels", {"kubernetes.io/metadata.name": "x"}),
)
async def label(yard: Subject) -> None:
    path = yard.at("namespaces", yard.namespace)
    for wanted in ("x", None):
        changed = {"metadata": {"labels": {"kubernetes.io/metadata.name": wanted}}}
        said = (await yard.ask("PATCH", path, changed)).must(200)
        assert said["metadata"]["labels"]["kubernetes.io/metadata.name"] == yard.namespace


@check("The name of a namespace is a label: no dots, at most 63 characters.", area=AREA, breaks=answers(422, 201))
async def names(yard: Subject) -> None:
    for name, words in (
        ("a.b", "must not contain dots"),
        ("a" * 64, "must be no more than 63"),
        ("A", "RFC 1123 label"),
    ):
        obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        (await yard.ask("POST", yard.at("namespaces"), obj)).refused(422, "Invalid", "metadata.name", words)


@check(
    "A namespace that is deleted is Terminating while something in it is held.",
    area=AREA,
    breaks=sets("status.phase", "Active"),
)
async def ending(yard: Subject) -> None:
    name, held = await terminating(yard)
    there = (await yard.ask("GET", yard.at("namespaces", name))).must(200)
    assert there["status"]["phase"] == "Terminating" and there["metadata"]["deletionTimestamp"]
    await release(yard, name, held)


@check(
    "Nothing new is made in a namespace that is Terminating: 403, with a cause; what is there can still be changed.",
    area=AREA,
    breaks=sets("details.causes", []),
)
async def closed(yard: Subject) -> None:
    name, held = await terminating(yard)
    path = yard.at("configmaps", namespace=name)
    said = (await yard.ask("POST", path, config_map("new"))).refused(403, "Forbidden")
    why = f"unable to create new content in namespace {name} because it is being terminated"
    assert said["message"] == f'configmaps "new" is forbidden: {why}'
    cause = {"reason": "NamespaceTerminating", "message": f"namespace {name} is being terminated"}
    assert said["details"]["causes"] == [{**cause, "field": "metadata.namespace"}]
    (await yard.ask("PATCH", held, {"data": {"a": "b"}})).must(200)
    await release(yard, name, held)


@check(
    "All that is in a namespace goes with it.",
    area=AREA,
    breaks=replaced("registry.deletion:_empty", lambda *_: None, "leaves what is in a namespace"),
)
async def emptied(yard: Subject) -> None:
    name = await space(yard)
    for plural, obj in (
        ("configmaps", config_map("one")),
        ("secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}}),
    ):
        (await yard.ask("POST", yard.at(plural, namespace=name), obj)).must(201)
    (await yard.ask("DELETE", yard.at("namespaces", name))).must(200)
    await yard.gone(yard.at("namespaces", name))
    await yard.gone(yard.at("configmaps", "one", namespace=name))


@check(
    "The namespaces default, kube-system and kube-public cannot be deleted: 403.",
    area=AREA,
    breaks=replaced("registry.deletion:PROTECTED_NAMESPACES", (), "keeps no namespace"),
)
async def kept(yard: Subject) -> None:
    for name in PROTECTED_NAMESPACES:
        (await yard.ask("DELETE", yard.at("namespaces", name), dryRun="All")).refused(
            403, "Forbidden", f'namespaces "{name}" is forbidden: this namespace may not be deleted'
        )


@check("A namespace that ended can be made again, and is empty.", area=AREA, breaks=drops("metadata.name"))
async def anew(yard: Subject) -> None:
    name = await space(yard)
    (await yard.ask("POST", yard.at("configmaps", namespace=name), config_map("one"))).must(201)
    (await yard.ask("DELETE", yard.at("namespaces", name))).must(200)
    await yard.gone(yard.at("namespaces", name))
    assert await space(yard) == name
    (await yard.ask("GET", yard.at("configmaps", "one", namespace=name))).refused(404, "NotFound")


@check(
    "A new namespace gets the ServiceAccount default and the ConfigMap kube-root-ca.crt.",
    area=AREA,
    breaks=replaced("registry.verbs:Verbs._create", lambda *_: (_ for _ in ()).throw(RuntimeError), "makes nothing"),
    needs=("controllers",),
)
async def furnished(yard: Subject) -> None:
    name = await space(yard)

    async def there() -> bool:
        account = await yard.ask("GET", yard.at("serviceaccounts", "default", namespace=name))
        authority = await yard.ask("GET", yard.at("configmaps", "kube-root-ca.crt", namespace=name))
        return account.code == authority.code == 200

    await yard.until(there)
