"""The network *shared*: all pods use this machine's network. Pod names do not resolve, so texts are rewritten.

The rewrite is in address_rewrite.py; the ports that replace (namespace, name, port) are allocated here.

Rules:
- A Service whose name is not that of a pod is forwarded, from a port allocated for it to a ready pod. After the end of
  a pod of its name it is not forwarded, unless it leads to other pods: what that pod has left may use the port.
- In texts of the only pod to which a Service leads, the Service is the pod itself: `MASTER_ADDR` and `MASTER_PORT` of a
  master that name its Service are where it listens.
- A pod listens on the port allocated for its own name and port number, or on that port number itself.
- A port is held by the pods whose texts contain it and by the Service that it forwards to, and is freed with the last
  of them.
- Two nodes on one machine do not use the same port: each port is reserved by an abstract Unix socket name. Any user of
  the machine can take such names, so a port is used without its name if several in a row are taken.
- All of this runs on the event loop: a search has a bounded number of tries, and one that has found nothing is not
  repeated for a second, however many Services wait for a port."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from trainyard.node.network.address_rewrite import LOOPBACK, NameScope, declared_ports, rewriter
from trainyard.node.network.directory import Directory, cluster_ip, hostname_of, ports_of
from trainyard.node.network.pod_network import KUBERNETES, ClusterNetwork, Network, Rewrite
from trainyard.node.network.proxy import Streams, forward
from trainyard.node.sandbox.inherited_environment import PROXIES
from trainyard.node.sandbox.supervisor_client import Mount, Sandbox
from trainyard.objects import Json, NamespacedName, key_of, namespace_of, uid_of
from trainyard.objects.labels import HOSTS, expand_hosts

_PORT_RANGE = range(20000, 32000)  # below the ephemeral port range of common systems
_TRIES = 64  # ports that are looked at in one search: with half of them in use it fails once in 2^64
_RESERVED_TRIES = 8  # free ports in one search whose names are taken
_SEARCH_SECONDS = 1.0  # after a search that has found none, unless a port is released
Name = tuple[str, str, int]  # namespace, name, port
Holder = str | NamespacedName  # a pod's uid, a Service's key
_DOCUMENTATION_ADDRESS = "192.0.2.1"  # TEST-NET-1 (RFC 5737): the pods' address on a machine without network


class PortAllocator:
    """Allocates ports of this machine, one for each (namespace, name, port). Each call of `allocate` adds a holder, a
    pod by its uid or a Service by its key; the port is freed when its last holder has released it."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._by_name: dict[Name, int] = {}
        self._allocated: set[int] = set()
        self._now, self._next_search = now, float("-inf")
        self._marks: dict[Name, socket.socket] = {}
        self._holders: dict[Name, set[Holder]] = {}
        self._held: dict[Holder, set[Name]] = {}
        self._random = random.Random(os.getpid())  # only for which ports are looked at

    def allocate(self, namespace: str, name: str, port: int, holder: Holder = "") -> int:
        """The port allocated for (namespace, name, port), new or known. Raises OSError when none is free."""
        key = (namespace, name, port)
        if key not in self._by_name:
            self._by_name[key] = self._allocate(key)
        self._holders.setdefault(key, set()).add(holder)
        self._held.setdefault(holder, set()).add(key)
        return self._by_name[key]

    def known(self, namespace: str, name: str, port: int) -> int | None:
        """The loopback port allocated for a declared port of this host name, None when there is none."""
        return self._by_name.get((namespace, name, port))

    def release(self, holder: Holder) -> None:
        """Remove the holder from its ports; ports without a holder are freed."""
        for key in self._held.pop(holder, set()):
            holders = self._holders[key]
            holders.discard(holder)
            if not holders:
                self._allocated.discard(self._by_name.pop(key))
                self._next_search = float("-inf")
                del self._holders[key]
                if mark := self._marks.pop(key, None):
                    mark.close()

    def close(self) -> None:
        """Release all ports."""
        for holder in list(self._held):
            self.release(holder)

    def __len__(self) -> int:
        return len(self._by_name)

    def _allocate(self, key: Name) -> int:
        if self._now() >= self._next_search:
            if port := self._find_free(key):
                self._allocated.add(port)
                return port
            self._next_search = self._now() + _SEARCH_SECONDS
        text = f"no port between {_PORT_RANGE[0]} and {_PORT_RANGE[-1]} of this machine was found free"
        raise OSError(errno.EADDRINUSE, text)

    def _find_free(self, key: Name) -> int:
        """A free port, reserved if possible; 0 if none was found."""
        free_ports: list[int] = []
        with contextlib.closing(_Probe()) as probe:
            for port in self._random.choices(_PORT_RANGE, k=_TRIES):
                if port not in self._allocated and probe.is_unused(port):
                    if self._reserve(key, port):
                        return port
                    free_ports.append(port)
                    if len(free_ports) == _RESERVED_TRIES:
                        break
        return free_ports[0] if free_ports else 0

    def _reserve(self, key: Name, port: int) -> bool:
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


