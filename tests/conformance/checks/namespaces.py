"""Namespaces: creation, termination and default content."""

from __future__ import annotations

from tests.conformance import Cluster, check
from tests.conformance.checks.crud import config_map
from tests.conformance.mutations import answers, drops, replaced, sets, without

AREA = "namespaces"
FINALIZERS = ["example.org/held"]


async def create_namespace(cluster: Cluster, prefix: str = "space") -> str:
    name = cluster.unique_name(prefix)
    obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    (await cluster.request("POST", cluster.path("namespaces"), obj)).expect(201)
    cluster.delete_at_end(cluster.path("namespaces", name))
    return name


async def create_terminating(cluster: Cluster) -> tuple[str, str]:
    """Create a terminating namespace. Returns its name and the path of the object whose finalizer blocks deletion."""
    name = await create_namespace(cluster)
    path = cluster.path("configmaps", namespace=name)
    (await cluster.request("POST", path, config_map("held", meta={"finalizers": FINALIZERS}))).expect(201)
    (await cluster.request("DELETE", cluster.path("namespaces", name))).expect(200)
    return name, f"{path}/held"


async def finish_deletion(cluster: Cluster, name: str, path: str) -> None:
    (await cluster.request("PATCH", path, {"metadata": {"finalizers": None}})).expect(200)
    await cluster.wait_gone(cluster.path("namespaces", name))


@check(
    "A new namespace is Active and has the finalizer kubernetes and a label with its name.",
    area=AREA,
    mutation=without("spec.finalizers"),
)
async def new_namespace(cluster: Cluster) -> None:
    namespace = (await cluster.request("GET", cluster.path("namespaces", await create_namespace(cluster)))).expect(200)
    assert namespace["status"]["phase"] == "Active" and namespace["spec"]["finalizers"] == ["kubernetes"]
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": namespace["metadata"]["name"]}


@check(
    "The name label of a namespace cannot be changed.",
    area=AREA,
    mutation=sets("metadata.labels", {"kubernetes.io/metadata.name": "x"}),
)
async def name_label(cluster: Cluster) -> None:
    path = cluster.path("namespaces", cluster.namespace)
    for value in ("x", None):
        patch = {"metadata": {"labels": {"kubernetes.io/metadata.name": value}}}
        patched = (await cluster.request("PATCH", path, patch)).expect(200)
        assert patched["metadata"]["labels"]["kubernetes.io/metadata.name"] == cluster.namespace


@check(
    "The name of a namespace must be a DNS label: no dots, at most 63 characters.",
    area=AREA,
    mutation=answers(422, 201),
)
async def names(cluster: Cluster) -> None:
    for name, message in (
        ("a.b", "must not contain dots"),
        ("a" * 64, "must be no more than 63"),
        ("A", "RFC 1123 label"),
    ):
        obj = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        (await cluster.request("POST", cluster.path("namespaces"), obj)).expect_error(
            422, "Invalid", "metadata.name", message
        )


@check(
    "A deleted namespace is Terminating while an object in it has finalizers.",
    area=AREA,
    mutation=sets("status.phase", "Active"),
)
async def terminating_phase(cluster: Cluster) -> None:
    name, held_path = await create_terminating(cluster)
    namespace = (await cluster.request("GET", cluster.path("namespaces", name))).expect(200)
    assert namespace["status"]["phase"] == "Terminating" and namespace["metadata"]["deletionTimestamp"]
    await finish_deletion(cluster, name, held_path)


@check(
    "A create in a Terminating namespace gives 403 with a cause; existing objects can still be changed.",
    area=AREA,
    mutation=sets("details.causes", []),
)
async def create_while_terminating(cluster: Cluster) -> None:
    name, held_path = await create_terminating(cluster)
    path = cluster.path("configmaps", namespace=name)
    error = (await cluster.request("POST", path, config_map("new"))).expect_error(403, "Forbidden")
    reason = f"unable to create new content in namespace {name} because it is being terminated"
    assert error["message"] == f'configmaps "new" is forbidden: {reason}'
    cause = {"reason": "NamespaceTerminating", "message": f"namespace {name} is being terminated"}
    assert error["details"]["causes"] == [{**cause, "field": "metadata.namespace"}]
    (await cluster.request("PATCH", held_path, {"data": {"a": "b"}})).expect(200)
    await finish_deletion(cluster, name, held_path)


@check(
    "Deleting a namespace deletes the objects in it.",
    area=AREA,
    mutation=replaced("registry.deletion:_empty", lambda *_: None, "keeps the objects of a deleted namespace"),
)
async def deleted_content(cluster: Cluster) -> None:
    name = await create_namespace(cluster)
    for plural, obj in (
        ("configmaps", config_map("one")),
        ("secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}}),
    ):
        (await cluster.request("POST", cluster.path(plural, namespace=name), obj)).expect(201)
    (await cluster.request("DELETE", cluster.path("namespaces", name))).expect(200)
    await cluster.wait_gone(cluster.path("namespaces", name))
    await cluster.wait_gone(cluster.path("configmaps", "one", namespace=name))


@check(
    "The namespaces default, kube-system and kube-public cannot be deleted: 403.",
    area=AREA,
    mutation=replaced("registry.deletion:_is_protected", lambda resource, name: False, "protects no namespace"),
)
async def protected(cluster: Cluster) -> None:
    for name in ("default", "kube-system", "kube-public"):
        (await cluster.request("DELETE", cluster.path("namespaces", name), dryRun="All")).expect_error(
            403, "Forbidden", f'namespaces "{name}" is forbidden: this namespace may not be deleted'
        )


@check("A deleted namespace can be created again, and is empty.", area=AREA, mutation=drops("metadata.name"))
async def recreated(cluster: Cluster) -> None:
    name = await create_namespace(cluster)
    (await cluster.request("POST", cluster.path("configmaps", namespace=name), config_map("one"))).expect(201)
    (await cluster.request("DELETE", cluster.path("namespaces", name))).expect(200)
    await cluster.wait_gone(cluster.path("namespaces", name))
    assert await create_namespace(cluster) == name
    (await cluster.request("GET", cluster.path("configmaps", "one", namespace=name))).expect_error(404, "NotFound")


@check(
    "A new namespace gets the ServiceAccount default and the ConfigMap kube-root-ca.crt.",
    area=AREA,
    mutation=replaced("verbs:Verbs._create", lambda *_: (_ for _ in ()).throw(RuntimeError), "fails every create"),
    needs=("controllers",),
)
async def default_objects(cluster: Cluster) -> None:
    name = await create_namespace(cluster)

    async def defaults_exist() -> bool:
        account = await cluster.request("GET", cluster.path("serviceaccounts", "default", namespace=name))
        authority = await cluster.request("GET", cluster.path("configmaps", "kube-root-ca.crt", namespace=name))
        return account.code == authority.code == 200

    await cluster.wait_until(defaults_exist)
