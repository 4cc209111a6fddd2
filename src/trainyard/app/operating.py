"""The operator as a program: one process that serves one API server until it is stopped.

    await run_operator(options, stop)

Rules for this file:
- It only connects: credentials (kubeconfig.py), the operator, the lease (controller_runtime), health and metrics, the
  administrator's config file and its changes.
- With leader election an operator exists only while this process holds the lease, and each write is checked against the
  lease again when it is sent. The election has its own ApiClient, so that no other request delays it.
- Stopping takes less than a second, even when the API server does not answer: pending requests are abandoned, which is
  harmless.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from secrets import token_hex

import msgspec

from trainyard import kinds
from trainyard.app import other_controllers
from trainyard.app.config import ConfigError
from trainyard.app.config import read_config as read_config
from trainyard.app.health import HealthServer
from trainyard.app.install.gang_schedulers import AUTO, choose_gang_scheduler
from trainyard.app.kubeconfig import SERVICE_ACCOUNT, ClusterAccess, KubeconfigError, in_cluster, read_kubeconfig
from trainyard.app.watchdog import Watchdog
from trainyard.client import ApiClient, ApiError, ApiRequest
from trainyard.controller_runtime import TaskSupervisor
from trainyard.controller_runtime.leader_election import LeaderElector
from trainyard.controller_runtime.lease import Claim, LeaseIdentity, LeaseTimings
from trainyard.core import Config, Kind, MasterWait
from trainyard.core.names import is_dns_label
from trainyard.kinds.native_gang import NATIVE
from trainyard.objects import Problem
from trainyard.objects.manifest import ManifestError
from trainyard.objects.structs import replace
from trainyard.operator import Operator
from trainyard.operator.metrics import Metrics

log = logging.getLogger(__name__)

POLL_SECONDS = 5.0  # between two reads of the config file
RELEASE_SECONDS = 0.5
ELECTION_TASK = "hold the lease"
LEASE_NAMESPACE = "default"  # it exists in every cluster, and all operators of a cluster have their Leases in it
LEASE_SECONDS = 4
DOMAIN = Config().cluster_domain
RESOLVER = Path("/etc/resolv.conf")


class OperatorOptions(msgspec.Struct, frozen=True):
    """The options of `trainyard operator`, parsed."""

    access: ClusterAccess
    kinds: tuple[Kind, ...]
    config: Config
    namespace: str = ""
    config_file: Path | None = None
    lease: LeaseIdentity | None = None  # the lease to hold while reconciling; None: no leader election
    timings: LeaseTimings = msgspec.field(default_factory=LeaseTimings)
    bind: tuple[str, int] | None = None  # where health and metrics are served
    probe_bind: tuple[str, int] | None = None  # where health alone is served
    gangs_not_served: bool = False  # see core.Config
    gang_scheduler: str = ""  # see core.Config; gang_schedulers.AUTO: the one that the cluster has
    kubectl_delivery_image: str = ""
    master_wait: MasterWait = msgspec.field(default_factory=MasterWait)
    node_lost: float | None = None  # seconds after which terminating pods of a lost node are force-deleted
    domain: str = DOMAIN  # the cluster's DNS domain
    beside_other_controllers: bool = False  # serve a kind also where another project's controller serves it

    def configured(self, config: Config) -> Config:
        """The administrator's config with the values of the command line."""
        return replace(
            config,
            node_lost_timeout=self.node_lost,
            cluster_domain=self.domain,
            gang_scheduler=self.gang_scheduler,
            gangs_not_served=self.gangs_not_served,
            kubectl_delivery_image=self.kubectl_delivery_image,
            master_wait=self.master_wait,
        )


def find_cluster(
    env: Mapping[str, str], named: str = "", context: str = "", folder: Path = SERVICE_ACCOUNT
) -> ClusterAccess:
    """The cluster to serve: by the file `named`, by the environment ($USE_KUBE_CONFIG, then $KUBECONFIG), or the
    cluster of this pod.

    The background cluster has an operator, so it is not a default. Raises KubeconfigError.
    """
    if named or env.get("USE_KUBE_CONFIG"):
        return read_kubeconfig([Path(named or env["USE_KUBE_CONFIG"])], context)
    if paths := [Path(part) for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]:
        return read_kubeconfig(paths, context)
    if (access := in_cluster(env, folder)) is not None:
        return access
    text = "no cluster: this process is not in a pod with a service account"
    raise KubeconfigError(f"{text}; name a cluster with --kubeconfig FILE, $USE_KUBE_CONFIG or $KUBECONFIG")


