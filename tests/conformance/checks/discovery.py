"""Discovery: groups, versions and resources, per group version and aggregated."""

from __future__ import annotations

from tests.conformance import Cluster, check
from tests.conformance.mutations import ignores_header, replaced, sets, swaps, without
from trainyard.objects import Json

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


async def _resources(cluster: Cluster, path: str) -> list[Json]:
    resource_list = (await cluster.request("GET", path)).expect(200)
    assert resource_list["kind"] == "APIResourceList"
    assert resource_list["groupVersion"] == path.removeprefix("/apis/").removeprefix("/api/")
    return list(resource_list["resources"])


@check("/api lists v1, /apis the groups, each with its preferred version first.", area=AREA, mutation=without("groups"))
async def groups(cluster: Cluster) -> None:
    assert (await cluster.request("GET", "/api")).expect(200)["versions"] == ["v1"]
    group_list = (await cluster.request("GET", "/apis")).expect(200)
    assert group_list["kind"] == "APIGroupList"
    names = [group["name"] for group in group_list["groups"] if group["name"] in GROUPS]
    assert names == list(GROUPS), names
    batch = next(group for group in group_list["groups"] if group["name"] == "batch")
    version = {"groupVersion": "batch/v1", "version": "v1"}
    assert batch == {"name": "batch", "versions": [version], "preferredVersion": version}


@check("`/apis/apps` returns the APIGroup of apps.", area=AREA, mutation=sets("kind", "Group"))
async def group(cluster: Cluster) -> None:
    version = {"groupVersion": "apps/v1", "version": "v1"}
    group = (await cluster.request("GET", "/apis/apps")).expect(200)
    assert group == {"kind": "APIGroup", "apiVersion": "v1", "name": "apps", "versions": [version],
                    "preferredVersion": version}  # fmt: skip


@check(
    "A group version lists its resources by name, with short names.", area=AREA, mutation=swaps(b'"shortNames"', b'"s"')
)
async def resources(cluster: Cluster) -> None:
    for path, expected in RESOURCES.items():
        resources = [resource for resource in await _resources(cluster, path) if "/" not in resource["name"]]
        names = [f"{resource['name']} {','.join(resource.get('shortNames') or ())}" for resource in resources]
        assert [name for name in names if name in expected] == list(expected), (path, names)


@check(
    "A resource has kind, scope, verbs and categories; a subresource has its own kind.",
    area=AREA,
    mutation=swaps(b'"verbs"', b'"v"'),
)
async def details(cluster: Cluster) -> None:
    for path, expected in DETAILS:
        by_name = {resource["name"]: resource for resource in await _resources(cluster, path)}
        assert by_name[expected["name"]] == expected, (path, by_name[expected["name"]])


@check("namespaces supports delete but not deletecollection.", area=AREA, mutation=sets("resources", []))
async def namespaces(cluster: Cluster) -> None:
    by_name = {resource["name"]: resource for resource in await _resources(cluster, "/api/v1")}
    assert by_name["namespaces"]["verbs"] == [verb for verb in VERBS if verb != "deletecollection"]


@check(
    "Aggregated discovery returns all groups and resources in one response.",
    area=AREA,
    mutation=ignores_header("Accept"),
)
async def aggregated(cluster: Cluster) -> None:
    response = await cluster.request("GET", "/apis", headers={"Accept": f"{AGGREGATED},application/json"})
    discovery = response.expect(200)
    assert response.headers["content-type"] == AGGREGATED and discovery["kind"] == "APIGroupDiscoveryList"
    assert discovery["apiVersion"] == "apidiscovery.k8s.io/v2"
    names = [group["metadata"]["name"] for group in discovery["items"] if group["metadata"]["name"] in GROUPS]
    assert names == list(GROUPS)
    (apps,) = (group for group in discovery["items"] if group["metadata"]["name"] == "apps")
    assert apps["versions"][0]["version"] == "v1" and apps["versions"][0]["freshness"] == "Current"
    by_name = {resource["resource"]: resource for resource in apps["versions"][0]["resources"]}
    same_version = {"group": "", "version": ""}
    assert by_name["deployments"] == {
        "resource": "deployments",
        "responseKind": {**same_version, "kind": "Deployment"},
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
                "responseKind": {**same_version, "kind": "Deployment"},
                "verbs": ["get", "patch", "update"],
            },
        ],
    }
    (core,) = (await cluster.request("GET", "/api", headers={"Accept": AGGREGATED})).expect(200)["items"]
    assert core["metadata"] == {}
    assert {"pods", "nodes", "events"} <= {resource["resource"] for resource in core["versions"][0]["resources"]}


