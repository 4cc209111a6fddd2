"""The two networks of the pods behind one door.

*namespace*: every pod has a network of its own on a bridge; names come from a resolver, Service addresses and the
outside world are served by the runner through sockets that the hub opened.
*shared*: all pods on this machine's network, each pod's `name:port` with a port of its own; a NAT by text.

Rule: the node asks only `Network`; what differs between the two is in namespaced.py and shared.py."""

from __future__ import annotations

import abc
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from trainyard.node.names import Directory
from trainyard.node.sandbox import Mount, Sandbox
from trainyard.node.streams import Streams
from trainyard.objects import Json, Key

log = logging.getLogger(__name__)

Rewrite = Callable[[str], str]
KUBERNETES = Key("default", "kubernetes")  # the Service that is the API server itself


class Outside(msgspec.Struct, frozen=True):
    """What a network is told of the cluster around it. `apiserver`: where this machine finds the API server that pods
    are to use, with TLS; `kubernetes`: the address and port of its Service; `services`: the ranges of Services."""

    apiserver: tuple[str, int] | None = None
    kubernetes: tuple[str, int] = ("10.96.0.1", 443)
    services: tuple[str, ...] = ("10.96.0.0/12",)  # those that most clusters have, and our own


class Network(abc.ABC):
    """What a pod needs of a network, in the order in which it is asked."""

    name: str
    alone: bool  # every pod has namespaces of its own
    host_ip: str

    def __init__(
        self,
        sandbox: Sandbox,
        directory: Directory,
        say: Callable[[str], object],
        outside: Outside | None = None,
    ) -> None:
        self.sandbox, self.directory, self.say = sandbox, directory, say
        self.outside = outside or Outside()
        self.apiserver = self.outside.apiserver

    @abc.abstractmethod
    async def start(self) -> None:
        """Begin to serve names and Services. Raises OSError or SandboxError when it cannot."""

    @abc.abstractmethod
    async def stop(self) -> None: ...

    @abc.abstractmethod
    def allot(self, pod: Json) -> str:
        """An address for a new pod."""

    @abc.abstractmethod
    def release(self, pod: Json, address: str) -> None: ...

    @abc.abstractmethod
    def variables(self, pod: Json) -> dict[str, str]:
        """Variables that every container gets unless the pod sets them."""

    @abc.abstractmethod
    def files(self, pod: Json, address: str, folder: Path) -> list[Mount]:
        """Files such as /etc/hosts, made in `folder`, to be seen by every container of the pod."""

    @abc.abstractmethod
    def rewrite(self, pod: Json) -> Rewrite:
        """What is done to texts that may name other pods: values, arguments, ConfigMaps."""

    @abc.abstractmethod
    async def services_changed(self) -> None:
        """The directory has other services than before."""

    @abc.abstractmethod
    async def reach(self, service: Key, port: int) -> int:
        """A port of this machine's loopback that leads to that port of the Service, for a person's browser."""

    @abc.abstractmethod
    async def dial(self, pod: str, address: str, port: int) -> Streams:
        """A connection to a port of that pod (its namespace/hostname and address)."""

    async def contained(self, service: Key, work: Awaitable[None]) -> None:
        """What is done for one Service: its exceptions are said, and the others are served all the same."""
        try:
            await work
        except Exception as error:
            log.exception("a Service cannot be served service=%s", service)
            self.say(f"service {service}: cannot be served: {error}")


def api_variables(host: str, port: int) -> dict[str, str]:
    """Where in-cluster clients look for the API server."""
    place = f"tcp://{host}:{port}"
    return {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": str(port),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(port),
        "KUBERNETES_PORT": place,
        f"KUBERNETES_PORT_{port}_TCP": place,
        f"KUBERNETES_PORT_{port}_TCP_PROTO": "tcp",
        f"KUBERNETES_PORT_{port}_TCP_PORT": str(port),
        f"KUBERNETES_PORT_{port}_TCP_ADDR": host,
    }