def parse_kinds(words: str) -> tuple[Kind, ...]:
    """The kinds in a comma-separated list, each in every API group that serves it. Raises ManifestError."""
    known = ", ".join((*(kinds.unique_name(kind) for kind in kinds.KINDS), "all"))
    named: list[Kind] = []
    for word in (part.strip() for part in words.split(",") if part.strip()):
        kind = kinds.kind_named(word)
        if kind is None and word.lower() != "all":
            raise ManifestError([Problem("--kinds", f"{word!r} is not a kind of job; known are: {known}")])
        named += [named_kind for named_kind in ((kind,) if kind else kinds.KINDS) if named_kind not in named]
    if not named:
        raise ManifestError([Problem("--kinds", f"names no kind; choose from: {known}")])
    return kinds.per_api_group(named)


def lease_identity(
    env: Mapping[str, str], served: Iterable[Kind], namespace: str = "", lease_namespace: str = LEASE_NAMESPACE
) -> LeaseIdentity:
    """The lease to hold for these kinds in this namespace ("": all), and the holder identity of this process: never
    that of an earlier container of this pod."""
    instance = env.get("MY_POD_NAME") or platform.node() or "operator"
    served = tuple(served)
    names = frozenset(kinds.unique_name(kind) for kind in served)
    claim = Claim(frozenset(kind.gvk.kind for kind in served), namespace, names)
    return LeaseIdentity(lease_namespace, claim.lease_name, f"{instance}_{token_hex(8)}", claim)


def lease_timings(duration: float = LEASE_SECONDS) -> LeaseTimings:
    """The timings of the lease, scaled from its duration. For 4 s until another process takes over: renew deadline 3 s,
    retry period 0.5 s, renewal every 1 s."""
    return LeaseTimings(duration, duration * 3 / 4, duration / 8, duration / 4)


def cluster_domain(named: str, in_cluster: bool, resolver: Path = RESOLVER) -> str:
    """The DNS domain of the cluster to serve: `named`, or in a pod the domain in the search line that the kubelet wrote
    into resolv.conf ("search trainyard.svc.corp.example svc.corp.example ..."). Raises ManifestError."""
    if named:
        domain = named.strip(".")
        if len(domain) > 200 or not all(map(is_dns_label, domain.split("."))):
            raise ManifestError(
                [Problem("--cluster-domain", f"{named!r} is not a DNS name; write one such as {DOMAIN}")]
            )
        return domain
    try:
        lines = resolver.read_text().splitlines() if in_cluster else []
    except (OSError, ValueError):
        lines = []
    searches = [line.split()[1:] for line in lines if line.split()[:1] == ["search"]]
    for search in searches[-1] if searches else ():  # as in resolv.conf(5), the last search line is used
        first_label, _, domain = search.rstrip(".").partition(".")
        if first_label == "svc" and domain and all(map(is_dns_label, domain.split("."))):
            return domain
    return DOMAIN


def parse_address(text: str, option: str = "--metrics-bind-address") -> tuple[str, int] | None:
    """HOST:PORT to listen on; without a host all addresses, "0" or "" for none. Raises ManifestError."""
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        fix = "write HOST:PORT, :PORT for every address, or 0 for none"
        raise ManifestError([Problem(option, f"{text!r} is not an address; {fix}")])
    return host.strip("[]"), int(port)


async def run_operator(options: OperatorOptions, stop: asyncio.Event) -> None:
    """Reconcile jobs until `stop` is set."""
    await OperatorProcess(options).run(stop)


