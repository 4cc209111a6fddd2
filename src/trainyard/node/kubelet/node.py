"""The node: watches the pods that are scheduled to it, has one `PodWorker` for each, and serves their logs.

Rules: a pod is identified by its uid, never by its name; a pod that was deleted while no watch was open is stopped; a
pod that is already Succeeded or Failed when it is first seen is not started."""

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
from trainyard.node.images import Images
from trainyard.node.kubelet.api_client import Cluster
from trainyard.node.kubelet.authentication import TokenAuthenticator
from trainyard.node.kubelet.container_runtime import NodeContext
from trainyard.node.kubelet.pod_sockets import PodSockets
from trainyard.node.kubelet.pod_worker import UNEXPECTED_ADMISSION_ERROR, PodWorker
from trainyard.node.kubelet.registration import NodeConfig
from trainyard.node.kubelet.removal import remove
from trainyard.node.kubelet.server import Kubelet, Log, RequestError
from trainyard.node.kubelet.supervisor_client import Process, Sandbox, SandboxError, StartError
from trainyard.node.kubelet.supervisor_process import HelperProcess
from trainyard.node.kubelet.unsaved_files import report_claims
from trainyard.node.network.directory import Directory, hostname_of
from trainyard.node.network.namespaced import NamespaceNetwork
from trainyard.node.network.pod_network import ClusterNetwork, Network
from trainyard.node.network.shared import SharedNetwork
from trainyard.objects import Json, NamespacedName, is_condition_true, key_of, name_of, namespace_of, uid_of

if TYPE_CHECKING:
    from trainyard.node.kubelet import exec

log = logging.getLogger(__name__)

_KILL_SECONDS = 5.0  # seconds until killed processes have ended
LOG_SIZE = 64 << 20
_HEARTBEAT_SECONDS = 300.0  # seconds between two updates of the Node's status; its Lease is renewed more often
_RENEW_RETRY_SECONDS = 1.0
_STATUS_WRITE_SECONDS = 2.0  # seconds for the status writes in progress when the node stops
_NETWORKS: dict[str, type[Network]] = {"namespace": NamespaceNetwork, "shared": SharedNetwork}


