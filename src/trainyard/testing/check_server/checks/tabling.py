"""Tables: what `kubectl get` prints is made by the server."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from trainyard.objects import Json
from trainyard.objects.structs import replace
from trainyard.server.http.requests import Watch
from trainyard.server.storage.watches import bookmark
from trainyard.testing.check_server import Reply, Subject, check
from trainyard.testing.check_server.breaks import answers, ignores, replaced, swaps, unheard

AREA = "tables"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
_NOTHING = replaced("registry.tables:_cell", lambda column, obj, now: "", "has empty cells")
THEN = "2026-01-02T03:04:05Z"
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
"""What stands between two bars is wide, of priority 1."""


async def _table(yard: Subject, path: str, includeObject: str = "", limit: str = "", fieldSelector: str = "") -> Json:
    query = {"includeObject": includeObject, "limit": limit, "fieldSelector": fieldSelector}
    asked = "&".join(f"{name}={quote(value)}" for name, value in query.items() if value)
    said: Json = (await yard.ask("GET", f"{path}?{asked}" if asked else path, headers=TABLE)).must(200)
    assert (said["kind"], said["apiVersion"]) == ("Table", "meta.k8s.io/v1"), said
    return said


def _bare(watch: Watch, revision: int, initial_end: bool = False) -> bytes:
    """A bookmark that does not know of Tables."""
    return bookmark(replace(watch, encode=None), revision, initial_end)


def _columns(table: Json) -> list[tuple[str, int]]:
    return [(one["name"], one["priority"]) for one in table["columnDefinitions"]]


def _cells(table: Json, name: str) -> list[Any]:
    (row,) = (one for one in table["rows"] if one["object"]["metadata"]["name"] == name)
    return list(row["cells"])


async def _made(yard: Subject, plural: str, obj: Json, status: Json | None = None) -> None:
    path = yard.at(plural, obj["metadata"]["name"])
    (await yard.ask("POST", yard.at(plural), obj)).must(201)
    yard.remove(path)
    if status is not None:
        (await yard.ask("PATCH", f"{path}/status", {"status": status})).must(200)


@check(
    "Every built-in resource has the columns of the real server, wide ones marked.",
    area=AREA,
    breaks=unheard("Accept"),
)
async def columns(yard: Subject) -> None:
    for plural, words in COLUMNS.items():
        wanted: list[tuple[str, int]] = []
        for priority, part in enumerate(words.split(" | ")):
            wanted += [(name.replace("_", " "), priority % 2) for name in part.split()]
        found = _columns(await _table(yard, yard.at(plural)))
        assert found == wanted, (plural, found)


@check(
    "Types and formats of columns are the real server's.", area=AREA, breaks=swaps(b'"type":"string"', b'"type":"text"')
)
async def types(yard: Subject) -> None:
    for plural in COLUMNS:
        for one in (await _table(yard, yard.at(plural)))["columnDefinitions"]:
            kind = {"Created At": "date", "Established": "boolean"}.get(one["name"], "string")
            if plural == "replicasets" and one["name"] in ("Desired", "Current", "Ready"):
                kind = "integer"
            assert one["type"] == kind, (plural, one)
            assert one["format"] == ("name" if one["name"] == "Name" else ""), (plural, one)


PODS: tuple[tuple[Json, Json, list[str]], ...] = (
    ({}, {"phase": "Pending"}, ["0/1", "Pending", "0"]),
    (
        {},
        {"phase": "Running", "podIPs": [{"ip": "10.1.2.3"}], "podIP": "10.1.2.3",
         "containerStatuses": [{"ready": True, "restartCount": 2, "state": {"running": {}}}]},
        ["1/1", "Running", "2"],
    ),
    (
        {},
        {"phase": "Running",
         "containerStatuses": [{"restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
        ["0/1", "CrashLoopBackOff", "1"],
    ),
    (
        {},
        {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]},
        ["0/1", "ExitCode:3", "0"],
    ),
    (
        {},
        {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 137, "signal": 9}}}]},
        ["0/1", "Signal:9", "0"],
    ),
    ({}, {"phase": "Failed", "reason": "Evicted"}, ["0/1", "Evicted", "0"]),
    (
        {"initContainers": [{"name": "i", "image": "i"}, {"name": "k", "image": "i"}]},
        {"phase": "Pending", "initContainerStatuses": [
            {"name": "i", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}},
            {"name": "k", "restartCount": 3, "state": {"running": {}}}]},
        ["0/1", "Init:1/2", "3"],
    ),
    (
        {"initContainers": [{"name": "i", "image": "i"}]},
        {"phase": "Pending", "initContainerStatuses": [
            {"name": "i", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]},
        ["0/1", "Init:Error", "0"],
    ),
)  # fmt: skip


def _filled(status: Json) -> Json:
    """Container statuses with what the schema requires."""
    filled = dict(status)
    for group in ("containerStatuses", "initContainerStatuses"):
        if group in status:
            bare = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
            filled[group] = [{**bare, **one} for one in status[group]]
    return filled


@check(
    "A pod's row says how many containers are ready, and one telling word.",
    area=AREA,
    breaks=_NOTHING,
    needs=("pods",),
)
async def pods(yard: Subject) -> None:
    for index, (spec, status, _) in enumerate(PODS):
        await yard.pod(f"p{index}", **spec)
        path = yard.at("pods", f"p{index}", "status")
        (await yard.ask("PATCH", path, {"status": _filled(status)})).must(200)
    table = await _table(yard, yard.at("pods"))
    for index, (_, status, wanted) in enumerate(PODS):
        cells = _cells(table, f"p{index}")
        assert cells[1:4] == wanted, (status, cells)
        assert cells[5:] == [status.get("podIP", "<none>"), "<none>", "<none>", "<none>"], cells


@check(
    "The row of a pod that has ended says so.",
    area=AREA,
    breaks=replaced("builtin.pod_columns:_ENDS", {}, "says nothing of rows"),
    needs=("pods",),
)
async def ended(yard: Subject) -> None:
    for name, phase in (("won", "Succeeded"), ("lost", "Failed"), ("goes", "Running")):
        await yard.pod(name)
        (await yard.ask("PATCH", yard.at("pods", name, "status"), {"status": {"phase": phase}})).must(200)
    rows = {row["object"]["metadata"]["name"]: row for row in (await _table(yard, yard.at("pods")))["rows"]}
    assert "conditions" not in rows["goes"]
    for name, phase in (("won", "Succeeded"), ("lost", "Failed")):
        (said,) = rows[name]["conditions"]
        assert (said["type"], said["status"], said["reason"]) == ("Completed", "True", phase)


@check("Services show type, addresses and ports.", area=AREA, breaks=_NOTHING)
async def services(yard: Subject) -> None:
    two = [{"port": 80, "name": "x"}, {"port": 81, "protocol": "UDP", "name": "y"}]
    specs: dict[str, tuple[Json, list[str]]] = {
        "a": (
            {"clusterIP": "None", "selector": {"b": "c", "a": "b"}, "ports": two},
            ["ClusterIP", "None", "<none>", "80/TCP,81/UDP", "a=b,b=c"],
        ),
        "b": (
            {"type": "ExternalName", "externalName": "foo.bar"},
            ["ExternalName", "<none>", "foo.bar", "<none>", "<none>"],
        ),
        "c": (
            {"clusterIP": "None", "externalIPs": ["1.2.3.4"], "ports": [{"port": 80}]},
            ["ClusterIP", "None", "1.2.3.4", "80/TCP", "<none>"],
        ),
    }
    for name, (spec, _) in specs.items():
        await _made(yard, "services", {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
    table = await _table(yard, yard.at("services"))
    for name, (_, wanted) in specs.items():
        cells = _cells(table, name)
        assert [*cells[1:5], cells[6]] == wanted, cells


@check("Events show when, what, about whom, from where and how often.", area=AREA, breaks=_NOTHING)
async def events(yard: Subject) -> None:
    about = {"kind": "Pod", "name": "p1", "namespace": yard.namespace, "fieldPath": "spec.containers{m}"}
    event: Json = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e1"},
        "involvedObject": about,
        "reason": "R",
    }
    event |= {"type": "Normal", "message": " m ", "source": {"component": "c", "host": "h"}, "count": 4}
    await _made(yard, "events", {**event, "firstTimestamp": THEN, "lastTimestamp": THEN})
    cells = _cells(await _table(yard, yard.at("events")), "e1")
    assert cells[1:7] == ["Normal", "R", "pod/p1", "spec.containers{m}", "c, h", "m"], cells
    assert cells[0] == cells[7] and cells[8:] == [4, "e1"], cells


@check("Nodes show readiness, roles, version and addresses.", area=AREA, breaks=_NOTHING)
async def nodes(yard: Subject) -> None:
    name, bare = yard.name("node"), yard.name("bare")
    labels = {"node-role.kubernetes.io/x": "", "node-role.kubernetes.io/a": ""}
    known = ("kubeProxyVersion", "operatingSystem", "architecture", "machineID", "systemUUID", "bootID")
    told = {"kubeletVersion": "v9", "osImage": "os", "kernelVersion": "5", "containerRuntimeVersion": "c://1"}
    status = {
        "addresses": [{"type": "InternalIP", "address": "1.1.1.1"}],
        "nodeInfo": {**dict.fromkeys(known, ""), **told},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    node = {"apiVersion": "v1", "kind": "Node", "spec": {"unschedulable": True}}
    await _made(yard, "nodes", {**node, "metadata": {"name": name, "labels": labels}}, status)
    await _made(yard, "nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": bare}})
    table = await _table(yard, yard.at("nodes"))
    cells = _cells(table, name)
    assert cells[1:3] == ["Ready,SchedulingDisabled", "a,x"], cells
    assert cells[4:] == ["v9", "1.1.1.1", "<none>", "os", "5", "c://1"], cells
    assert _cells(table, bare)[1:3] == ["Unknown", "<none>"]


@check("Workloads show counts, containers, images and selectors.", area=AREA, breaks=_NOTHING)
async def workloads(yard: Subject) -> None:
    labels = {"a": "b"}
    containers = [{"name": "m", "image": "i:1"}, {"name": "n", "image": "j:2"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    for plural, kind, more, wanted in (
        ("deployments", "Deployment", {"paused": True}, ["0/0", 0, 0, "m,n", "i:1,j:2", "a=b"]),
        ("replicasets", "ReplicaSet", {}, [0, 0, 0, "m,n", "i:1,j:2", "a=b"]),
        ("statefulsets", "StatefulSet", {"serviceName": "x"}, ["0/0", "m,n", "i:1,j:2"]),
    ):
        obj = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "one"}, "spec": {**spec, **more}}
        await _made(yard, plural, obj)
        table = await _table(yard, yard.at(plural))
        age = [one["name"] for one in table["columnDefinitions"]].index("Age")
        cells = _cells(table, "one")
        assert [*cells[1:age], *cells[age + 1 :]] == wanted, cells
    pod = {**template, "spec": {"containers": containers, "restartPolicy": "Never"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "one"}}
    await _made(yard, "jobs", {**job, "spec": {"suspend": True, "parallelism": 3, "template": pod}})
    cells = _cells(await _table(yard, yard.at("jobs")), "one")
    assert cells[2:4] == ["0/1 of 3", ""] and cells[5:7] == ["m,n", "i:1,j:2"], cells


@check("ConfigMaps, Secrets, claims and leases show what they hold.", area=AREA, breaks=_NOTHING)
async def plain(yard: Subject) -> None:
    await yard.map("one", data={"a": "1", "b": "2"})
    await _made(
        yard, "secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}, "data": {"a": "AA=="}}
    )
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "one"}}
    await _made(yard, "leases", {**lease, "spec": {"holderIdentity": "me"}})
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "one"}}
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "s"}
    await _made(yard, "persistentvolumeclaims", {**claim, "spec": wanted})
    for plural, at, cells in (
        ("configmaps", 1, [2]),
        ("secrets", 1, ["Opaque", 1]),
        ("leases", 1, ["me"]),
        ("persistentvolumeclaims", 1, ["Pending", "", "", "", "s", "<unset>"]),
    ):
        found = _cells(await _table(yard, yard.at(plural)), "one")
        assert found[at : at + len(cells)] == cells, (plural, found)


@check(
    "includeObject says what comes with a row: None, Metadata (default) or Object.",
    area=AREA,
    breaks=ignores("includeObject"),
)
async def included(yard: Subject) -> None:
    made = await yard.map("one", data={"a": "1"})
    path = yard.at("configmaps")
    only = {"fieldSelector": "metadata.name=one"}
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": made["metadata"]}
    for include, wanted in (("None", None), ("Metadata", partial), ("Object", made), ("", partial)):
        (row,) = (await _table(yard, path, includeObject=include, **only))["rows"]
        assert row["object"] == wanted, (include, row)
    (await yard.ask("GET", path, headers=TABLE, includeObject="All")).refused(400, "BadRequest", "includeObject")


@check("One object, a created object and a page of a list are tables, too.", area=AREA, breaks=unheard("Accept"))
async def others(yard: Subject) -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"a": "1"}}
    made: Reply = await yard.ask("POST", yard.at("configmaps"), obj, headers=TABLE)
    assert made.must(201)["kind"] == "Table"
    await yard.map("two")
    table = await _table(yard, yard.at("configmaps", "one"))
    assert [row["cells"][:2] for row in table["rows"]] == [["one", 1]]
    page = await _table(yard, yard.at("configmaps"), limit="1")
    assert len(page["rows"]) == 1 and page["metadata"]["continue"]


@check(
    "A watch names the columns once, then sends rows.",
    area=AREA,
    breaks=swaps(b'"columnDefinitions":null', b'"columnDefinitions":[{}]'),
)
async def watched(yard: Subject) -> None:
    path = yard.at("configmaps")
    first = await yard.map("one")
    version = first["metadata"]["resourceVersion"]
    async with yard.watch(path, headers=TABLE, resourceVersion=version) as lines:
        await yard.map("two", data={"a": "1"})
        line = await lines.until(lambda line: line["object"]["rows"][0]["cells"][0] == "two")
        assert line["type"] == "ADDED" and line["object"]["kind"] == "Table"
        (await yard.ask("DELETE", yard.at("configmaps", "one"))).must(200)
        line = await lines.until(lambda line: line["type"] == "DELETED")
        assert line["object"]["columnDefinitions"] is None and line["object"]["rows"][0]["cells"][0] == "one"


CELLS: tuple[tuple[Json, list[Any]], ...] = (
    ({"n": 3, "s": "x", "b": True, "l": [{"x": "q", "y": 1}, {"x": "r"}], "o": {"a": 1}, "f": 1.5},
     [3, "x", True, "q", "1", '{"a":1}', 1.5]),
    ({}, [None] * 7),
    ({"n": "x", "s": 3, "b": "no", "l": 3, "o": [1], "f": 2}, [None, "3", None, None, None, "[1]", 2]),
    ({"n": 3.7, "s": True, "b": 0, "l": [], "f": "3"}, [3, "true", None, None, None, None, None]),
)  # fmt: skip


@check(
    "Printer columns find their values by JSONPath; the first one counts, of the column's type.",
    area=AREA,
    breaks=_NOTHING,
)
async def printed(yard: Subject) -> None:
    paths = (
        ("N", "integer", ".spec.n"),
        ("S", "string", ".spec.s"),
        ("B", "boolean", ".spec.b"),
        ("L", "string", ".spec.l[*].x"),
        ("F", "string", '.spec.l[?(@.x=="q")].y'),
        ("O", "string", ".spec.o"),
        ("R", "number", ".spec.f"),
    )
    listed = [{"name": name, "type": kind, "jsonPath": path} for name, kind, path in paths]
    dated: list[Json] = [{"name": "Born", "type": "date", "jsonPath": ".spec.d", "priority": 1}]
    kind = await yard.crd(version={"additionalPrinterColumns": [*listed, *dated]})
    for index, (spec, _) in enumerate(CELLS):
        (await yard.ask("POST", kind.path(), kind.obj(f"c{index}", spec=spec))).must(201)
    table = await _table(yard, kind.path())
    assert _columns(table) == [("Name", 0), *((name, 0) for name, _, _ in paths), ("Born", 1)]
    assert [one["type"] for one in table["columnDefinitions"][1:]] == [*(kind for _, kind, _ in paths), "date"]
    for index, (spec, wanted) in enumerate(CELLS):
        assert _cells(table, f"c{index}")[1:-1] == wanted, spec


@check("A definition without printer columns shows name and age.", area=AREA, breaks=answers(200, 406))
async def unprinted(yard: Subject) -> None:
    kind = await yard.crd()
    (await yard.ask("POST", kind.path(), kind.obj("one"))).must(201)
    table = await _table(yard, kind.path())
    assert _columns(table) == [("Name", 0), ("Age", 0)] and table["columnDefinitions"][1]["type"] == "date"
    assert _cells(table, "one")[0] == "one"


@check(
    "A bookmark of a watch in Tables is a Table, whose row has a version and no name.",
    area=AREA,
    breaks=replaced("storage.watches:bookmark", _bare, "sends bookmarks as objects"),
)
async def bookmarks(yard: Subject) -> None:
    initial = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with yard.watch(yard.at("secrets"), headers=TABLE, **initial) as lines:
        mark = await lines.next()
        assert mark["type"] == "BOOKMARK" and mark["object"]["kind"] == "Table", mark
        assert _columns(mark["object"])[0] == ("Name", 0)
        (row,) = mark["object"]["rows"]
        assert row["cells"][0] == "" and row["cells"][-1] == "<unknown>"
        assert row["object"]["metadata"]["resourceVersion"] == mark["object"]["metadata"]["resourceVersion"]
        assert row["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        await _made(yard, "secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})
        line = await lines.next()
        assert line["type"] == "ADDED" and line["object"]["columnDefinitions"] is None