class OperatorProcess:
    """The operator process: leader election, operator, health server."""

    def __init__(self, options: OperatorOptions) -> None:
        """Raises OSError or ValueError when the certificates cannot be used."""
        self._options = options
        self._config = options.configured(options.config)
        self._operator: Operator | None = None
        self._credentials = options.access.credentials()
        self._election = LeaderElector(self._api(), options.lease, options.timings) if options.lease else None
        self._watchdog, self._answer_count = Watchdog(), 0
        self.metrics = Metrics(options.kinds, self._leads, self._standby)
        self.metrics.observe_stalls(self._longest_stall)
        self.tasks = TaskSupervisor("operator")
        self.health = HealthServer(self.alive, self.ready, self.metrics.render, self.checks)
        self.probes = HealthServer(self.alive, self.ready, None, self.checks)

    async def run(self, stop: asyncio.Event) -> None:
        """Reconcile until `stop` is set, then stop everything. Raises OSError when it cannot listen."""
        served = ",".join(dict.fromkeys(kind.gvk.kind for kind in self._options.kinds))
        where = self._options.namespace or "*"
        log.info("serving server=%s namespace=%s kinds=%s", self._options.access.server, where, served)
        self.start_following()
        self._watchdog.start()
        try:
            if self._options.bind is not None:
                await self.health.start(*self._options.bind)
                log.info("serving health and metrics host=%s port=%d", self._options.bind[0], self.health.port)
            if self._options.probe_bind not in (None, self._options.bind):
                await self.probes.start(*self._options.probe_bind)
                log.info("serving health host=%s port=%d", self._options.probe_bind[0], self.probes.port)
            await (self._reconcile(stop) if self._election is None else self._run_elected(self._election, stop))
        finally:
            await self.tasks.stop()
            await self._watchdog.stop()
            await self.health.stop()
            await self.probes.stop()
            log.info("stopped")

    def start_following(self) -> None:
        """Watch the administrator's config file, if there is one, until `tasks` is stopped."""
        if (file := self._options.config_file) is not None:
            self.tasks.start("follow the controller config", lambda: follow_config(file, self.configure))

    def configure(self, config: Config | None) -> None:
        """Use a new config; None stands for a config that was refused."""
        self.metrics.config_reloads.labels("refused" if config is None else "used").inc()
        if config is not None:
            self._config = self._options.configured(config)
            if self._operator is not None:
                self._operator.set_config(self._config)

    def alive(self) -> str:
        """Why this process must be restarted; "" when it is healthy."""
        if reason := self.tasks.unhealthy:  # a standby has tasks, too: its election
            return reason
        if (operator := self._operator) is None:
            return ""
        if reason := operator.unhealthy_tasks:
            return reason
        return self._watchdog.unhealthy_reason(
            operator.queue.processing_count, (operator.counts.get("reconciles"), self._answer_count)
        )

    def _longest_stall(self) -> tuple[float, str]:
        stall = self._watchdog.longest_stall()
        return (stall.seconds, stall.where.rpartition(" > ")[2]) if stall else (0.0, "")

    def ready(self) -> str:
        """Why this process is not ready, "" when it is. A standby that knows the lease is ready."""
        if reason := self.tasks.failing:
            return reason
        if self._operator is None:
            return "" if self._election is not None and self._election.contacted else "the lease is not known yet"
        if reason := self._operator.tasks.failing:
            return reason
        if self._operator.synced:
            return ""
        unsynced = {
            watch.gvk.plural: watch.last_error
            for watch in self._operator.watches
            if watch.state in ("listing", "failing")
        }
        return (
            f"not listed yet: {'; '.join(f'{name}: {why}' if why else name for name, why in sorted(unsynced.items()))}"
        )

    def checks(self) -> list[tuple[str, str, str]]:
        """The lines of `/readyz?verbose`: (name of the check, error or "", other information)."""
        not_ready = self.ready()
        held = self._operator.held.reasons if self._operator else {}
        not_served = [(gvk.plural, "", f"not served: {why or 'not known yet'}") for gvk, why in held.items()]
        if self._election is None:
            return [("watches", not_ready, "no leader election"), *not_served]
        state = f"standing by for {standby}" if (standby := self._standby()) else f"leading {self._election.lease}"
        no_lease = "" if self._election.contacted else "the lease is not known yet"
        return [("lease", no_lease, state), ("watches", "" if no_lease else not_ready, ""), *not_served]

    async def _run_elected(self, election: LeaderElector, stop: asyncio.Event) -> None:
        """Reconcile whenever this process holds the lease. Release the lease at the end."""
        self.tasks.start(ELECTION_TASK, election.run)
        try:
            while not stop.is_set():
                await _wait_for_any(stop, election.won)
                if not stop.is_set():
                    await self._reconcile(stop, election.lost)
        finally:
            self.tasks.cancel(ELECTION_TASK)
            with contextlib.suppress(ApiError, TimeoutError):
                async with asyncio.timeout(RELEASE_SECONDS):
                    await election.release()
            await election.close()

    async def _reconcile(self, stop: asyncio.Event, *events: asyncio.Event) -> None:
        """Run one operator until one of the events is set. The operator is stopped when this returns."""
        async with self._api() as api:
            if self._election is not None:
                api.before_send = partial(_check_lease, self._election)
            api.on_response = self._count_answer
            if not await self._choose_gang_scheduler(api, stop, *events):
                return
            self._operator = operator = Operator(api, self._options.kinds, self._config, self._options.namespace)
            self.metrics.observe_operator(operator)
            if not self._options.beside_other_controllers:
                other_controllers.start(api, operator, self._options.kinds)
            await operator.start()
            try:
                await _wait_for_any(stop, *events)
            finally:
                self.metrics.observe_operator(None)
                self._operator = None
                await operator.stop()

    async def _choose_gang_scheduler(self, api: ApiClient, *events: asyncio.Event) -> bool:
        """Replace `auto` by the gang scheduler of the cluster, once, and `native` by none where the cluster has no such
        gangs. False when one of the events is set before."""
        if self._options.gang_scheduler not in (AUTO, NATIVE):
            return True
        search = asyncio.create_task(choose_gang_scheduler(api, self._options.gang_scheduler))
        try:
            await _wait_for_any(*events, search=search)
            if not search.done():
                return False
        finally:
            search.cancel()
        not_served = self._options.gang_scheduler == NATIVE != search.result()
        self._options = replace(self._options, gang_scheduler=search.result(), gangs_not_served=not_served)
        self._config = self._options.configured(self._config)
        return True

    def _api(self) -> ApiClient:
        api = self._options.access.api("trainyard-operator", self._credentials)
        api.on_response = lambda request, code, seconds: self.metrics.observe_request(request, code, seconds)
        return api

    def _count_answer(self, request: ApiRequest, code: int, seconds: float) -> None:
        self._answer_count += 1
        self.metrics.observe_request(request, code, seconds)

    def _standby(self) -> str:
        """The identity of the leader that this process stands by for; "" when it leads."""
        return "" if self._election is None or self._election.leads else self._election.standby or "nobody yet"

    def _leads(self) -> bool:
        return self._election is None or self._election.leads


