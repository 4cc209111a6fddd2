"""The operator as a program: one process beside an API server, until it is told to stop.

    await operate(options, stop)

Rules for this file:
- It only ties together: who we are (kubeconfig.py), the operator and the lease (control), health and metrics, the
  admin's config file and its changes.
- With a lease there is an operator only while it is ours, and each write is checked against it once more when it is
  sent. The lease has an Api of its own: it waits for nobody.
- Going down takes less than a second, whoever does not answer: what is under way is abandoned, which is harmless.
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
from trainyard.app.config import ConfigError
from trainyard.app.config import read as read_config
from trainyard.app.health import Health
from trainyard.app.kubeconfig import SERVICE_ACCOUNT, Access, KubeconfigError, in_cluster, read
from trainyard.app.watchdog import Watchdog
from trainyard.client import Api, ApiError, Request
from trainyard.controller_runtime import TaskSupervisor
from trainyard.controller_runtime.lease import Claim, Election, LeaseIdentity, LeaseTimings
from trainyard.core import Config, Kind
from trainyard.core.names import is_dns_label
from trainyard.objects import Problem
from trainyard.objects.manifest import ManifestError
from trainyard.objects.values import replace
from trainyard.operator import Operator
from trainyard.operator.metrics import Metrics

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0  # between two looks at the config file
RELEASE_SECONDS = 0.5
ELECTION = "hold the lease"
LEASE_NAMESPACE = "default"  # every cluster has it, and every operator looks for the others there
LEASE_SECONDS = 4
DOMAIN = Config().cluster_domain
RESOLVER = Path("/etc/resolv.conf")


class Options(msgspec.Struct, frozen=True):
    """What the command line said, understood."""

    access: Access
    kinds: tuple[Kind, ...]
    config: Config
    namespace: str = ""
    config_file: Path | None = None
    seat: LeaseIdentity | None = None  # the lease to hold while we work, None to work at once
    terms: LeaseTimings = msgspec.field(default_factory=LeaseTimings)
    bind: tuple[str, int] | None = None  # where health and metrics are served
    node_lost: float | None = None  # seconds after which pods that should have ended are deleted without their node
    domain: str = DOMAIN  # of the cluster's DNS, below which the Services have their names

    def configured(self, config: Config) -> Config:
        """The administrator's config, with what the command line says of it."""
        return replace(config, node_lost=self.node_lost, cluster_domain=self.domain)


def whom(env: Mapping[str, str], named: str = "", context: str = "", folder: Path = SERVICE_ACCOUNT) -> Access:
    """The cluster to serve: what is named, what the environment names, or the cluster of this pod.

    The cluster of `trainyard up` has an operator and is never taken unasked. Raises KubeconfigError.
    """
    if named or env.get("USE_KUBE_CONFIG"):
        return read([Path(named or env["USE_KUBE_CONFIG"])], context)
    if given := [Path(part) for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]:
        return read(given, context)
    if (access := in_cluster(env, folder)) is not None:
        return access
    text = "no cluster: this is no pod with a service account; name one with --kubeconfig FILE, $USE_KUBE_CONFIG"
    raise KubeconfigError(f"{text} or $KUBECONFIG")


def chosen(words: str) -> tuple[Kind, ...]:
    """The kinds that a comma-separated list names, each under every group it is served in. Raises ManifestError."""
    known = {kind.singular: kind for kind in kinds.EACH}
    others = {alias: kind.singular for kind in kinds.EACH for alias in (kind.gvk.plural, *kind.short_names)}
    names: list[str] = []
    for word in (part.strip().lower() for part in words.split(",") if part.strip()):
        name = others.get(word, word)
        if word != "all" and name not in known:
            text = f"{word!r} is no kind of job; known are: {', '.join(known)}, all"
            raise ManifestError([Problem("--kinds", text)])
        names += known if word == "all" else [name]
    if not names:
        raise ManifestError([Problem("--kinds", f"names no kind; write some of: {', '.join(known)}, all")])
    return kinds.served(known[name] for name in dict.fromkeys(names))


