"""Services and names as pods of a job use them: rendezvous, headless names, their own host name; in both networks."""

from __future__ import annotations

import contextlib

import pytest

from tests.node.node_cluster import NodeCluster
from tests.node.sessions import execute
from tests.node.test_network import CLIENT
from tests.node.test_node import STUBBORN, printed
from tests.support.waiting import until_async
from trainyard.client import AlreadyExists
from trainyard.objects.resources import NAMESPACE, POD, SERVICE

pytestmark = pytest.mark.slow

# Listens where its argument says, as etcd does with --listen-client-urls, and answers with its name.
LISTENS = """
import socket, sys
host, port = sys.argv[1].removeprefix('http://').rsplit(':', 1)
server = socket.create_server((host, int(port)), backlog=8)
print('listens', flush=True)
while True:
    there, _ = server.accept()
    with there:
        there.sendall(sys.argv[2].encode())
"""
# Takes its peer from an argument, as torchrun takes --rdzv_endpoint.
CONNECTS = "import os, sys\nos.environ['PEERS'] = sys.argv[1].split('=')[1]\n" + CLIENT


async def namespace(cluster: NodeCluster, name: str) -> None:
    with contextlib.suppress(AlreadyExists):
        await cluster.api.create(NAMESPACE, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def etcd(cluster: NodeCluster, where: str, target: object, clusterip: str = "") -> str:
    """A pod that listens on 2379 behind a Service, both in that namespace; the Service's address."""
    await namespace(cluster, where)
    spec = {"selector": {"app": "etcd"}, "ports": [{"port": 2379, "targetPort": target}]}
    if clusterip:
        spec["clusterIP"] = clusterip
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "etcd-service"}, "spec": spec}
    created = await cluster.api.create(SERVICE, where, body)
    container = {
        "name": "etcd",
        "image": "any",
        "command": ["python", "-c", LISTENS, "http://0.0.0.0:2379", f"etcd in {where}"],
        "ports": [{"name": "client", "containerPort": 2379}],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "etcd", "labels": {"app": "etcd"}},
        "spec": {"containers": [container], "nodeName": "local", "automountServiceAccountToken": False},
    }
    await cluster.api.create(POD, where, pod)
    return str(created["spec"]["clusterIP"])


async def asks(cluster: NodeCluster, name: str, peer: str) -> str:
    command = ["python", "-c", CONNECTS, f"--rdzv_endpoint={peer}"]
    await cluster.pod(name, container={"command": command})
    return await cluster.result(name)


@pytest.mark.parametrize("target", [2379, "client"])
async def test_a_service_is_reached_by_name_and_by_address(cluster: NodeCluster, target: object) -> None:
    address = await etcd(cluster, "default", target)
    assert await asks(cluster, "by-name", "etcd-service:2379") == "etcd in default\n"
    assert await asks(cluster, "by-address", f"{address}:2379") == "etcd in default\n"
    assert await asks(cluster, "by-full-name", "etcd-service.default.svc.cluster.local:2379") == "etcd in default\n"


async def test_a_service_of_another_namespace_is_reached_with_its_namespace(cluster: NodeCluster) -> None:
    address = await etcd(cluster, "elastic-job", 2379)
    own = await etcd(cluster, "default", 2379)
    assert own != address
    assert await asks(cluster, "far", "etcd-service.elastic-job:2379") == "etcd in elastic-job\n"
    assert await asks(cluster, "far-address", f"{address}:2379") == "etcd in elastic-job\n"
    assert await asks(cluster, "near", "etcd-service:2379") == "etcd in default\n"


async def test_a_requested_cluster_ip_is_served(cluster: NodeCluster) -> None:
    assert await etcd(cluster, "default", 2379, "10.96.104.168") == "10.96.104.168"
    assert await asks(cluster, "asks", "10.96.104.168:2379") == "etcd in default\n"


async def test_a_program_started_later_finds_the_service_too(cluster: NodeCluster) -> None:
    await cluster.pod("box", "import time; time.sleep(600)")
    await cluster.phase("box", "Running")
    address = await etcd(cluster, "default", 2379)
    await cluster.api.get(POD, "default", "etcd")
    await cluster.phase("etcd", "Running")
    for peer in ("etcd-service:2379", f"{address}:2379"):
        done = await execute(cluster, "box", "python", "-c", CONNECTS, f"--rdzv_endpoint={peer}")
        assert (done.out, done.code) == (b"etcd in default\n", 0)


