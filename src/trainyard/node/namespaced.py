"""The network *namespace*: what pods see of names, Services and the outside world.

The hub has the bridge (10.244.0.1) and, as its own, every address that Services may have. The runner listens on those
through sockets opened there: a resolver, a proxy, and one forwarder per port of a Service."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import cast

from trainyard.node import dns
from trainyard.node.names import DOMAIN, Directory, Port, cluster_ip, hostname_of, ports_of
from trainyard.node.network import KUBERNETES, Network, Outside, Rewrite, api_variables
from trainyard.node.sandbox import Failed, Mount, Sandbox
from trainyard.node.streams import Streams, forward, proxy
from trainyard.objects import Json, Key, namespace_of
from trainyard.objects.labels import HOSTS, spread

GATEWAY = "10.244.0.1"
PROXY_PORT = 3128
PODS = ipaddress.ip_network("10.244.0.0/16")
_MOST_KEPT = 4096  # pods whose addresses are remembered after their end
_HIGHEST = 65534  # addresses of 10.244.0.0/16 that a pod may have: 2 to this


class _Resolver(asyncio.DatagramProtocol):
    def __init__(self, lookup: dns.Lookup) -> None:
        self._lookup = lookup
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not isinstance: before Python 3.12 asyncio's own datagram transport is not a DatagramTransport.
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        said = dns.answer(data, self._lookup, dns.UDP_LIMIT)
        if said and self._transport:
            self._transport.sendto(said, addr)


class NamespaceNetwork(Network):
    name = "namespace"
    alone = True
    host_ip = GATEWAY

    def __init__(
        self,
        sandbox: Sandbox,
        directory: Directory,
        say: Callable[[str], object],
        outside: Outside | None = None,
    ) -> None:
        super().__init__(sandbox, directory, say, outside)
        self._servers: list[asyncio.Server] = []
        self._resolver: asyncio.BaseTransport | None = None
        self._forwarders: dict[tuple[str, Port], tuple[Key, asyncio.Server]] = {}
        self._adapting = asyncio.Lock()
        self._used: dict[str, str] = {}  # address -> who has it
        self._kept: dict[str, str] = {}  # who -> the address it had before, of the last ones
        self._reached: dict[tuple[Key, int], asyncio.Server] = {}  # for browsers of this machine
        self._seen: set[Key] = set()  # Services: what one holds is given back when it is no longer there
        self._next = 1
        self._turn = 0
        # A range around the pods' own would swallow them: its Services are then taken in one by one.
        ranges = [one for one in map(ipaddress.ip_network, self.outside.services) if one.version == 4]
        self._ranges = [one for one in ranges if not one.overlaps(PODS)]

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        for one in self._ranges:
            await self.sandbox.own(str(one))
        udp = await self.sandbox.listen(GATEWAY, 53, udp=True)
        self._resolver, _ = await loop.create_datagram_endpoint(lambda: _Resolver(self.directory.lookup), sock=udp)
        for port, serve in ((53, self._resolve), (PROXY_PORT, self._proxy)):
            sock = await self.sandbox.listen(GATEWAY, port)
            self._servers.append(await asyncio.start_server(serve, sock=sock))
        await self.services_changed()

    async def stop(self) -> None:
        if self._resolver:
            self._resolver.close()
        forwarders = (server for _, server in self._forwarders.values())
        for server in (*self._servers, *self._reached.values(), *forwarders):
            server.close()
        self._forwarders.clear()

    async def _resolve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """DNS over TCP: each message after its length."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while size := int.from_bytes(await reader.readexactly(2)):
                said = dns.answer(await reader.readexactly(size), self.directory.lookup)
                if said is None:
                    break
                writer.write(len(said).to_bytes(2) + said)
                await writer.drain()
        writer.close()

    async def _proxy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        who = writer.get_extra_info("peername")
        asker = next((peer for peer in self.directory.peers.values() if who and peer.address == who[0]), None)

        async def inside(host: str, port: int) -> Streams | None:
            """As the pod's own resolver would find it: the name as it stands, then in the pod's namespace."""
            if self._is_ours(host):
                return await self.dial("", host, port)
            searches = ("", *(f".{one}" for one in cluster_searches(asker.namespace if asker else "default")))
            for search in searches:
                if addresses := self.directory.lookup(host + search):
                    return await self.dial("", addresses[0], port)
            return None

        await proxy(reader, writer, inside)

    def _is_ours(self, host: str) -> bool:
        """Is that the address of a pod or a Service?"""
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        near = any(address in one for one in (PODS, *self._ranges))
        return near or any(cluster_ip(service) == host for service in self.directory.services.values())

    def allot(self, pod: Json) -> str:
        """A pod that comes back under its name gets its old address back if it can: neighbours that remember it win."""
        who = f"{namespace_of(pod)}/{hostname_of(pod)}"
        # Of the network before this one, whose helper was killed: their pods start again with what they had.
        others = {peer.address for peer in self.directory.peers.values()}
        kept = self._kept.get(who, "")
        if kept and kept not in self._used and kept not in others:
            self._used[kept] = who
            return kept
        for _ in range(_HIGHEST):
            self._next = self._next + 1 if self._next < _HIGHEST else 2
            address = f"10.244.{self._next >> 8}.{self._next & 255}"
            if address not in self._used and address not in others:
                self._kept.pop(who, None)
                self._used[address], self._kept[who] = who, address
                if len(self._kept) > _MOST_KEPT:
                    del self._kept[next(iter(self._kept))]
                return address
        raise OSError("no free address for a pod in 10.244.0.0/16")

    def release(self, pod: Json, address: str) -> None:
        self._used.pop(address, None)

    def variables(self, pod: Json) -> dict[str, str]:
        ours = ["localhost", "127.0.0.1", str(PODS), *map(str, self._ranges), ".svc", f".{DOMAIN}"]
        annotations = (pod.get("metadata") or {}).get("annotations") or {}
        near = {hostname_of(pod), *spread(str(annotations.get(HOSTS) or ""))}
        for key, service in self.directory.services.items():
            if key.namespace == namespace_of(pod):
                near.add(key.name)
            if address := cluster_ip(service):
                near |= {address, f"{key.name}.{key.namespace}"}  # most programs know no networks in no_proxy
        found: dict[str, str] = {}
        if self.apiserver:
            near |= {self.outside.kubernetes[0], "kubernetes.default"}
            found |= api_variables(*self.outside.kubernetes)
        around = ",".join([*ours, *sorted(near)])
        gate = f"http://{GATEWAY}:{PROXY_PORT}"
        # gRPC believes in http_proxy too, and its no_proxy knows no networks; an empty variable of its own ends that.
        found["grpc_proxy"] = ""
        for name, value in (("http_proxy", gate), ("https_proxy", gate), ("no_proxy", around)):
            found[name] = found[name.upper()] = value
        return found

    def files(self, pod: Json, address: str, folder: Path) -> list[Mount]:
        folder.mkdir(parents=True, exist_ok=True)
        spec = pod.get("spec") or {}
        host, subdomain = hostname_of(pod), str(spec.get("subdomain") or "")
        names = f"{host}.{subdomain}.{namespace_of(pod)}.svc.{DOMAIN} {host}" if subdomain else host
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback", f"{address} {names}"]
        for alias in spec.get("hostAliases") or []:
            lines.append(" ".join([str(alias.get("ip")), *map(str, alias.get("hostnames") or [])]))
        texts = {"hosts": "\n".join(lines), "hostname": host, "resolv.conf": resolv_conf(spec, namespace_of(pod))}
        for name, text in texts.items():
            (folder / name).write_text(f"{text}\n")
        return [Mount(str(folder / name), f"/etc/{name}", ours=True) for name in texts]

    def rewrite(self, pod: Json) -> Rewrite:
        return str

    async def dial(self, pod: str, address: str, port: int) -> Streams:
        sock = await self.sandbox.socket()
        try:
            await asyncio.get_running_loop().sock_connect(sock, (address, port))
            return await asyncio.open_connection(sock=sock)
        except OSError:
            sock.close()
            raise

    async def reach(self, service: Key, port: int) -> int:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            known = ports_of(self.directory.services.get(service) or {})
            one = next((one for one in known if one.number == port), Port(port, str(port)))
            await forward(reader, writer, lambda: self._backend(service, one))

        server = self._reached.get((service, port))
        if server is None:
            server = self._reached[service, port] = await asyncio.start_server(serve, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    async def services_changed(self) -> None:
        """Listen where Services are, and nowhere else."""
        async with self._adapting:
            wanted = {
                (address, port): key
                for key, service in self.directory.services.items()
                if (address := cluster_ip(service)) and not (self.apiserver and key == KUBERNETES)
                for port in ports_of(service)
                if port.protocol == "TCP"
            }
            if self.apiserver:  # from the beginning, whenever its Service is heard of
                address, number = self.outside.kubernetes
                wanted[address, Port(number, "")] = KUBERNETES
            for place in [place for place, (key, _) in self._forwarders.items() if wanted.get(place) != key]:
                self._forwarders.pop(place)[1].close()
            gone = self._seen - self.directory.services.keys()
            self._seen = set(self.directory.services)
            for reached in [reached for reached in self._reached if reached[0] in gone]:
                self._reached.pop(reached).close()
            for place, key in wanted.items():
                if place not in self._forwarders:
                    await self.contained(key, self._listen(key, *place))

    async def _listen(self, key: Key, address: str, port: Port) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await forward(reader, writer, lambda: self._backend(key, port))

        try:
            if not any(ipaddress.ip_address(address) in one for one in self._ranges):
                await self.sandbox.own(f"{address}/32")
            sock = await self.sandbox.listen(address, port.number)
        except Failed as failed:
            self.say(f"service {key}: cannot serve {address}:{port.number}: {failed.message}")
            return
        self._forwarders[address, port] = key, await asyncio.start_server(serve, sock=sock)

    async def _backend(self, key: Key, port: Port) -> Streams | None:
        if key == KUBERNETES and self.apiserver:
            return await asyncio.open_connection(*self.apiserver)
        service = self.directory.services.get(key)
        backends = self.directory.backends(service, port) if service else []
        if not backends:
            return None
        self._turn += 1
        peer, number = backends[self._turn % len(backends)]
        return await self.dial(f"{peer.namespace}/{peer.hostname}", peer.address, number)


def cluster_searches(namespace: str) -> list[str]:
    return [f"{namespace}.svc.{DOMAIN}", f"svc.{DOMAIN}", DOMAIN]


def resolv_conf(spec: Json, namespace: str) -> str:
    """As the kubelet writes it for dnsPolicy ClusterFirst (or None), with the pod's dnsConfig added."""
    config = spec.get("dnsConfig") or {}
    own = spec.get("dnsPolicy") == "None"
    servers = [*([] if own else [GATEWAY]), *map(str, config.get("nameservers") or [])]
    searches = [] if own else cluster_searches(namespace)
    searches += [one for one in map(str, config.get("searches") or []) if one not in searches]
    options = {} if own else {"ndots": "5"}
    for one in config.get("options") or []:
        options[str(one.get("name"))] = str(one.get("value") or "")
    lines = [f"nameserver {server}" for server in servers]
    lines += [f"search {' '.join(searches)}"] if searches else []
    words = [f"{name}:{value}" if value else name for name, value in options.items()]
    lines += [f"options {' '.join(words)}"] if words else []
    return "\n".join(lines)