def seat(
    env: Mapping[str, str], served: Iterable[Kind], namespace: str = "", lease_namespace: str = LEASE_NAMESPACE
) -> LeaseIdentity:
    """The lease to hold for these kinds in this namespace ("": all), and our name in it: never that of a former life of
    this pod."""
    who = env.get("MY_POD_NAME") or platform.node() or "operator"
    claim = Claim(frozenset(kind.gvk.kind for kind in served), namespace)
    return LeaseIdentity(lease_namespace, claim.lease_name, f"{who}_{token_hex(8)}", claim)


def terms(duration: float = LEASE_SECONDS) -> LeaseTimings:
    """For 4 seconds until another takes over: 3 until we stop, a look each 0.5, a renewal each second."""
    return LeaseTimings(duration, duration * 3 / 4, duration / 8, duration / 4)


def cluster_domain(named: str, in_cluster: bool, resolver: Path = RESOLVER) -> str:
    """The DNS domain of the cluster to serve: what is named, or in a pod of it what the kubelet wrote into its resolver
    configuration ("search trainyard.svc.corp.example svc.corp.example ..."). Raises ManifestError."""
    if named:
        domain = named.strip(".")
        if len(domain) > 200 or not all(map(is_dns_label, domain.split("."))):
            raise ManifestError([Problem("--cluster-domain", f"{named!r} is no DNS name; write one such as {DOMAIN}")])
        return domain
    try:
        lines = resolver.read_text().splitlines() if in_cluster else []
    except (OSError, ValueError):
        lines = []
    searches = [line.split()[1:] for line in lines if line.split()[:1] == ["search"]]
    for name in searches[-1] if searches else ():  # the last line counts
        below, _, domain = name.rstrip(".").partition(".")
        if below == "svc" and domain and all(map(is_dns_label, domain.split("."))):
            return domain
    return DOMAIN


def address(text: str) -> tuple[str, int] | None:
    """HOST:PORT to listen at; no host is every address, "0" or "" is nowhere. Raises ManifestError."""
    if text in ("", "0"):
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        fix = "write HOST:PORT, :PORT for every address, or 0 for none"
        raise ManifestError([Problem("--metrics-bind-address", f"{text!r} is no address; {fix}")])
    return host.strip("[]"), int(port)


async def operate(options: Options, stop: asyncio.Event) -> None:
    """Serve until `stop`."""
    await Operating(options).run(stop)


