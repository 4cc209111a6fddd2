"""Discovery: what the server has, said in the old way and in one answer."""

from __future__ import annotations

from trainyard.objects import Json
from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import replaced, sets, swaps, unheard, without

AREA = "discovery"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
GROUPS = (
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "batch",
    "rbac.authorization.k8s.io",
    "apiextensions.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
)
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
RESOURCES: dict[str, tuple[str, ...]] = {
    "/api/v1": (
        "configmaps cm",
        "endpoints ep",
        "events ev",
        "namespaces ns",
        "nodes no",
        "persistentvolumeclaims pvc",
        "pods po",
        "secrets ",
        "serviceaccounts sa",
        "services svc",
    ),
    "/apis/apps/v1": ("deployments deploy", "replicasets rs", "statefulsets sts"),
    "/apis/batch/v1": ("jobs ",),
    "/apis/coordination.k8s.io/v1": ("leases ",),
    "/apis/discovery.k8s.io/v1": ("endpointslices ",),
    "/apis/apiextensions.k8s.io/v1": ("customresourcedefinitions crd,crds",),
    "/apis/rbac.authorization.k8s.io/v1": ("clusterrolebindings ", "clusterroles ", "rolebindings ", "roles "),
}
DETAILS: tuple[tuple[str, Json], ...] = (
    (
        "/api/v1",
        {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": VERBS,
         "shortNames": ["po"], "categories": ["all"], "storageVersionHash": "xPOwRZ+Yhw8="},
    ),
    ("/api/v1", {"name": "pods/log", "singularName": "", "namespaced": True, "kind": "Pod", "verbs": ["get"]}),
    (
        "/api/v1",
        {"name": "serviceaccounts/token", "singularName": "", "namespaced": True, "group": "authentication.k8s.io",
         "version": "v1", "kind": "TokenRequest", "verbs": ["create"]},
    ),
    (
        "/apis/apps/v1",
        {"name": "deployments/scale", "singularName": "", "namespaced": True, "group": "autoscaling",
         "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"]},
    ),
    (
        "/apis/batch/v1",
        {"name": "jobs/status", "singularName": "", "namespaced": True, "kind": "Job",
         "verbs": ["get", "patch", "update"]},
    ),
    (
        "/apis/authorization.k8s.io/v1",
        {"name": "selfsubjectaccessreviews", "singularName": "selfsubjectaccessreview", "namespaced": False,
         "kind": "SelfSubjectAccessReview", "verbs": ["create"]},
    ),
)  # fmt: skip


async def _resources(yard: Subject, place: str) -> list[Json]:
    said = (await yard.ask("GET", place)).must(200)
    assert said["kind"] == "APIResourceList"
    assert said["groupVersion"] == place.removeprefix("/apis/").removeprefix("/api/")
    return list(said["resources"])


@check("/api has v1, /apis has the groups, each with its best version first.", area=AREA, breaks=without("groups"))
async def groups(yard: Subject) -> None:
    assert (await yard.ask("GET", "/api")).must(200)["versions"] == ["v1"]
    said = (await yard.ask("GET", "/apis")).must(200)
    assert said["kind"] == "APIGroupList"
    names = [one["name"] for one in said["groups"] if one["name"] in GROUPS]
    assert names == list(GROUPS), names
    batch = next(one for one in said["groups"] if one["name"] == "batch")
    version = {"groupVersion": "batch/v1", "version": "v1"}
    assert batch == {"name": "batch", "versions": [version], "preferredVersion": version}


@check("A group answers for itself.", area=AREA, breaks=sets("kind", "Group"))
async def group(yard: Subject) -> None:
    version = {"groupVersion": "apps/v1", "version": "v1"}
    said = (await yard.ask("GET", "/apis/apps")).must(200)
    assert said == {"kind": "APIGroup", "apiVersion": "v1", "name": "apps", "versions": [version],
                    "preferredVersion": version}  # fmt: skip


@check("A version lists its resources by name, with short names.", area=AREA, breaks=swaps(b'"shortNames"', b'"s"'))
async def resources(yard: Subject) -> None:
    for place, wanted in RESOURCES.items():
        found = [one for one in await _resources(yard, place) if "/" not in one["name"]]
        names = [f"{one['name']} {','.join(one.get('shortNames') or ())}" for one in found]
        assert [one for one in names if one in wanted] == list(wanted), (place, names)


@check(
    "A resource says kind, scope, verbs, categories; a subresource its own kind.",
    area=AREA,
    breaks=swaps(b'"verbs"', b'"v"'),
)
async def details(yard: Subject) -> None:
    for place, wanted in DETAILS:
        found = {one["name"]: one for one in await _resources(yard, place)}
        assert found[wanted["name"]] == wanted, (place, found[wanted["name"]])


@check("A namespace can be deleted, namespaces as a collection cannot.", area=AREA, breaks=sets("resources", []))
async def namespaces(yard: Subject) -> None:
    found = {one["name"]: one for one in await _resources(yard, "/api/v1")}
    assert found["namespaces"]["verbs"] == [verb for verb in VERBS if verb != "deletecollection"]


