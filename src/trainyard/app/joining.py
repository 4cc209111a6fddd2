"""A node that joins a real control plane: pods that its scheduler places here run as processes of this machine.

    node = JoinedNode(JoinOptions(access=..., name="laptop", state=folder))
    await node.start(); ...; await node.stop()

Rules for this file:
- It only ties together: who we are (kubeconfig.py), the name (a Lease in kube-node-lease, as kubelets have it), the
  node, and its door for the API server.
- A name has one life at a time. Whoever holds the lease and renews it is alive; whoever held it on this machine and is
  no process any more is dead. Nothing else is believed, and clocks of different machines are not compared.
- A Node that we made goes with us: one that stays NotReady would keep its pods for ever. One that was there before is
  left as it was found, unschedulable and not ready, until we come back.
- The API server may be away: pods run on, and what they came to is written when it is back.
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
from trainyard.app.kubeconfig import Access
from trainyard.app.watchdog import Watchdog
from trainyard.client import AlreadyExists, Api, ApiError, Forbidden, NotFound, Unavailable
from trainyard.controller_runtime import TaskSupervisor
from trainyard.controller_runtime.lease import Election, LeaseIdentity, LeaseTimings, parse_lease
from trainyard.node import Images, Node, NodeError
from trainyard.node.doors import API_SERVERS, CertificateDoor, secured
from trainyard.node.names import cluster_ip, ports_of
from trainyard.node.network import Outside
from trainyard.node.registration import Member, room_for_pods
from trainyard.objects import Json
from trainyard.objects.resources import LEASE, NAMESPACE, SERVICE, SERVICE_CIDR
from trainyard.objects.values import replace
from trainyard.server import Authority

log = logging.getLogger(__name__)

LEASES = "kube-node-lease"
LEASE_SECONDS = 40.0
ANSWER_SECONDS = 5.0  # at the end nobody waits longer for an API server


class JoinOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a node joins. `state` is a private folder, gone at the end. `authority` (PEM) signs the certificates that the
    API server shows to kubelets, `callers` are their names; by default the cluster's own and what is usual. `shown` is
    the certificate and key with which the API server is answered; by default one that only we have signed."""

    access: Access
    name: str
    state: Path
    network: str = "auto"
    images: tuple[Path, ...] = ()
    cache: Path | None = None
    python: str = ""
    mounts: Mapping[str, Path] = msgspec.field(default_factory=dict)
    more: Mapping[str, str] = msgspec.field(default_factory=dict)  # resources: {"nvidia.com/gpu": "4"}
    taints: Sequence[Json] = ()
    authority: bytes = b""
    callers: Sequence[str] = API_SERVERS
    shown: tuple[Path, Path] | None = None
    lease: float = LEASE_SECONDS
    say: Callable[[str], object] = print
    now: Callable[[], float] = time.time


