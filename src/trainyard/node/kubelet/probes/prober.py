"""Runs the probes of one pod: a task for each probe of each run of a container, from when it may run until the end.

Rules:
- A pod without probes has no prober.
- A task lives as long as its probe matters: a startup probe until it has decided, the others from the start of the
  container (`started` in the status) on, a liveness probe until it has failed or the pod is stopped.
- Results go to the lifecycle as `Probed`, at a change only; an event of the kubelet's tells each failure.
- An unexpected exception in a probe is no result, as in the kubelet: a training must not end because of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from trainyard.node.kubelet import events
from trainyard.node.kubelet.node_context import NodeContext
from trainyard.node.kubelet.pod_record import PodRecord, Spawn
from trainyard.node.kubelet.pod_state import Container, Pod, Probed, ProbeKind
from trainyard.node.kubelet.probes import schedule
from trainyard.node.kubelet.probes.handlers import Handlers
from trainyard.node.kubelet.probes.outcome import Outcome, Verdict
from trainyard.node.kubelet.probes.schedule import Probe
from trainyard.objects import pod_containers

log = logging.getLogger(__name__)

_Key = tuple[str, int, ProbeKind]  # container, run


class PodProber:
    """`feed` applies a result to the pod's lifecycle."""

    def __init__(
        self,
        node_context: NodeContext,
        record: PodRecord,
        handlers: Handlers,
        recorder: events.PodEventRecorder,
        feed: Callable[[Probed], None],
        spawn: Spawn,
    ) -> None:
        self._node_context, self._record, self._handlers = node_context, record, handlers
        self._recorder, self._feed, self._spawn = recorder, feed, spawn
        self._probes: Mapping[str, Mapping[ProbeKind, Probe]] = {
            str(container.get("name")): schedule.probes_of(container) for container, _ in pod_containers(record.pod)
        }
        self._tasks: dict[_Key, asyncio.Task[None]] = {}

    def sync(self, pod: Pod) -> None:
        """Start the probes that may run now, and end the others."""
        wanted = {
            (container.name, container.run, kind)
            for container in pod.containers
            for kind in self._probes[container.name]
            if _may_run(pod, container, kind)
        }
        for key in [key for key in self._tasks if key not in wanted]:
            self._tasks.pop(key).cancel()
        loop = asyncio.get_running_loop()
        for key in wanted - self._tasks.keys():
            started = loop.time() - max(0.0, self._node_context.now() - pod.container(key[0]).started)
            self._tasks[key] = self._spawn(self._run(key, started))

    async def _run(self, key: _Key, started: float) -> None:
        """Run one probe until it is cancelled, or a startup or liveness probe has decided. `started`: when its
        container was started, by the clock of the loop."""
        name, run, kind = key
        probe, loop = self._probes[name][kind], asyncio.get_running_loop()
        progress = schedule.begin(probe, started, loop.time())
        while True:
            await asyncio.sleep(progress.due - loop.time())
            try:
                outcome = await self._handlers.probe(name, probe)
            except Exception as error:
                log.exception("a probe failed unexpectedly pod=%s container=%s", self._record.state.name, name)
                outcome = Outcome(Verdict.ERRORED, f"{type(error).__name__}: {error}")
            self._record_event(name, kind, outcome)
            progress, state = schedule.after(probe, progress, outcome.passed, loop.time())
            if state is None or (kind is ProbeKind.LIVENESS and state):
                continue
            # A task that `feed` cancels because of its own result ends at once in any case.
            self._feed(Probed(self._node_context.now(), name, run, kind, state, probe.grace))
            if kind is not ProbeKind.READINESS:
                return

    def _record_event(self, name: str, kind: ProbeKind, outcome: Outcome) -> None:
        if outcome.verdict is Verdict.ERRORED and not outcome.text:
            return
        text = {
            Verdict.WARNED: f"{kind} probe warning: {outcome.text}",
            Verdict.FAILED: f"{kind} probe failed: {outcome.text}",
            Verdict.ERRORED: f"{kind} probe errored and resulted in unknown state: {outcome.text}",
        }.get(outcome.verdict)
        if text:
            reason = "ProbeWarning" if outcome.verdict is Verdict.WARNED else "Unhealthy"
            field = events.field_path(self._record.state.container(name))
            self._recorder.record([events.PodEvent("Warning", reason, text, field, True)])


def _may_run(pod: Pod, container: Container, kind: ProbeKind) -> bool:
    if not container.is_shown_running:
        return False
    if kind is ProbeKind.READINESS:
        return container.has_started
    decides = container.failed_probe is None and pod.kill_at is None
    return decides and container.has_started is (kind is ProbeKind.LIVENESS)