async def test_two_pods_listen_on_the_same_port(cluster: NodeCluster) -> None:
    for where in ("default", "elastic-job", "third"):
        await etcd(cluster, where, 2379)
    for where in ("elastic-job", "third"):
        assert await asks(cluster, f"asks-{where}", f"etcd-service.{where}:2379") == f"etcd in {where}\n"


# What only the network of namespaces has: names are really resolved.

only_namespace = pytest.mark.parametrize("cluster", ["namespace"], indirect=True)
RESOLVE = "import socket, sys; print(*sorted(socket.gethostbyname_ex(sys.argv[1])[2]))"


async def address_of(cluster: NodeCluster, name: str) -> str:
    return str((await cluster.phase(name, "Running"))["status"]["podIP"])


@only_namespace
async def test_a_pod_without_hostname_is_called_by_its_name(cluster: NodeCluster) -> None:
    await cluster.pod("job-worker-0", "import time; time.sleep(600)", metadata={"labels": {"index": "0"}})
    ip = await address_of(cluster, "job-worker-0")
    script = "import socket; n = socket.gethostname(); print(n, socket.gethostbyname(n), socket.getfqdn())"
    done = await execute(cluster, "job-worker-0", "python", "-c", script)
    assert done.out.decode() == f"job-worker-0 {ip} job-worker-0\n"
    await cluster.service("job-worker-0", clusterIP="None", selector={"index": "0"})
    await cluster.pod("box", "import time; time.sleep(600)")
    await cluster.phase("box", "Running")
    for name in ("job-worker-0", "job-worker-0.default"):
        done = await execute(cluster, "box", "python", "-c", RESOLVE, name)
        assert done.out.decode().split() == [ip]


@only_namespace
async def test_a_headless_service_without_ports_is_its_ready_pods_or_all(cluster: NodeCluster) -> None:
    await cluster.service("ready", clusterIP="None", selector={"job": "x"})
    await cluster.service("all", clusterIP="None", selector={"job": "x"}, publishNotReadyAddresses=True)
    await cluster.pod("runs", "import time; time.sleep(600)", metadata={"labels": {"job": "x"}})
    await cluster.pod("waits", container={"image": "missing"}, metadata={"labels": {"job": "x"}})
    await cluster.until("waits", lambda status: status.get("podIP"))
    runs, waits = await address_of(cluster, "runs"), (await cluster.api.get(POD, "default", "waits"))["status"]["podIP"]
    done = await execute(cluster, "runs", "python", "-c", RESOLVE, "ready")
    assert done.out.decode().split() == [runs]
    done = await execute(cluster, "runs", "python", "-c", RESOLVE, "all.default.svc.cluster.local")
    assert done.out.decode().split() == sorted([runs, waits])


@only_namespace
async def test_a_program_without_no_proxy_support_reaches_services_through_the_proxy(cluster: NodeCluster) -> None:
    await etcd(cluster, "elastic-job", 2379)
    script = """
import http.client, os, time
host, port = os.environ['http_proxy'].removeprefix('http://').rsplit(':', 1)
for attempt in range(100):
    try:
        tunnel = http.client.HTTPConnection(host, int(port))
        tunnel.set_tunnel('etcd-service.elastic-job', 2379)
        tunnel.connect()
        said = tunnel.sock.recv(100)
        if said:
            print(said.decode())
            break
    except OSError:
        pass
    time.sleep(0.05)
"""
    await cluster.pod("asks", script)
    assert await cluster.result("asks") == "etcd in elastic-job\n"


async def test_a_service_follows_the_labels_of_its_pods_and_drops_stopped_ones(cluster: NodeCluster) -> None:
    service = await cluster.service("web", selector={"app": "web"}, ports=[{"port": 80}])

    def behind() -> list[str]:
        return [peer.name for peer in cluster.node._directory.endpoints_pods(service)]

    await cluster.pod("one", STUBBORN)
    await cluster.phase("one", "Running")
    await printed(cluster, "one")
    assert behind() == []
    await cluster.api.patch(POD, "default", "one", {"metadata": {"labels": {"app": "web"}}})
    await until_async(behind, "the pod is behind the Service", accept=lambda names: names == ["one"])
    await cluster.api.delete(POD, "default", "one", grace_period_seconds=60)
    await until_async(behind, "no pod is behind the Service", accept=lambda names: names == [])
    assert (await cluster.api.get(POD, "default", "one"))["status"]["phase"] == "Running"
