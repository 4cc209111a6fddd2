"""How pods find each other and the world, in both networks."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.node.node_cluster import NodeCluster
from trainyard.objects.labels import HOSTS
from trainyard.objects.resources import CONFIG_MAP, POD

MTU = """
import fcntl, socket, struct
SIOCGIFMTU = 0x8921
answer = fcntl.ioctl(socket.socket(), SIOCGIFMTU, struct.pack('16si12x', b'eth0', 0))
print(struct.unpack('16si12x', answer)[1])
"""
# A server that answers with its name. It listens where its own address says, on every interface, as TensorFlow does.
SERVER = """
import os, socket
host, port = os.environ['ADDRESS'].rsplit(':', 1)
server = socket.create_server(('', int(port)), backlog=8)
while True:
    there, _ = server.accept()
    with there:
        there.sendall(os.environ['NAME'].encode())
"""
CLIENT = """
import os, socket, time
said = []
for address in os.environ['PEERS'].split(','):
    host, port = address.rsplit(':', 1)
    for attempt in range(1200):
        try:
            with socket.create_connection((host, int(port)), timeout=5) as there:
                answer = there.makefile().read()
            if not answer:  # a Service hangs up while its pod runs but does not listen yet
                raise OSError('nobody answered')
            said.append(answer)
            break
        except OSError as error:
            time.sleep(0.05)
    else:
        raise error
print(' '.join(said))
"""
ASK_ADDRESS = "import socket; print(socket.gethostbyname('{}'))"


def env(**values: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def member(hosts: str = "srv-[0-1],client-[0-0]") -> dict[str, object]:
    """What the operator gives every pod of a job."""
    return {"labels": {"job": "one"}, "annotations": {HOSTS: hosts}}


NAMED = {"subdomain": "job", "dnsConfig": {"searches": ["job.default.svc.cluster.local"]}}


async def headless(cluster: NodeCluster) -> None:
    await cluster.service("job", clusterIP="None", selector={"job": "one"}, publishNotReadyAddresses=True)


async def test_two_servers_on_one_port_are_reached_by_their_names(cluster: NodeCluster) -> None:
    await headless(cluster)
    await cluster.pod(
        "client",
        CLIENT,
        container={"env": env(PEERS="srv-0:2222,srv-1.job:2222,srv-0.job.default.svc.cluster.local:2222")},
        metadata=member(),
        **NAMED,
    )
    for name in ("srv-0", "srv-1"):
        container = {"env": env(ADDRESS=f"{name}:2222", NAME=f"I am {name}")}
        await cluster.pod(name, SERVER, container=container, metadata=member(), hostname=name, **NAMED)
    assert await cluster.result("client") == "I am srv-0 I am srv-1 I am srv-0\n"


MASTER = """
import os, socket
server = socket.create_server(('', int(os.environ['MASTER_PORT'])), backlog=8)
while True:
    there, _ = server.accept()
    with there:
        there.sendall(os.environ['NAME'].encode())
