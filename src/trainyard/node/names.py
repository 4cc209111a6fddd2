"""Who is called what in the cluster: the pods and services the node knows, and the addresses behind a name. Pure.

Rules:
- A pod with hostname and subdomain has a name once the headless Service exists that selects it, and the pod is ready or
  the Service publishes addresses that are not.
- A headless Service is the addresses of its pods; any other is its own address, forwarded by whoever serves it."""

from __future__ import annotations

import msgspec

from trainyard.objects import Json, Key, key_of, labels_of, name_of, namespace_of, uid_of
from trainyard.objects.labels import matches

DOMAIN = "cluster.local"


class Peer(msgspec.Struct, frozen=True):
    """A pod as its neighbours see it. `ports` are its named container ports."""

    uid: str
    namespace: str
    name: str
    hostname: str
    subdomain: str
    address: str
    ready: bool
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    ports: dict[str, int] = msgspec.field(default_factory=dict)


def hostname_of(pod: Json) -> str:
    return str((pod.get("spec") or {}).get("hostname") or name_of(pod))[:63].rstrip("-.")


def peer_of(pod: Json, address: str, ready: bool) -> Peer:
    spec = pod.get("spec") or {}
    ports = {
        str(port["name"]): int(port.get("containerPort") or 0)
        for one in spec.get("containers") or []
        for port in one.get("ports") or []
        if port.get("name")
    }
    subdomain = str(spec.get("subdomain") or "")
    hostname = hostname_of(pod)
    return Peer(
        uid_of(pod), namespace_of(pod), name_of(pod), hostname, subdomain, address, ready, labels_of(pod), ports
    )


class Port(msgspec.Struct, frozen=True):
    """One port of a Service, and what it leads to: a number, or the name of a container port."""

    number: int
    target: str
    protocol: str = "TCP"


def cluster_ip(service: Json) -> str:
    """The Service's own address, "" when it is headless or has none yet."""
    address = str((service.get("spec") or {}).get("clusterIP") or "")
    return "" if address == "None" else address


def ports_of(service: Json) -> list[Port]:
    found = []
    for port in (service.get("spec") or {}).get("ports") or []:
        number = int(port.get("port") or 0)
        found.append(Port(number, str(port.get("targetPort") or number), str(port.get("protocol") or "TCP")))
    return found


class Directory:
    """What is known now. Objects go in as they are seen; names are asked for at any time."""

    def __init__(self) -> None:
        self.services: dict[Key, Json] = {}
        self.peers: dict[str, Peer] = {}

    def replace_services(self, services: list[Json]) -> None:
        self.services = {key_of(one): one for one in services}

    def members(self, service: Json, unready: bool = False) -> list[Peer]:
        """The pods that a Service selects, ready ones unless it publishes the others too."""
        spec = service.get("spec") or {}
        selector = spec.get("selector") or {}
        unready = unready or bool(spec.get("publishNotReadyAddresses"))
        found = [
            peer
            for peer in self.peers.values()
            if peer.namespace == namespace_of(service)
            and peer.address
            and (peer.ready or unready)
            and matches(selector, peer.labels)
        ]
        return sorted(found, key=lambda peer: peer.name)

    def backends(self, service: Json, port: Port) -> list[tuple[Peer, int]]:
        """Where a connection to that port of the Service may go."""
        found = []
        for peer in self.members(service):
            number = int(port.target) if port.target.isdecimal() else peer.ports.get(port.target, 0)
            if number:
                found.append((peer, number))
        return found

    def lookup(self, name: str) -> list[str] | None:
        """The IPv4 addresses of a fully qualified name; None when there is no such name."""
        name = name.rstrip(".").lower()
        suffix = f".svc.{DOMAIN}"
        if not name.endswith(suffix):
            return None
        labels = name.removesuffix(suffix).split(".")
        if len(labels) not in (2, 3):
            return None
        service = self.services.get(Key(labels[-1], labels[-2]))
        if service is None:
            return None
        if len(labels) == 2:
            own = cluster_ip(service)
            return [own] if own else [peer.address for peer in self.members(service)]
        found = [
            peer.address for peer in self.members(service) if peer.hostname == labels[0] and peer.subdomain == labels[1]
        ]
        return found or None