@check("Aggregated discovery says all of it in one answer.", area=AREA, breaks=unheard("Accept"))
async def aggregated(yard: Subject) -> None:
    reply = await yard.ask("GET", "/apis", headers={"Accept": f"{AGGREGATED},application/json"})
    said = reply.must(200)
    assert reply.headers["content-type"] == AGGREGATED and said["kind"] == "APIGroupDiscoveryList"
    assert said["apiVersion"] == "apidiscovery.k8s.io/v2"
    names = [one["metadata"]["name"] for one in said["items"] if one["metadata"]["name"] in GROUPS]
    assert names == list(GROUPS)
    (apps,) = (one for one in said["items"] if one["metadata"]["name"] == "apps")
    assert apps["versions"][0]["version"] == "v1" and apps["versions"][0]["freshness"] == "Current"
    found = {one["resource"]: one for one in apps["versions"][0]["resources"]}
    nameless = {"group": "", "version": ""}
    assert found["deployments"] == {
        "resource": "deployments",
        "responseKind": {**nameless, "kind": "Deployment"},
        "scope": "Namespaced",
        "singularResource": "deployment",
        "verbs": VERBS,
        "shortNames": ["deploy"],
        "categories": ["all"],
        "subresources": [
            {
                "subresource": "scale",
                "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
                "verbs": ["get", "patch", "update"],
            },
            {
                "subresource": "status",
                "responseKind": {**nameless, "kind": "Deployment"},
                "verbs": ["get", "patch", "update"],
            },
        ],
    }
    (core,) = (await yard.ask("GET", "/api", headers={"Accept": AGGREGATED})).must(200)["items"]
    assert core["metadata"] == {}
    assert {"pods", "nodes", "events"} <= {one["resource"] for one in core["versions"][0]["resources"]}


@check(
    "Aggregated discovery has an ETag; who has it already is answered 304.", area=AREA, breaks=unheard("If-None-Match")
)
async def etag(yard: Subject) -> None:
    for _ in range(20):  # others make definitions meanwhile
        first = await yard.ask("GET", "/api", headers={"Accept": AGGREGATED})
        again = await yard.ask(
            "GET", "/api", headers={"Accept": AGGREGATED, "If-None-Match": first.headers.get("etag", "")}
        )
        if again.code == 304:
            assert not again.body and again.headers["etag"] == first.headers["etag"]
            return
    raise AssertionError("it has never been 304")


@check("A form of discovery that nobody has is 406.", area=AREA, breaks=sets("reason", "Unknown"))
async def other_forms(yard: Subject) -> None:
    reply = await yard.ask("GET", "/apis", headers={"Accept": "application/json;g=x.y;v=v9;as=APIGroupDiscoveryList"})
    reply.refused(406, "NotAcceptable")


@check(
    "A definition is discovered under its group, with names, categories and subresources; v1 before v1beta1.",
    area=AREA,
    breaks=replaced("registry.discovery:_rank", lambda version: (0, 0, 0, "" if "beta" in version else "x")),
)
async def custom(yard: Subject) -> None:
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "shortNames": ["th"], "categories": ["all"]}
    loose = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [
        {"name": "v1beta1", "served": True, "storage": False, "schema": loose},
        {"name": "v1", "served": True, "storage": True, "schema": loose, "subresources": {"status": {}}},
    ]
    kind = await yard.crd(names={**names, "listKind": "ThingList"}, versions=versions)

    async def both() -> bool:
        reply = await yard.ask("GET", f"/apis/{kind.group}")
        return reply.code == 200 and len(reply.json["versions"]) == 2

    await yard.until(both)
    said = (await yard.ask("GET", f"/apis/{kind.group}")).must(200)
    assert [one["version"] for one in said["versions"]] == ["v1", "v1beta1"]
    assert said["preferredVersion"]["version"] == "v1"
    found = await _resources(yard, f"/apis/{kind.group}/v1")
    assert [one["name"] for one in found] == ["things", "things/status"]
    assert (found[0]["singularName"], found[0]["shortNames"], found[0]["categories"]) == ("thing", ["th"], ["all"])
    assert sorted(found[0]["verbs"]) == VERBS


@check("/version says which Kubernetes this is.", area=AREA, breaks=without("gitVersion"))
async def version(yard: Subject) -> None:
    said = (await yard.ask("GET", "/version")).must(200)
    assert (said["major"], said["minor"]) == ("1", "37") and said["gitVersion"].startswith("v1.37.")
    assert {"platform", "goVersion", "gitCommit", "buildDate", "compiler", "gitTreeState"} <= set(said)


@check("A version that a group does not have is 404.", area=AREA, breaks=sets("reason", "Gone"))
async def unknown(yard: Subject) -> None:
    (await yard.ask("GET", "/apis/batch/v9")).refused(404, "NotFound")