class NodeError(Exception):
    """The node does not work on this machine; the message has the reason and what to try."""


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
        print_message: Callable[[str], object] = print,
        token: str = "",
        now: Callable[[], float] = time.time,
        apiserver: tuple[str, int] | None = None,
        member: NodeConfig | None = None,
        working_directory: Path | None = None,
        log_folder: Callable[[Json], Path | None] = lambda pod: None,
        hidden: Sequence[Path] = (),
        log_size: int = LOG_SIZE,
        helper: HelperProcess | None = None,
    ) -> None:
        """`apiserver`: host and port of the API server with TLS, for pods on this machine's network; `member` replaces
        it for a node that joins another cluster. `working_directory`: for pods without the annotation. `log_folder`:
        the folder in which the logs of a pod outlive it; None keeps them in the pod's folder. `hidden`: folders of this
        machine that pods see empty (network *namespace* only). `log_size`: maximum size in bytes of the log of one run
        of a container, from a longer log the middle is removed; 0 for no limit. `helper`: a helper process that has
        been started already."""
        self._now = now
        self._log_folder, self._log_size = log_folder, log_size
        self._hidden, self._early_helper = hidden, helper
        self.name, self.requested_network = name, network
        self.network = ""  # name of the network that works, set by `start`
        self._state, self._images, self._mounts, self._say = state, images, dict(mounts or {}), print_message
        self._member = member or NodeConfig(TokenAuthenticator(token), ClusterNetwork(apiserver))
        self._working_directory = working_directory
        self._cluster = Cluster(api, name, print_message, self._member)
        self._directory = Directory()
        self._kubelet = Kubelet(self._pod_log, self._start_exec, self._pod_socket, self._member.authenticator)
        self._inlets = PodSockets(state / "inlets")
        self._pod_workers: dict[str, PodWorker] = {}
        self.tasks = TaskSupervisor("node", print_message, self._refresh_node_object)
        self._problem = ""  # why no container can be started
        self._context: NodeContext | None = None
        self._folders_swept = False
        self._leaving = False
        self._renewal: asyncio.Task[None] | None = None
        self._node_object_stale = False  # the status of the Node object is still to be written

    async def start(self) -> None:
        """Choose the network, register the Node, start the watches. Raises NodeError when no network works,
        ApiError."""
        for folder in (self._state, self._state / "probe"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        sandbox, network = await self._choose_network()
        self.network = network.name
        cluster = self._cluster
        self._context = NodeContext(
            cluster, sandbox, network, self._images, self._state, self._mounts, self._say, self._now
        )
        self._context.working_directory = self._working_directory
        self._context.has_scheduler = self._member.joined
        self._context.log_folder, self._context.log_size = self._log_folder, self._log_size
        try:
            await self._kubelet.start()
            await cluster.register(self._kubelet.port, self._now())
        except BaseException:
            await self.stop(kill=True)
            raise
        self.tasks.start("watch services", cluster.services(self._on_services_listed, self._on_service).run)
        self.tasks.start("watch pods", cluster.pods(self._on_pods_listed, self._on_pod).run)
        if self._member.joined:
            self.tasks.start("watch its Node", cluster.node(self._on_nodes_listed, self._on_node).run)
            self.tasks.start("heartbeat", self._heartbeat)

    async def drain(self, kill: bool, timeout: float = _KILL_SECONDS) -> bool:
        """Before `stop`: end all pods and write their statuses. False when the API server does not answer within
        `timeout` seconds."""
        if self._context is None:
            return True
        self._leaving, answered = True, True
        try:
            async with asyncio.timeout(timeout):
                await self._cluster.cordon(self._now())
        except (ApiError, TimeoutError):
            answered = False
        pods = list(self._pod_workers.values())
        for worker in pods:
            worker.evict(kill)
        grace = 0.0 if kill else max((worker.state.grace for worker in pods), default=0.0)
        try:
            async with asyncio.timeout(_KILL_SECONDS + grace):
                await asyncio.gather(*(worker.ended.wait() for worker in pods))
            async with asyncio.timeout(timeout if answered else 0.0):
                await asyncio.gather(*(worker.end_reported.wait() for worker in pods))
        except TimeoutError:
            answered = False
        return answered

    async def deregister(self, timeout: float = _KILL_SECONDS) -> bool:
        """After `stop`: delete the Node object, if this node has created it. Raises TimeoutError, ApiError."""
        async with asyncio.timeout(timeout):
            return await self._cluster.deregister()

    async def stop(self, kill: bool = False, will_restart: bool = False) -> None:
        """End all pods, within their grace periods or (`kill`) at once, then everything else. May be called again to
        kill. `will_restart`: the node will be started again. Pods that may restart keep their status for that; pods
        with restartPolicy Never end as Failed, as with a kubelet whose machine is shut down."""
        context = self._context
        if context is None:
            return
        if will_restart:
            await self._leave_pods_for_restart(kill)
        context.closing = True
        self.tasks.cancel_all()
        for worker in self._pod_workers.values():
            if not worker.ended.is_set():
                worker.stop(kill)
        try:
            # With a timeout: closing the sandbox kills the containers that are left.
            timeout = _KILL_SECONDS + (
                0.0 if kill else max((worker.state.grace for worker in self._pod_workers.values()), default=0.0)
            )
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(worker.ended.wait() for worker in self._pod_workers.values()))
        except TimeoutError:
            self._say("node: some containers did not end in time; killing them")
        finally:
            if not will_restart:
                owner = "node" if self._member.joined else "cluster"
                await asyncio.to_thread(report_claims, self._state / "claims", owner, self._say)
            await self._kubelet.stop()
            self._inlets.close()
            await context.network.stop()
            await context.sandbox.close()
            await self.tasks.stop()  # a task may wait for an API server that does not answer
            await asyncio.gather(
                *(worker.cancel_tasks() for worker in self._pod_workers.values()), return_exceptions=True
            )
            self._context = None

    async def _leave_pods_for_restart(self, kill: bool) -> None:
        pods = list(self._pod_workers.values())
        if status_writes := [task for worker in pods if (task := worker.status_write)]:
            await asyncio.wait(
                status_writes, timeout=0.0 if kill else _STATUS_WRITE_SECONDS
            )  # also the statuses of pods that ended by themselves
        ending = [worker for worker in pods if worker.state.policy == "Never"]
        for worker in pods:
            if worker in ending:
                worker.evict(kill)
            elif not worker.ended.is_set():
                worker.keep_status = True
                worker.stop(kill)
        timeout = _KILL_SECONDS + (0.0 if kill else max((worker.state.grace for worker in pods), default=0.0))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await asyncio.gather(
                    *(worker.ended.wait() for worker in pods), *(worker.end_reported.wait() for worker in ending)
                )

    def resync(self) -> None:
        """Feed a `Tick` to every pod: for a caller that has set the clock."""
        for worker in self._pod_workers.values():
            worker.tick()

    async def forward_to_service(self, namespace: str, service: str, port: int) -> str:
        """`host:port` on loopback that leads to that port of a Service, for a browser. Raises NodeError, OSError."""
        if self._context is None:
            raise NodeError("the node is not running")
        return f"127.0.0.1:{await self._context.network.forward_to_service(NamespacedName(namespace, service), port)}"

    # The network.

    async def _choose_network(self) -> tuple[Sandbox, Network]:
        if self.requested_network != "auto":
            try:
                return await self._start_network(self.requested_network)
            except SandboxError as error:
                other = next(name for name in _NETWORKS if name != self.requested_network)
                text = f"the network '{self.requested_network}' does not work here: {error}; try --network {other}"
                raise NodeError(text) from None
        reasons = []
        for name in _NETWORKS:
            try:
                started = await self._start_network(name)
            except SandboxError as error:
                reasons.append(f"{name} does not work here: {error}")
            else:
                self._say(f"network: {name}" + (f" ({'; '.join(reasons)})" if reasons else ""))
                return started
        raise NodeError("; ".join(reasons))

    async def _start_network(self, mode: str) -> tuple[Sandbox, Network]:
        """Start a sandbox with that network and a probe program in it. Raises SandboxError when it does not work,
        NodeError for an unknown mode."""
        if mode not in _NETWORKS:
            raise NodeError(f"there is no network {mode!r}; write one of auto, {', '.join(_NETWORKS)}")
        probe_exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def exited(container: str, code: int, reason: str, unsaved: dict[str, Any]) -> None:
            if container == "probe":
                probe_exit.set_result(code)
            else:
                self._on_exited(container, code, reason, unsaved)

        sandbox = Sandbox(mode, exited, self._on_helper_lost, self._hidden)
        await sandbox.start(self._helper_process(mode))
        network = _NETWORKS[mode](sandbox, self._directory, self._say, self._member.cluster_network)
        try:
            await _probe(sandbox, self._state / "probe", probe_exit)
            await network.start()
        except BaseException as error:
            await sandbox.close()
            if isinstance(error, OSError | StartError):
                raise SandboxError(str(error)) from None
            raise
        return sandbox, network

    def _helper_process(self, mode: str) -> HelperProcess:
        """The helper process that was passed to the node, which is for the first network it tries; later a new one.
        Raises OSError."""
        helper, self._early_helper = self._early_helper, None
        return helper or HelperProcess(mode, self._state / "supervisor.log")

    def _on_helper_lost(self) -> None:
        """The helper process was killed, and with it all containers: start another one."""
        if self._context and not self._context.closing:
            self.tasks.spawn("restart the helper", self._restart_helper(self._context))
        else:
            for worker in list(self._pod_workers.values()):
                worker.helper_lost()

    async def _restart_helper(self, context: NodeContext) -> None:
        self._say("node: the helper process was killed, and all containers with it; starting another")
        await context.network.stop()
        await context.sandbox.close()
        try:
            context.sandbox, context.network = await self._start_network(context.network.name)
            self._problem = ""
        except SandboxError as error:
            self._problem = f"node: the helper cannot be started again: {error}"
            self._say(self._problem)
        self._refresh_node_object()
        for worker in list(self._pod_workers.values()):
            worker.helper_lost()
        await context.network.services_changed()

    def _on_exited(self, container: str, code: int, reason: str, unsaved: dict[str, Any]) -> None:
        uid, name, run = container.split("/")
        if worker := self._pod_workers.get(uid):
            worker.container_exited(name, int(run), code, reason, unsaved)

    # The Node object, which the node controller writes, too.

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            self._refresh_node_object()

    def _on_nodes_listed(self, nodes: list[Json]) -> None:
        if nodes:
            self._on_node("MODIFIED", nodes[0])
        else:
            self._on_node("DELETED", {})

    def _on_node(self, verb: str, node: Json) -> None:
        """The node controller sets Ready to Unknown without heartbeats, and the object may be deleted: write it
        again."""
        ready = is_condition_true((node.get("status") or {}).get("conditions"), "Ready")
        if verb == "DELETED" or not ready:
            self._refresh_node_object()

    def _refresh_node_object(self) -> None:
        if self._context is None or self._context.closing or self._leaving:
            return
        self._node_object_stale = True
        if self._renewal is None or self._renewal.done():
            self._renewal = self.tasks.spawn("renew the Node", self._renew_node_object())

    async def _renew_node_object(self) -> None:
        while self._node_object_stale and not self._leaving:
            try:
                self._node_object_stale = False
                await self._cluster.register(self._kubelet.port, self._now(), self._problem or self.tasks.failing)
            except ApiError as error:
                self._node_object_stale = True
                log.warning("the Node is not renewed yet why=%s", error)
                await asyncio.sleep(_RENEW_RETRY_SECONDS)

    # Handlers of the watches.

    def _on_services_listed(self, services: list[Json]) -> None:
        self._directory.replace_services(services)
        self._services_changed()

    def _on_service(self, verb: str, service: Json) -> None:
        if verb == "DELETED":
            self._directory.services.pop(key_of(service), None)
        else:
            self._directory.services[key_of(service)] = service
        self._services_changed()

    def _services_changed(self) -> None:
        if self._context:
            self.tasks.spawn("adapt to Services", self._context.network.services_changed())

    def _on_pods_listed(self, pods: list[Json]) -> None:
        present = {uid_of(pod) for pod in pods}
        if not self._folders_swept:
            self._folders_swept = True
            pod_folders = (self._state / "pods").glob(
                "*"
            )  # some belong to pods that were deleted while the node was stopped
            stale_folders = [folder for folder in pod_folders if folder.name.rpartition("_")[2] not in present]
            self.tasks.spawn("remove folders of pods that are gone", asyncio.to_thread(_remove_folders, stale_folders))
        for uid, worker in list(self._pod_workers.items()):
            if uid not in present:
                worker.object_deleted()
        for pod in pods:
            self._on_pod("ADDED", pod)

    def _on_pod(self, verb: str, pod: Json) -> None:
        """An exception ends this pod as Failed; the watch continues."""
        try:
            self._apply_pod(verb, pod)
        except Exception as error:  # a `PodWorker` handles its own exceptions; this one came before it exists
            self._reject(pod, error)

    def _reject(self, pod: Json, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        log.error("a pod cannot be taken in pod=%s/%s", namespace_of(pod), name_of(pod), exc_info=error)
        self._say(f"node: pod {name_of(pod)}_{namespace_of(pod)} ends: {text}")
        meta = pod.get("metadata") or {}
        if meta.get("deletionTimestamp"):
            self.tasks.spawn("remove a pod that cannot be taken in", self._cluster.delete_pod(pod))
        elif (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            self.tasks.spawn(
                "end a pod that cannot be taken in", self._cluster.end_pod(pod, UNEXPECTED_ADMISSION_ERROR, text)
            )

    def _apply_pod(self, verb: str, pod: Json) -> None:
        worker = self._pod_workers.get(uid_of(pod))
        if verb == "DELETED":
            if worker:
                worker.object_deleted()
        elif worker:
            worker.object_changed(pod)
        elif self._context and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            new_worker = PodWorker(self._context, pod, self._on_pod_gone)
            self._pod_workers[new_worker.uid] = new_worker
            new_worker.start()
            if not self._context.network.isolated_network:
                self._services_changed()  # a Service with this pod's name is no longer forwarded
        elif self._context and pod["metadata"].get("deletionGracePeriodSeconds"):
            self.tasks.spawn(
                "delete an ended pod", self._cluster.delete_pod(pod)
            )  # it had ended, and the node was killed before it deleted the object
        elif self._context and (new_worker := PodWorker(self._context, pod, self._on_pod_gone)).restore_ended():
            self._pod_workers[new_worker.uid] = new_worker

    def _on_pod_gone(self, worker: PodWorker) -> None:
        self._pod_workers.pop(worker.uid, None)
        self._inlets.close(worker.uid)

    def logs(self, url: str, gone: Callable[[], bool]) -> tuple[int, AsyncIterator[bytes]]:
        """See Kubelet.logs."""
        return self._kubelet.logs(url, gone)

    # Requests to the kubelet API.

    def _pod_log(self, namespace: str, pod: str, container: str, previous: bool) -> Log:
        return self._pod_worker(namespace, pod).log(container, previous)

    def _start_exec(self, namespace: str, pod: str, container: str, asked: exec.ExecRequest) -> exec.Start:
        return self._pod_worker(namespace, pod).exec(container, asked)

    async def _pod_socket(self, namespace: str, pod: str, port: int) -> Path:
        worker = self._pod_worker(namespace, pod)
        if worker.ended.is_set():
            raise RequestError(503, f"pod {namespace}/{pod} has ended")
        pod_name = f"{namespace}/{hostname_of(worker.pod)}"
        return await self._inlets.open(
            worker.uid, port, lambda: worker.node_context.network.dial(pod_name, worker.address, port)
        )

    def _pod_worker(self, namespace: str, pod: str) -> PodWorker:
        for worker in reversed(self._pod_workers.values()):
            if (namespace_of(worker.pod), name_of(worker.pod)) == (namespace, pod):
                return worker
        raise RequestError(404, f"pod {namespace}/{pod} is not on this node")


def _remove_folders(folders: list[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            remove(folder)


async def _probe(sandbox: Sandbox, folder: Path, exit_code: asyncio.Future[int]) -> None:
    """Start a program as a container would be started, and wait for its end. Raises OSError, Failed, SandboxError."""
    await sandbox.add_pod("probe", "probe", "10.244.255.254", [])
    with open("/dev/null", "wb") as devnull:  # noqa: ASYNC230  (a device)
        process = Process("probe", "probe", ["/bin/sh", "-c", "exit 0"], {}, "/", str(folder))
        await sandbox.spawn(process, devnull.fileno())
    code = await exit_code
    await sandbox.remove_pod("probe")
    if code != 0:
        raise OSError(f"a first program ended with {code}")