def _check_lease(election: LeaderElector, request: ApiRequest) -> None:
    """Raise when this process no longer holds the lease and the request is a write."""
    if request.method != "GET":  # reads are safe without the lease
        election.check()


async def _wait_for_any(*events: asyncio.Event, search: asyncio.Task[str] | None = None) -> None:
    """Wait until one of the events is set, or `search` is done."""
    tasks = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait([*tasks, *([search] if search else [])], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def follow_config(path: Path, apply: Callable[[Config | None], None], pause: float = POLL_SECONDS) -> None:
    """Call `apply` with the config after each change of the file, and with None (and a log message) when it is refused.

    The kubelet updates a mounted ConfigMap by swapping a symlink above the file, so the contents are compared.
    """
    previous = _content(path)
    while True:
        await asyncio.sleep(pause)
        if (content := _content(path)) is None or content == previous:
            continue  # missing during the swap, or unchanged
        previous = content
        try:
            config = read_config(path, lambda text: log.warning("controller config: %s", text))
        except ConfigError as error:
            for problem in error.problems:
                log.error("the new controller config is invalid, the old one stays in use error=%s", problem)
            apply(None)
        else:
            log.info("controller config reloaded file=%s", path)
            apply(config)


def _content(path: Path) -> bytes | None:
    """The content of the file; None when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None
