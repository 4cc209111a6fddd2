"""Tables, which `kubectl get` prints."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from tests.conformance import Cluster, Response, check
from tests.conformance.mutations import answers, ignores, ignores_header, replaced, swaps
from trainyard.objects import Json
from trainyard.objects.structs import replace
from trainyard.server.model.requests import Watch
from trainyard.server.storage.watches import bookmark

AREA = "tables"
ACCEPT_TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
EMPTY_CELLS = replaced("registry.tables:_cell", lambda column, obj, now: "", "has empty cells")
COLUMNS: dict[str, str] = {
    "pods": "Name Ready Status Restarts Age | IP Node Nominated_Node Readiness_Gates",
    "services": "Name Type Cluster-IP External-IP Port(s) Age | Selector",
    "configmaps": "Name Data Age",
    "secrets": "Name Type Data Age",
    "serviceaccounts": "Name Age",
    "endpoints": "Name Endpoints Age",
    "namespaces": "Name Status Age",
    "nodes": "Name Status Roles Age Version | Internal-IP External-IP OS-Image Kernel-Version Container-Runtime",
    "persistentvolumeclaims": "Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age "
    "| VolumeMode",
    "events": "Last_Seen Type Reason Object | Subobject Source | Message | First_Seen Count Name",
    "deployments": "Name Ready Up-to-date Available Age | Containers Images Selector",
    "replicasets": "Name Desired Current Ready Age | Containers Images Selector",
    "statefulsets": "Name Ready Age | Containers Images",
    "jobs": "Name Status Completions Duration Age | Containers Images Selector",
    "leases": "Name Holder Age",
    "endpointslices": "Name AddressType Ports Endpoints Age",
    "roles": "Name Created_At",
    "clusterroles": "Name Created_At",
    "rolebindings": "Name Role Age | Users Groups ServiceAccounts",
    "clusterrolebindings": "Name Role Age | Users Groups ServiceAccounts",
    "customresourcedefinitions": "Name Scope Versions Created_At | Group Kind ShortNames Established",
}
"""Columns between two bars are wide (priority 1)."""


async def get_table(
    cluster: Cluster, path: str, includeObject: str = "", limit: str = "", fieldSelector: str = ""
) -> Json:
    query = {"includeObject": includeObject, "limit": limit, "fieldSelector": fieldSelector}
    query_string = "&".join(f"{name}={quote(value)}" for name, value in query.items() if value)
    table: Json = (
        await cluster.request("GET", f"{path}?{query_string}" if query_string else path, headers=ACCEPT_TABLE)
    ).expect(200)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1"), table
    return table


def _plain_bookmark(watch: Watch, revision: int, initial_end: bool = False) -> bytes:
    """A bookmark that is not converted to a Table."""
    return bookmark(replace(watch, encode=None), revision, initial_end)


def columns_of(table: Json) -> list[tuple[str, int]]:
    return [(column["name"], column["priority"]) for column in table["columnDefinitions"]]


def cells_of(table: Json, name: str) -> list[Any]:
    (row,) = (row for row in table["rows"] if row["object"]["metadata"]["name"] == name)
    return list(row["cells"])


async def create(cluster: Cluster, plural: str, obj: Json, status: Json | None = None) -> None:
    path = cluster.path(plural, obj["metadata"]["name"])
    (await cluster.request("POST", cluster.path(plural), obj)).expect(201)
    cluster.delete_at_end(path)
    if status is not None:
        (await cluster.request("PATCH", f"{path}/status", {"status": status})).expect(200)


@check(
    "Every built-in resource has the columns of the real server, with their priorities.",
    area=AREA,
    mutation=ignores_header("Accept"),
)
async def columns(cluster: Cluster) -> None:
    for plural, columns in COLUMNS.items():
        expected: list[tuple[str, int]] = []
        for priority, part in enumerate(columns.split(" | ")):
            expected += [(name.replace("_", " "), priority % 2) for name in part.split()]
        actual = columns_of(await get_table(cluster, cluster.path(plural)))
        assert actual == expected, (plural, actual)


@check(
    "Columns have the types and formats of the real server.",
    area=AREA,
    mutation=swaps(b'"type":"string"', b'"type":"text"'),
)
async def types(cluster: Cluster) -> None:
    for plural in COLUMNS:
        for column in (await get_table(cluster, cluster.path(plural)))["columnDefinitions"]:
            type_name = {"Created At": "date", "Established": "boolean"}.get(column["name"], "string")
            if plural == "replicasets" and column["name"] in ("Desired", "Current", "Ready"):
                type_name = "integer"
            assert column["type"] == type_name, (plural, column)
            assert column["format"] == ("name" if column["name"] == "Name" else ""), (plural, column)


@check(
    "includeObject selects the object of a row: None, Metadata (default) or Object.",
    area=AREA,
    mutation=ignores("includeObject"),
)
async def include_object(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one", data={"a": "1"})
    path = cluster.path("configmaps")
    selector = {"fieldSelector": "metadata.name=one"}
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": created["metadata"]}
    for include, expected in (("None", None), ("Metadata", partial), ("Object", created), ("", partial)):
        (row,) = (await get_table(cluster, path, includeObject=include, **selector))["rows"]
        assert row["object"] == expected, (include, row)
    (await cluster.request("GET", path, headers=ACCEPT_TABLE, includeObject="All")).expect_error(
        400, "BadRequest", "includeObject"
    )


@check(
    "A single object, a created object and a page of a list can be a Table, too.",
    area=AREA,
    mutation=ignores_header("Accept"),
)
async def other_tables(cluster: Cluster) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "1"}}
    response: Response = await cluster.request("POST", cluster.path("configmaps"), obj, headers=ACCEPT_TABLE)
    assert response.expect(201)["kind"] == "Table"
    await cluster.create_config_map("two")
    table = await get_table(cluster, cluster.path("configmaps", "one"))
    assert [row["cells"][:2] for row in table["rows"]] == [["one", 1]]
    page = await get_table(cluster, cluster.path("configmaps"), limit="1")
    assert len(page["rows"]) == 1 and page["metadata"]["continue"]


@check(
    "A watch sends columnDefinitions only with its first event.",
    area=AREA,
    mutation=swaps(b'"columnDefinitions":null', b'"columnDefinitions":[{}]'),
)
async def watched(cluster: Cluster) -> None:
    path = cluster.path("configmaps")
    first = await cluster.create_config_map("one")
    version = first["metadata"]["resourceVersion"]
    async with cluster.watch(path, headers=ACCEPT_TABLE, resourceVersion=version) as watch:
        await cluster.create_config_map("two", data={"a": "1"})
        event = await watch.read_until(lambda event: event["object"]["rows"][0]["cells"][0] == "two")
        assert event["type"] == "ADDED" and event["object"]["kind"] == "Table"
        (await cluster.request("DELETE", cluster.path("configmaps", "one"))).expect(200)
        event = await watch.read_until(lambda event: event["type"] == "DELETED")
        assert event["object"]["columnDefinitions"] is None and event["object"]["rows"][0]["cells"][0] == "one"


CELLS: tuple[tuple[Json, list[Any]], ...] = (
    ({"n": 3, "s": "x", "b": True, "l": [{"x": "q", "y": 1}, {"x": "r"}], "o": {"a": 1}, "f": 1.5},
     [3, "x", True, "q", "1", '{"a":1}', 1.5]),
    ({}, [None] * 7),
    ({"n": "x", "s": 3, "b": "no", "l": 3, "o": [1], "f": 2}, [None, "3", None, None, None, "[1]", 2]),
    ({"n": 3.7, "s": True, "b": 0, "l": [], "f": "3"}, [3, "true", None, None, None, None, None]),
)  # fmt: skip


@check(
    "A printer column has the first value of its JSONPath, if that has the column's type.",
    area=AREA,
    mutation=EMPTY_CELLS,
)
async def printer_columns(cluster: Cluster) -> None:
    paths = (
        ("N", "integer", ".spec.n"),
        ("S", "string", ".spec.s"),
        ("B", "boolean", ".spec.b"),
        ("L", "string", ".spec.l[*].x"),
        ("F", "string", '.spec.l[?(@.x=="q")].y'),
        ("O", "string", ".spec.o"),
        ("R", "number", ".spec.f"),
    )
    columns = [{"name": name, "type": kind, "jsonPath": path} for name, kind, path in paths]
    date_column: list[Json] = [{"name": "Born", "type": "date", "jsonPath": ".spec.d", "priority": 1}]
    resource = await cluster.create_crd(version={"additionalPrinterColumns": [*columns, *date_column]})
    for index, (spec, _) in enumerate(CELLS):
        (await cluster.request("POST", resource.path(), resource.obj(f"c{index}", spec=spec))).expect(201)
    table = await get_table(cluster, resource.path())
    assert columns_of(table) == [("Name", 0), *((name, 0) for name, _, _ in paths), ("Born", 1)]
    assert [column["type"] for column in table["columnDefinitions"][1:]] == [*(kind for _, kind, _ in paths), "date"]
    for index, (spec, expected) in enumerate(CELLS):
        assert cells_of(table, f"c{index}")[1:-1] == expected, spec


@check("A custom resource without printer columns has Name and Age.", area=AREA, mutation=answers(200, 406))
async def default_columns(cluster: Cluster) -> None:
    resource = await cluster.create_crd()
    (await cluster.request("POST", resource.path(), resource.obj("one"))).expect(201)
    table = await get_table(cluster, resource.path())
    assert columns_of(table) == [("Name", 0), ("Age", 0)] and table["columnDefinitions"][1]["type"] == "date"
    assert cells_of(table, "one")[0] == "one"


@check(
    "A bookmark of a Table watch is a Table whose row has a resourceVersion and no name.",
    area=AREA,
    mutation=replaced("storage.watches:bookmark", _plain_bookmark, "sends bookmarks as objects"),
)
async def bookmarks(cluster: Cluster) -> None:
    initial = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with cluster.watch(cluster.path("secrets"), headers=ACCEPT_TABLE, **initial) as watch:
        bookmark = await watch.next()
        assert bookmark["type"] == "BOOKMARK" and bookmark["object"]["kind"] == "Table", bookmark
        assert columns_of(bookmark["object"])[0] == ("Name", 0)
        (row,) = bookmark["object"]["rows"]
        assert row["cells"][0] == "" and row["cells"][-1] == "<unknown>"
        assert row["object"]["metadata"]["resourceVersion"] == bookmark["object"]["metadata"]["resourceVersion"]
        assert row["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        await create(cluster, "secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})
        event = await watch.next()
        assert event["type"] == "ADDED" and event["object"]["columnDefinitions"] is None
