"""Cluster DNS names: the pods and Services known to the node, and the addresses of a name. Pure.

Rules:
- A pod with hostname and subdomain has a DNS name when a headless Service selects it, and the pod is ready or the
  Service has publishNotReadyAddresses.
- The name of a headless Service resolves to the addresses of its pods, that of any other Service to its clusterIP, for
  which the network has a forwarder."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trainyard.objects import Json, NamespacedName, key_of, labels_of, name_of, namespace_of, uid_of
from trainyard.objects.labels import matches_labels

DOMAIN = "cluster.local"


class Peer(msgspec.Struct, frozen=True):
    """A pod as other pods see it. `ports`: name -> number of its named container ports."""

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
    """The pod's hostname, of at most 63 characters as in the kubelet."""
    return str((pod.get("spec") or {}).get("hostname") or name_of(pod))[:63].rstrip("-.")


def own_hostname_of(pod: Json) -> str:
    """The host name that the pod's own programs see: its hostnameOverride, which no DNS name has, else its hostname."""
    return str((pod.get("spec") or {}).get("hostnameOverride") or hostname_of(pod))


def peer_of(pod: Json, address: str, ready: bool) -> Peer:
    """The entry of a pod in the directory. `address`: its pod IP."""
    spec = pod.get("spec") or {}
    ports = {
        str(port["name"]): int(port.get("containerPort") or 0)
        for container in spec.get("containers") or []
        for port in container.get("ports") or []
        if port.get("name")
    }
    subdomain = str(spec.get("subdomain") or "")
    hostname = hostname_of(pod)
    return Peer(
        uid_of(pod), namespace_of(pod), name_of(pod), hostname, subdomain, address, ready, labels_of(pod), ports
    )


class Port(msgspec.Struct, frozen=True):
    """One port of a Service. `target` is its targetPort: a number, or the name of a container port."""

    number: int
    target: str
    protocol: str = "TCP"


def cluster_ip(service: Json) -> str:
    """The Service's clusterIP, "" when it is headless or has none yet."""
    address = str((service.get("spec") or {}).get("clusterIP") or "")
    return "" if address == "None" else address


def ports_of(service: Json) -> list[Port]:
    """The ports of a Service; an unset targetPort is the port itself."""
    ports = []
    for port in (service.get("spec") or {}).get("ports") or []:
        number = int(port.get("port") or 0)
        ports.append(Port(number, str(port.get("targetPort") or number), str(port.get("protocol") or "TCP")))
    return ports


class Directory:
    """The Services and pods known now: the watches update it, networks look names up in it."""

    def __init__(self) -> None:
        self._services: dict[NamespacedName, Json] = {}
        self._service_names: dict[str, set[str]] = {}  # namespace -> names of its Services
        self._cluster_ips: dict[NamespacedName, str] = {}  # of the Services that have one
        self.peers: dict[str, Peer] = {}

    @property
    def services(self) -> Mapping[NamespacedName, Json]:
        """All known Services."""
        return self._services

    def replace_services(self, services: list[Json]) -> None:
        """Replace all known Services by these."""
        self._services, self._service_names, self._cluster_ips = {}, {}, {}
        for service in services:
            self.set_service(service)

    def set_service(self, service: Json) -> None:
        """A Service is new or has changed."""
        key = key_of(service)
        self.remove_service(key)
        self._services[key] = service
        self._service_names.setdefault(key.namespace, set()).add(key.name)
        if address := cluster_ip(service):
            self._cluster_ips[key] = address

    def remove_service(self, key: NamespacedName) -> None:
        """A Service is deleted; no error if it is unknown."""
        self._services.pop(key, None)
        self._service_names.get(key.namespace, set()).discard(key.name)
        self._cluster_ips.pop(key, None)

    def service_hosts(self, namespace: str) -> set[str]:
        """The host names and addresses of Services, as a pod of the namespace may write them without the cluster's
        domain. Called for each container: it must not look at each Service of a job with a thousand."""
        hosts = self._service_names.get(namespace, set()).copy()
        for key, address in self._cluster_ips.items():
            hosts |= {address, f"{key.name}.{key.namespace}"}
        return hosts

    def endpoints_pods(self, service: Json, unready: bool = False) -> list[Peer]:
        """The pods that a Service selects: ready ones only, unless `unready` or its publishNotReadyAddresses is set."""
        spec = service.get("spec") or {}
        selector = spec.get("selector") or {}
        unready = unready or bool(spec.get("publishNotReadyAddresses"))
        selected = [
            peer
            for peer in self.peers.values()
            if peer.namespace == namespace_of(service)
            and peer.address
            and (peer.ready or unready)
            and matches_labels(selector, peer.labels)
        ]
        return sorted(selected, key=lambda peer: peer.name)

    def backends(self, service: Json, port: Port) -> list[tuple[Peer, int]]:
        """The endpoints of that port of the Service: pod and port number."""
        endpoints = []
        for peer in self.endpoints_pods(service):
            number = int(port.target) if port.target.isdecimal() else peer.ports.get(port.target, 0)
            if number:
                endpoints.append((peer, number))
        return endpoints

    def lookup(self, name: str) -> list[str] | None:
        """The IPv4 addresses of a fully qualified name; None when the name does not exist."""
        name = name.rstrip(".").lower()
        suffix = f".svc.{DOMAIN}"
        if not name.endswith(suffix):
            return None
        labels = name.removesuffix(suffix).split(".")
        if len(labels) not in (2, 3):
            return None
        service = self.services.get(NamespacedName(labels[-1], labels[-2]))
        if service is None:
            return None
        if len(labels) == 2:
            address = cluster_ip(service)
            return [address] if address else [peer.address for peer in self.endpoints_pods(service)]
        addresses = [
            peer.address
            for peer in self.endpoints_pods(service)
            if peer.hostname == labels[0] and peer.subdomain == labels[1]
        ]
        return addresses or None