"""
WORKER = f"""
import os
os.environ['PEERS'] = os.environ['MASTER_ADDR'] + ':' + os.environ['MASTER_PORT']
{CLIENT}
"""


async def test_masters_of_two_jobs_have_one_port_and_each_worker_reaches_its_own(cluster: NodeCluster) -> None:
    """Both jobs have host and port in two variables, as torch.distributed has them."""
    await headless(cluster)
    jobs = ("first", "second")
    for job in jobs:
        variables = env(MASTER_ADDR=f"{job}-master-0", MASTER_PORT="23456", NAME=f"master of the {job}")
        meta = member(f"{job}-master-0,{job}-worker-0")
        place = {"container": {"env": variables}, "metadata": meta, **NAMED}
        await cluster.pod(f"{job}-worker-0", WORKER, **place)
        await cluster.pod(f"{job}-master-0", MASTER, hostname=f"{job}-master-0", **place)
    for job in jobs:
        assert await cluster.result(f"{job}-worker-0") == f"master of the {job}\n"


async def test_masters_of_two_jobs_behind_services_of_the_user_have_one_port(cluster: NodeCluster) -> None:
    """The variables of the master name the Service that leads to it: there it listens itself."""
    jobs = ("first", "second")
    for job in jobs:
        selector = {"job": job, "role": "master"}
        await cluster.service(f"{job}-svc", selector=selector, ports=[{"port": 23456, "targetPort": 23456}])
        variables = env(MASTER_ADDR=f"{job}-svc", MASTER_PORT="23456", NAME=f"master of the {job}")
        container = {"env": variables}
        await cluster.pod(f"{job}-b", WORKER, container=container, metadata={"labels": {"job": job}})
        await cluster.pod(f"{job}-a", MASTER, container=container, metadata={"labels": selector})
    for job in jobs:
        assert await cluster.result(f"{job}-b") == f"master of the {job}\n"
    assert not [line for line in cluster.lines if "cannot listen" in line]


async def test_a_service_leads_to_ready_pods_and_translates_the_port(cluster: NodeCluster) -> None:
    await cluster.service("web", selector={"app": "web"}, ports=[{"port": 80, "targetPort": "http"}])
    with socket.create_server(("127.0.0.1", 0)) as probe:  # in the network shared this is a port of the machine
        free = probe.getsockname()[1]
    ports = [{"name": "http", "containerPort": free}]
    container = {"env": env(ADDRESS=f":{free}", NAME="behind the service"), "ports": ports}
    await cluster.pod("backend", SERVER, container=container, metadata={"labels": {"app": "web"}})
    await cluster.phase("backend", "Running")
    for name in ("web:80", "web.default:80"):
        await cluster.pod("caller", CLIENT, container={"env": env(PEERS=name)})
        assert await cluster.result("caller") == "behind the service\n"
        await cluster.api.delete(POD, "default", "caller", grace_period_seconds=0)
        await cluster.gone("caller")
    host, port = (await cluster.node.forward_to_service("default", "web", 80)).split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    assert await reader.read() == b"behind the service"
    writer.close()


@pytest.mark.parametrize("cluster", ["namespace"], indirect=True)
async def test_a_pod_keeps_its_connections_while_others_start_and_end(cluster: NodeCluster) -> None:
    script = """
import socket, time
slowest = 0.0
for _ in range(40):
    begin = time.monotonic()
    try:
        socket.getaddrinfo('nobody', 80)
    except socket.gaierror:
        slowest = max(slowest, time.monotonic() - begin)
    time.sleep(0.02)
print(slowest < 4.5)  # an answer that was lost is waited for for five seconds
"""
    await cluster.pod("stays", script)
    for number in range(10):
        await cluster.pod(f"comes-{number}", "pass")
    assert await cluster.result("stays") == "True\n"


async def test_texts_of_config_maps_lead_to_the_same_pod(cluster: NodeCluster) -> None:
    await headless(cluster)
    addresses = {"server": ["srv-0:2222"]}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster"}}

    await cluster.api.create(CONFIG_MAP, "default", {**body, "data": {"cluster.json": json.dumps(addresses)}})
    await cluster.pod(
        "srv-0",
        SERVER,
        container={"env": env(ADDRESS="srv-0:2222", NAME="I am srv-0")},
        metadata=member(),
        hostname="srv-0",
        **NAMED,
    )
    script = "import json, os; os.environ['PEERS'] = json.load(open('/config/cluster.json'))['server'][0]\n" + CLIENT
    mounts = {"volumeMounts": [{"name": "config", "mountPath": "/config"}]}
    volumes = [{"name": "config", "configMap": {"name": "cluster"}}]
    await cluster.pod("client", script, container=mounts, volumes=volumes, metadata=member(), **NAMED)
    assert await cluster.result("client") == "I am srv-0\n"


# What only the network of namespaces has.

only_namespace = pytest.mark.parametrize("cluster", ["namespace"], indirect=True)


@only_namespace
async def test_packets_between_pods_are_as_large_as_on_loopback(cluster: NodeCluster) -> None:
    await cluster.pod("wide", MTU)
    assert await cluster.result("wide") == "65535\n"


@only_namespace
async def test_a_pod_has_a_hostname_an_address_and_names_of_its_own(cluster: NodeCluster) -> None:
    await headless(cluster)
    script = "import socket; n = socket.gethostname(); print(n, socket.gethostbyname(n), socket.getfqdn())"
    await cluster.pod("me", script, hostname="srv-0", metadata=member(), **NAMED)
    pod = await cluster.phase("me", "Succeeded")
    address = pod["status"]["podIP"]
    assert address.startswith("10.244.")
    assert await cluster.logs("me") == f"srv-0 {address} srv-0.job.default.svc.cluster.local\n"


async def test_a_hostname_override_is_what_the_programs_of_the_pod_see(cluster: NodeCluster) -> None:
    """It wins over hostname and subdomain. In network shared there is one host name, that of this machine."""
    script = "import os, socket; print(socket.gethostname(), os.environ['HOSTNAME']); print(open('/etc/hosts').read())"
    override = {"hostname": "srv-0", "hostnameOverride": "my-host.example.com"}
    await cluster.pod("me", script, metadata=member(), **override, **NAMED)
    pod = await cluster.phase("me", "Succeeded")
    names, *hosts = (await cluster.logs("me")).splitlines()
    notes = [line for line in cluster.lines if "hostnameOverride: no effect in network shared" in line]
    if cluster.node.network == "shared":
        assert names == f"{socket.gethostname()} srv-0" and len(notes) == 1
    else:
        assert names == "my-host.example.com my-host.example.com" and not notes
        assert f"{pod['status']['podIP']} my-host.example.com" in hosts and "srv-0" not in " ".join(hosts)


@only_namespace
async def test_dns_has_the_hostname_and_not_its_override(cluster: NodeCluster) -> None:
    await headless(cluster)
    override = {"hostname": "srv-0", "hostnameOverride": "my-host.example.com"}
    await cluster.pod("me", "import time; time.sleep(60)", metadata=member(), **override, **NAMED)
    pod = await cluster.phase("me", "Running")
    script = """
