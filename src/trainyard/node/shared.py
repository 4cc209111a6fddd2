"""The network *shared*: every pod on this machine's own network. Names do not resolve, so texts are rewritten.

What is rewritten is in textual.py; the ports that stand for names are allocated here.

Rules:
- A Service that is no pod's name is forwarded from its own port to a ready pod.
- A pod listens on the port that its own name and number stand for, or on the very number.
- A port belongs to the pods whose texts name it and to the Service that it leads to, and goes with the last of them.
- Two runners on one machine do not take the same port: each port is held by a name in the abstract socket space."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from trainyard.node.names import Directory, cluster_ip, hostname_of, ports_of
from trainyard.node.network import KUBERNETES, Network, Outside, Rewrite, api_variables
from trainyard.node.pods import PROXIES
from trainyard.node.sandbox import Mount, Sandbox
from trainyard.node.streams import Streams, forward
from trainyard.node.textual import LOOPBACK, Known, declared_ports, rewriter
from trainyard.objects import Json, Key, namespace_of, uid_of
from trainyard.objects.labels import HOSTS, spread

_PORTS = range(20000, 32000)  # below what systems hand out by themselves
Name = tuple[str, str, int]  # namespace, name, port
Holder = str | Key  # a pod's uid, a Service's key
_NOWHERE = "192.0.2.1"  # a documentation address: what a machine without network shows as a pod's address


class Ports:
    """Ports of this machine by what they stand for. One is never given to two. Whoever asks holds it, a pod by its uid
    or a Service by its key, and it is free again when the last holder has released it."""

    def __init__(self) -> None:
        self._by_name: dict[Name, int] = {}
        self._marks: dict[Name, socket.socket] = {}
        self._holders: dict[Name, set[Holder]] = {}
        self._held: dict[Holder, set[Name]] = {}
        self._random = random.Random(os.getpid())  # where to begin to look, nothing more

    def of(self, namespace: str, name: str, port: int, holder: Holder = "") -> int:
        """The port that stands for this one. Raises OSError when none is free."""
        key = (namespace, name, port)
        if key not in self._by_name:
            self._by_name[key] = self._free(key)
        self._holders.setdefault(key, set()).add(holder)
        self._held.setdefault(holder, set()).add(key)
        return self._by_name[key]

    def known(self, namespace: str, name: str, port: int) -> int | None:
        return self._by_name.get((namespace, name, port))

    def release(self, holder: Holder) -> None:
        """Give back what nobody else holds."""
        for key in self._held.pop(holder, set()):
            holders = self._holders[key]
            holders.discard(holder)
            if not holders:
                del self._holders[key], self._by_name[key]
                if mark := self._marks.pop(key, None):
                    mark.close()

    def close(self) -> None:
        for holder in list(self._held):
            self.release(holder)

    def __len__(self) -> int:
        return len(self._by_name)

    def _free(self, key: Name) -> int:
        taken = set(self._by_name.values())
        start = self._random.randrange(len(_PORTS))
        for offset in range(len(_PORTS)):
            port = _PORTS[(start + offset) % len(_PORTS)]
            if port not in taken and _nobody_listens(port) and self._mark(key, port):
                return port
        raise OSError(f"no free port between {_PORTS[0]} and {_PORTS[-1]} on this machine")

    def _mark(self, key: Name, port: int) -> bool:
        if sys.platform != "linux":
            return True
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            mark.bind(f"\0trainyard-port-{port}")
        except OSError:
            mark.close()
            return False
        self._marks[key] = mark
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

    def __init__(
        self,
        sandbox: Sandbox,
        directory: Directory,
        say: Callable[[str], object],
        outside: Outside | None = None,
    ) -> None:
        super().__init__(sandbox, directory, say, outside)
        self.host_ip = own_address()
        self.ports = Ports()
        self._forwarders: dict[tuple[Key, int], asyncio.Server] = {}
        self._seen: set[Key] = set()  # Services: what one holds is given back when it is no longer there
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
        self.ports.release(uid_of(pod))

    def variables(self, pod: Json) -> dict[str, str]:
        found: dict[str, str] = {}
        if any(os.environ.get(name) for name in PROXIES):  # pods get the runner's proxy, which is not for neighbours
            own = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
            around = ",".join(filter(None, [own, "localhost", LOOPBACK, self.host_ip]))
            found["no_proxy"] = found["NO_PROXY"] = around
        return found | (api_variables(*self.apiserver) if self.apiserver else {})

    def files(self, pod: Json, address: str, folder: Path) -> list[Mount]:
        return []

    def rewrite(self, pod: Json) -> Rewrite:
        namespace = namespace_of(pod)
        annotations = (pod.get("metadata") or {}).get("annotations") or {}
        names: dict[str, set[str]] = {namespace: set(spread(str(annotations.get(HOSTS) or "")))}
        subdomains = {str((pod.get("spec") or {}).get("subdomain") or "")}
        for peer in self.directory.peers.values():
            names.setdefault(peer.namespace, set()).add(peer.hostname)
            subdomains.add(peer.subdomain)
        addresses: dict[str, Key] = {}
        for key, service in self.directory.services.items():
            names.setdefault(key.namespace, set()).add(key.name)
            subdomains.add(key.name)
            if address := cluster_ip(service):
                addresses[address] = key
        known = Known(namespace, names, subdomains, addresses, (hostname_of(pod), declared_ports(pod)))
        return rewriter(known, partial(self.ports.of, holder=uid_of(pod)))

    async def services_changed(self) -> None:
        """Forward every Service that is not itself the name of a pod."""
        async with self._adapting:
            pods = {(peer.namespace, peer.hostname) for peer in self.directory.peers.values()}
            wanted = {
                (key, port.number): port
                for key, service in self.directory.services.items()
                if key not in pods and self._is_served(key, service)
                for port in ports_of(service)
                if port.protocol == "TCP" and port.number
            }
            for place in [place for place in self._forwarders if place not in wanted]:
                self._forwarders.pop(place).close()
            for key in self._seen - self.directory.services.keys():
                self.ports.release(key)
            self._seen = set(self.directory.services)
            for place in wanted:
                if place not in self._forwarders:
                    await self.contained(place[0], self._listen(*place))

    def _is_served(self, key: Key, service: Json) -> bool:
        return bool((service.get("spec") or {}).get("selector") or (key == KUBERNETES and self.apiserver))

    async def _listen(self, key: Key, number: int) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await forward(reader, writer, lambda: self._backend(key, number))

        port = self.ports.of(key.namespace, key.name, number, key)
        try:
            self._forwarders[key, number] = await asyncio.start_server(serve, LOOPBACK, port)
        except OSError as error:
            self.say(f"service {key}: cannot listen on {LOOPBACK}:{port}: {error.strerror}")

    async def _backend(self, key: Key, number: int) -> Streams | None:
        if key == KUBERNETES and self.apiserver:
            return await asyncio.open_connection(*self.apiserver)
        service = self.directory.services.get(key)
        port = next((one for one in ports_of(service or {}) if one.number == number), None)
        backends = self.directory.backends(service, port) if service and port else []
        if not backends:
            return None
        self._turn += 1
        peer, target = backends[self._turn % len(backends)]
        return await self.dial(f"{peer.namespace}/{peer.hostname}", peer.address, target)

    async def reach(self, service: Key, port: int) -> int:
        return self.ports.of(service.namespace, service.name, port, service)

    async def dial(self, pod: str, address: str, port: int) -> Streams:
        """A pod listens on the port that its own name and number were rewritten to, or on the very number."""
        namespace, _, hostname = pod.partition("/")
        return await asyncio.open_connection(LOOPBACK, self.ports.known(namespace, hostname, port) or port)
