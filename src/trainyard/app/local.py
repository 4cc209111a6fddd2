"""A whole cluster in this process: API server, controllers, node and operator on one event loop.

    async with LocalCluster(LocalClusterOptions(...)) as cluster:
        await cluster.api.create(...)

Rules:
- Loopback only, free ports, a random token. The files are in one private folder, removed at the end; with a
  `state_folder` (background/state.py) they are kept there, and the next cluster with that folder continues with them.
- The API server has one listener: TLS on loopback, with a certificate of this cluster, for kubectl and pods. The
  components of this process call the server in memory, without a listener that other processes could reach.
- The API is the only interface between the components: each is a client like any other.
- The stop order is the reverse of the start order: first the controllers that create pods, then the pods, then the
  server. `stop(kill=True)` waits for no grace period.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any
from urllib.parse import urlsplit

import msgspec
import yaml

from trainyard import kinds
from trainyard.app.background.early_start import EarlyStart
from trainyard.app.background.folder import PrivateFolder
from trainyard.app.background.state import ClusterState
from trainyard.app.catalogues import cache_folder, catalogues
from trainyard.app.config import shipped_config
from trainyard.app.history.record_index import HistoryOptions
from trainyard.app.history.recorder import HistoryRecorder
from trainyard.app.install.installed_kinds import install_kinds, kind_checks, kind_reviewers
from trainyard.app.logging_setup import limit_accept_errors
from trainyard.app.watchdog import Stall, Watchdog
from trainyard.client import AlreadyExists, ApiClient
from trainyard.controller_runtime import TaskSupervisor
from trainyard.core import Config, Kind
from trainyard.kinds.native_gang import NATIVE
from trainyard.node.images import Images
from trainyard.node.kubelet.node import LOG_SIZE, Node
from trainyard.node.sandbox.supervisor_process import SupervisorProcess, start_supervisor
from trainyard.objects import GVK, Json
from trainyard.objects.resources import NAMESPACE
from trainyard.objects.structs import replace
from trainyard.operator import Operator
from trainyard.server import CertificateAuthority, Server
from trainyard.server.auth.certificates import write_private_file
from trainyard.server.http.limits import raise_descriptor_limit
from trainyard.workloads import ControllerManager

IN_PROCESS_URL = "http://localhost"  # the URL of in-process requests; it is never resolved
INSTALL_DELAY = 0.5  # seconds after the start: installing all kinds takes a third as long as the rest of a start

CONCURRENT_WRITES = 4
"""The server is in this process: more writes at a time take no less time, and the node waits behind them. The first of
1,000 replicas printed after 0.9 s with 64, and after 0.4 with 4."""
NOT_SERVED = frozenset(gvk for kind in kinds.ALL for gvk in kind.roles.optional_resources)
"""Resources of children that the embedded API server lacks, so that the operator does not ask for them."""


class LocalClusterOptions(msgspec.Struct, frozen=True):
    """The options of a local cluster."""

    network: str = "auto"
    images: tuple[Path, ...] = ()
    cache: Path | None = None
    python: str = ""  # interpreter or environment for images without one; "" searches for one
    progress: Callable[[str, str | None], object] | None = None  # gets the progress of installations; default: `say`
    mounts: Mapping[str, Path] = msgspec.field(default_factory=dict)
    config: Config = msgspec.field(default_factory=shipped_config)
    say: Callable[[str], None] = print
    operator: bool = True  # False: jobs are not reconciled, unless by `trainyard operator`
    parent: Path | None = None  # parent of the private folder; default: the system's temporary folder
    state_folder: Path | None = None  # of a persistent cluster (background/state.py), instead of a private folder
    certificates: IO[bytes] | None = None  # output of a CertificateProcess that runs already, with a state folder
    working_directory: Path | None = None  # of pods without the annotation, see objects/labels.py
    hidden: tuple[Path, ...] = ()  # folders that pods see empty, in addition to the cluster's own
    history: HistoryOptions | None = None  # the history of jobs; None: no history
    served_first: frozenset[GVK] | None = None  # served when `start` returns, the others after INSTALL_DELAY; None: all
    on_stall: Callable[[Stall], object] = lambda stall: None  # of the Watchdog
    early: EarlyStart | None = None  # parts of a cluster without a state folder that run already; None: none


class LocalCluster:
    """Starts with `await start()`, ends with `await stop()`; or `async with`. With a state folder it raises
    DiskError."""

    def __init__(self, options: LocalClusterOptions, now: Callable[[], float] = time.time) -> None:
        self._options = options
        self._now = now
        self._folder: PrivateFolder | ClusterState | None = None
        folder = options.state_folder
        self._state = ClusterState(folder, options.say, options.certificates) if folder else None
        self._operator: Operator | None = None
        self._workloads: ControllerManager | None = None
        self._images: Images | None = None
        self._later_installation: asyncio.Task[None] | None = None
        self._supervisor: SupervisorProcess | None = None
        self._node: Node | None = None
        self.history: HistoryRecorder | None = None
        self.interruption = ""  # the message of unfinished jobs in the history
        self.token = self._state.token if self._state else secrets.token_urlsafe(32)
        self.root_ca = ""
        log, key = (self._state.log, self._state.token_signing_key) if self._state else (None, b"")
        self.server = Server(
            kind_checks(), self.token, now, log, kubelet_token=secrets.token_urlsafe(32), key=key, report=options.say
        )
        # `kubectl get tfjobs` prints the TfJobs of tensorflow.org, as their README has it, not those of kubeflow.org.
        self.server.registry.preferred_groups = tuple(dict.fromkeys(kind.gvk.group for kind in kinds.KINDS))
        self.server.registry.reviewers = kind_reviewers()
        self._api: ApiClient | None = None
        self._watchdog = Watchdog(on_stall=options.on_stall)  # of the event loop of all components

    @property
    def api(self) -> ApiClient:
        """An admin's client of the cluster. Raises RuntimeError before `start`."""
        if self._api is None:
            raise RuntimeError("the cluster has not been started")
        return self._api

    @property
    def folder(self) -> Path:
        """The folder of the cluster. Raises RuntimeError before `start`."""
        if self._folder is None:
            raise RuntimeError("the cluster has not been started")
        return self._folder.path

    @property
    def task_supervisors(self) -> dict[str, TaskSupervisor]:
        """The supervisors of all long-lived tasks of this cluster, by component."""
        components = {
            "node": self._node,
            "workloads": self._workloads,
            "operator": self._operator,
            "history": self.history,
        }
        supervisors = {name: component.tasks for name, component in components.items() if component is not None}
        return {"API server": self.server.tasks, **supervisors}

    @property
    def network(self) -> str:
        """The network that was chosen; "" before the start."""
        return self._node.network if self._node else ""

    async def __aenter__(self) -> LocalCluster:
        try:
            await self.start()
        except BaseException:
            await self.stop(kill=True)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def chosen_network(self) -> str:
        """As `network`, once it is chosen. For `submit`, which `start` cancels when no network works."""
        if self._node is not None:
            await self._node.network_chosen.wait()
        return self.network

    async def start(self, submit: Callable[[], Awaitable[None]] | None = None) -> None:
        """All components are ready, and the kinds are served (but see `served_first`), when this returns. `submit` is
        called as soon as the kinds are served, while the node still starts."""
        options = self._options
        limit_accept_errors()
        self._watchdog.start()
        self._images = Images(
            catalogues(options.images),
            options.cache or cache_folder(),
            options.say,
            python=options.python,
            progress=options.progress,
        )
        self._folder = self._state or (options.early.take_folder() if options.early else PrivateFolder(options.parent))
        # It gets ready, on another core, while the server starts.
        self._supervisor = (
            options.early.supervisor if options.early else start_supervisor(options.network, self._folder.path)
        )
        raise_descriptor_limit()
        # Making certificates is slow, mostly importing the library: the other components start meanwhile.
        certificate = asyncio.create_task(
            asyncio.to_thread(self._state.certified)
            if self._state
            else asyncio.to_thread(options.early.certified if options.early else _new_certificate, self._folder.path)
        )
        await self.server.open()
        self._api = api = ApiClient(IN_PROCESS_URL, self.token, transport=self.server.in_process())
        tls_context = asyncio.ensure_future(_context_of(certificate))
        # The exception is retrieved here, so that asyncio does not log it: awaiting `certificate` raises it.
        tls_context.add_done_callback(lambda done: done.cancelled() or done.exception())
        await self._listen(tls_context)
        if options.history is not None and options.history.limits.jobs:
            self.history = HistoryRecorder(options.history, options.say, self._now)
        self._node = self._new_node(api, self._folder.path, self._images)
        self.server.kubelet = self._node.logs
        self.server.serve_usage(self._node.usage)
        working_directory = str(options.working_directory or "")
        if self._state is None:  # the first pod comes at once
            self._images.prepare_ahead(working_directory)
        await _gather(self._node.start(), self._start_controllers(api, certificate, submit))
        if self._state is not None:  # not earlier: it would compete with the start for the processors
            self._images.prepare_ahead(working_directory)

    def _new_node(self, api: ApiClient, folder: Path, images: Images) -> Node:
        options = self._options
        return Node(
            api,
            folder,
            images,
            network=options.network,
            mounts=options.mounts,
            print_message=options.say,
            token=self.server.kubelet_token,
            now=self._now,
            apiserver=_address(self.server.tls_url),
            working_directory=options.working_directory,
            log_folder=self.history.log_folder if self.history else lambda pod: None,
            hidden=(options.state_folder or folder, *options.hidden),
            supervisor=self._supervisor,
            # Logs in a folder that the user chose are not cut.
            log_size=0 if options.history and options.history.logs else LOG_SIZE,
        )

    async def _start_controllers(
        self,
        api: ApiClient,
        certificate: asyncio.Task[tuple[ssl.SSLContext, str]],
        submit: Callable[[], Awaitable[None]] | None,
    ) -> None:
        await install_kinds(api, (kind for kind in kinds.ALL if self._is_served_first(kind)))
        if later_kinds := [kind for kind in kinds.ALL if not self._is_served_first(kind)]:
            self._later_installation = self.server.tasks.spawn("install kinds", self._install_later(later_kinds))
        mounted = frozenset(self._options.mounts)
        self._workloads = workloads = ControllerManager(
            api, self._now, local_claims=mounted, report=self._options.say, awaits_node=True
        )

        async def trust() -> None:
            _, self.root_ca = await certificate
            workloads.set_root_ca(self.root_ca)

        async def control() -> None:
            controllers = [workloads.start(), *([self.start_operator()] if self._options.operator else [])]
            await _gather(*controllers, *([self.history.start(api)] if self.history else []))
            if submit is not None:
                await submit()

        await _gather(trust(), control())

    async def _listen(self, context: asyncio.Future[ssl.SSLContext]) -> None:
        """Listen with TLS: on the port of the previous cluster of this state folder if there is one and it is free,
        else on any free port. Raises OSError."""
        state = self._state
        try:
            await self.server.start_tls(context, port=state.port if state else 0)
        except OSError as error:
            if state is None or not state.port or error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            await self.server.start_tls(context)
            text = f"port {state.port} is in use by another program, so the API server has another one"
            self._options.say(f"{text}; older copies of the kubeconfig are no longer valid")
        if state is not None:
            state.save_port(_address(self.server.tls_url)[1])

    def _is_served_first(self, kind: Kind) -> bool:
        first = self._options.served_first
        return first is None or any(version.gvk in first for version in kind.versions)

    async def _install_later(self, later_kinds: Iterable[Kind]) -> None:
        await asyncio.sleep(INSTALL_DELAY)
        await install_kinds(self.api, later_kinds)

    async def namespace(self, name: str) -> None:
        """Create the namespace unless it exists."""
        with contextlib.suppress(AlreadyExists):
            await self.api.create(NAMESPACE, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def start_operator(self, api: ApiClient | None = None) -> Operator:
        """Start an operator, with its own ApiClient if one is passed. It continues the work of the operator before it,
        which is stopped."""
        await self.stop_operator()
        options = self._options
        config = replace(options.config, missing_resources=NOT_SERVED, gang_scheduler=NATIVE, gangs_need_devices=True)
        self._operator = Operator(
            api or self.api, kinds.ALL, config, now=self._now, report=options.say, concurrent_writes=CONCURRENT_WRITES
        )
        await self._operator.start()
        return self._operator

    async def stop_operator(self) -> None:
        """Stop the operator. Jobs run on, but are not reconciled until the next operator is started."""
        operator, self._operator = self._operator, None
        if operator is not None:
            await operator.stop()

    async def stop_controllers(self) -> None:
        """Stop the operator and the controllers: no component creates pods any more."""
        workloads, self._workloads = self._workloads, None
        await asyncio.gather(self.stop_operator(), *([workloads.stop()] if workloads else []))

    def resync(self) -> None:
        """Let node, controllers and operator process every object now: for callers that have moved the clock."""
        for component in (self._node, self._workloads, self._operator):
            if component is not None:
                component.resync()

    async def stop(self, kill: bool = False, keep: bool = False) -> None:
        """End every pod within its grace period (or at once), then all components. `keep`: the private folder stays.
        Can be called again, with `kill`."""
        # The stack calls in reverse order; an error of one callback does not skip the other ones.
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._watchdog.stop)
            if self._folder is not None:
                stack.callback(self._folder.close, keep)
                self._folder = None
            elif self._state is not None:
                stack.callback(self._state.close)
            stack.push_async_callback(self.server.stop)
            if self._api is not None:
                stack.push_async_callback(self._api.close)
            if self.history is not None:
                stack.push_async_callback(self.history.close, kill, self.interruption)
            if self._supervisor is not None:
                stack.push_async_callback(asyncio.to_thread, self._supervisor.close)
            if self._node is not None:
                stack.push_async_callback(self._node.stop, kill, self._state is not None)
            if self._images is not None:
                stack.push_async_callback(self._images.close)
            stack.push_async_callback(self.stop_controllers)
            if self._later_installation is not None:  # it sends requests to the server
                stack.callback(self._later_installation.cancel)

    def write_kubeconfig(self, path: Path | None = None, name: str = "trainyard") -> Path:
        """Write a kubeconfig for kubectl, mode 0600: to `path`, by default into the private folder. Returns its
        path."""
        path = path or self.folder / "kubeconfig"
        text = yaml.safe_dump(kubeconfig(self.server.tls_url, self.token, self.root_ca, name), sort_keys=False)
        write_private_file(path, text.encode())
        return path


def kubeconfig(url: str, token: str, root_ca: str, name: str = "trainyard") -> Json:
    """A kubeconfig with one cluster, user and context, all called `name`. `root_ca`: PEM."""
    ca_data = base64.b64encode(root_ca.encode()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority-data": ca_data}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }


async def _gather(*coroutines: Coroutine[Any, Any, object]) -> None:
    """Run the coroutines concurrently. When one fails the others are cancelled, and its exception is raised."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _context_of(certificate: asyncio.Task[tuple[ssl.SSLContext, str]]) -> ssl.SSLContext:
    return (await certificate)[0]


def _new_certificate(folder: Path) -> tuple[ssl.SSLContext, str]:
    """The server's TLS context and the PEM of the authority to trust; files in `folder`. Uses the real clock, since
    clients check the validity by theirs."""
    authority = CertificateAuthority.new(time.time())
    return authority.server_context(folder), authority.pem


def _address(url: str) -> tuple[str, int]:
    """Host and port of a URL that names both."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0
