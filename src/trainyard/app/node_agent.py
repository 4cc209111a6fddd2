"""A node that joins a real control plane: pods that its scheduler binds to this node run as processes of this machine.

    node = JoinedNode(JoinOptions(access=..., name="laptop", state=folder))
    await node.start(); ...; await node.stop()

Rules for this file:
- It only connects: credentials (kubeconfig.py), the node name (a Lease in kube-node-lease, as of kubelets), the node,
  and its kubelet endpoint for the API server.
- At most one process runs a node of a name. The holder of the lease is alive while it renews the lease; it is dead if
  it ran on this machine and its process has ended. There is no other evidence; clocks of different machines are not
  compared.
- A Node object that this node created is deleted with it: a NotReady Node would keep its pods for ever. A Node object
  that existed before is left, unschedulable and not ready, until this node comes back.
- The API server may be unreachable: pods run on, and their results are written when it is reachable again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import platform
import re
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from urllib.parse import urlsplit

import msgspec

from trainyard.app.catalogues import cache_folder, catalogues
from trainyard.app.kubeconfig import ClusterAccess
from trainyard.app.logging_setup import limit_accept_errors
from trainyard.app.watchdog import Watchdog
from trainyard.client import AlreadyExists, ApiClient, ApiError, Forbidden, NotFound, Unavailable
from trainyard.controller_runtime import TaskSupervisor
from trainyard.controller_runtime.leader_election import LeaderElector
from trainyard.controller_runtime.lease import LeaseIdentity, LeaseTimings, parse_lease
from trainyard.node.images import Images
from trainyard.node.kubelet.api.authentication import API_SERVERS, CertificateAuthenticator, with_client_ca
from trainyard.node.kubelet.node import Node, NodeError
from trainyard.node.kubelet.registration import NodeConfig, ephemeral_storage
from trainyard.node.network.directory import cluster_ip, ports_of
from trainyard.node.network.pod_network import ClusterNetwork
from trainyard.objects import Json
from trainyard.objects.resources import LEASE, NAMESPACE, SERVICE, SERVICE_CIDR
from trainyard.objects.structs import replace
from trainyard.server import CertificateAuthority

log = logging.getLogger(__name__)

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40.0
ANSWER_SECONDS = 5.0  # the longest wait for the API server while stopping


class JoinOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a joined node. `state` is a private folder, removed at the end. `client_ca` (PEM) signs the client
    certificates of the API server, `client_names` are the names in them; by default the cluster's CA and the usual
    names. `serving_certificate` is the certificate and key of the kubelet endpoint; by default one that this node
    signs itself."""

    access: ClusterAccess
    name: str
    state: Path
    network: str = "auto"
    images: tuple[Path, ...] = ()
    cache: Path | None = None
    python: str = ""
    mounts: Mapping[str, Path] = msgspec.field(default_factory=dict)
    extra_resources: Mapping[str, str] = msgspec.field(default_factory=dict)  # resources: {"nvidia.com/gpu": "4"}
    taints: Sequence[Json] = ()
    client_ca: bytes = b""
    client_names: Sequence[str] = API_SERVERS
    serving_certificate: tuple[Path, Path] | None = None
    lease_seconds: float = LEASE_SECONDS
    say: Callable[[str], object] = print
    now: Callable[[], float] = time.time


