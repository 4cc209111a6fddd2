"""Runs the lifecycle of one pod: applies events to its state and performs the actions that result.

Rules:
- Only `feed` changes the lifecycle state, and it never waits: a slow action is a task that feeds an event at its end.
- After each event the pod's entry in the directory is updated. A pod's name resolves from its address on until it is
  over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from trainyard.node.kubelet import events, lifecycle, pod_state, status
from trainyard.node.kubelet.container_starter import ContainerExit, ContainerStarter
from trainyard.node.kubelet.hooks import HookRunner
from trainyard.node.kubelet.node_context import NodeContext
from trainyard.node.kubelet.pod_cleanup import PodCleanup
from trainyard.node.kubelet.pod_record import PodRecord, Spawn
from trainyard.node.kubelet.pod_state import Cancel, ContainerState, Ended, Over, Signal, Start, Stop, Tick, Wake
from trainyard.node.kubelet.pod_status_writer import PodStatusWriter
from trainyard.node.kubelet.probes.prober import PodProber
from trainyard.node.kubelet.restore import LOST
from trainyard.node.kubelet.spec.pod_spec import container_images
from trainyard.node.network.directory import peer_of
from trainyard.objects.structs import replace


class LifecycleRunner:
    """`on_wake` is called at the time of the last action `Wake`. `prober` and `hook_runner` are set before the first
    event if a container has a probe or a hook."""

    def __init__(
        self,
        node_context: NodeContext,
        record: PodRecord,
        starter: ContainerStarter,
        status_writer: PodStatusWriter,
        cleanup: PodCleanup,
        recorder: events.PodEventRecorder,
        spawn: Spawn,
        on_wake: Callable[[], None],
    ) -> None:
        self._node_context, self._record, self._starter = node_context, record, starter
        self._status_writer, self._cleanup, self._recorder = status_writer, cleanup, recorder
        self._spawn, self._on_wake = spawn, on_wake
        self.prober: PodProber | None = None
        self.hook_runner: HookRunner | None = None
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, event: pod_state.Event) -> None:
        """Apply one event to the state, and perform the actions, events and status patch that follow from it."""
        record, before = self._record, self._record.state
        record.state, actions = lifecycle.step(record.state, event)
        for action in actions:
            self._perform(action)
        self._recorder.record(events.of_step(before, record.state, event, container_images(record.pod)))
        self.update_peer()
        self._sync()
        is_removal = before.restarting_all and not record.state.restarting_all
        if not isinstance(event, Tick) or record.state.has_ended or is_removal:
            self._status_writer.trigger()

    def container_exited(self, container: str, ended: ContainerExit) -> None:
        """The supervisor reports the exit of a run; exits of older runs are ignored."""
        container_state = self._record.state.container(container)
        if container_state.run != ended.run:
            return
        if container_state.state is ContainerState.RUNNING:
            self._starter.feed_ended(container, ended)
        else:
            self._starter.exited_early(container, ended)

    def supervisor_lost(self) -> None:
        """The supervisor died, and with it all containers."""
        for container in reversed(self._record.state.containers):  # sidecars last: they end with the others
            if container.state is ContainerState.RUNNING:
                message = "the process that holds this node's pods was killed"
                run_id = self._record.run_id(container.name, container.run)
                peak = self._node_context.usage.container_ended(run_id, 0)
                self.feed(Ended(self._node_context.now(), container.name, 137, LOST[0], message, peak))

    def delete(self, grace: float) -> None:
        """The object is deleted, now or after the pod's end: the pod ends within `grace` seconds."""
        if not self._record.state.has_ended:
            self.feed(Stop(self._node_context.now(), grace))
        elif not self._record.deletes_object:
            self.finish(deletes_object=True)

    def finish(self, deletes_object: bool) -> None:
        """The pod is over."""
        self.cancel_timer()
        self._cleanup.start(deletes_object)

    async def end_without_lifecycle(self, failure: tuple[str, str]) -> None:
        """Kill the running containers, release the pod's resources, write the status Failed."""
        record, state = self._record, self._record.state
        record.state = replace(
            state,
            containers=tuple(
                container
                if container.state in pod_state.TERMINAL_STATES
                else replace(container, state=ContainerState.DROPPED)
                for container in state.containers
            ),
            failure=state.failure or failure,
        )
        self._node_context.network.directory.peers.pop(record.uid, None)
        self._sync()
        self.cancel_timer()
        for container in state.containers:
            if container.state is ContainerState.RUNNING:
                await self._node_context.sandbox.signal(record.run_id(container.name, container.run), True)
        await self._cleanup.clean_up_failed(failure, state.deleting)

    def update_peer(self) -> None:
        """Update the pod's entry in the directory. A pod that is being stopped is not ready, so Services do not forward
        to it."""
        record, peers = self._record, self._node_context.network.directory.peers
        if record.state.has_ended:
            peers.pop(record.uid, None)
        else:
            ready = status.is_ready(record.state) and record.state.kill_at is None
            peers[record.uid] = peer_of(record.pod, record.address, ready)

    def cancel_timer(self) -> None:
        """Cancel the timer of the next Tick, if one is set."""
        if self._timer:
            self._timer.cancel()

    def _sync(self) -> None:
        """Run the probes and hooks that are due in the state, and no others."""
        for runner in (self.prober, self.hook_runner):
            if runner:
                runner.sync(self._record.state)

    def _perform(self, action: pod_state.Action) -> None:
        match action:
            case Start(container, run):
                self._starter.start(container, run)
            case Cancel(container):
                self._starter.cancel(container)
            case Signal(container, kill):
                run = self._record.state.container(container).run
                run_id = self._record.run_id(container, run)
                (self._node_context.usage.stops.kill if kill else self._node_context.usage.stops.begin)(run_id)
                self._spawn(self._node_context.sandbox.signal(run_id, kill))
            case Wake(at):
                self.cancel_timer()
                delay = max(0.0, at - self._node_context.now())
                self._timer = asyncio.get_running_loop().call_later(delay, self._on_wake)
            case Over():
                self.finish(self._record.state.deleting)
