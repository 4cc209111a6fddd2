"""The network *shared*: every pod on this machine's own network. Names do not resolve, so texts are rewritten.

A NAT by text: where `name:port` stands in a text, and the name is one of the job's host names, of another pod's or of a
Service's, it becomes 127.0.0.1 and a port of its own: allocated once per (namespace, name, port), so that the pod that
listens there and those that connect agree. A text that is nothing but such a name becomes 127.0.0.1.

Rules:
- Everything else stays as it is. A name buried in a program's code does not resolve.
- A Service that is no pod's name is forwarded from its own port to a ready pod.
- Two runners on one machine do not take the same port: each port is held by a name in the abstract socket space."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from trainyard.node.names import DOMAIN, Directory, ports_of
from trainyard.node.network import Network, Rewrite
from trainyard.node.sandbox import Mount, Sandbox
from trainyard.node.streams import Streams, forward
from trainyard.objects import Json, Key, namespace_of
from trainyard.objects.labels import HOSTS, spread

LOOPBACK = "127.0.0.1"
_PORTS = range(20000, 32000)  # below what systems hand out by themselves
_NOWHERE = "192.0.2.1"  # a documentation address: what a machine without network shows as a pod's address


class Ports:
    """Ports of this machine by what they stand for. One is never given to two, for the life of the cluster."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str, int], int] = {}
        self._held: list[socket.socket] = []
        self._random = random.Random(os.getpid())  # where to begin to look, nothing more

    def of(self, namespace: str, name: str, port: int) -> int:
        key = (namespace, name, port)
        if key not in self._by_name:
            self._by_name[key] = self._free()
        return self._by_name[key]

    def known(self, namespace: str, name: str, port: int) -> int | None:
        return self._by_name.get((namespace, name, port))

    def close(self) -> None:
        for one in self._held:
            one.close()
        self._held.clear()

    def _free(self) -> int:
        taken = set(self._by_name.values())
        start = self._random.randrange(len(_PORTS))
        for offset in range(len(_PORTS)):
            port = _PORTS[(start + offset) % len(_PORTS)]
            if port not in taken and _nobody_listens(port) and self._hold(port):
                return port
        raise OSError(f"no free port between {_PORTS[0]} and {_PORTS[-1]} on this machine")

    def _hold(self, port: int) -> bool:
        if sys.platform != "linux":
            return True
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            mark.bind(f"\0trainyard-port-{port}")
        except OSError:
            mark.close()
            return False
        self._held.append(mark)
        return True


def _nobody_listens(port: int) -> bool:
    for family, address in ((socket.AF_INET, ""), (socket.AF_INET6, "::")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):  # no IPv6 here at all
                    return False
    return True


def own_address() -> str:
    """This machine's address as others would see it; never one in 127/8. Nothing is sent to find out."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((_NOWHERE, 9))
        address = str(probe.getsockname()[0])
        if not address.startswith(("127.", "0.")):
            return address
    return _NOWHERE


class SharedNetwork(Network):
    name = "shared"
    alone = False

    def __init__(self, sandbox: Sandbox, directory: Directory, say: Callable[[str], object]) -> None:
        super().__init__(sandbox, directory, say)
        self.host_ip = own_address()
        self.ports = Ports()
        self._hosts: dict[str, dict[str, int]] = {}  # namespace -> host names of jobs, and how many pods say so
        self._forwarders: dict[tuple[Key, int], asyncio.Server] = {}
        self._adapting = asyncio.Lock()
        self._turn = 0

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        for server in self._forwarders.values():
            server.close()
        self._forwarders.clear()
        self.ports.close()

    def allot(self, pod: Json) -> str:
        return self.host_ip

    def release(self, pod: Json, address: str) -> None:
        pass

    def variables(self, pod: Json) -> dict[str, str]:
        return {}

    def files(self, pod: Json, address: str, folder: Path) -> list[Mount]:
        return []

    def rewrite(self, pod: Json) -> Rewrite:
        namespace = namespace_of(pod)
        annotations = (pod.get("metadata") or {}).get("annotations") or {}
        names = set(spread(str(annotations.get(HOSTS) or "")))
        names |= {peer.hostname for peer in self.directory.peers.values() if peer.namespace == namespace}
        services = {key.name for key in self.directory.services if key.namespace == namespace}
        subdomains = services | {peer.subdomain for peer in self.directory.peers.values() if peer.subdomain}
        subdomains.add(str((pod.get("spec") or {}).get("subdomain") or ""))
        return rewriter(namespace, names | services, subdomains, self.ports)

    async def services_changed(self) -> None:
        """Forward every Service that is not itself the name of a pod."""
        async with self._adapting:
            pods = {(peer.namespace, peer.hostname) for peer in self.directory.peers.values()}
            wanted = {
                (key, port.number): port
                for key, service in self.directory.services.items()
                if key not in pods and (service.get("spec") or {}).get("selector")
                for port in ports_of(service)
                if port.protocol == "TCP" and port.number
            }
            for place in [place for place in self._forwarders if place not in wanted]:
                self._forwarders.pop(place).close()
            for place in wanted:
                if place not in self._forwarders:
                    await self._listen(*place)

    async def _listen(self, key: Key, number: int) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await forward(reader, writer, lambda: self._backend(key, number))

        port = self.ports.of(key.namespace, key.name, number)
        try:
            self._forwarders[key, number] = await asyncio.start_server(serve, LOOPBACK, port)
        except OSError as error:
            self.say(f"service {key}: cannot listen on {LOOPBACK}:{port}: {error.strerror}")

    async def _backend(self, key: Key, number: int) -> Streams | None:
        service = self.directory.services.get(key)
        port = next((one for one in ports_of(service or {}) if one.number == number), None)
        backends = self.directory.backends(service, port) if service and port else []
        if not backends:
            return None
        self._turn += 1
        peer, target = backends[self._turn % len(backends)]
        return await self.dial(f"{peer.namespace}/{peer.hostname}", peer.address, target)

    async def reach(self, service: Key, port: int) -> int:
        return self.ports.of(service.namespace, service.name, port)

    async def dial(self, pod: str, address: str, port: int) -> Streams:
        """A pod listens on the port that its own name and number were rewritten to, or on the very number."""
        namespace, _, hostname = pod.partition("/")
        return await asyncio.open_connection(LOOPBACK, self.ports.known(namespace, hostname, port) or port)


def rewriter(namespace: str, names: set[str], subdomains: set[str], ports: Ports) -> Rewrite:
    """The NAT by text for one namespace. Names are found as whole words, also fully qualified."""
    if not (known := _any_of(names)):
        return str
    middle = _any_of(subdomains)
    inside = rf"(?:\.(?:{middle}))?" if middle else ""
    tail = rf"(?:\.{re.escape(namespace)}(?:\.svc(?:\.{re.escape(DOMAIN)})?)?)?\.?"
    name = rf"(?<![\w.-])({known}){inside}{tail}"
    pair, alone = re.compile(rf"{name}:([0-9]{{1,5}})(?![0-9])"), re.compile(name)

    def one(found: re.Match[str]) -> str:
        number = int(found[2])
        return f"{LOOPBACK}:{ports.of(namespace, found[1], number)}" if 0 < number < 65536 else found[0]

    def rewrite(text: str) -> str:
        return LOOPBACK if alone.fullmatch(text) else pair.sub(one, text)

    return rewrite


def _any_of(names: set[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names - {""}, key=lambda name: (-len(name), name)))
