"""The node: hears which pods are placed here, keeps one `Running` for each, and answers for their logs.

Rules: a pod is known by its uid, never by its name; what vanished while we looked away is stopped; pods that had ended
before we saw them are left alone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.client import Api, ApiError
from trainyard.controller_runtime import TaskSupervisor
from trainyard.node.cluster import Cluster
from trainyard.node.doors import TokenDoor
from trainyard.node.helper_process import HelperProcess
from trainyard.node.images import Images
from trainyard.node.inlets import Inlets
from trainyard.node.kubelet import Kubelet, Log, Refused
from trainyard.node.names import Directory, hostname_of
from trainyard.node.namespaced import NamespaceNetwork
from trainyard.node.network import Network, Outside
from trainyard.node.registration import Member
from trainyard.node.removing import remove
from trainyard.node.running import UNEXPECTED, Running
from trainyard.node.sandbox import Failed, Process, Sandbox, SandboxError
from trainyard.node.shared import SharedNetwork
from trainyard.node.starting import House
from trainyard.node.unsaved_files import report_claims
from trainyard.objects import Json, Key, is_true, key_of, name_of, namespace_of, uid_of

if TYPE_CHECKING:
    from trainyard.node import exec

log = logging.getLogger(__name__)

_SLACK = 5.0  # seconds for the dying of what was killed
LOG_SIZE = 64 << 20
_HEARTBEAT = 300.0  # seconds between two times that a Node says that it is there; its lease says so more often
_AGAIN = 1.0
_LAST_WORDS = 2.0  # seconds for the statuses of what has ended before the node does
_NETWORKS: dict[str, type[Network]] = {"namespace": NamespaceNetwork, "shared": SharedNetwork}


class NodeError(Exception):
    """The node cannot work on this machine; the message says why and what to try."""


class Node:
    def __init__(
        self,
        api: Api,
        state: Path,
        images: Images,
        *,
        network: str = "auto",
        name: str = "local",
        mounts: Mapping[str, Path] | None = None,
        say: Callable[[str], object] = print,
        token: str = "",
        now: Callable[[], float] = time.time,
        apiserver: tuple[str, int] | None = None,
        member: Member | None = None,
        working_directory: Path | None = None,
        log_folder: Callable[[Json], Path | None] = lambda pod: None,
        hidden: Sequence[Path] = (),
        log_size: int = LOG_SIZE,
        helper: HelperProcess | None = None,
    ) -> None:
        """`apiserver`: host and port where pods, by this machine's network, find the API server with TLS. `member` says
        all that, and more, of a node that joins a cluster of others. `working_directory`: of pods that name none.
        `log_folder`: where the logs of a pod are to outlive it; None leaves them with the pod. `hidden`: folders of
        this machine that pods see empty, in the network *namespace*. `log_size`: bytes of the log of one run of a
        container; what is longer loses its middle. 0 for no bound. `helper`: one that was started before."""
        self._now = now
        self._log_folder, self._log_size = log_folder, log_size
        self._hidden, self._early = hidden, helper
        self.name, self.wanted = name, network
        self.network = ""  # the one that was chosen, once started
        self._state, self._images, self._mounts, self._say = state, images, dict(mounts or {}), say
        self._member = member or Member(TokenDoor(token), Outside(apiserver))
        self._working_directory = working_directory
        self._cluster = Cluster(api, name, say, self._member)
        self._directory = Directory()
        self._kubelet = Kubelet(self._log, self._enter, self._socket, self._member.door)
        self._inlets = Inlets(state / "inlets")
        self._running: dict[str, Running] = {}
        self.tasks = TaskSupervisor("node", say, self._say_so)
        self._problem = ""  # why no container can be started
        self._house: House | None = None
        self._swept = False
        self._leaving = False
        self._renewing: asyncio.Task[None] | None = None
        self._stale = False  # the Node object does not say yet how the node is

    async def start(self) -> None:
        """Choose the network, register, and begin to run pods. Raises NodeError when no network works."""
        for folder in (self._state, self._state / "probe"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        sandbox, network = await self._choose()
        self.network = network.name
        cluster = self._cluster
        self._house = House(cluster, sandbox, network, self._images, self._state, self._mounts, self._say, self._now)
        self._house.working_directory = self._working_directory
        self._house.scheduled = self._member.comes_and_goes
        self._house.log_folder, self._house.log_size = self._log_folder, self._log_size
        try:
            await self._kubelet.start()
            await cluster.register(self._kubelet.port, self._now())
        except BaseException:
            await self.stop(kill=True)
            raise
        self.tasks.start("watch services", cluster.services(self._services, self._service).run)
        self.tasks.start("watch pods", cluster.pods(self._pods, self._pod).run)
        if self._member.comes_and_goes:
            self.tasks.start("watch its Node", cluster.node(self._nodes, self._itself).run)
            self.tasks.start("heartbeat", self._beat)

    async def leave(self, kill: bool, seconds: float = _SLACK) -> bool:
        """Before `stop`: end all pods and tell the API server how. False when it does not answer so many seconds."""
        if self._house is None:
            return True
        self._leaving, heard = True, True
        try:
            async with asyncio.timeout(seconds):
                await self._cluster.go(self._now())
        except (ApiError, TimeoutError):
            heard = False
        pods = list(self._running.values())
        for one in pods:
            one.evict(kill)
        patience = _SLACK + (0.0 if kill else max((one.life.grace for one in pods), default=0.0))
        try:
            async with asyncio.timeout(patience):
                await asyncio.gather(*(one.over.wait() for one in pods))
            async with asyncio.timeout(seconds if heard else 0.0):
                await asyncio.gather(*(one.told.wait() for one in pods))
        except TimeoutError:
            heard = False
        return heard

    async def withdraw(self, seconds: float = _SLACK) -> bool:
        """After `stop`: take the Node object away, if a life of this node made it. Raises TimeoutError, ApiError."""
        async with asyncio.timeout(seconds):
            return await self._cluster.withdraw()

    async def stop(self, kill: bool = False, returns: bool = False) -> None:
        """End all pods, each within its grace period or at once, then everything else. Can be called again to kill.
        `returns`: there will be another life. Pods that may start again are left for it as they were; those that may
        not end now, as a kubelet has it when its machine is shut down."""
        house = self._house
        if house is None:
            return
        if returns:
            await self._part(kill)
        house.closing = True
        self.tasks.cancel_all()
        for one in self._running.values():
            if not one.over.is_set():
                one.stop(kill)
        try:
            # Bounded: closing the sandbox ends whatever did not end in time.
            patience = _SLACK + (0.0 if kill else max((one.life.grace for one in self._running.values()), default=0.0))
            async with asyncio.timeout(patience):
                await asyncio.gather(*(one.over.wait() for one in self._running.values()))
        except TimeoutError:
            self._say("node: some containers did not end in time; killing them")
        finally:
            if not returns:
                owner = "node" if self._member.comes_and_goes else "cluster"
                await asyncio.to_thread(report_claims, self._state / "claims", owner, self._say)
            await self._kubelet.stop()
            self._inlets.close()
            await house.network.stop()
            await house.sandbox.close()
            await self.tasks.stop()  # one may wait for an API server that is away
            await asyncio.gather(*(one.abandon() for one in self._running.values()), return_exceptions=True)
            self._house = None

    async def _part(self, kill: bool) -> None:
        pods = list(self._running.values())
        if told := [task for one in pods if (task := one.writing)]:
            await asyncio.wait(told, timeout=0.0 if kill else _LAST_WORDS)  # what had ended by itself, among others
        ending = [one for one in pods if one.life.policy == "Never"]
        for one in pods:
            if one in ending:
                one.evict(kill)
            elif not one.over.is_set():
                one.quiet = True
                one.stop(kill)
        patience = _SLACK + (0.0 if kill else max((one.life.grace for one in pods), default=0.0))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await asyncio.gather(*(one.over.wait() for one in pods), *(one.told.wait() for one in ending))

    def resync(self) -> None:
        """Look at every pod now: for whoever has moved the clock."""
        for one in self._running.values():
            one.look()

    async def reach(self, namespace: str, service: str, port: int) -> str:
        """Where a browser on this machine finds that port of a Service: host and port on loopback."""
        if self._house is None:
            raise NodeError("the node is not running")
        return f"127.0.0.1:{await self._house.network.reach(Key(namespace, service), port)}"

    # The network.

    async def _choose(self) -> tuple[Sandbox, Network]:
        if self.wanted != "auto":
            try:
                return await self._try(self.wanted)
            except SandboxError as error:
                other = next(name for name in _NETWORKS if name != self.wanted)
                text = f"the network '{self.wanted}' does not work here: {error}; try --network {other}"
                raise NodeError(text) from None
        reasons = []
        for name in _NETWORKS:
            try:
                found = await self._try(name)
            except SandboxError as error:
                reasons.append(f"{name} does not work here: {error}")
            else:
                self._say(f"network: {name}" + (f" ({'; '.join(reasons)})" if reasons else ""))
                return found
        raise NodeError("; ".join(reasons))

    async def _try(self, mode: str) -> tuple[Sandbox, Network]:
        """A network that works: a program has really been started in it."""
        if mode not in _NETWORKS:
            raise NodeError(f"there is no network {mode!r}; write one of auto, {', '.join(_NETWORKS)}")
        proven: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def exited(container: str, code: int, reason: str, unsaved: dict[str, Any]) -> None:
            if container == "probe":
                proven.set_result(code)
            else:
                self._exited(container, code, reason, unsaved)

        sandbox = Sandbox(mode, exited, self._lost, self._hidden)
        await sandbox.start(self._helper_process(mode))
        network = _NETWORKS[mode](sandbox, self._directory, self._say, self._member.outside)
        try:
            await _probe(sandbox, self._state / "probe", proven)
            await network.start()
        except BaseException as error:
            await sandbox.close()
            if isinstance(error, OSError | Failed):
                raise SandboxError(str(error)) from None
            raise
        return sandbox, network

    def _helper_process(self, mode: str) -> HelperProcess:
        """The one that was started before this node, if it is for this network, else a new one."""
        helper, self._early = self._early, None
        if helper is not None and helper.mode == mode:
            return helper
        if helper is not None:
            helper.close()
        return HelperProcess(mode, self._state / "hub.log")

    def _lost(self) -> None:
        """The helper was killed. Everything below it is dead; start another and go on."""
        if self._house and not self._house.closing:
            self.tasks.spawn("restart the helper", self._recover(self._house))
        else:
            for one in list(self._running.values()):
                one.lost()

    async def _recover(self, house: House) -> None:
        self._say("node: the helper process was killed, and all containers with it; starting another")
        await house.network.stop()
        await house.sandbox.close()
        try:
            house.sandbox, house.network = await self._try(house.network.name)
            self._problem = ""
        except SandboxError as error:
            self._problem = f"node: the helper cannot be started again: {error}"
            self._say(self._problem)
        self._say_so()
        for one in list(self._running.values()):
            one.lost()
        await house.network.services_changed()

    def _exited(self, container: str, code: int, reason: str, unsaved: dict[str, Any]) -> None:
        uid, name, run = container.split("/")
        if one := self._running.get(uid):
            one.exited(name, int(run), code, reason, unsaved)

    # The Node object, of which others write, too.

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT)
            self._say_so()

    def _nodes(self, nodes: list[Json]) -> None:
        if nodes:
            self._itself("MODIFIED", nodes[0])
        else:
            self._itself("DELETED", {})

    def _itself(self, verb: str, node: Json) -> None:
        """A node that was away too long is said to be unknown, and one may be deleted: it says that it is there."""
        ready = is_true((node.get("status") or {}).get("conditions"), "Ready")
        if verb == "DELETED" or not ready:
            self._say_so()

    def _say_so(self) -> None:
        if self._house is None or self._house.closing or self._leaving:
            return
        self._stale = True
        if self._renewing is None or self._renewing.done():
            self._renewing = self.tasks.spawn("renew the Node", self._renew())

    async def _renew(self) -> None:
        while self._stale and not self._leaving:
            try:
                self._stale = False
                await self._cluster.register(self._kubelet.port, self._now(), self._problem or self.tasks.failing)
            except ApiError as error:
                self._stale = True
                log.warning("the Node is not renewed yet why=%s", error)
                await asyncio.sleep(_AGAIN)

    # What the watches say.

    def _services(self, services: list[Json]) -> None:
        self._directory.replace_services(services)
        self._adapt()

    def _service(self, verb: str, service: Json) -> None:
        if verb == "DELETED":
            self._directory.services.pop(key_of(service), None)
        else:
            self._directory.services[key_of(service)] = service
        self._adapt()

    def _adapt(self) -> None:
        if self._house:
            self.tasks.spawn("adapt to Services", self._house.network.services_changed())

    def _pods(self, pods: list[Json]) -> None:
        present = {uid_of(pod) for pod in pods}
        if not self._swept:
            self._swept = True
            there = (self._state / "pods").glob("*")  # some of pods that have gone since a former life
            gone = [folder for folder in there if folder.name.rpartition("_")[2] not in present]
            self.tasks.spawn("remove folders of pods that are gone", asyncio.to_thread(_remove, gone))
        for uid, one in list(self._running.items()):
            if uid not in present:
                one.vanished()
        for pod in pods:
            self._pod("ADDED", pod)

    def _pod(self, verb: str, pod: Json) -> None:
        """An exception becomes the end of this pod: the watch goes on with the others."""
        try:
            self._place(verb, pod)
        except Exception as error:  # before there is a `Running` of it: that contains its own
            self._reject(pod, error)

    def _reject(self, pod: Json, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        log.error("a pod cannot be taken in pod=%s/%s", namespace_of(pod), name_of(pod), exc_info=error)
        self._say(f"node: pod {name_of(pod)}_{namespace_of(pod)} ends: {text}")
        meta = pod.get("metadata") or {}
        if meta.get("deletionTimestamp"):
            self.tasks.spawn("remove a pod that cannot be taken in", self._cluster.forget(pod))
        elif (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            self.tasks.spawn("end a pod that cannot be taken in", self._cluster.end_pod(pod, UNEXPECTED, text))

    def _place(self, verb: str, pod: Json) -> None:
        known = self._running.get(uid_of(pod))
        if verb == "DELETED":
            if known:
                known.vanished()
        elif known:
            known.seen(pod)
        elif self._house and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            one = Running(self._house, pod, self._gone)
            self._running[one.uid] = one
            one.begin()
            if not self._house.network.alone:
                self._adapt()  # a Service that is also this pod's name is the pod's from now on
        elif self._house and pod["metadata"].get("deletionGracePeriodSeconds"):
            self.tasks.spawn(
                "delete an ended pod", self._cluster.forget(pod)
            )  # it had ended, and then the life before ours was killed
        elif self._house and (one := Running(self._house, pod, self._gone)).remember():
            self._running[one.uid] = one

    def _gone(self, one: Running) -> None:
        self._running.pop(one.uid, None)
        self._inlets.close(one.uid)

    def logs(self, url: str, gone: Callable[[], bool]) -> tuple[int, AsyncIterator[bytes]]:
        """As Kubelet.logs."""
        return self._kubelet.logs(url, gone)

    # What the kubelet's face is asked.

    def _log(self, namespace: str, pod: str, container: str, previous: bool) -> Log:
        return self._named(namespace, pod).log(container, previous)

    def _enter(self, namespace: str, pod: str, container: str, asked: exec.Asked) -> exec.Start:
        return self._named(namespace, pod).enter(container, asked)

    async def _socket(self, namespace: str, pod: str, port: int) -> Path:
        one = self._named(namespace, pod)
        if one.over.is_set():
            raise Refused(503, f"pod {namespace}/{pod} has ended")
        who = f"{namespace}/{hostname_of(one.pod)}"
        return await self._inlets.to(one.uid, port, lambda: one.house.network.dial(who, one.address, port))

    def _named(self, namespace: str, pod: str) -> Running:
        for one in reversed(self._running.values()):
            if (namespace_of(one.pod), name_of(one.pod)) == (namespace, pod):
                return one
        raise Refused(404, f"pod {namespace}/{pod} is not on this node")


def _remove(folders: list[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            remove(folder)


async def _probe(sandbox: Sandbox, folder: Path, proven: asyncio.Future[int]) -> None:
    """Start a program as a container would be, and see it end."""
    await sandbox.add_pod("probe", "probe", "10.244.255.254", [])
    with open("/dev/null", "wb") as nothing:  # noqa: ASYNC230  (a device)
        process = Process("probe", "probe", ["/bin/sh", "-c", "exit 0"], {}, "/", str(folder))
        await sandbox.spawn(process, nothing.fileno())
    code = await proven
    await sandbox.remove_pod("probe")
    if code != 0:
        raise OSError(f"a first program ended with {code}")
