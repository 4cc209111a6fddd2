"""The writer of one pod's status.

Rules:
- Status writes are sequential, and a status equal to the last one is not written; changes during a write are in the
  next one.
- A conflict is resolved by a read of the object, and the status is written again. A refused status is printed once and
  written again after a back-off: a later status may be accepted, or the admission rule may change.
- Conditions of other writers stay as they are on the object.
- A status has no field for the peak of a container's memory, nor for NO_PROGRESS and PROGRESS: they are annotations,
  written by the same request."""

from __future__ import annotations

import asyncio

from trainyard.client import ApiError, Conflict
from trainyard.controller_runtime import Backoff
from trainyard.node.kubelet import status
from trainyard.node.kubelet.node_context import NodeContext
from trainyard.node.kubelet.pod_record import PodRecord, Spawn
from trainyard.node.kubelet.spec.pod_spec import container_images
from trainyard.objects import Json, annotations_of, find_condition, labels_of, set_condition
from trainyard.objects.labels import EXEC_SESSION, OWNER
from trainyard.objects.no_progress import NO_PROGRESS
from trainyard.objects.usage import PEAK_DEVICE_MEMORY, PROGRESS, peak_annotation

_RETRY_SECONDS = 0.5, 8.0  # first and longest delay before a refused status is written again
# Types of the conditions that a node writes.
_NODE_CONDITIONS = frozenset(
    {status.SANDBOX_READY, "Initialized", "Ready", "ContainersReady", "PodScheduled", status.ALL_RESTARTING}
)
EXEC_RECORD_SECONDS = 5.0
SHUTDOWN_REASON = ("Terminated", "Pod was terminated in response to imminent node shutdown.")
DISRUPTION_TARGET = "DisruptionTarget"


class PodStatusWriter:
    """`interpreters`: container name -> path of its Python; the container runtime adds to it."""

    def __init__(
        self, node_context: NodeContext, record: PodRecord, interpreters: dict[str, str], spawn: Spawn
    ) -> None:
        self._node_context, self._record, self._interpreters = node_context, record, interpreters
        self._spawn = spawn
        self._written: Json = {}  # the status last written
        annotations = annotations_of(record.pod)
        self._written_progress = {name: annotations.get(name) for name in (NO_PROGRESS, PROGRESS)}
        self._task: asyncio.Task[None] | None = None
        self._disruption = ""  # message of the condition DisruptionTarget; "" for none
        self._suspended = False

    @property
    def in_progress(self) -> asyncio.Task[None] | None:
        """The status write in progress; None when there is none."""
        return self._task if self._task and not self._task.done() else None

    @property
    def written_phase(self) -> str:
        """The phase of the status last written, "" before the first write."""
        return str(self._written.get("phase") or "")

    def set_disrupted(self, message: str) -> None:
        """From now on the status has the condition DisruptionTarget with that message."""
        self._disruption = message

    async def record_exec(self) -> None:
        """Write that a command is executed in the pod, at its first one, before the command starts: what it does may
        end the job, and the operator has to know then. Waits no longer than EXEC_RECORD_SECONDS."""
        if not self._record.had_exec:
            self._record.had_exec = True
            self.trigger()
            if task := self.in_progress:
                await asyncio.wait({task}, timeout=EXEC_RECORD_SECONDS)

    def suspend(self) -> None:
        """No more status writes: the next process of the node continues the pod."""
        self._suspended = True

    @property
    def suspended(self) -> bool:
        """Whether status patches are held back."""
        return self._suspended

    def trigger(self) -> None:
        """The state of the pod has changed: write its status, unless a write is in progress, which takes the change
        in."""
        if self.in_progress is None and not (
            self._record.object_deleted or self._suspended or self._node_context.closing
        ):
            self._task = self._spawn(self._write_until_current())

    def _peaks(self) -> dict[str, str]:
        """The annotations with the peaks of the runs that the status shows as terminated."""
        peaks = status.peaks(self._record.state)
        usage, uid = self._node_context.usage, self._record.uid
        device_peaks = {run: usage.device_peak(f"{uid}/{run}") for run in peaks}
        return peak_annotation(peaks) | peak_annotation(device_peaks, PEAK_DEVICE_MEMORY)

    async def _progress(self) -> dict[str, str | None]:
        """The annotations NO_PROGRESS and PROGRESS; None for none. What was reported stays until there is more."""
        progress, uid = self._node_context.usage.progress, self._record.uid
        report = await progress.report(uid)
        reported = report.annotation[PROGRESS] if report else self._written_progress[PROGRESS]
        state = progress.no_progress(uid)
        return {NO_PROGRESS: state.text if state else None, PROGRESS: reported}

    async def _write_until_current(self) -> None:
        backoff, refusal = Backoff(*_RETRY_SECONDS), ""
        while not (self._node_context.closing or self._suspended):
            progress = await self._progress()
            desired = self._status()
            if desired == self._written and progress == self._written_progress:
                return
            try:
                changed = {name: text for name, text in progress.items() if text != self._written_progress[name]}
                annotations = {**self._peaks(), **changed}
                written = await self._node_context.cluster.write_status(self._record.pod, desired, annotations)
            except Conflict:  # another client changed the object: get it and write again
                written = await self._node_context.cluster.pod(self._record.pod)
            except ApiError as error:  # refused; a later status may be accepted, or the admission rule may change
                if str(error) != refusal:
                    refusal = str(error)
                    name = self._record.state.name
                    self._node_context.say(f"node: pod {name}: the API server refuses its status: {refusal}")
                if self._record.deletes_object:
                    return
                await asyncio.sleep(backoff.next_delay())
                continue
            else:
                self._written, self._written_progress = desired, progress
            if written is None:
                self._record.object_deleted = True
                return
            self._record.keep_newer(written)

    def _status(self) -> Json:
        pod, now = self._record.pod, self._node_context.now()
        qos = str((pod.get("status") or {}).get("qosClass") or "BestEffort")
        host_ip = self._node_context.network.host_ip
        inputs = status.StatusInputs(host_ip, self._record.address, container_images(pod), qos, self._interpreters)
        return status.status(self._record.state, inputs, self._conditions(now), now)

    def _conditions(self, now: float) -> list[Json]:
        """The pod's conditions: those of the node as it last wrote them, those of others as last seen on the object."""
        pod = self._record.pod
        seen_conditions = (pod.get("status") or {}).get("conditions") or []
        own_types = _NODE_CONDITIONS | {DISRUPTION_TARGET} if self._disruption else _NODE_CONDITIONS
        own_conditions = [
            condition
            for condition in self._written.get("conditions") or seen_conditions
            if condition.get("type") in own_types
        ]
        conditions = [
            *own_conditions,
            *(condition for condition in seen_conditions if condition.get("type") not in own_types),
        ]
        if self._disruption:
            conditions = set_condition(
                conditions, DISRUPTION_TARGET, True, "TerminationByKubelet", self._disruption, now
            )
        if self._record.had_exec:
            conditions = set_condition(conditions, EXEC_SESSION, True, "CommandExecuted", "", now)
        elif self._records_exec(conditions):
            conditions = set_condition(conditions, EXEC_SESSION, False, "NoCommand", "", now)
        return conditions

    def _records_exec(self, conditions: list[Json]) -> bool:
        """Whether the condition EXEC_SESSION begins with this status: at the pod's start. An older version of the node,
        which has started the pod, may have executed commands without it."""
        pod = self._record.pod
        has_started = "containerStatuses" in (pod.get("status") or {})
        return OWNER in labels_of(pod) and not has_started and find_condition(conditions, EXEC_SESSION) is None