class Operating:
    """The life of the process."""

    def __init__(self, options: Options) -> None:
        """Raises OSError or ValueError when the certificates are of no use."""
        self._options = options
        self._config = options.configured(options.config)
        self._operator: Operator | None = None
        self._credentials = options.access.credentials()
        self._election = Election(self._api(), options.seat, options.terms) if options.seat else None
        self.metrics = Metrics(options.kinds, self._leads, self._standby)
        self.tasks = TaskSupervisor("operator")
        self._watchdog, self._answers = Watchdog(), 0
        self.health = Health(self.alive, self.ready, self.metrics.render, self.checks)

    async def run(self, stop: asyncio.Event) -> None:
        served = ",".join(dict.fromkeys(kind.gvk.kind for kind in self._options.kinds))
        where = self._options.namespace or "*"
        log.info("serving server=%s namespace=%s kinds=%s", self._options.access.server, where, served)
        self.start_following()
        self._watchdog.start()
        try:
            if self._options.bind is not None:
                await self.health.start(*self._options.bind)
                log.info("health and metrics are served host=%s port=%d", self._options.bind[0], self.health.port)
            await (self._work(stop) if self._election is None else self._stand(self._election, stop))
        finally:
            await self.tasks.stop()
            await self._watchdog.stop()
            await self.health.stop()
            log.info("stopped")

    def start_following(self) -> None:
        """Hear of changes of the admin's config file, if there is one, until `tasks` is stopped."""
        if (file := self._options.config_file) is not None:
            self.tasks.start("follow the controller config", lambda: follow_config(file, self.configure))

    def configure(self, config: Config | None) -> None:
        """A new config; None is one that could not be used."""
        self.metrics.config_reloads.labels("refused" if config is None else "used").inc()
        if config is not None:
            self._config = self._options.configured(config)
            if self._operator is not None:
                self._operator.set_config(self._config)

    def alive(self) -> str:
        """Why a new start is needed, "" when it is not."""
        if why := self.tasks.unhealthy:  # of a standby, too: its election
            return why
        if (operator := self._operator) is None:
            return ""
        if why := operator.unhealthy:
            return why
        return self._watchdog.hangs(operator.queue.processing, (operator.counts.get("passes"), self._answers))

    def ready(self) -> str:
        """Why this process cannot do its part yet, "" when it can. To stand by is a part."""
        if why := self.tasks.failing:
            return why
        if self._operator is None:
            return "" if self._election is not None and self._election.contacted else "the lease is not known yet"
        if why := self._operator.tasks.failing:
            return why
        if self._operator.synced:
            return ""
        behind = {one.gvk.plural: one.why for one in self._operator.watches if one.state in ("listing", "failing")}
        return f"not listed yet: {'; '.join(f'{name}: {why}' if why else name for name, why in sorted(behind.items()))}"

    def checks(self) -> list[tuple[str, str, str]]:
        """What `/readyz?verbose` lists: the name of each check, what is wrong ("": nothing), and what else is known."""
        wrong = self.ready()
        if self._election is None:
            return [("watches", wrong, "no leader election")]
        state = f"standing by for {standby}" if (standby := self._standby()) else f"leading {self._election.lease}"
        unknown = "" if self._election.contacted else "the lease is not known yet"
        return [("lease", unknown, state), ("watches", "" if unknown else wrong, "")]

    async def _stand(self, election: Election, stop: asyncio.Event) -> None:
        """Work whenever the lease is ours. Let it go in the end."""
        self.tasks.start(ELECTION, election.run)
        try:
            while not stop.is_set():
                await _first(stop, election.won)
                if not stop.is_set():
                    await self._work(stop, election.lost)
        finally:
            self.tasks.cancel(ELECTION)
            with contextlib.suppress(ApiError, TimeoutError):
                async with asyncio.timeout(RELEASE_SECONDS):
                    await election.release()
            await election.close()

    async def _work(self, stop: asyncio.Event, *ends: asyncio.Event) -> None:
        """One operator, until one of these. Nothing of it is left when this returns."""
        async with self._api() as api:
            if self._election is not None:
                api.guard = partial(_guard, self._election)
            api.observe = self._answered
            self._operator = operator = Operator(api, self._options.kinds, self._config, self._options.namespace)
            self.metrics.observe_operator(operator)
            await operator.start()
            try:
                await _first(stop, *ends)
            finally:
                self.metrics.observe_operator(None)
                self._operator = None
                await operator.stop()

    def _api(self) -> Api:
        api = self._options.access.api("trainyard-operator", self._credentials)
        api.observe = lambda request, code, seconds: self.metrics.observe_request(request, code, seconds)
        return api

    def _answered(self, request: Request, code: int, seconds: float) -> None:
        self._answers += 1
        self.metrics.observe_request(request, code, seconds)

    def _standby(self) -> str:
        return "" if self._election is None or self._election.leads else self._election.standby or "nobody yet"

    def _leads(self) -> bool:
        return self._election is None or self._election.leads


def _guard(election: Election, request: Request) -> None:
    if request.method != "GET":  # to read does no harm
        election.check()


async def _first(*ends: asyncio.Event) -> None:
    """Wait for the first of these."""
    waits = [asyncio.create_task(end.wait()) for end in ends]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def follow_config(path: Path, use: Callable[[Config | None], None], pause: float = LOOK_SECONDS) -> None:
    """Tell `use` of each new content of the config file. One that cannot be used is said, and `use` hears None.

    A mounted ConfigMap changes by swapping a link far above the file, so it is the content that is compared.
    """
    known = _content(path)
    while True:
        await asyncio.sleep(pause)
        if (now := _content(path)) is None or now == known:
            continue  # away for a moment while it is swapped, or the same
        known = now
        try:
            config = read_config(path, lambda text: log.warning("controller config: %s", text))
        except ConfigError as error:
            for problem in error.problems:
                log.error("the new controller config is not used, the old one stays why=%s", problem)
            use(None)
        else:
            log.info("controller config read again file=%s", path)
            use(config)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
