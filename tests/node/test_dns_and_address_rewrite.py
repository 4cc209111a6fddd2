"""Names, DNS messages, the NAT by text, mount paths: all pure."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from trainyard.node.kubelet.volumes import mount_paths
from trainyard.node.network import directory as node_directory
from trainyard.node.network import dns, host_ports
from trainyard.node.network.address_rewrite import NameScope, PortOf, declared_ports, is_hostfile, rewriter
from trainyard.node.network.directory import Directory, Peer, Port, cluster_ip, ports_of
from trainyard.node.network.interface_variables import without_pod_interface
from trainyard.node.network.namespaced import NamespaceNetwork, resolv_conf
from trainyard.node.network.shared import PortAllocator, host_address
from trainyard.node.sandbox.supervisor_client import Mount, Sandbox, SandboxCallbacks
from trainyard.objects import Json, NamespacedName, name_of


def peer(name: str, address: str, ready: bool = True, subdomain: str = "job", **labels: str) -> Peer:
    return Peer(
        f"uid-{name}", "default", name, name, subdomain, address, ready, {"job": "one", **labels}, {"http": 8080}
    )


def service(name: str, **spec: object) -> Json:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def directory(publish: bool) -> Directory:
    directory = Directory()
    selector = {"job": "one"}
    directory.replace_services(
        [
            service("job", clusterIP="None", selector=selector, publishNotReadyAddresses=publish),
            service("web", clusterIP="10.96.0.7", selector=selector, ports=[{"port": 80, "targetPort": "http"}]),
            service("bare", clusterIP="None"),
        ]
    )
    for pod_peer in (peer("a", "10.244.0.2"), peer("b", "10.244.0.3", ready=False), peer("c", "10.244.0.4", job="two")):
        directory.peers[pod_peer.uid] = pod_peer
    return directory


@pytest.mark.parametrize(
    ("name", "publish", "expected"),
    [
        ("job.default.svc.cluster.local", False, ["10.244.0.2"]),
        ("job.default.svc.cluster.local.", True, ["10.244.0.2", "10.244.0.3"]),
        ("A.Job.default.svc.cluster.local", False, ["10.244.0.2"]),
        ("b.job.default.svc.cluster.local", False, None),
        ("b.job.default.svc.cluster.local", True, ["10.244.0.3"]),
        ("c.job.default.svc.cluster.local", True, None),
        ("web.default.svc.cluster.local", False, ["10.96.0.7"]),
        ("a.web.default.svc.cluster.local", False, None),
        ("bare.default.svc.cluster.local", True, []),
        ("web.other.svc.cluster.local", False, None),
        ("web", False, None),
        ("example.com", False, None),
        ("x.y.z.default.svc.cluster.local", False, None),
    ],
)
def test_dns_names_and_their_addresses(name: str, publish: bool, expected: list[str] | None) -> None:
    assert directory(publish).lookup(name) == expected


def test_a_service_leads_to_ready_pods_by_the_name_of_their_port() -> None:
    known = directory(publish=False)
    web = known.services[next(key for key in known.services if key.name == "web")]
    (port,) = ports_of(web)
    assert port == Port(80, "http")
    assert [(pod.name, number) for pod, number in known.backends(web, port)] == [("a", 8080)]


def test_the_hosts_of_services_are_those_of_the_namespace_and_all_addresses() -> None:
    known = directory(publish=False)
    away = {"metadata": {"name": "away", "namespace": "other"}}
    known.set_service({**away, "spec": {"clusterIP": "10.96.0.8"}})
    assert known.service_hosts("default") == {
        *("job", "web", "bare", "10.96.0.7", "web.default"),
        *("10.96.0.8", "away.other"),
    }
    known.set_service({**away, "spec": {"clusterIP": "None"}})
    known.remove_service(NamespacedName("default", "web"))
    known.remove_service(NamespacedName("nowhere", "web"))
    assert (known.service_hosts("default"), known.service_hosts("other")) == ({"job", "bare"}, {"away"})


@pytest.mark.parametrize("count", [10, 500])
def test_the_hosts_of_services_do_not_look_at_each_service(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []

    def count_and_read(service: Json) -> str:
        looked_at.append(name_of(service))
        return cluster_ip(service)

    monkeypatch.setattr(node_directory, "cluster_ip", count_and_read)
    known = Directory()
    for number in range(count):
        known.set_service(service(f"worker-{number}", clusterIP="None"))
    for _ in range(count):
        assert len(known.service_hosts("default")) == count
    assert len(looked_at) == count


def question(name: str, kind: int = 1, flags: int = 0x0100) -> bytes:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack("!6H", 77, flags, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", kind, 1)


def answer_to(query: bytes, addresses: list[str] | None, limit: int = 65535) -> tuple[int, int, bytes]:
    answer = dns.answer(query, lambda name: addresses if name == "a.b" else None, limit)
    assert answer is not None
    ident, flags, _, answers, _, _ = struct.unpack_from("!6H", answer)
    assert ident == 77 and flags & 0x8000
    return flags, answers, answer


def test_dns_answers_have_a_ttl_of_zero() -> None:
    flags, answers, reply = answer_to(question("a.b"), ["10.244.0.2"])
    assert (flags & 0xF, answers) == (0, 1)
    assert reply.endswith(struct.pack("!HHIH", 1, 1, 0, 4) + bytes([10, 244, 0, 2]))


@pytest.mark.parametrize(
    ("query", "addresses", "code", "answers"),
    [
        (question("nobody"), ["10.244.0.2"], 3, 0),
        (question("a.b", kind=28), ["10.244.0.2"], 0, 0),
        (question("nobody", kind=28), None, 3, 0),
        (question("a.b"), [], 0, 0),
        (question("a.b")[:-3], ["10.244.0.2"], 1, 0),
        (question("a.b", flags=0x2800), ["10.244.0.2"], 4, 0),
    ],
)
def test_dns_questions_and_answers(query: bytes, addresses: list[str] | None, code: int, answers: int) -> None:
    flags, resolved, _ = answer_to(query, addresses)
    assert (flags & 0xF, resolved) == (code, answers)


def test_an_answer_too_long_for_udp_is_truncated() -> None:
    many = [f"10.244.1.{number}" for number in range(100)]
    flags, answers, reply = answer_to(question("a.b"), many, dns.UDP_LIMIT)
    assert flags & 0x0200 and answers == 0 and len(reply) <= dns.UDP_LIMIT
    assert answer_to(question("a.b"), many)[1] == 100


@pytest.mark.parametrize("noise", [b"", b"x" * 11, question("a.b", flags=0x8100)])
def test_a_malformed_query_gets_no_answer(noise: bytes) -> None:
    assert dns.answer(noise, lambda _: None) is None


def test_the_resolver_file_has_the_pods_own_searches_after_the_clusters() -> None:
    config = {"searches": ["job.here.svc.cluster.local"], "options": [{"name": "timeout", "value": "1"}]}
    lines = resolv_conf({"dnsConfig": config}, "here").split("\n")
    searches = "here.svc.cluster.local svc.cluster.local cluster.local job.here.svc.cluster.local"
    assert lines == ["nameserver 10.244.0.1", f"search {searches}", "options ndots:5 timeout:1"]
    alone = resolv_conf({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1.2.3.4"]}}, "here")
    assert alone == "nameserver 1.2.3.4"


KNOWN = NameScope(
    "here",
    {"here": {"ps-0", "ps-1", "ps-10", "web", "etcd"}, "elastic-job": {"etcd-service", "ps-0"}},
    {"job", "etcd-service"},
    {"10.96.0.10": NamespacedName("elastic-job", "etcd-service"), "10.96.0.1": NamespacedName("default", "kubernetes")},
    ("ps-0", frozenset({2379})),
    "192.0.2.7",
)
HERE = "127.0.0.1"


@contextmanager
def placeholders() -> Iterator[tuple[PortOf, Callable[[str], str]]]:
    """Ports as the network gives them, and a text in which each is replaced by what it stands for."""
    meanings: dict[int, str] = {}

    def port_of(namespace: str, name: str, number: int) -> int:
        meaning = f"<{namespace} {name} {number}>"
        known = next((port for port, known in meanings.items() if known == meaning), None)
        return known or next(port for port in range(20000, 32000) if meanings.setdefault(port, meaning) == meaning)

    def readable(text: str) -> str:
        for port, meaning in meanings.items():
            text = text.replace(str(port), meaning)
        return text

    yield port_of, readable


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("ps-0:2222", [("ps-0", 2222)]),
        ('{"ps": ["ps-0:2222", "ps-1:2222"]}', [("ps-0", 2222), ("ps-1", 2222)]),
        ("grpc://ps-10:2222/path", [("ps-10", 2222)]),
        ("ps-0.job:80,ps-0.job.here:80", [("ps-0", 80), ("ps-0", 80)]),
        ("ps-0.job.here.svc.cluster.local:80", [("ps-0", 80)]),
        ("web.here.svc:80", [("web", 80)]),
        ("--ps_hosts=ps-0:1,ps-1:2", [("ps-0", 1), ("ps-1", 2)]),
        ("ps-2:2222", []),
        ("xps-0:2222", []),
        ("my.ps-0:2222", []),
        ("ps-0.other.com:80", []),
        ("ps-0 is up", []),
        ("ps-0:99999999", []),
        ("ps-0:0", []),
    ],
)
def test_addresses_in_texts_become_ports_of_their_own(text: str, names: list[tuple[str, int]]) -> None:
    ports = PortAllocator()
    try:
        written = rewriter(KNOWN, ports.allocate)(text)
        assert (written == text) is not bool(names)
        for name, number in names:
            assert f"127.0.0.1:{ports.known('here', name, number)}" in written
    finally:
        ports.close()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--rdzv_endpoint=etcd-service.elastic-job:2379", "--rdzv_endpoint=127.0.0.1:<elastic-job etcd-service 2379>"),
        ("http://etcd-service.elastic-job.svc.cluster.local:2379", "http://127.0.0.1:<elastic-job etcd-service 2379>"),
        ("etcd-service:2379", "etcd-service:2379"),
        ("ps-0.elastic-job:1", "127.0.0.1:<elastic-job ps-0 1>"),
        ("ps-0.job:1", "127.0.0.1:<here ps-0 1>"),
        ('{"ps":["ps-0.here.svc:2222"]}', '{"ps":["127.0.0.1:<here ps-0 2222>"]}'),
        ("--rdzv_endpoint=10.96.0.10:2379", "--rdzv_endpoint=127.0.0.1:<elastic-job etcd-service 2379>"),
        ("10.96.0.10", "127.0.0.1"),
        ("10.96.0.101:2379", "10.96.0.101:2379"),
        ("110.96.0.10:2379", "110.96.0.10:2379"),
        ("10.96.0.1:443", "127.0.0.1:<default kubernetes 443>"),
        ("http://0.0.0.0:2379", "http://127.0.0.1:<here ps-0 2379>"),
        ("[::]:2379,0.0.0.0:2380", "127.0.0.1:<here ps-0 2379>,0.0.0.0:2380"),
        ("10.0.0.0:2379", "10.0.0.0:2379"),
        ("192.0.2.7:2379", "127.0.0.1:<here ps-0 2379>"),
        ("192.0.2.7:2380,192.0.2.70:2379", "192.0.2.7:2380,192.0.2.70:2379"),
        ("etcd", "etcd"),
        ("etcd.here", "127.0.0.1"),
        ("etcd:2379", "127.0.0.1:<here etcd 2379>"),
    ],
)
def test_names_of_other_namespaces_and_addresses_of_services(text: str, expected: str) -> None:
    with placeholders() as (port_of, readable):
        written = readable(rewriter(KNOWN, port_of)(text))
    assert written == expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"MASTER_ADDR": "ps-0", "MASTER_PORT": "23456"}, {"MASTER_ADDR": HERE, "MASTER_PORT": "<here ps-0 23456>"}),
        (
            {"COORDINATOR_ADDRESS": "ps-0", "COORDINATOR_PORT": "6666"},
            {"COORDINATOR_ADDRESS": HERE, "COORDINATOR_PORT": "<here ps-0 6666>"},
        ),
        (
            {"DMLC_PS_ROOT_URI": "ps-0.job", "DMLC_PS_ROOT_PORT": "9091"},
            {"DMLC_PS_ROOT_URI": HERE, "DMLC_PS_ROOT_PORT": "<here ps-0 9091>"},
        ),
        ({"redis_host": "web", "redis_port": "80"}, {"redis_host": HERE, "redis_port": "<here web 80>"}),
        ({"ETCD_HOST": "etcd", "ETCD_PORT": "2379"}, {"ETCD_HOST": HERE, "ETCD_PORT": "<here etcd 2379>"}),
        ({"HOST": "0.0.0.0", "PORT": "2379"}, {"HOST": HERE, "PORT": "<here ps-0 2379>"}),
        ({"HOST": "0.0.0.0", "PORT": "8080"}, {}),
        ({"A_IP": "10.96.0.10", "A_PORT": "1"}, {"A_IP": HERE, "A_PORT": "<elastic-job etcd-service 1>"}),
        (
            {"M_HOST": "ps-0", "M_ADDR": "ps-0.job", "M_PORT": "1"},
            {"M_HOST": HERE, "M_ADDR": HERE, "M_PORT": "<here ps-0 1>"},
        ),
        ({"M_HOST": "ps-0", "M_ADDR": "ps-1", "M_PORT": "1"}, {}),
        ({"MASTER_ADDR": "ps-0", "WORKER_PORT": "1"}, {}),
        ({"MASTER_ADDR": "ps-0"}, {}),
        ({"MASTER_ADDR": "ps-0", "MASTER_PORT": "many"}, {}),
        ({"MASTER_ADDR": "", "MASTER_PORT": "1"}, {}),
        ({"MASTER_ADDR": "example.com", "MASTER_PORT": "80"}, {}),
        ({"GHOST": "ps-0", "GPORT": "80"}, {}),
        # WORKER_ADDRS of an XGBoostJob, from which LightGBM makes its list of machines
        (
            {"W_ADDRS": "ps-0,ps-1", "W_PORT": "9999"},
            {"W_ADDRS": f"{HERE}:<here ps-0 9999>,{HERE}:<here ps-1 9999>"},
        ),
        ({"W_ADDRS": "ps-0", "W_PORT": "9999"}, {"W_ADDRS": HERE, "W_PORT": "<here ps-0 9999>"}),
        ({"W_ADDRS": "a.example.com,b.example.com", "W_PORT": "9999"}, {}),
        ({"W_ADDRS": "ps-0,ps-1"}, {}),
    ],
)
def test_a_host_and_its_port_in_two_variables_are_rewritten_together(
    variables: dict[str, str], expected: dict[str, str]
) -> None:
    with placeholders() as (port_of, readable):
        changed = host_ports.environment(variables, rewriter(KNOWN, port_of))
        assert {name: readable(value) for name, value in changed.items()} == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("run --master_addr=ps-0 --master_port=1 x", f"run --master_addr={HERE} --master_port=<here ps-0 1> x"),
        ("run --master-addr ps-0 --master-port 1", f"run --master-addr {HERE} --master-port <here ps-0 1>"),
        ("serve --host 0.0.0.0 --port 2379", f"serve --host {HERE} --port <here ps-0 2379>"),
        ("serve --host 0.0.0.0 --port 80", "serve --host 0.0.0.0 --port 80"),
        ("run --master_addr --master_port", "run --master_addr --master_port"),
        ("run ps-0 1", "run ps-0 1"),
    ],
)
def test_a_host_and_its_port_in_two_flags_are_rewritten_together(line: str, expected: str) -> None:
    with placeholders() as (port_of, readable):
        arguments = host_ports.arguments(line.split(" "), rewriter(KNOWN, port_of))
        assert readable(" ".join(arguments)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ps-0:1\nps-1:64\n", True),
        ("#!/bin/sh\n\necho ps-0:2\necho ps-1.job:2", True),
        ("ps-0:2222\nps-1:2222\n", False),
        ("ps-0:1\n--port=1\n", False),
        ("ps-0 slots=1\n", False),
        ("#!/bin/sh\n", False),
    ],
)
def test_numbers_of_a_hostfile_are_slots(text: str, expected: bool) -> None:
    assert is_hostfile(text) == expected


def test_the_interface_of_a_pod_is_not_named_where_it_has_none() -> None:
    env = {"HYDRA_IFACE": "eth0", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "ib0", "WORD": "eth0"}
    assert without_pod_interface(env) == {"NCCL_SOCKET_IFNAME": "ib0", "WORD": "eth0"}


def test_declared_ports_are_those_of_the_containers() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}, {"containerPort": 81, "protocol": "TCP"}]
    inits = [{"name": "i", "ports": [{"containerPort": 99}]}]
    assert declared_ports({"spec": {"initContainers": inits, "containers": [{"name": "c", "ports": ports}]}}) == {
        80,
        81,
    }


def test_a_port_is_given_once_and_to_one_only() -> None:
    first_node, other = PortAllocator(), PortAllocator()
    try:
        first = first_node.allocate("here", "a", 80)
        assert first_node.allocate("here", "a", 80) == first
        ports = {
            first,
            first_node.allocate("here", "a", 81),
            first_node.allocate("here", "b", 80),
            first_node.allocate("there", "a", 80),
        }
        ports |= {other.allocate("here", "a", number) for number in range(20)}
        assert len(ports) == 24
    finally:
        first_node.close()
        other.close()


def test_a_text_that_is_only_a_name_becomes_loopback() -> None:
    rewrite = rewriter(KNOWN, PortAllocator().allocate)
    assert [rewrite(text) for text in ("ps-0", "ps-0.job", "web.here.svc.cluster.local", "ps", "ps-0 ")] == [
        *("127.0.0.1", "127.0.0.1", "127.0.0.1", "ps", "ps-0 ")
    ]


def test_a_network_after_a_killed_one_gives_no_address_twice() -> None:
    known = Directory()
    sandbox = Sandbox("namespace", SandboxCallbacks())

    def allotted(network: NamespaceNetwork, name: str) -> str:
        return network.allocate_ip({"metadata": {"name": name, "namespace": "default"}})

    address = allotted(NamespaceNetwork(sandbox, known, print), "first")
    known.peers["uid-first"] = peer("first", address)  # it starts again, with the address that it had
    assert allotted(NamespaceNetwork(sandbox, known, print), "second") != address


def test_this_machines_address_is_never_loopback() -> None:
    assert not host_address().startswith("127.")


MOUNTS = [Mount("/state/v/data", "/data"), Mount("/state/v/inner", "/data/inner"), Mount("/same", "/same")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data", "/state/v/data"),
        ("/data/x.txt", "/state/v/data/x.txt"),
        ("/data/inner/y", "/state/v/inner/y"),
        ("--dir=/data --out=/data/inner", "--dir=/state/v/data --out=/state/v/inner"),
        ("'/data':\"/data/\"", "'/state/v/data':\"/state/v/data/\""),
        ("/database /my/data /data-2 /data.old", "/database /my/data /data-2 /data.old"),
        ("/same/x", "/same/x"),
    ],
)
def test_mount_paths_in_texts_become_where_the_volume_is(text: str, expected: str) -> None:
    assert mount_paths.rewriter(MOUNTS)(text) == expected


def test_a_folder_of_the_user_that_programs_do_not_find_at_its_mount_path_is_named() -> None:
    mounts = [
        Mount("/home/me/data", "/data"),
        Mount("/home/me/data", "/home/me/data"),
        Mount("/state/pod/cache", "/cache", pod_owned=True),
    ]
    (note,) = mount_paths.notes(mounts)
    assert note.startswith("network shared mounts nothing: /data is /home/me/data here.") and "namespace" in note