class JoinedNode:
    """`ousted` is set when another has taken the name, after all that ran here was ended."""

    def __init__(self, options: JoinOptions) -> None:
        self._options = options
        credentials = options.access.credentials()
        self._api = options.access.api("trainyard-node", credentials)
        self._lease = options.access.api("trainyard-node", credentials)
        duration = options.lease
        self._life = Life.new(options.name)
        self._election = Election(
            self._lease,
            LeaseIdentity(LEASES, options.name, self._life.text),
            LeaseTimings(duration, duration * 2 / 3, duration / 4, duration / 4),
        )
        self._images: Images | None = None
        self._watchdog = Watchdog()
        self._node: Node | None = None
        self.tasks = TaskSupervisor("node", options.say)
        self._ended = self._given_up = False
        self.ousted = asyncio.Event()

    @property
    def network(self) -> str:
        """The network that was chosen."""
        return self._node.network if self._node else ""

    @property
    def api(self) -> Api:
        return self._api

    def look(self) -> None:
        """Look at every pod now: for whoever has moved the clock."""
        if self._node is not None:
            self._node.resync()

    async def start(self) -> None:
        """The Node is ready when this returns. Raises NodeError, ApiError."""
        self._watchdog.start()
        try:
            await self._take_the_name()
            self.tasks.start("renew the lease", self._keep_the_name)
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
                say=options.say,
                now=options.now,
                member=await self._member(),
            )
            await self._node.start()
        except BaseException:
            await self.stop(kill=True)
            raise

    async def stop(self, kill: bool = False) -> None:
        """End every pod within its grace period (or at once), say so, and go. May be called again to kill."""
        node, stays = self._node, False
        if node is not None and not self._ended and not self.ousted.is_set():
            stays = not await node.leave(kill, ANSWER_SECONDS)
        if stays:
            self._options.say("node: the API server does not answer; it will find this node gone by its lease")
        self._ended = True
        async with contextlib.AsyncExitStack() as end:  # the last is done first, and each whatever became of the others
            end.push_async_callback(self._watchdog.stop)
            end.push_async_callback(self._lease.close)
            end.push_async_callback(self._api.close)
            if not stays and not self.ousted.is_set():
                end.push_async_callback(self._give_up_the_name)
            end.push_async_callback(self.tasks.stop)
            if self._images is not None:
                end.push_async_callback(self._images.close)
            if node is not None:
                end.push_async_callback(node.stop, True)

    # --- the name

    async def _take_the_name(self) -> None:
        """Until the lease is ours. Raises NodeError when somebody alive has it."""
        first = await self._held()
        holder = first.holder if first else ""
        if holder and Life.read(holder).dead():
            self._options.say(f"node: the one before, {holder}, was killed; its pods are looked after")
            await self._election.step()
            self._election.observed = replace(
                self._election.observed, unchanged_since=-math.inf
            )  # nobody needs to be waited for
        elif holder:
            self._options.say(f"node: {self._options.name} is held by {holder}; watching whether that one lives")
        clock, patience = asyncio.get_running_loop().time, ANSWER_SECONDS + 2 * max(self._options.lease, LEASE_SECONDS)
        began = clock()
        while not self._election.leads:
            if clock() > began + patience:
                text = f"the lease {LEASES}/{self._options.name} cannot be written"
                raise NodeError(f"{text}; let this user create and update leases there")
            pause = await self._election.step()
            record = self._election.observed.record
            if first and record and record.holder == holder and record.revision != first.revision:
                text = f"a node of the name {self._options.name} is alive: {holder} renews its lease in {LEASES}"
                raise NodeError(f"{text}; choose another name with --name, or stop that one")
            if not self._election.leads:
                await asyncio.sleep(min(pause, 1.0))

    async def _held(self) -> _Held | None:
        """Who has the lease now. Makes the namespace of leases where it is missing. Raises what says why it cannot."""
        try:
            found = parse_lease(await self._lease.get(LEASE, LEASES, self._options.name))
            return _Held(found.holder, found.revision)
        except NotFound:
            with contextlib.suppress(AlreadyExists, Forbidden):
                body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASES}}
                await self._lease.create(NAMESPACE, "", body)
            return None

    async def _keep_the_name(self) -> None:
        """Renew it. Who has lost it to another ends what runs here: that pods run twice is worse than that they end."""
        while True:
            try:
                pause = await self._election.step()
            except Exception as error:  # a lease that is not renewed in silence would be another's soon
                self._options.say(f"node: the lease {LEASES}/{self._options.name} could not be renewed: {error!r}")
                pause = self._options.lease / 4
            record = self._election.observed.record
            if not self._election.leads and record and record.holder not in ("", self._life.text):
                break
            await asyncio.sleep(pause)
        self._options.say(f"node: {record.holder} has taken the name {self._options.name}; ending")
        if self._node is not None:
            await self._node.stop(kill=True)
        self.ousted.set()
        self.tasks.cancel("renew the lease")  # that was its last: it is not started again

    async def _give_up_the_name(self) -> None:
        if self._given_up:
            return
        self._given_up = True
        with contextlib.suppress(ApiError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                if not self._election.leads:
                    await self._election.step()  # the API server was away, and another may have come meanwhile
                if not self._election.leads:
                    return
                if self._node is not None and self._node.network and await self._node.withdraw():
                    await self._lease.delete(LEASE, LEASES, self._options.name)
                else:
                    await self._election.release()

    # --- the cluster around us

    async def _member(self) -> Member:
        options = self._options
        where = urlsplit(options.access.server)
        port = where.port or (443 if where.scheme == "https" else 80)
        address, number = await self._kubernetes()
        outside = Outside(
            (where.hostname or "", port) if where.scheme == "https" and address else None,
            (address, number),
            await self._ranges(),
        )
        more = {**room_for_pods(options.state), **options.more}
        return Member(self._door(), outside, more, options.taints, comes_and_goes=True)

    async def _kubernetes(self) -> tuple[str, int]:
        """Where pods expect the API server: its own Service."""
        try:
            service = await self._api.get(SERVICE, "default", "kubernetes")
        except (NotFound, Forbidden):
            self._options.say("node: there is no Service default/kubernetes; pods here cannot reach the API server")
            return "", 0
        return cluster_ip(service), next((one.number for one in ports_of(service)), 443)

    async def _ranges(self) -> tuple[str, ...]:
        """The addresses of Services. An older server does not say (before 1.33): then each Service's own is taken."""
        try:
            listed = await self._api.list(SERVICE_CIDR)
        except Unavailable:
            raise
        except ApiError:
            return ()
        return tuple(
            str(one) for item in listed.get("items") or [] for one in (item.get("spec") or {}).get("cidrs") or []
        )

    def _door(self) -> CertificateDoor:
        options = self._options
        shown = options.shown
        if shown is None:
            made = Authority.new(time.time()).server("trainyard-node", (options.name, "localhost"), ("127.0.0.1",))
            shown = made.write(options.state / "kubelet")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(*shown)
        authority = options.authority or options.access.ca
        if not authority:
            fix = "name the authority of the API server's client certificate with --client-ca-file"
            options.say(f"node: logs and exec are refused to everybody; {fix}")
        return CertificateDoor(secured(context, authority), tuple(options.callers))


class _Held(msgspec.Struct, frozen=True):
    holder: str
    revision: str


class Life(msgspec.Struct, frozen=True):
    """One life of one node, as it is written in a lease: its name, the machine, the process, and a random word."""

    text: str
    machine: str = ""
    process: str = ""

    @staticmethod
    def new(name: str) -> Life:
        return Life.read(f"{name}_{_machine()}_{_process(os.getpid())}_{token_hex(4)}")

    @staticmethod
    def read(text: str) -> Life:
        parts = text.split("_")
        return Life(text, *parts[1:3]) if len(parts) == 4 else Life(text)

    def dead(self) -> bool:
        """True when it lived on this machine and its process is gone; False when it lives or nobody can know."""
        if not self.machine or self.machine != _machine() or not (pid := self.process.partition(".")[0]).isdecimal():
            return False
        return _process(int(pid)) != self.process


def _machine() -> str:
    """This boot of this machine, and what counts its processes; "" where that cannot be told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")[:12]
        return f"{boot}.{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _process(pid: int) -> str:
    """A process and when it started: numbers are used again. "" when there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return f"{pid}.{fields[19]}" if fields[0] != "Z" else ""


def host_name() -> str:
    """This machine's name, as a Node may be called."""
    return re.sub(r"[^a-z0-9.-]+", "-", platform.node().lower()).strip("-.") or "node"


__all__ = ["API_SERVERS", "JoinOptions", "JoinedNode", "Life", "host_name"]
