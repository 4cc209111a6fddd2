"""The cleanup after a pod that has ended.

Rules:
- A pod that is over releases its address and processes at once; its logs stay until its object is deleted.
- The end of a pod is reported before its object is deleted: first its last status, then what is lost with it (files,
  and output that could not be written), then the deletion of the object and of the pod's folder."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from trainyard.node.kubelet.container_runtime import ContainerRuntime
from trainyard.node.kubelet.events import PodEvent
from trainyard.node.kubelet.lost_output import OUTPUT_LOST, LostOutputReport
from trainyard.node.kubelet.node_context import NodeContext
from trainyard.node.kubelet.pod_record import PodRecord, Spawn
from trainyard.node.kubelet.pod_status_writer import PodStatusWriter
from trainyard.node.kubelet.usage.stop_report import StopReport
from trainyard.node.kubelet.volumes.removal import remove
from trainyard.node.kubelet.volumes.unsaved_files import FILES_LOST, replica_name
from trainyard.node.sandbox.supervisor_client import SandboxError, StartError
from trainyard.objects.usage import KILLED_AFTER_GRACE_PERIOD

_EVENT_TIMEOUT = 2.0  # seconds for the write of the events about losses
_LOOK_TIMEOUT = 2.0  # seconds for a look at the saved files, whose disk may not answer: the pod holds its devices


class PodCleanup:
    """`ended` is set when the pod is over and its resources are released, `end_reported` when its end is written to the
    API server, or need not be. `on_gone` is called when nothing of the pod is left."""

    def __init__(
        self,
        node_context: NodeContext,
        record: PodRecord,
        runtime: ContainerRuntime,
        lost_output: LostOutputReport,
        stop_report: StopReport,
        status_writer: PodStatusWriter,
        spawn: Spawn,
        on_gone: Callable[[], None],
    ) -> None:
        self._node_context, self._record, self._runtime = node_context, record, runtime
        self._lost_output, self._stop_report = lost_output, stop_report
        self._status_writer, self._spawn, self._on_gone = status_writer, spawn, on_gone
        self.ended = asyncio.Event()
        self.end_reported = asyncio.Event()
        self._loss_report: asyncio.Task[None] | None = None  # reports the files and the output that are lost
        self._loss_events: list[asyncio.Task[None]] = []

    def start(self, deletes_object: bool) -> None:
        """Release what the pod holds, in a task. `deletes_object`: also remove the Pod object from the API server."""
        self._record.deletes_object = self._record.deletes_object or deletes_object
        self._spawn(self._clean_up(deletes_object))

    async def _clean_up(self, deletes_object: bool) -> None:
        await self._runtime.remove_pod()
        if self._loss_report is None:
            self._loss_report = self._spawn(self._report_losses())
        await asyncio.wait([self._loss_report])
        self._release_address()
        if self._node_context.closing:
            return
        while status_write := self._status_writer.in_progress:
            await asyncio.wait([status_write])
        if deletes_object:
            if self._loss_events:  # they are written before the node deletes the object
                await asyncio.wait(self._loss_events, timeout=_EVENT_TIMEOUT)
            if not self._record.object_deleted:
                await self._node_context.cluster.delete_pod(self._record.pod)
            with contextlib.suppress(OSError):
                await asyncio.to_thread(remove, self._record.folder)
            self._on_gone()
        self.end_reported.set()

    async def clean_up_failed(self, failure: tuple[str, str], is_deleting: bool) -> None:
        """Release the resources of a pod whose lifecycle has failed, and write the status Failed. `failure`: reason
        and message; `is_deleting`: its object is to be deleted."""
        record, cluster = self._record, self._node_context.cluster
        with contextlib.suppress(OSError, SandboxError, StartError):
            await self._runtime.remove_pod()
        self._release_address()
        try:
            if status_write := self._status_writer.in_progress:
                await asyncio.wait([status_write])
            if record.object_deleted:
                self._on_gone()
            elif record.deletes_object or is_deleting or record.pod["metadata"].get("deletionTimestamp"):
                await cluster.delete_pod(record.pod)
                self._on_gone()
            elif self._status_writer.written_phase not in ("Succeeded", "Failed") and not self._node_context.closing:
                await cluster.end_pod(record.pod, *failure)
        finally:
            self.end_reported.set()

    def _release_address(self) -> None:
        """Release the address and the devices, once; then the pod is over."""
        if self._record.address and not self.ended.is_set():
            self._node_context.network.release(self._record.pod, self._record.address)
        if not self._status_writer.suspended:  # else the next process of the node continues the pod, and its devices
            self._node_context.devices.release(self._record.uid)
        self.ended.set()

    async def _report_losses(self) -> None:
        """Print, and write as Events, what the pod's programs saved when they were stopped, which output of them could
        not be written, and which of their files are removed with it."""
        processes = self._runtime.last_processes if self._node_context.network.isolated_network else {}
        mounts = {name: process.mounts for name, (process, _) in processes.items()}
        try:
            async with asyncio.timeout(_LOOK_TIMEOUT):
                report = await asyncio.to_thread(self._stop_report.message, mounts)
        except TimeoutError:
            report = self._stop_report.message(None)
        self.report_loss(*report)
        self.report_loss(OUTPUT_LOST, self._lost_output.message(), self._lost_output.last_lines())
        whole_pod = not self._status_writer.suspended
        message = await asyncio.to_thread(self._runtime.unsaved.message, whole_pod=whole_pod)
        self.report_loss(FILES_LOST, message)

    def report_loss(self, reason: str, message: str, details: str = "") -> None:
        """Print what is lost and write it as an Event; nothing for "". `details`: printed after the message, and not
        part of the Event."""
        if not message:
            return
        context = self._node_context
        context.say(f"{replica_name(self._record.pod)}: {message}{details}")
        if not context.closing:
            event = PodEvent(
                "Warning" if reason in (OUTPUT_LOST, KILLED_AFTER_GRACE_PERIOD) else "Normal", reason, message
            )
            write = context.cluster.write_event(self._record.pod, event, context.now())
            self._loss_events.append(self._spawn(write))
