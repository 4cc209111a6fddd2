"""The variables of pods in the network shared."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from typing import Any

import pytest

from trainyard.node.network import shared
from trainyard.node.network.directory import Directory, peer_of
from trainyard.objects import Json

AGENT = {"name": "OMPI_MCA_plm_rsh_agent", "value": "agent"}
EXCLUDES = {"name": "OMPI_MCA_btl_tcp_if_exclude", "value": "lo,docker0"}
OFF = {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_coll": "^han"}
LOOPBACK = {"OMPI_MCA_btl_tcp_if_include": "lo"}


@pytest.mark.parametrize(
    ("env", "is_online", "variables"),
    [
        ([], True, {}),
        ([{"name": "OMPI_MCA_rmaps_base_oversubscribe", "value": "1"}], True, {}),
        ([AGENT], True, OFF),
        ([AGENT, EXCLUDES], True, OFF),
        ([AGENT], False, {**OFF, **LOOPBACK}),
        ([AGENT, EXCLUDES], False, {}),
    ],
)
def test_a_launcher_that_reaches_other_pods_uses_no_shared_memory(
    env: list[Json], is_online: bool, variables: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "10.1.2.3" if is_online else shared._DOCUMENTATION_ADDRESS
    monkeypatch.setattr(shared, "host_address", lambda: address)
    sandbox: Any = None
    network = shared.SharedNetwork(sandbox, Directory(), print)
    pod = {"spec": {"containers": [{"name": "mpi", "env": env}, {"name": "sidecar"}]}}
    given = network.environment(pod)
    assert {name: value for name, value in given.items() if name.startswith("OMPI_")} == variables


async def test_the_service_of_a_replica_that_has_ended_is_not_forwarded() -> None:
    """Its port may still be in use, by connections of its server: those of XGBoost's tracker last a minute."""
    messages: list[str] = []
    sandbox: Any = None
    network = shared.SharedNetwork(sandbox, Directory(), lambda text: messages.append(str(text)))
    spec = {"clusterIP": "None", "selector": {"job": "xg"}, "ports": [{"port": 9091, "targetPort": 9091}]}
    network.directory.set_service({"metadata": {"name": "xg-master-0", "namespace": "default"}, "spec": spec})
    meta = {"name": "xg-master-0", "namespace": "default", "uid": "u", "labels": {"job": "xg"}}
    network.directory.peers["u"] = peer_of({"metadata": meta, "spec": {}}, "192.0.2.1", ready=True)
    await network.services_changed()
    with socket.socket() as server:
        server.bind(("", network.ports.allocate("default", "xg-master-0", 9091, "u")))
        server.listen()
        del network.directory.peers["u"]
        await network.services_changed()
    assert messages == [] and not network._forwarders
    await network.stop()


# Ports, all or many of which somebody else has.


class Tries:
    """Counts the ports that are looked at, and says which are in use."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, in_use: Any) -> None:
        self.count, self.in_use = 0, in_use
        monkeypatch.setattr(shared._Probe, "is_unused", lambda probe, port: self.is_unused(port))

    def is_unused(self, port: int) -> bool:
        self.count += 1
        return port not in self.in_use


def test_a_search_among_ports_in_use_has_an_end_and_is_repeated_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    tries, seconds = Tries(monkeypatch, shared._PORT_RANGE), [100.0]
    ports = shared.PortAllocator(lambda: seconds[0])
    for number in range(50):
        with pytest.raises(OSError, match="no port between 20000 and 31999 of this machine was found free"):
            ports.allocate("default", f"service-{number}", 80)
    assert tries.count == 64
    seconds[0] += 1.0
    with pytest.raises(OSError):
        ports.allocate("default", "web", 80)
    assert tries.count == 128
    seconds[0] += 1.0
    tries.in_use = ()
    ports.allocate("default", "web", 80, "u")
    tries.in_use = shared._PORT_RANGE
    for _ in range(2):
        with pytest.raises(OSError):
            ports.allocate("default", "db", 80)
    tries.in_use = ()
    ports.release("u")  # there is one: no wait
    assert ports.allocate("default", "db", 80)
    ports.close()


def test_a_port_is_found_at_once_while_half_of_them_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = Tries(monkeypatch, range(20_000, 26_000))
    ports = shared.PortAllocator()
    for number in range(200):
        assert ports.allocate("default", f"service-{number}", 80, "u") >= 26_000
    assert tries.count < 200 * 4
    ports.close()


def test_a_port_in_use_is_passed_without_a_socket_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which costs as much as the whole rest of an allocation."""
    sockets: list[socket.socket] = []

    class CountedSocket(socket.socket):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            sockets.append(self)

    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.closing(shared._Probe()) as probe:
        monkeypatch.setattr(socket, "socket", CountedSocket)
        in_use = server.getsockname()[1]
        assert [probe.is_unused(in_use) for _ in range(20)] == [False] * 20
        assert len(sockets) == 1
    assert [opened.fileno() for opened in sockets] == [-1] * len(sockets)


@pytest.mark.skipif(sys.platform != "linux", reason="ports have names on Linux alone")
def test_names_that_another_user_has_taken_leave_the_ports_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    first = 100_000 + 20 * os.getpid()  # no ports, so that nobody else takes these names
    monkeypatch.setattr(shared, "_PORT_RANGE", range(first, first + 20))
    tries = Tries(monkeypatch, ())
    with contextlib.ExitStack() as stack:
        for port in shared._PORT_RANGE:
            taken = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            taken.bind(f"\0trainyard-port-{port}")
        ports = shared.PortAllocator()
        allocated = {ports.allocate("default", f"service-{number}", 80, "u") for number in range(5)}
        ports.close()
    assert len(allocated) == 5 and tries.count == 5 * 8


async def test_a_service_without_a_port_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    messages: list[str] = []
    sandbox: Any = None
    network = shared.SharedNetwork(sandbox, Directory(), lambda text: messages.append(str(text)))
    spec = {"clusterIP": "10.96.0.7", "selector": {"job": "a"}, "ports": [{"port": 80, "targetPort": 8080}]}
    network.directory.set_service({"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
    tries = Tries(monkeypatch, shared._PORT_RANGE)
    for _ in range(3):
        await network.services_changed()
    text = "service default/web: port 80 is not served: no port between 20000 and 31999 of this machine was found free"
    assert messages == [text] and not caplog.records and tries.count == 64
    tries.in_use = ()
    monkeypatch.setattr(network.ports, "_next_search", 0.0)
    await network.services_changed()
    assert len(network._forwarders) == 1 and messages == [text]
    await network.stop()
