"""A whole cluster in this process: API server, workloads, node and operator on one event loop.

    async with LocalCluster(Options(...)) as cluster:
        await cluster.api.create(...)

Rules:
- Loopback only, free ports, a random token. What is on disk lies in one private folder, removed at the end; with a
  `home` (state.py) all of it stays there instead, and the next cluster with that home goes on where this one was.
- One door: TLS on loopback, with a certificate of this cluster, for kubectl and pods. The parts in here reach
  the server within the process, with no address that others could try.
- Nobody in here has a shorter way than the API: each part is a client like any other.
- The order of the end is the reverse of the start: first those who make pods, then the pods, then the server.
  `stop(kill=True)` does not wait for anybody's grace.
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
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from trainyard import kinds
from trainyard.app.catalogues import cache_folder, catalogues
from trainyard.app.config import shipped
from trainyard.app.early_start import EarlyStart
from trainyard.app.folder import Folder
from trainyard.app.recorder import HistoryOptions, HistoryRecorder
from trainyard.app.state import State
from trainyard.app.watchdog import Watchdog
from trainyard.client import AlreadyExists, Api
from trainyard.client.request import create
from trainyard.controller_runtime import TaskSupervisor
from trainyard.core import Config, Kind
from trainyard.node import LOG_SIZE, Images, Node
from trainyard.objects import GVK, Json
from trainyard.objects.resources import CRD, NAMESPACE
from trainyard.operator import Operator
from trainyard.server import Authority, Server, vouch
from trainyard.server.certificates import write
from trainyard.server.limits import raise_descriptors
from trainyard.workloads import Workloads

INSIDE = "http://localhost"  # what the parts in here call the server; nobody looks it up
LATER = 0.5  # seconds: to install all kinds takes as long as a third of the rest of a start

"""Makes what the TLS door listens with, its files in a folder, and says which authority to trust. Raises OSError."""


class Options(msgspec.Struct, frozen=True):
    """How a local cluster is made."""

    network: str = "auto"
    images: tuple[Path, ...] = ()
    cache: Path | None = None
    python: str = ""  # the interpreter or environment of images that have none of their own; "" finds one
    progress: Callable[[str, str | None], object] | None = None  # how far installations are; `say` hears it without
    mounts: Mapping[str, Path] = msgspec.field(default_factory=dict)
    config: Config = msgspec.field(default_factory=lambda: Config(files=shipped()))
    say: Callable[[str], None] = print
    operator: bool = True  # without one nobody decides anything: `trainyard operator` may
    state: Path | None = None  # where the private folder is made; the system's temporary folder by default
    home: Path | None = None  # keep everything there instead
    working_directory: Path | None = None  # of pods without the annotation, see objects/labels.py
    hidden: tuple[Path, ...] = ()  # folders of the person's that pods see empty, beside what the cluster keeps
    history: HistoryOptions | None = None  # what is kept of each job; None: nothing
    kinds_first: frozenset[GVK] | None = None  # served when `start` returns, the others LATER; None: all
    early: EarlyStart | None = None  # what of a cluster without a home was started before; None: all starts with it


class LocalCluster:
    """Start with `await start()`, end with `await stop()`, or use `async with`. With a home: raises DiskError."""

    def __init__(self, options: Options, now: Callable[[], float] = time.time) -> None:
        self._options = options
        self._now = now
        self._folder: Folder | State | None = None
        self._state = State(options.home, options.say) if options.home else None
        self._operator: Operator | None = None
        self._workloads: Workloads | None = None
        self._images: Images | None = None
        self._node: Node | None = None
        self.history: HistoryRecorder | None = None
        self.interruption = ""  # why jobs that have not ended will not: for the history
        self.token = self._state.token if self._state else secrets.token_urlsafe(32)
        self.root_ca = ""
        log, key = (self._state.log, self._state.key) if self._state else (None, b"")
        self.server = Server(
            _checks(), self.token, now, log, kubelet_token=secrets.token_urlsafe(32), key=key, report=options.say
        )
        self._api: Api | None = None
        self._watchdog = Watchdog()  # everything runs on one loop: a part that holds it up stops all of it

    @property
    def api(self) -> Api:
        if self._api is None:
            raise RuntimeError("the cluster has not been started")
        return self._api

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise RuntimeError("the cluster has not been started")
        return self._folder.path

    @property
    def task_supervisors(self) -> dict[str, TaskSupervisor]:
        """The owners of all long-lived tasks of this cluster, by component."""
        parts = {"node": self._node, "workloads": self._workloads, "operator": self._operator, "history": self.history}
        owners = {name: part.tasks for name, part in parts.items() if part is not None}
        return {"API server": self.server.tasks, **owners}

    @property
    def network(self) -> str:
        """The network that was chosen."""
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

    async def start(self, submit: Callable[[], Awaitable[None]] | None = None) -> None:
        """Everything is up, and the kinds are served (but see `kinds_first`), when this returns. `submit` is called as
        soon as they are, while the node still starts."""
        options = self._options
        self._watchdog.start()
        self._images = Images(
            catalogues(options.images),
            options.cache or cache_folder(),
            options.say,
            python=options.python,
            progress=options.progress,
        )
        self._folder = self._state or (options.early.take_folder() if options.early else Folder(options.state))
        raise_descriptors()
        # Certificates take a while, most of it to load the library: meanwhile the rest starts.
        certified = asyncio.create_task(
            asyncio.to_thread(self._state.certified)
            if self._state
            else asyncio.to_thread(options.early.certified if options.early else _certified, self._folder.path)
        )
        await self.server.open()
        self._api = api = Api(INSIDE, self.token, transport=self.server.in_process())
        secure = asyncio.ensure_future(_first(certified))
        secure.add_done_callback(lambda done: done.cancelled() or done.exception())  # whoever awaits `certified` tells
        await self._open_door(secure)
        if options.history is not None and options.history.limits.jobs:
            self.history = HistoryRecorder(options.history, options.say, self._now)
        self._node = Node(
            api,
            self._folder.path,
            self._images,
            network=options.network,
            mounts=options.mounts,
            say=options.say,
            token=self.server.kubelet_token,
            now=self._now,
            apiserver=_address(self.server.tls_url),
            working_directory=options.working_directory,
            log_folder=self.history.log_folder if self.history else lambda pod: None,
            hidden=(options.home or self._folder.path, *options.hidden),
            helper=options.early.take_helper() if options.early else None,
            log_size=0 if options.history and options.history.logs else LOG_SIZE,  # a folder of the user's own: whole
        )
        self.server.kubelet = self._node.logs
        self._images.look_ahead(str(options.working_directory or ""))
        await _all(self._node.start(), self._start_controllers(api, certified, submit))

    async def _start_controllers(
        self,
        api: Api,
        certified: asyncio.Task[tuple[ssl.SSLContext, str]],
        submit: Callable[[], Awaitable[None]] | None,
    ) -> None:
        await self._install(kind for kind in kinds.ALL if self._first(kind))
        if others := [kind for kind in kinds.ALL if not self._first(kind)]:
            self.server.tasks.spawn("install kinds", self._install_later(others))
        mounted = frozenset(self._options.mounts)
        self._workloads = workloads = Workloads(api, self._now, mounted=mounted, report=self._options.say)

        async def trust() -> None:
            _, self.root_ca = await certified
            workloads.trust(self.root_ca)

        async def control() -> None:
            parts = [workloads.start(), *([self.start_operator()] if self._options.operator else [])]
            await _all(*parts, *([self.history.start(api)] if self.history else []))
            if submit is not None:
                await submit()

        await _all(trust(), control())

    async def _open_door(self, context: asyncio.Future[ssl.SSLContext]) -> None:
        """TLS, at the port of the life before where there was one and it is free."""
        state = self._state
        try:
            await self.server.start_tls(context, port=state.port if state else 0)
        except OSError as error:
            if state is None or not state.port or error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            await self.server.start_tls(context)
            text = f"port {state.port} is taken by another program, so the API server has another one"
            self._options.say(f"{text}; a kubeconfig written before no longer finds it")
        if state is not None:
            state.keep_port(_address(self.server.tls_url)[1])

    def _first(self, kind: Kind) -> bool:
        return self._options.kinds_first is None or kind.gvk in self._options.kinds_first

    async def _install_later(self, others: Iterable[Kind]) -> None:
        await asyncio.sleep(LATER)
        await self._install(others)

    async def _install(self, served: Iterable[Kind]) -> None:
        """What a cluster has from the beginning: our kinds. Where they are there already, as this program has them."""
        for kind in served:
            definition = kinds.crd(kind)
            vouch(definition)  # to examine ours takes as long as all the rest of a start
            try:
                await self.api.send(create(CRD, "", definition))  # the answer is as large, and nobody reads it
            except AlreadyExists:
                ours = {"metadata": {"labels": definition["metadata"].get("labels")}, "spec": definition["spec"]}
                await self.api.patch(CRD, "", definition["metadata"]["name"], ours)

    async def namespace(self, name: str) -> None:
        """Make a namespace, if it is not there."""
        with contextlib.suppress(AlreadyExists):
            await self.api.create(NAMESPACE, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    async def start_operator(self, api: Api | None = None) -> Operator:
        """Start an operator, with an Api of its own if one is given. It goes on where the one before it stopped."""
        await self.stop_operator()
        self._operator = Operator(
            api or self.api, kinds.ALL, self._options.config, now=self._now, report=self._options.say
        )
        await self._operator.start()
        return self._operator

    async def stop_operator(self) -> None:
        """Stop the operator where it is. Jobs run on; nobody decides anything until the next one is started."""
        operator, self._operator = self._operator, None
        if operator is not None:
            await operator.stop()

    async def stop_controllers(self) -> None:
        """From now on nobody makes pods: what is stopped stays stopped."""
        workloads, self._workloads = self._workloads, None
        await asyncio.gather(self.stop_operator(), *([workloads.stop()] if workloads else []))

    def resync(self) -> None:
        """Let everybody look at everything now: for whoever has moved the clock."""
        for one in (self._node, self._workloads, self._operator):
            if one is not None:
                one.resync()

    async def stop(self, kill: bool = False, keep: bool = False) -> None:
        """End every pod within its grace period (or at once), then everything else. May be called again to kill."""
        async with contextlib.AsyncExitStack() as end:  # the last is done first, and each whatever became of the others
            end.push_async_callback(self._watchdog.stop)
            if self._folder is not None:
                end.callback(self._folder.close, keep)
                self._folder = None
            elif self._state is not None:
                end.callback(self._state.close)
            end.push_async_callback(self.server.stop)
            if self._api is not None:
                end.push_async_callback(self._api.close)
            if self.history is not None:
                end.push_async_callback(self.history.close, kill, self.interruption)
            if self._node is not None:
                end.push_async_callback(self._node.stop, kill, self._state is not None)
            if self._images is not None:
                end.push_async_callback(self._images.close)
            end.push_async_callback(self.stop_controllers)

    def write_kubeconfig(self, path: Path | None = None, name: str = "trainyard") -> Path:
        """A file that kubectl takes, for this user only; in the private folder unless `path` says where."""
        path = path or self.folder / "kubeconfig"
        text = yaml.safe_dump(kubeconfig(self.server.tls_url, self.token, self.root_ca, name), sort_keys=False)
        write(path, text.encode())
        return path


def kubeconfig(url: str, token: str, root_ca: str, name: str = "trainyard") -> Json:
    trusted = base64.b64encode(root_ca.encode()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority-data": trusted}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }


async def _all(*work: Coroutine[Any, Any, object]) -> None:
    """Do all of it at once. Where one part fails the others are stopped, and its exception is raised."""
    tasks = [asyncio.ensure_future(part) for part in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _first(certified: asyncio.Task[tuple[ssl.SSLContext, str]]) -> ssl.SSLContext:
    return (await certified)[0]


def _certified(folder: Path) -> tuple[ssl.SSLContext, str]:
    """What the TLS door listens with, and the authority to trust. By the real clock: others judge it by theirs."""
    authority = Authority.new(time.time())
    return authority.context(folder), authority.pem


def _address(url: str) -> tuple[str, int]:
    """Host and port of a URL that names both."""
    found = urlsplit(url)
    return found.hostname or "", found.port or 0


def _checks() -> dict[tuple[str, str], Callable[[Json, Json | None], list[Any]]]:
    return {(kind.gvk.group, kind.gvk.kind): kinds.check(kind) for kind in kinds.ALL}