@check(
    "Aggregated discovery has an ETag; If-None-Match with that ETag gives 304.",
    area=AREA,
    mutation=ignores_header("If-None-Match"),
)
async def etag(cluster: Cluster) -> None:
    for _ in range(20):  # other checks may create definitions in between
        first = await cluster.request("GET", "/api", headers={"Accept": AGGREGATED})
        second = await cluster.request(
            "GET", "/api", headers={"Accept": AGGREGATED, "If-None-Match": first.headers.get("etag", "")}
        )
        if second.code == 304:
            assert not second.body and second.headers["etag"] == first.headers["etag"]
            return
    raise AssertionError("no response was 304")


@check("An unknown representation of discovery gives 406.", area=AREA, mutation=sets("reason", "Unknown"))
async def unknown_representation(cluster: Cluster) -> None:
    response = await cluster.request(
        "GET", "/apis", headers={"Accept": "application/json;g=x.y;v=v9;as=APIGroupDiscoveryList"}
    )
    response.expect_error(406, "NotAcceptable")


@check(
    "A custom resource is listed in its group, with names, categories and subresources; v1 before v1beta1.",
    area=AREA,
    mutation=replaced("registry.discovery:_rank", lambda version: (0, 0, 0, "" if "beta" in version else "x")),
)
async def custom(cluster: Cluster) -> None:
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "shortNames": ["th"], "categories": ["all"]}
    any_schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [
        {"name": "v1beta1", "served": True, "storage": False, "schema": any_schema},
        {"name": "v1", "served": True, "storage": True, "schema": any_schema, "subresources": {"status": {}}},
    ]
    resource = await cluster.create_crd(names={**names, "listKind": "ThingList"}, versions=versions)

    async def both_versions_served() -> bool:
        response = await cluster.request("GET", f"/apis/{resource.group}")
        return response.code == 200 and len(response.json["versions"]) == 2

    await cluster.wait_until(both_versions_served)
    group = (await cluster.request("GET", f"/apis/{resource.group}")).expect(200)
    assert [version["version"] for version in group["versions"]] == ["v1", "v1beta1"]
    assert group["preferredVersion"]["version"] == "v1"
    resources = await _resources(cluster, f"/apis/{resource.group}/v1")
    assert [entry["name"] for entry in resources] == ["things", "things/status"]
    assert (resources[0]["singularName"], resources[0]["shortNames"], resources[0]["categories"]) == (
        "thing",
        ["th"],
        ["all"],
    )
    assert sorted(resources[0]["verbs"]) == VERBS


@check("/version has the Kubernetes version and build fields.", area=AREA, mutation=without("gitVersion"))
async def version(cluster: Cluster) -> None:
    version = (await cluster.request("GET", "/version")).expect(200)
    assert (version["major"], version["minor"]) == ("1", "37") and version["gitVersion"].startswith("v1.37.")
    assert {"platform", "goVersion", "gitCommit", "buildDate", "compiler", "gitTreeState"} <= set(version)


@check("An unknown version of a group gives 404.", area=AREA, mutation=sets("reason", "Gone"))
async def unknown(cluster: Cluster) -> None:
    (await cluster.request("GET", "/apis/batch/v9")).expect_error(404, "NotFound")