import socket
print(socket.gethostbyname('srv-0.job.default.svc.cluster.local'))
try:
    print(socket.gethostbyname('my-host.example.com'))
except socket.gaierror:
    print('unknown')
"""
    await cluster.pod("asks", script)
    assert await cluster.result("asks") == f"{pod['status']['podIP']}\nunknown\n"


@only_namespace
async def test_an_unknown_host_name_is_refused_at_once(cluster: NodeCluster) -> None:
    script = """
import socket, time
begin = time.monotonic()
for name in ('nobody', 'example.invalid', 'nobody.job.default.svc.cluster.local'):
    try:
        print(socket.getaddrinfo(name, 80))
    except socket.gaierror as error:
        print(error.errno == socket.EAI_NONAME)
print(time.monotonic() - begin < 4.5)  # an answer that was lost is waited for for five seconds
"""
    await cluster.pod("asks", script)
    assert await cluster.result("asks") == "True\nTrue\nTrue\nTrue\n"


@only_namespace
async def test_a_restarted_pod_keeps_its_address(cluster: NodeCluster) -> None:
    addresses = []
    for _ in range(2):
        await cluster.pod("again", "pass", hostname="srv-0")
        addresses.append((await cluster.phase("again", "Succeeded"))["status"]["podIP"])
        await cluster.pod("between", "pass")
        await cluster.phase("between", "Succeeded")
        for name in ("again", "between"):
            await cluster.api.delete(POD, "default", name, grace_period_seconds=0)
            await cluster.gone(name)
    assert addresses[0] == addresses[1]


@only_namespace
@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="this kernel has no IPv6")
async def test_a_pod_has_no_ipv6_address_but_that_of_its_loopback(cluster: NodeCluster) -> None:
    """With a link-local address, each of N pods would send its neighbour discovery to all N. A server on all addresses
    of both families, as TensorFlow's, is reached by IPv4."""
    script = """
import pathlib, socket
server = socket.create_server(('::', 0), family=socket.AF_INET6, dualstack_ipv6=True)
socket.create_connection((socket.gethostbyname(socket.gethostname()), server.getsockname()[1])).close()
socket.create_connection(('::1', server.getsockname()[1])).close()
print([line.split()[-1] for line in pathlib.Path('/proc/net/if_inet6').read_text().splitlines()])
"""
    await cluster.pod("four", script)
    assert await cluster.result("four") == "['lo']\n"


@only_namespace
async def test_any_user_may_listen_on_port_80_of_a_pod(cluster: NodeCluster) -> None:
    await cluster.pod("low", "import socket; socket.create_server(('', 80)); print('listens')")
    assert await cluster.result("low") == "listens\n"