class _Probe:
    """Looks whether ports are in use. A socket that could not be bound to a port is used for the next one: a port that
    is in use costs one system call, so half of the ports in use cost hardly more than none."""

    def __init__(self) -> None:
        self._unbound: dict[socket.AddressFamily, socket.socket] = {}

    def close(self) -> None:
        """Close the sockets."""
        for probe in self._unbound.values():
            probe.close()

    def is_unused(self, port: int) -> bool:
        """Whether no socket of this machine has the port, of any address."""
        for family, address in ((socket.AF_INET, ""), (socket.AF_INET6, "::")):
            with contextlib.suppress(OSError):
                probe = self._unbound.get(family) or self._new(family)
                try:
                    probe.bind((address, port))
                except OSError as error:
                    if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):  # no IPv6 on this machine
                        return False
                else:
                    self._unbound.pop(family).close()
        return True

    def _new(self, family: socket.AddressFamily) -> socket.socket:
        probe = self._unbound[family] = socket.socket(family, socket.SOCK_STREAM)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        return probe


def host_address() -> str:
    """This machine's IPv4 address on its default route, never one in 127/8. No packet is sent."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((_DOCUMENTATION_ADDRESS, 9))
        address = str(probe.getsockname()[0])
        if not address.startswith(("127.", "0.")):
            return address
    return _DOCUMENTATION_ADDRESS


# All pods have the host name of this machine, so Open MPI takes the ranks of two pods for processes of one host. Their
# segments in /dev/shm get the same names then (4.1 and 5.0 crash), and collectives of 5.0 wait for ever.
_OPEN_MPI = {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_coll": "^han"}
_REMOTE_SHELL = "OMPI_MCA_plm_rsh_agent"  # a launcher with this variable starts ranks in other pods
_EXCLUDED_INTERFACES = "OMPI_MCA_btl_tcp_if_exclude"


def _variables(pod: Json) -> Iterator[Json]:
    for container in (pod.get("spec") or {}).get("containers") or ():
        yield from container.get("env") or ()


def _own_target(directory: Directory, pod: Json, service: Json, number: int) -> int:
    """The port on which the pod listens for a port of the Service that leads to it alone; 0 for any other Service."""
    peer, selector = directory.peers.get(uid_of(pod)), (service.get("spec") or {}).get("selector")
    if peer is None or not selector or key_of(service) == NamespacedName(peer.namespace, peer.hostname):
        return 0
    selected = directory.endpoints_pods(service, unready=True)
    port = next((candidate for candidate in ports_of(service) if candidate.number == number), None)
    if port is None or [candidate.name for candidate in selected] != [peer.name]:
        return 0
    return int(port.target) if port.target.isdecimal() else peer.ports.get(port.target, 0)


def _has_selector(service: Json) -> bool:
    return bool((service.get("spec") or {}).get("selector"))


class SharedNetwork(Network):
    """All pods use the network of this machine; ports of Services are allocated on loopback."""

    name = "shared"
    isolated_network = False

    def __init__(
        self,
        sandbox: Sandbox,
        directory: Directory,
        say: Callable[[str], object],
        outside: ClusterNetwork | None = None,
    ) -> None:
        super().__init__(sandbox, directory, say, outside)
        self.host_ip = host_address()
        self.ports = PortAllocator()
        self._forwarders: dict[tuple[NamespacedName, int], asyncio.Server] = {}
        # Services at the last sync: the ports of deleted ones are released.
        self._known_services: set[NamespacedName] = set()
        self._replica_services: set[NamespacedName] = set()  # Services that a pod had the name of
        self._unserved: set[tuple[NamespacedName, int]] = set()  # those of which the user was told
        self._services_lock = asyncio.Lock()
        self._round_robin = 0

    async def start(self) -> None:
        """Nothing to start: ports are opened when they are needed."""

    async def stop(self) -> None:
        """Close all forwarders and release all ports."""
        for server in self._forwarders.values():
            server.close()
        self._forwarders.clear()
        self.ports.close()

    def allocate_ip(self, pod: Json) -> str:
        """The address of this machine: all pods share it."""
        return self.host_ip

    def release(self, pod: Json, address: str) -> None:
        """Release the ports of the pod."""
        self.ports.release(uid_of(pod))

    def environment(self, pod: Json) -> dict[str, str]:
        """Proxy and Open MPI variables of a pod."""
        env = self._open_mpi(pod)
        # Pods inherit the node process's proxy, which must not be used between pods.
        if any(os.environ.get(name) for name in PROXIES):
            inherited = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
            no_proxy = ",".join(filter(None, [inherited, "localhost", LOOPBACK, self.host_ip]))
            env["no_proxy"] = env["NO_PROXY"] = no_proxy
        return env

    def _open_mpi(self, pod: Json) -> dict[str, str]:
        """The variables of a launcher, which hands them to its ranks."""
        variables = {str(item.get("name")) for item in _variables(pod)}
        if _REMOTE_SHELL not in variables:
            return {}
        if self.host_ip != _DOCUMENTATION_ADDRESS:
            return dict(_OPEN_MPI)
        # Without a network there is the loopback interface alone, which Open MPI leaves out.
        return {} if _EXCLUDED_INTERFACES in variables else {**_OPEN_MPI, "OMPI_MCA_btl_tcp_if_include": "lo"}

    def files(self, pod: Json, address: str, folder: Path) -> list[Mount]:
        """None: the pod sees the files of this machine."""
        return []

    def rewrite(self, pod: Json) -> Rewrite:
        """A function that replaces `NAME:PORT` of pods and Services by loopback addresses."""
        namespace = namespace_of(pod)
        annotations = (pod.get("metadata") or {}).get("annotations") or {}
        names: dict[str, set[str]] = {namespace: set(expand_hosts(str(annotations.get(HOSTS) or "")))}
        subdomains = {str((pod.get("spec") or {}).get("subdomain") or "")}
        for peer in self.directory.peers.values():
            names.setdefault(peer.namespace, set()).add(peer.hostname)
            subdomains.add(peer.subdomain)
        addresses: dict[str, NamespacedName] = {}
        for key, service in self.directory.services.items():
            names.setdefault(key.namespace, set()).add(key.name)
            subdomains.add(key.name)
            if address := cluster_ip(service):
                addresses[address] = key
        own = hostname_of(pod), declared_ports(pod)
        known = NameScope(namespace, names, subdomains, addresses, own, self.host_ip)
        return rewriter(known, partial(self._port_for, pod))

    def _port_for(self, pod: Json, namespace: str, name: str, number: int) -> int:
        """The port allocated for an address in a text of the pod."""
        service = self.directory.services.get(NamespacedName(namespace, name))
        if service and (target := _own_target(self.directory, pod, service, number)):
            name, number = hostname_of(pod), target
        return self.ports.allocate(namespace, name, number, uid_of(pod))

    async def services_changed(self) -> None:
        """Sync the forwarders: one per TCP port of each Service whose name is not that of a pod."""
        async with self._services_lock:
            pods = {NamespacedName(peer.namespace, peer.hostname) for peer in self.directory.peers.values()}
            services = self.directory.services.keys()
            self._replica_services = (self._replica_services | pods) & services
            wanted = {
                (key, port.number): port
                for key, service in self.directory.services.items()
                if key not in pods and (_has_selector(service) or (key == KUBERNETES and self.apiserver))
                for port in ports_of(service)
                if port.protocol == "TCP" and port.number
                if key not in self._replica_services or self.directory.backends(service, port)
            }
            for endpoint in [endpoint for endpoint in self._forwarders if endpoint not in wanted]:
                self._forwarders.pop(endpoint).close()
            self._unserved &= wanted.keys()
            for key in self._known_services - self.directory.services.keys():
                self.ports.release(key)
            self._known_services = set(self.directory.services)
            for endpoint in wanted:
                if endpoint not in self._forwarders:
                    await self.isolate_errors(endpoint[0], self._listen(*endpoint))

    async def _listen(self, key: NamespacedName, number: int) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await forward(reader, writer, lambda: self._dial_backend(key, number))

        try:
            port = self.ports.allocate(key.namespace, key.name, number, key)
            self._forwarders[key, number] = await asyncio.start_server(serve, LOOPBACK, port)
        except OSError as error:
            if (key, number) not in self._unserved:
                self.say(f"service {key}: port {number} is not served: {error.strerror}")
            self._unserved.add((key, number))
        else:
            self._unserved.discard((key, number))

    async def _dial_backend(self, key: NamespacedName, number: int) -> Streams | None:
        if key == KUBERNETES and self.apiserver:
            return await asyncio.open_connection(*self.apiserver)
        service = self.directory.services.get(key)
        port = next((candidate for candidate in ports_of(service or {}) if candidate.number == number), None)
        backends = self.directory.backends(service, port) if service and port else []
        if not backends:
            return None
        self._round_robin += 1
        peer, target = backends[self._round_robin % len(backends)]
        return await self.dial(f"{peer.namespace}/{peer.hostname}", peer.address, target)

    async def forward_to_service(self, service: NamespacedName, port: int) -> int:
        """A loopback port that forwards to a port of the Service."""
        return self.ports.allocate(service.namespace, service.name, port, service)

    def endpoint(self, pod: str, address: str, port: int) -> tuple[str, int]:
        """The port allocated for the pod's name and port number, or else the port number itself."""
        namespace, _, hostname = pod.partition("/")
        return LOOPBACK, self.ports.known(namespace, hostname, port) or port

    async def dial(self, pod: str, address: str, port: int) -> Streams:
        """Connect to the endpoint of the pod's port."""
        return await asyncio.open_connection(*self.endpoint(pod, address, port))
