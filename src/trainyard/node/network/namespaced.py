"""The network *namespace*: DNS, Services and access to the outside world for pods with network namespaces.

The network namespace of the supervisor has the bridge (10.244.0.1) and a local route for all addresses that Services
may have. The node process listens on these addresses through sockets that the supervisor opens there: a DNS resolver,
an HTTP proxy, and one forwarder per port of a Service."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import cast

from trainyard.node.network import dns
from trainyard.node.network.directory import DOMAIN, Directory, Port, cluster_ip, hostname_of, own_hostname_of, ports_of
from trainyard.node.network.pod_network import KUBERNETES, ClusterNetwork, Network, Rewrite
from trainyard.node.network.proxy import Streams, forward, proxy
from trainyard.node.sandbox.supervisor_client import Mount, Sandbox, StartError
from trainyard.objects import Json, NamespacedName, namespace_of
from trainyard.objects.labels import HOSTS, expand_hosts

GATEWAY = "10.244.0.1"
PROXY_PORT = 3128
POD_CIDR = ipaddress.ip_network("10.244.0.0/16")
_MAX_REMEMBERED_ADDRESSES = 4096  # pods whose addresses are remembered after they have ended
_LAST_HOST = 65534  # host numbers in 10.244.0.0/16 for pods: 2 to this


class _Resolver(asyncio.DatagramProtocol):
    def __init__(self, lookup: dns.Lookup) -> None:
        self._lookup = lookup
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not isinstance: before Python 3.12 asyncio's own datagram transport is not a DatagramTransport.
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        reply = dns.answer(data, self._lookup, dns.UDP_LIMIT)
        if reply and self._transport:
            self._transport.sendto(reply, addr)


class NamespaceNetwork(Network):
    """Each pod has a network namespace with an address of its own on a bridge."""

    name = "namespace"
    isolated_network = True
    host_ip = GATEWAY

    def __init__(
        self,
        sandbox: Sandbox,
        directory: Directory,
        say: Callable[[str], object],
        outside: ClusterNetwork | None = None,
    ) -> None:
        super().__init__(sandbox, directory, say, outside)
        self._servers: list[asyncio.Server] = []
        self._resolver: asyncio.BaseTransport | None = None
        self._forwarders: dict[tuple[str, Port], tuple[NamespacedName, asyncio.Server]] = {}
        self._services_lock = asyncio.Lock()
        self._used: dict[str, str] = {}  # address -> namespace/hostname of its pod
        self._last_addresses: dict[str, str] = {}  # namespace/hostname -> its last address, for the newest pods
        self._browser_servers: dict[
            tuple[NamespacedName, int], asyncio.Server
        ] = {}  # listeners on loopback for browsers of this machine
        # Services at the last sync: the listeners of deleted ones are closed.
        self._known_services: set[NamespacedName] = set()
        self._next_host = 1
        self._round_robin = 0
        # A local route for a range that overlaps the pod network would capture the pods' addresses. The addresses of
        # Services in such a range are routed one by one.
        ranges = [
            network for network in map(ipaddress.ip_network, self.cluster_network.services) if network.version == 4
        ]
        self._ranges = [network for network in ranges if not network.overlaps(POD_CIDR)]

    async def start(self) -> None:
        """Add the routes of the pod networks, and serve DNS and the proxy at the gateway address."""
        loop = asyncio.get_running_loop()
        for network in self._ranges:
            await self.sandbox.add_local_route(str(network))
        udp = await self.sandbox.listen(GATEWAY, 53, udp=True)
        self._resolver, _ = await loop.create_datagram_endpoint(lambda: _Resolver(self.directory.lookup), sock=udp)
        for port, serve in ((53, self._serve_dns), (PROXY_PORT, self._serve_proxy)):
            sock = await self.sandbox.listen(GATEWAY, port)
            self._servers.append(await asyncio.start_server(serve, sock=sock))
        await self.services_changed()

    async def stop(self) -> None:
        """Close all listening sockets."""
        if self._resolver:
            self._resolver.close()
        forwarders = (server for _, server in self._forwarders.values())
        for server in (*self._servers, *self._browser_servers.values(), *forwarders):
            server.close()
        self._forwarders.clear()

    async def _serve_dns(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve DNS over TCP: each message has its length before it, two bytes."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while size := int.from_bytes(await reader.readexactly(2)):
                reply = dns.answer(await reader.readexactly(size), self.directory.lookup)
                if reply is None:
                    break
                writer.write(len(reply).to_bytes(2) + reply)
                await writer.drain()
        writer.close()

    async def _serve_proxy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peername = writer.get_extra_info("peername")
        client = next(
            (peer for peer in self.directory.peers.values() if peername and peer.address == peername[0]), None
        )

        async def inside(host: str, port: int) -> Streams | None:
            """Resolve as the pod's resolv.conf does: the name as it is, then with each search domain of its
            namespace."""
            if self._is_cluster_address(host):
                return await self.dial("", host, port)
            searches = ("", *(f".{domain}" for domain in _cluster_searches(client.namespace if client else "default")))
            for search in searches:
                if addresses := self.directory.lookup(host + search):
                    return await self.dial("", addresses[0], port)
            return None

        await proxy(reader, writer, inside)

    def _is_cluster_address(self, host: str) -> bool:
        """Whether `host` is the address of a pod or a Service."""
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        in_range = any(address in network for network in (POD_CIDR, *self._ranges))
        return in_range or any(cluster_ip(service) == host for service in self.directory.services.values())

    def allocate_ip(self, pod: Json) -> str:
        """A pod that is created again under the same name gets its last address again when that is free: peers that
        have cached the address keep working. Raises OSError when no address is free."""
        pod_name = f"{namespace_of(pod)}/{hostname_of(pod)}"
        # Peers from before a restart of the supervisor: their containers start again with the addresses they had.
        peer_addresses = {peer.address for peer in self.directory.peers.values()}
        last_address = self._last_addresses.get(pod_name, "")
        if last_address and last_address not in self._used and last_address not in peer_addresses:
            self._used[last_address] = pod_name
            return last_address
        for _ in range(_LAST_HOST):
            self._next_host = self._next_host + 1 if self._next_host < _LAST_HOST else 2
            address = f"10.244.{self._next_host >> 8}.{self._next_host & 255}"
            if address not in self._used and address not in peer_addresses:
                self._last_addresses.pop(pod_name, None)
                self._used[address], self._last_addresses[pod_name] = pod_name, address
                if len(self._last_addresses) > _MAX_REMEMBERED_ADDRESSES:
                    del self._last_addresses[next(iter(self._last_addresses))]
                return address
        raise OSError("no free address for a pod in 10.244.0.0/16")

    def release(self, pod: Json, address: str) -> None:
        """Make the address free for another pod."""
        self._used.pop(address, None)

    def environment(self, pod: Json) -> dict[str, str]:
        """Proxy variables of a pod."""
        direct_networks = ["localhost", "127.0.0.1", str(POD_CIDR), *map(str, self._ranges), ".svc", f".{DOMAIN}"]
        annotations = (pod.get("metadata") or {}).get("annotations") or {}
        direct_hosts = {hostname_of(pod), own_hostname_of(pod), *expand_hosts(str(annotations.get(HOSTS) or ""))}
        # With the addresses of Services: most programs do not support networks in no_proxy.
        direct_hosts |= self.directory.service_hosts(namespace_of(pod))
        env: dict[str, str] = {}
        if self.apiserver:
            direct_hosts |= {self.cluster_network.kubernetes[0], "kubernetes.default"}
        no_proxy = ",".join([*direct_networks, *sorted(direct_hosts)])
        proxy_url = f"http://{GATEWAY}:{PROXY_PORT}"
        # gRPC uses http_proxy too, and its no_proxy does not support networks; an empty grpc_proxy turns its proxy off.
        env["grpc_proxy"] = ""
        for name, value in (("http_proxy", proxy_url), ("https_proxy", proxy_url), ("no_proxy", no_proxy)):
            env[name] = env[name.upper()] = value
        return env

    def files(self, pod: Json, address: str, folder: Path) -> list[Mount]:
        """Write the pod's hosts, hostname and resolv.conf into `folder`; returns their mounts."""
        folder.mkdir(parents=True, exist_ok=True)
        spec = pod.get("spec") or {}
        host = own_hostname_of(pod)
        subdomain = "" if spec.get("hostnameOverride") else str(spec.get("subdomain") or "")
        names = f"{host}.{subdomain}.{namespace_of(pod)}.svc.{DOMAIN} {host}" if subdomain else host
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback", f"{address} {names}"]
        for alias in spec.get("hostAliases") or []:
            lines.append(" ".join([str(alias.get("ip")), *map(str, alias.get("hostnames") or [])]))
        contents = {"hosts": "\n".join(lines), "hostname": host, "resolv.conf": resolv_conf(spec, namespace_of(pod))}
        for name, text in contents.items():
            (folder / name).write_text(f"{text}\n")
        return [Mount(str(folder / name), f"/etc/{name}", pod_owned=True) for name in contents]

    def rewrite(self, pod: Json) -> Rewrite:
        """The identity: names resolve by DNS, so that addresses stay as they are written."""
        return str

    async def dial(self, pod: str, address: str, port: int) -> Streams:
        """Connect to a port of a pod from inside the pod network. Raises OSError."""
        sock = await self.sandbox.socket()
        try:
            await asyncio.get_running_loop().sock_connect(sock, (address, port))
            return await asyncio.open_connection(sock=sock)
        except BaseException:  # also when a probe has timed out
            sock.close()
            raise

    async def forward_to_service(self, service: NamespacedName, port: int) -> int:
        """A loopback port of this machine that forwards to a port of the Service; the same one for each call."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            ports = ports_of(self.directory.services.get(service) or {})
            service_port = next(
                (service_port for service_port in ports if service_port.number == port), Port(port, str(port))
            )
            await forward(reader, writer, lambda: self._dial_backend(service, service_port))

        server = self._browser_servers.get((service, port))
        if server is None:
            server = self._browser_servers[service, port] = await asyncio.start_server(serve, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    async def services_changed(self) -> None:
        """Sync the listeners: one for each TCP port of each Service with a clusterIP."""
        async with self._services_lock:
            wanted = {
                (address, port): key
                for key, service in self.directory.services.items()
                if (address := cluster_ip(service)) and not (self.apiserver and key == KUBERNETES)
                for port in ports_of(service)
                if port.protocol == "TCP"
            }
            if self.apiserver:  # always, even before the watch has delivered this Service
                address, number = self.cluster_network.kubernetes
                wanted[address, Port(number, "")] = KUBERNETES
            for endpoint in [
                endpoint for endpoint, (key, _) in self._forwarders.items() if wanted.get(endpoint) != key
            ]:
                self._forwarders.pop(endpoint)[1].close()
            deleted = self._known_services - self.directory.services.keys()
            self._known_services = set(self.directory.services)
            for target in [target for target in self._browser_servers if target[0] in deleted]:
                self._browser_servers.pop(target).close()
            for endpoint, key in wanted.items():
                if endpoint not in self._forwarders:
                    await self.isolate_errors(key, self._listen(key, *endpoint))

    async def _listen(self, key: NamespacedName, address: str, port: Port) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await forward(reader, writer, lambda: self._dial_backend(key, port))

        try:
            if not any(ipaddress.ip_address(address) in network for network in self._ranges):
                await self.sandbox.add_local_route(f"{address}/32")
            sock = await self.sandbox.listen(address, port.number)
        except StartError as failed:
            self.say(f"service {key}: cannot serve {address}:{port.number}: {failed.message}")
            return
        self._forwarders[address, port] = key, await asyncio.start_server(serve, sock=sock)

    async def _dial_backend(self, key: NamespacedName, port: Port) -> Streams | None:
        if key == KUBERNETES and self.apiserver:
            return await asyncio.open_connection(*self.apiserver)
        service = self.directory.services.get(key)
        backends = self.directory.backends(service, port) if service else []
        if not backends:
            return None
        self._round_robin += 1
        peer, number = backends[self._round_robin % len(backends)]
        return await self.dial(f"{peer.namespace}/{peer.hostname}", peer.address, number)


def _cluster_searches(namespace: str) -> list[str]:
    """The search domains of a pod with dnsPolicy ClusterFirst."""
    return [f"{namespace}.svc.{DOMAIN}", f"svc.{DOMAIN}", DOMAIN]


def resolv_conf(spec: Json, namespace: str) -> str:
    """The content of resolv.conf as the kubelet writes it for dnsPolicy ClusterFirst (or None), with the pod's
    dnsConfig added."""
    config = spec.get("dnsConfig") or {}
    without_cluster_dns = spec.get("dnsPolicy") == "None"
    servers = [*([] if without_cluster_dns else [GATEWAY]), *map(str, config.get("nameservers") or [])]
    searches = [] if without_cluster_dns else _cluster_searches(namespace)
    searches += [domain for domain in map(str, config.get("searches") or []) if domain not in searches]
    options = {} if without_cluster_dns else {"ndots": "5"}
    for option in config.get("options") or []:
        options[str(option.get("name"))] = str(option.get("value") or "")
    lines = [f"nameserver {server}" for server in servers]
    lines += [f"search {' '.join(searches)}"] if searches else []
    option_entries = [f"{name}:{value}" if value else name for name, value in options.items()]
    lines += [f"options {' '.join(option_entries)}"] if option_entries else []
    return "\n".join(lines)
