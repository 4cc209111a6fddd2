"""The node: watches the pods that are scheduled to it, the Services and its Node object, and owns the parts that handle
them: the starter of its network, the manager of its pods, the updater of its Node object, and the kubelet API."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from trainyard.client import ApiClient, ApiError
from trainyard.controller_runtime import TaskSupervisor
from trainyard.node.devices.kernel_log import KernelLog
from trainyard.node.devices.manager import DeviceManager
from trainyard.node.devices.processes import use_by_pod, with_devices
from trainyard.node.devices.sampler import DeviceSampler
from trainyard.node.devices.use_report import report_use
from trainyard.node.images import Images
from trainyard.node.kubelet import node_shutdown
from trainyard.node.kubelet.api.authentication import TokenAuthenticator
from trainyard.node.kubelet.api.pod_sockets import PodSockets
from trainyard.node.kubelet.api_client import NodeApiClient
from trainyard.node.kubelet.kubelet_api import KubeletApi
from trainyard.node.kubelet.network_starter import NetworkStarter, NodeError
from trainyard.node.kubelet.node_context import NodeContext
from trainyard.node.kubelet.node_shutdown import KILL_SECONDS
from trainyard.node.kubelet.node_status import NodeStatusUpdater
from trainyard.node.kubelet.pod_manager import PodManager
from trainyard.node.kubelet.registration import NodeConfig
from trainyard.node.kubelet.service_watch import ServiceWatch
from trainyard.node.kubelet.usage.usage import UsageSampler
from trainyard.node.kubelet.volumes.unsaved_files import report_claims
from trainyard.node.network.directory import Directory
from trainyard.node.network.pod_network import ClusterNetwork
from trainyard.node.sandbox.supervisor_client import SandboxCallbacks, SandboxError
from trainyard.node.sandbox.supervisor_process import SupervisorProcess
from trainyard.objects import Json, NamespacedName
from trainyard.objects.usage import DeviceUsage, NodeUsage, UsageReport
from trainyard.views.device_metrics import device_metrics

__all__ = ["LOG_SIZE", "Node", "NodeError"]

LOG_SIZE = 64 << 20


class Node:
    """`apiserver`: host and port of the API server with TLS, for pods on this machine's network; `member` replaces it
    for a node that joins another cluster. `working_directory`: for pods without the annotation. `log_folder`: the
    folder in which the logs of a pod outlive it; None keeps them in the pod's folder. `hidden`: folders of this machine
    that pods see empty (network *namespace* only). `log_size`: maximum size in bytes of the log of one run of a
    container, from a longer log the middle is removed; 0 for no limit. `supervisor`: a supervisor that has been started
    already."""

    def __init__(  # noqa: PLR0913  (options of a node, all but three with a default)
        self,
        api: ApiClient,
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
        supervisor: SupervisorProcess | None = None,
    ) -> None:
        self._now = now
        self._log_folder, self._log_size = log_folder, log_size
        self.name, self.requested_network = name, network
        self.network = ""  # name of the network that works, set by `start`
        self.changes_users = False  # whether programs can have another user than this process, set by `start`
        self.network_chosen = asyncio.Event()
        self._state, self._images, self._mounts, self._say = state, images, dict(mounts or {}), print_message
        self._member = member or NodeConfig(TokenAuthenticator(token), ClusterNetwork(apiserver))
        self._working_directory = working_directory
        self._cluster = NodeApiClient(api, name, print_message, self._member)
        self._directory = Directory()
        self._problem = ""  # why no container can be started
        self._context: NodeContext | None = None
        self._make_parts(hidden, supervisor)

    def _make_parts(self, hidden: Sequence[Path], supervisor: SupervisorProcess | None) -> None:
        self.tasks = TaskSupervisor("node", self._say, lambda: self._node_status.refresh())
        self._node_status = NodeStatusUpdater(
            self._register, lambda: self._context is not None and not self._context.closing, self.tasks
        )
        self._services = ServiceWatch(
            self._directory, lambda: self._context.network if self._context else None, self.tasks
        )
        sockets = PodSockets(self._state / "inlets")
        self._pods = PodManager(
            self._cluster, self._state, self.tasks, self._say, on_added=self._services.pod_added, on_gone=sockets.close
        )
        self._kubelet = KubeletApi(
            self._pods.find, sockets, self._member.authenticator, lambda: device_metrics(self.usage())
        )
        self._network_starter = NetworkStarter(
            self._state,
            self._directory,
            self._member.cluster_network,
            self._say,
            hidden,
            supervisor,
            SandboxCallbacks(self._pods.container_exited, self._pods.output_lost, self._on_supervisor_lost),
        )

    async def start(self) -> None:
        """Choose the network, register the Node, start the watches. Raises NodeError when no network works,
        ApiError."""
        for folder in (self._state, self._state / "probe"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        sandbox, network = await self._network_starter.choose(self.requested_network)
        self.network, self.changes_users = network.name, sandbox.changes_users
        self.network_chosen.set()
        cluster = self._cluster
        self._context = self._pods.context = NodeContext(
            cluster, sandbox, network, self._images, self._state, self._mounts, self._say, self._now
        )
        self._context.usage = UsageSampler(self._now)
        self._context.usage.on_progress = self._pods.progress_changed
        self._context.devices = cluster.devices = DeviceManager(
            self._state, os.environ, self._say, self._devices_changed
        )
        if self._context.devices.has_driver:
            self._context.device_sampler = DeviceSampler(self._context.devices, os.environ, self._say)
            self._context.usage.device_memory = self._context.device_sampler.process_memory
            self._context.usage.device_use = partial(_device_use, self._context)
        self._context.working_directory = self._working_directory
        self._context.has_scheduler = self._member.joined
        self._context.log_folder, self._context.log_size = self._log_folder, self._log_size
        try:
            await self._kubelet.start()
            await cluster.register(self._kubelet.port, self._now())
        except BaseException:
            await self.stop(kill=True)
            raise
        self.tasks.start("watch services", cluster.services(self._services.on_listed, self._services.on_changed).run)
        self.tasks.start("watch pods", cluster.pods(self._pods.on_listed, self._pods.on_changed).run)
        self.tasks.start("sample usage", self._context.usage.run)
        if self._context.device_sampler:
            self._start_device_tasks(self._context.devices, self._context.device_sampler)
        if self._member.joined:
            node_status = self._node_status
            self.tasks.start("watch its Node", cluster.node(node_status.on_listed, node_status.on_changed).run)
            self.tasks.start("heartbeat", node_status.heartbeat)

    def _start_device_tasks(self, devices: DeviceManager, sampler: DeviceSampler) -> None:
        self.tasks.start("find devices", devices.run)
        self.tasks.start("sample devices", sampler.run)
        self.tasks.start("read the kernel log", KernelLog(devices, self._pods.report_xid).run)

        def used() -> Sequence[DeviceUsage]:
            node = self.usage().node
            return node.devices if node else ()

        self.tasks.start("report the use of devices", partial(report_use, used, self._cluster.write_device_use))

    async def drain(self, kill: bool, timeout: float = KILL_SECONDS) -> bool:
        """End all pods and write their statuses; `stop` follows. False when the API server does not answer within
        `timeout` seconds."""
        if self._context is None:
            return True
        self._node_status.leave()
        answered = True
        try:
            async with asyncio.timeout(timeout):
                await self._cluster.cordon(self._now())
        except (ApiError, TimeoutError):
            answered = False
        workers = list(self._pods.workers.values())
        return await node_shutdown.drain(workers, kill, timeout if answered else 0.0) and answered

    async def deregister(self, timeout: float = KILL_SECONDS) -> bool:
        """Delete the Node object after the node has stopped, if this node has created it. Raises TimeoutError,
        ApiError."""
        async with asyncio.timeout(timeout):
            return await self._cluster.deregister()

    async def stop(self, kill: bool = False, will_restart: bool = False) -> None:
        """End all pods, within their grace periods or (`kill`) at once, then everything else. When it is cancelled, it
        kills the pods and completes. `will_restart`: the node will be started again. Pods that may restart keep their
        status for that; pods with restartPolicy Never end as Failed, as with a kubelet whose machine is shut down."""
        context = self._context
        if context is None:
            return
        try:
            await self._end_pods(context, kill, will_restart)
        except asyncio.CancelledError:  # before the supervisor is closed: a killed pod reports its end through it
            await self._end_pods(context, True, will_restart)
            raise
        finally:
            if not will_restart:
                owner = "node" if self._member.joined else "cluster"
                await asyncio.to_thread(report_claims, self._state / "claims", owner, self._say)
            await self._kubelet.stop()
            await context.network.stop()
            await context.sandbox.close()
            await self.tasks.stop()  # a task may wait for an API server that does not answer
            await asyncio.gather(
                *(worker.cancel_tasks() for worker in self._pods.workers.values()), return_exceptions=True
            )
            self._context = self._pods.context = None

    async def _end_pods(self, context: NodeContext, kill: bool, will_restart: bool) -> None:
        workers = list(self._pods.workers.values())
        if will_restart:
            await node_shutdown.leave_for_restart(workers, kill)
        context.closing = True
        self.tasks.cancel_all()
        try:
            # With a timeout: closing the sandbox kills the containers that are left.
            await node_shutdown.stop(workers, kill)
        except TimeoutError:
            self._say("node: some containers did not end in time; killing them")

    def resync(self) -> None:
        """Feed a `Tick` to every pod: for a caller that has set the clock."""
        for worker in self._pods.workers.values():
            worker.tick()

    async def forward_to_service(self, namespace: str, service: str, port: int) -> str:
        """`host:port` on loopback that leads to that port of a Service, for a browser. Raises NodeError, OSError."""
        if self._context is None:
            raise NodeError("the node is not running")
        return f"127.0.0.1:{await self._context.network.forward_to_service(NamespacedName(namespace, service), port)}"

    def logs(self, url: str, disconnected: Callable[[], bool]) -> tuple[int, AsyncIterator[bytes]]:
        """See KubeletListener.logs."""
        return self._kubelet.logs(url, disconnected)

    def usage(self) -> UsageReport:
        """The usage of the machine and of the running pods, as last measured."""
        if self._context is None:
            return UsageReport()
        machine = self._context.usage.machine()
        node = NodeUsage(self.name, machine.time, machine.window, machine.cores, machine.memory) if machine else None
        pods = tuple(pod for worker in self._pods.workers.values() if (pod := worker.usage()))
        devices = self._context.device_sampler.devices if self._context.device_sampler else ()
        if not devices:
            return UsageReport(pods, node)
        assigned = self._context.devices.assignments
        return with_devices(UsageReport(pods, node), devices, self._context.usage.pods_by_pid(), assigned)

    def _devices_changed(self) -> None:
        self._node_status.refresh()
        self._pods.devices_changed()

    async def _register(self) -> None:
        await self._cluster.register(self._kubelet.port, self._now(), self._problem or self.tasks.failing)

    def _on_supervisor_lost(self) -> None:
        """The supervisor was killed, and with it all containers: start another supervisor."""
        if self._context and not self._context.closing:
            self.tasks.spawn("restart the supervisor", self._restart_supervisor(self._context))
        else:
            self._pods.supervisor_lost()

    async def _restart_supervisor(self, context: NodeContext) -> None:
        self._say("node: the supervisor was killed, and all containers with it; starting another")
        await context.network.stop()
        await context.sandbox.close()
        try:
            context.sandbox, context.network = await self._network_starter.start(context.network.name)
            self._problem = ""
        except (SandboxError, OSError) as error:  # OSError: no process or descriptor is left
            self._problem = f"node: the supervisor cannot be started again: {error}"
            self._say(self._problem)
        self._node_status.refresh()
        self._pods.supervisor_lost()
        await context.network.services_changed()


def _device_use(context: NodeContext) -> dict[str, dict[str, float]]:
    devices = context.device_sampler.devices if context.device_sampler else ()
    return use_by_pod(devices, context.usage.pods_by_pid(), context.devices.assignments)