@pytest.fixture
async def outside() -> AsyncIterator[int]:
    """A server of this machine, which is the outside world to a pod."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = head.split(b"\r\n")[0]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


@only_namespace
async def test_the_outside_world_is_reached_through_the_proxy(
    cluster: NodeCluster, outside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    script = f"""
import http.client, os, urllib.request
del os.environ['no_proxy'], os.environ['NO_PROXY']
print(urllib.request.urlopen('http://127.0.0.1:{outside}/plain?x=1').read().decode())
proxy = os.environ['https_proxy'].removeprefix('http://')
tunnel = http.client.HTTPConnection(proxy)
tunnel.set_tunnel('127.0.0.1', {outside})
tunnel.request('GET', '/tunnel')
print(tunnel.getresponse().read().decode())
try:
    urllib.request.urlopen('http://127.0.0.1:1/')
except urllib.error.HTTPError as error:
    print(error.code)
"""
    await cluster.pod("downloads", script)
    assert await cluster.result("downloads") == "GET /plain?x=1 HTTP/1.1\nGET /tunnel HTTP/1.1\n502\n"


@only_namespace
async def test_the_runners_own_proxy_is_used(cluster: NodeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    upstream = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"http://me:word@127.0.0.1:{upstream.sockets[0].getsockname()[1]}"
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, address)
    monkeypatch.setenv("no_proxy", "")
    script = """
import http.client, os, urllib.request
print(urllib.request.urlopen('http://far.example/x').read().decode())
tunnel = http.client.HTTPConnection(os.environ['https_proxy'].removeprefix('http://'))
tunnel.set_tunnel('far.example', 443)
try:
    tunnel.connect()
except OSError:
    pass
"""
    await cluster.pod("far", script)
    assert await cluster.result("far") == "ok\n"
    upstream.close()
    requests = [head.split()[:2] for head in heads]
    assert requests == [[b"GET", b"http://far.example/x"], [b"CONNECT", b"far.example:443"]]
    assert all(b"Proxy-Authorization: Basic bWU6d29yZA==" in head for head in heads)


@only_namespace
async def test_the_http_proxy_is_bypassed_inside_the_cluster_and_a_pod_may_set_its_own(cluster: NodeCluster) -> None:
    script = "import os; print(os.environ['no_proxy'], os.environ['http_proxy'], repr(os.environ['grpc_proxy']))"
    await cluster.pod("sees", script, container={"env": env(http_proxy="http://mine:1")}, metadata=member("ps-[0-1]"))
    around, own, grpc = (await cluster.result("sees")).split()
    assert {"localhost", "10.244.0.0/16", "ps-0", "ps-1"} <= set(around.split(","))
    assert (own, grpc) == ("http://mine:1", "''")


# What only the shared network does.


@pytest.mark.parametrize("cluster", ["shared"], indirect=True)
async def test_a_bare_host_name_becomes_loopback_and_other_words_stay(cluster: NodeCluster) -> None:
    values = env(HOST="srv-0", TEXT="srv-0 is a server", OTHER="xsrv-0:2222", PAIR="tcp://srv-0:2222/x")
    script = "import os; print([os.environ[name] for name in ('HOST', 'TEXT', 'OTHER', 'PAIR')])"
    await cluster.pod("reads", script, container={"env": values}, metadata=member())
    host, text, other, pair = json.loads((await cluster.result("reads")).replace("'", '"'))
    assert (host, text, other) == ("127.0.0.1", "srv-0 is a server", "xsrv-0:2222")
    assert pair.startswith("tcp://127.0.0.1:") and pair.endswith("/x") and ":2222" not in pair


@pytest.mark.parametrize("cluster", ["shared"], indirect=True)
async def test_a_mount_that_would_hide_the_system_fails_the_pod_with_a_message(cluster: NodeCluster) -> None:
    mounts = {"volumeMounts": [{"name": "x", "mountPath": "/etc"}]}
    await cluster.pod("hides", "pass", container=mounts, volumes=[{"name": "x", "emptyDir": {}}])
    pod = await cluster.phase("hides", "Failed")
    assert "--network namespace" in pod["status"]["message"]