class JoinedNode:
    """`lease_taken` is set when another process has taken the node name, after all pods here were ended."""

    def __init__(self, options: JoinOptions) -> None:
        self._options = options
        credentials = options.access.credentials()
        self._api = options.access.api("trainyard-node", credentials)
        self._lease_api = options.access.api("trainyard-node", credentials)
        duration = options.lease_seconds
        self._life = HolderIdentity.new(options.name)
        self._election = LeaderElector(
            self._lease_api,
            LeaseIdentity(LEASE_NAMESPACE, options.name, self._life.text),
            LeaseTimings(duration, duration * 2 / 3, duration / 4, duration / 4),
        )
        self._images: Images | None = None
        self._watchdog = Watchdog()
        self._node: Node | None = None
        self.tasks = TaskSupervisor("node", options.say)
        self._ended = self._lease_released = False
        self.lease_taken = asyncio.Event()

    @property
    def network(self) -> str:
        """The network that was chosen; "" before the start."""
        return self._node.network if self._node else ""

    @property
    def api(self) -> ApiClient:
        """The client with the node's own credentials."""
        return self._api

    def resync(self) -> None:
        """Process every pod now: for callers that have moved the clock."""
        if self._node is not None:
            self._node.resync()

    async def start(self) -> None:
        """The Node is Ready when this returns. Raises NodeError, ApiError."""
        limit_accept_errors()
        self._watchdog.start()
        try:
            await self._acquire_lease()
            self.tasks.start("renew the lease", self._renew_lease)
            options = self._options
            options.state.mkdir(parents=True, exist_ok=True, mode=0o700)
            cache = options.cache or cache_folder()
            self._images = Images(catalogues(options.images), cache, options.say, python=options.python)
            self._node = Node(
                self._api,
                options.state,
                self._images,
                network=options.network,
                name=options.name,
                mounts=options.mounts,
                print_message=options.say,
                now=options.now,
                member=await self._member(),
            )
            await self._node.start()
        except BaseException:
            await self.stop(kill=True)
            raise

    async def stop(self, kill: bool = False) -> None:
        """End every pod within its grace period (or at once), write their status, and leave the cluster. Can be called
        again, with `kill`."""
        node, unreachable = self._node, False
        if node is not None and not self._ended and not self.lease_taken.is_set():
            unreachable = not await node.drain(kill, ANSWER_SECONDS)
        if unreachable:
            self._options.say("node: the API server does not respond; this node's lease will expire")
        self._ended = True
        # The stack calls in reverse order; an error of one callback does not skip the other ones.
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._watchdog.stop)
            stack.push_async_callback(self._lease_api.close)
            stack.push_async_callback(self._api.close)
            if not unreachable and not self.lease_taken.is_set():
                stack.push_async_callback(self._release_lease)
            stack.push_async_callback(self.tasks.stop)
            if self._images is not None:
                stack.push_async_callback(self._images.close)
            if node is not None:
                stack.push_async_callback(node.stop, True)

    # --- the lease of the node name

    async def _acquire_lease(self) -> None:
        """Wait until this process holds the lease. Raises NodeError when a live process holds it, or when it cannot be
        written; ApiError."""
        initial = await self._current_holder()
        holder = initial.holder if initial else ""
        if holder and HolderIdentity.parse(holder).has_ended():
            self._options.say(
                f"node: the previous holder of the lease, {holder}, was killed; this node takes over its pods"
            )
            await self._election.step()
            # The holder is dead: its lease counts as expired.
            self._election.observed = replace(self._election.observed, unchanged_since=-math.inf)
        elif holder:
            self._options.say(
                f"node: {self._options.name} is held by {holder}; waiting to see whether it renews its lease"
            )
        clock, timeout = (
            asyncio.get_running_loop().time,
            ANSWER_SECONDS + 2 * max(self._options.lease_seconds, LEASE_SECONDS),
        )
        start = clock()
        while not self._election.leads:
            if clock() > start + timeout:
                text = f"the lease {LEASE_NAMESPACE}/{self._options.name} cannot be written"
                raise NodeError(f"{text}; let this user create and update leases there")
            pause = await self._election.step()
            record = self._election.observed.record
            if initial and record and record.holder == holder and record.revision != initial.revision:
                text = f"another node {self._options.name} is running: {holder} renews its lease in {LEASE_NAMESPACE}"
                raise NodeError(f"{text}; choose another name with --name, or stop that node")
            if not self._election.leads:
                await asyncio.sleep(min(pause, 1.0))

    async def _current_holder(self) -> _LeaseHolder | None:
        """The holder of the lease, None without a lease. Creates the namespace of leases when it is missing. Raises
        ApiError."""
        try:
            record = parse_lease(await self._lease_api.get(LEASE, LEASE_NAMESPACE, self._options.name))
            return _LeaseHolder(record.holder, record.revision)
        except NotFound:
            with contextlib.suppress(AlreadyExists, Forbidden):
                body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}
                await self._lease_api.create(NAMESPACE, "", body)
            return None

    async def _renew_lease(self) -> None:
        """Renew the lease. When another process has taken it, end all pods here: a pod that runs twice is worse than
        one that ends."""
        while True:
            try:
                pause = await self._election.step()
            except Exception as error:  # reported: a lease that is no longer renewed is soon taken by another process
                self._options.say(
                    f"node: the lease {LEASE_NAMESPACE}/{self._options.name} could not be renewed: {error!r}"
                )
                pause = self._options.lease_seconds / 4
            record = self._election.observed.record
            if not self._election.leads and record and record.holder not in ("", self._life.text):
                break
            await asyncio.sleep(pause)
        self._options.say(f"node: {record.holder} has taken the name {self._options.name}; stopping")
        if self._node is not None:
            await self._node.stop(kill=True)
        self.lease_taken.set()
        self.tasks.cancel("renew the lease")  # so that the supervisor does not start this task again

    async def _release_lease(self) -> None:
        """Delete the lease together with a Node object of this node, else release it. At most once."""
        if self._lease_released:
            return
        self._lease_released = True
        with contextlib.suppress(ApiError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                if not self._election.leads:
                    # The API server was unreachable: another process may hold the lease by now.
                    await self._election.step()
                if not self._election.leads:
                    return
                if self._node is not None and self._node.network and await self._node.deregister():
                    await self._lease_api.delete(LEASE, LEASE_NAMESPACE, self._options.name)
                else:
                    await self._election.release()

    # --- the cluster

    async def _member(self) -> NodeConfig:
        """How the node registers in the cluster."""
        options = self._options
        server = urlsplit(options.access.server)
        port = server.port or (443 if server.scheme == "https" else 80)
        service_ip, service_port = await self._kubernetes_service()
        outside = ClusterNetwork(
            (server.hostname or "", port) if server.scheme == "https" and service_ip else None,
            (service_ip, service_port),
            await self._service_cidrs(),
        )
        more = {**ephemeral_storage(options.state), **options.extra_resources}
        return NodeConfig(self._kubelet_endpoint(), outside, more, options.taints, joined=True)

    async def _kubernetes_service(self) -> tuple[str, int]:
        """The cluster IP and port of the Service default/kubernetes, by which pods reach the API server; ("", 0)
        without one."""
        try:
            service = await self._api.get(SERVICE, "default", "kubernetes")
        except (NotFound, Forbidden):
            self._options.say("node: there is no Service default/kubernetes; pods here cannot reach the API server")
            return "", 0
        return cluster_ip(service), next((port.number for port in ports_of(service)), 443)

    async def _service_cidrs(self) -> tuple[str, ...]:
        """The address ranges of Services, from the ServiceCIDRs (Kubernetes 1.33 or later); () without them: then the
        cluster IP of each Service is used."""
        try:
            listed = await self._api.list(SERVICE_CIDR)
        except Unavailable:
            raise
        except ApiError:
            return ()
        return tuple(
            str(cidr) for item in listed.get("items") or [] for cidr in (item.get("spec") or {}).get("cidrs") or []
        )

    def _kubelet_endpoint(self) -> CertificateAuthenticator:
        """The TLS endpoint for logs and exec; it accepts clients with a certificate of the authority and a name in
        `client_names`."""
        options = self._options
        serving = options.serving_certificate
        if serving is None:
            certificate = CertificateAuthority.new(time.time()).server_certificate(
                "trainyard-node", (options.name, "localhost"), ("127.0.0.1",)
            )
            serving = certificate.write(options.state / "kubelet")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(*serving)
        authority = options.client_ca or options.access.ca
        if not authority:
            fix = "name the CA of the API server's client certificate with --client-ca-file"
            options.say(f"node: all requests for logs and exec are refused; {fix}")
        return CertificateAuthenticator(with_client_ca(context, authority), tuple(options.client_names))


class _LeaseHolder(msgspec.Struct, frozen=True):
    holder: str
    revision: str


class HolderIdentity(msgspec.Struct, frozen=True):
    """The holder identity of one process of one node, as written in a lease: node name, machine, process, and a random
    suffix."""

    text: str
    machine: str = ""
    process: str = ""

    @staticmethod
    def new(name: str) -> HolderIdentity:
        """The identity of this process; a new one for each call."""
        return HolderIdentity.parse(f"{name}_{_machine_id()}_{_process_id(os.getpid())}_{token_hex(4)}")

    @staticmethod
    def parse(text: str) -> HolderIdentity:
        """From `holderIdentity` of a Lease. Machine and process are "" in a text that another program wrote."""
        parts = text.split("_")
        return HolderIdentity(text, *parts[1:3]) if len(parts) == 4 else HolderIdentity(text)

    def has_ended(self) -> bool:
        """True when the process ran on this machine and has ended; False when it runs, or when that is unknown."""
        if not self.machine or self.machine != _machine_id() or not (pid := self.process.partition(".")[0]).isdecimal():
            return False
        return _process_id(int(pid)) != self.process


def _machine_id() -> str:
    """The boot id of this machine and its PID namespace; "" where they are unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")[:12]
        return f"{boot}.{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _process_id(pid: int) -> str:
    """The process id with the start time of the process, since ids are reused; "" when the process does not exist or is
    a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return f"{pid}.{fields[19]}" if fields[0] != "Z" else ""


def host_name() -> str:
    """This machine's host name, as a valid name of a Node."""
    return re.sub(r"[^a-z0-9.-]+", "-", platform.node().lower()).strip("-.") or "node"


__all__ = ["API_SERVERS", "HolderIdentity", "JoinOptions", "JoinedNode", "host_name"]
