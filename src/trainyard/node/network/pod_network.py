"""The common interface of the two pod networks.

*namespace*: every pod has a network namespace on a bridge; the node process serves DNS, Services and access to the
outside through sockets that the supervisor opens.
*shared*: all pods use this machine's network; each `name:port` has a port of its own, and texts are rewritten to it.

Rule: the node uses only `Network`; the differences between the two are in namespaced.py and shared.py."""

from __future__ import annotations

import abc
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from trainyard.node.network.directory import Directory
from trainyard.node.network.proxy import Streams
from trainyard.node.sandbox.supervisor_client import Mount, Sandbox
from trainyard.objects import Json, NamespacedName

log = logging.getLogger(__name__)

Rewrite = Callable[[str], str]
KUBERNETES = NamespacedName("default", "kubernetes")  # the Service that is the API server itself


class ClusterNetwork(msgspec.Struct, frozen=True):
    """The cluster that the node belongs to. `apiserver`: host and port of the API server for pods, with TLS, as seen
    from this machine; `kubernetes`: address and port of its Service; `services`: the CIDR ranges of Service
    addresses."""

    apiserver: tuple[str, int] | None = None
    kubernetes: tuple[str, int] = ("10.96.0.1", 443)
    services: tuple[str, ...] = ("10.96.0.0/12",)  # the default of most clusters and of the embedded one


class Network(abc.ABC):
    """The network of the pods; the methods are in the order of their use for a pod."""

    name: str
    isolated_network: bool  # every pod has its own namespaces
    host_ip: str

    def __init__(
        self,
        sandbox: Sandbox,
        directory: Directory,
        say: Callable[[str], object],
        outside: ClusterNetwork | None = None,
    ) -> None:
        self.sandbox, self.directory, self.say = sandbox, directory, say
        self.cluster_network = outside or ClusterNetwork()
        self.apiserver = self.cluster_network.apiserver

    @abc.abstractmethod
    async def start(self) -> None:
        """Start to serve names and Services. Raises OSError, SandboxError."""

    @abc.abstractmethod
    async def stop(self) -> None:
        """Close all sockets."""

    @abc.abstractmethod
    def allocate_ip(self, pod: Json) -> str:
        """Allocate the address of a new pod. Raises OSError when none is free."""

    @abc.abstractmethod
    def release(self, pod: Json, address: str) -> None:
        """The pod has ended: free its address and ports."""

    @abc.abstractmethod
    def environment(self, pod: Json) -> dict[str, str]:
        """Environment variables that every container gets unless the pod sets them."""

    def api_environment(self) -> dict[str, str]:
        """The variables in which in-cluster clients look for the API server; {} when pods cannot reach it."""
        place = self.cluster_network.kubernetes if self.isolated_network else self.apiserver
        return _api_variables(*place) if self.apiserver and place else {}

    @abc.abstractmethod
    def files(self, pod: Json, address: str, folder: Path) -> list[Mount]:
        """Create files such as /etc/hosts in `folder`; returns their mounts for every container of the pod."""

    @abc.abstractmethod
    def rewrite(self, pod: Json) -> Rewrite:
        """The rewrite of texts that may name other pods: values of variables, arguments, ConfigMaps."""

    @abc.abstractmethod
    async def services_changed(self) -> None:
        """Sync the forwarders: the Services in the directory have changed."""

    @abc.abstractmethod
    async def forward_to_service(self, service: NamespacedName, port: int) -> int:
        """A port on loopback that forwards to that port of the Service, for a browser of this machine."""

    def endpoint(self, pod: str, address: str, port: int) -> tuple[str, int]:
        """Where a port of a pod is reached: address and port. `pod` is its namespace/hostname."""
        return address, port

    @abc.abstractmethod
    async def dial(self, pod: str, address: str, port: int) -> Streams:
        """Connect to a port of a pod; `pod` is its namespace/hostname. Raises OSError."""

    async def isolate_errors(self, service: NamespacedName, work: Awaitable[None]) -> None:
        """Await work for one Service: an exception is printed, and the other Services are served all the same."""
        try:
            await work
        except Exception as error:
            log.exception("a Service cannot be programmed service=%s", service)
            self.say(f"service {service}: cannot be programmed: {error}")


def _api_variables(host: str, port: int) -> dict[str, str]:
    """The environment variables in which in-cluster clients look for the API server."""
    url = f"tcp://{host}:{port}"
    return {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": str(port),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(port),
        "KUBERNETES_PORT": url,
        f"KUBERNETES_PORT_{port}_TCP": url,
        f"KUBERNETES_PORT_{port}_TCP_PROTO": "tcp",
        f"KUBERNETES_PORT_{port}_TCP_PORT": str(port),
        f"KUBERNETES_PORT_{port}_TCP_ADDR": host,
    }
