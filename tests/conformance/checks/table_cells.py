"""Rows of Tables: the cells of built-in resources."""

from __future__ import annotations

from tests.conformance import Cluster, check
from tests.conformance.checks.tables import AREA, EMPTY_CELLS, cells_of, create, get_table
from tests.conformance.mutations import replaced
from trainyard.objects import Json

TIMESTAMP = "2026-01-02T03:04:05Z"


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


def _with_required_fields(status: Json) -> Json:
    """The status with the required fields of container statuses filled in."""
    filled = dict(status)
    for group in ("containerStatuses", "initContainerStatuses"):
        if group in status:
            required = {"name": "main", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
            filled[group] = [{**required, **status_entry} for status_entry in status[group]]
    return filled


@check(
    "A pod row has the number of ready containers, the most specific status reason, and restarts.",
    area=AREA,
    mutation=EMPTY_CELLS,
    needs=("pods",),
)
async def pods(cluster: Cluster) -> None:
    for index, (spec, status, _) in enumerate(PODS):
        await cluster.create_pod(f"p{index}", **spec)
        path = cluster.path("pods", f"p{index}", "status")
        (await cluster.request("PATCH", path, {"status": _with_required_fields(status)})).expect(200)
    table = await get_table(cluster, cluster.path("pods"))
    for index, (_, status, expected) in enumerate(PODS):
        cells = cells_of(table, f"p{index}")
        assert cells[1:4] == expected, (status, cells)
        assert cells[5:] == [status.get("podIP", "<none>"), "<none>", "<none>", "<none>"], cells


@check(
    "The row of a finished pod has a Completed condition.",
    area=AREA,
    mutation=replaced("builtin.pod_columns:_ENDS", {}, "omits the conditions of rows"),
    needs=("pods",),
)
async def finished_pods(cluster: Cluster) -> None:
    for name, phase in (("won", "Succeeded"), ("lost", "Failed"), ("goes", "Running")):
        await cluster.create_pod(name)
        (await cluster.request("PATCH", cluster.path("pods", name, "status"), {"status": {"phase": phase}})).expect(200)
    rows = {row["object"]["metadata"]["name"]: row for row in (await get_table(cluster, cluster.path("pods")))["rows"]}
    assert "conditions" not in rows["goes"]
    for name, phase in (("won", "Succeeded"), ("lost", "Failed")):
        (condition,) = rows[name]["conditions"]
        assert (condition["type"], condition["status"], condition["reason"]) == ("Completed", "True", phase)


@check("A Service row has type, addresses, ports and selector.", area=AREA, mutation=EMPTY_CELLS)
async def services(cluster: Cluster) -> None:
    ports = [{"port": 80, "name": "x"}, {"port": 81, "protocol": "UDP", "name": "y"}]
    specs: dict[str, tuple[Json, list[str]]] = {
        "a": (
            {"clusterIP": "None", "selector": {"b": "c", "a": "b"}, "ports": ports},
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
        await create(
            cluster, "services", {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
        )
    table = await get_table(cluster, cluster.path("services"))
    for name, (_, expected) in specs.items():
        cells = cells_of(table, name)
        assert [*cells[1:5], cells[6]] == expected, cells


@check("An Event row has times, type, reason, object, source, message and count.", area=AREA, mutation=EMPTY_CELLS)
async def events(cluster: Cluster) -> None:
    involved_object = {"kind": "Pod", "name": "p1", "namespace": cluster.namespace, "fieldPath": "spec.containers{m}"}
    event: Json = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e1"},
        "involvedObject": involved_object,
        "reason": "R",
    }
    event |= {"type": "Normal", "message": " m ", "source": {"component": "c", "host": "h"}, "count": 4}
    await create(cluster, "events", {**event, "firstTimestamp": TIMESTAMP, "lastTimestamp": TIMESTAMP})
    cells = cells_of(await get_table(cluster, cluster.path("events")), "e1")
    assert cells[1:7] == ["Normal", "R", "pod/p1", "spec.containers{m}", "c, h", "m"], cells
    assert cells[0] == cells[7] and cells[8:] == [4, "e1"], cells


@check("A Node row has readiness, roles, version and addresses.", area=AREA, mutation=EMPTY_CELLS)
async def nodes(cluster: Cluster) -> None:
    name, bare_name = cluster.unique_name("node"), cluster.unique_name("bare")
    labels = {"node-role.kubernetes.io/x": "", "node-role.kubernetes.io/a": ""}
    required_info = ("kubeProxyVersion", "operatingSystem", "architecture", "machineID", "systemUUID", "bootID")
    shown_info = {"kubeletVersion": "v9", "osImage": "os", "kernelVersion": "5", "containerRuntimeVersion": "c://1"}
    status = {
        "addresses": [{"type": "InternalIP", "address": "1.1.1.1"}],
        "nodeInfo": {**dict.fromkeys(required_info, ""), **shown_info},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    node = {"apiVersion": "v1", "kind": "Node", "spec": {"unschedulable": True}}
    await create(cluster, "nodes", {**node, "metadata": {"name": name, "labels": labels}}, status)
    await create(cluster, "nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": bare_name}})
    table = await get_table(cluster, cluster.path("nodes"))
    cells = cells_of(table, name)
    assert cells[1:3] == ["Ready,SchedulingDisabled", "a,x"], cells
    assert cells[4:] == ["v9", "1.1.1.1", "<none>", "os", "5", "c://1"], cells
    assert cells_of(table, bare_name)[1:3] == ["Unknown", "<none>"]


@check("A workload row has counts, containers, images and selector.", area=AREA, mutation=EMPTY_CELLS)
async def workloads(cluster: Cluster) -> None:
    labels = {"a": "b"}
    containers = [{"name": "m", "image": "i:1"}, {"name": "n", "image": "j:2"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    for plural, kind, fields, expected in (
        ("deployments", "Deployment", {"paused": True}, ["0/0", 0, 0, "m,n", "i:1,j:2", "a=b"]),
        ("replicasets", "ReplicaSet", {}, [0, 0, 0, "m,n", "i:1,j:2", "a=b"]),
        ("statefulsets", "StatefulSet", {"serviceName": "x"}, ["0/0", "m,n", "i:1,j:2"]),
    ):
        obj = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "one"}, "spec": {**spec, **fields}}
        await create(cluster, plural, obj)
        table = await get_table(cluster, cluster.path(plural))
        age = [column["name"] for column in table["columnDefinitions"]].index("Age")
        cells = cells_of(table, "one")
        assert [*cells[1:age], *cells[age + 1 :]] == expected, cells
    pod = {**template, "spec": {"containers": containers, "restartPolicy": "Never"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "one"}}
    await create(cluster, "jobs", {**job, "spec": {"suspend": True, "parallelism": 3, "template": pod}})
    cells = cells_of(await get_table(cluster, cluster.path("jobs")), "one")
    assert cells[2:4] == ["0/1 of 3", ""] and cells[5:7] == ["m,n", "i:1,j:2"], cells


@check(
    "Rows of ConfigMaps, Secrets, Leases and PersistentVolumeClaims have their main fields.",
    area=AREA,
    mutation=EMPTY_CELLS,
)
async def simple_objects(cluster: Cluster) -> None:
    await cluster.create_config_map("one", data={"a": "1", "b": "2"})
    await create(
        cluster, "secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}, "data": {"a": "AA=="}}
    )
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "one"}}
    await create(cluster, "leases", {**lease, "spec": {"holderIdentity": "me"}})
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "one"}}
    claim_spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "s",
    }
    await create(cluster, "persistentvolumeclaims", {**claim, "spec": claim_spec})
    for plural, start, cells in (
        ("configmaps", 1, [2]),
        ("secrets", 1, ["Opaque", 1]),
        ("leases", 1, ["me"]),
        ("persistentvolumeclaims", 1, ["Pending", "", "", "", "s", "<unset>"]),
    ):
        row_cells = cells_of(await get_table(cluster, cluster.path(plural)), "one")
        assert row_cells[start : start + len(cells)] == cells, (plural, row_cells)
