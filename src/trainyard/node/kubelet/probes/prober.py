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
from trainyard.node.kubelet.container_runtime import ContainerRuntime
from trainyard.node.kubelet.node_context import NodeContext
from trainyard.node.kubelet.pod_record import PodRecord, Spawn
from trainyard.node.kubelet.pod_state import Container, ContainerState, Pod, Probed, ProbeKind
from trainyard.node.kubelet.probes import exec_command, grpc_health, http_get, schedule
from trainyard.node.kubelet.probes.outcome import ConnectError, Dial, Outcome, Verdict, address_of, connect
from trainyard.node.kubelet.probes.schedule import Probe
from trainyard.node.kubelet.spec.interpolation import TooLong, expand
from trainyard.node.network.directory import hostname_of
from trainyard.node.network.proxy import Streams
from trainyard.objects import Json, namespace_of, pod_containers

log = logging.getLogger(__name__)

_Key = tuple[str, int, ProbeKind]  # container, run
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class PodProber:
    """`feed` applies a result to the pod's lifecycle."""

    def __init__(
        self,
        node_context: NodeContext,
        record: PodRecord,
        runtime: ContainerRuntime,
        recorder: events.PodEventRecorder,
        feed: Callable[[Probed], None],
        spawn: Spawn,
    ) -> None:
        self._node_context, self._record, self._runtime = node_context, record, runtime
        self._recorder, self._feed, self._spawn = recorder, feed, spawn
        self._containers = {str(container.get("name")): container for container, _ in pod_containers(record.pod)}
        self._probes: Mapping[str, Mapping[ProbeKind, Probe]] = {
            name: schedule.probes_of(container) for name, container in self._containers.items()
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
                outcome = await self._probe(name, probe)
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

    async def _probe(self, name: str, probe: Probe) -> Outcome:
        action, container = probe.action, self._containers[name]
        if isinstance(command := action.get("exec"), dict):
            return await self._exec(name, [str(word) for word in command.get("command") or ()], probe.timeout)
        kind = next((field for field in ("httpGet", "tcpSocket", "grpc") if isinstance(action.get(field), dict)), "")
        if not kind:
            return Outcome(Verdict.ERRORED, "missing probe handler")
        settings = action[kind]
        try:
            port = _port(container, settings.get("port"))
        except ValueError as error:
            return Outcome(Verdict.ERRORED, str(error))
        host, port, dial = self._place("" if kind == "grpc" else str(settings.get("host") or ""), port)
        if kind == "httpGet":
            return await http_get.get(settings, host, port, probe.timeout, dial)
        if kind == "grpc":
            return await grpc_health.check(str(settings.get("service") or ""), host, port, probe.timeout, dial)
        return await _connect(host, port, probe.timeout, dial)

    def _place(self, host: str, port: int) -> tuple[str, int, Dial]:
        """The address and port to connect to, and how: those of the pod, or, with a `host`, as this machine reaches
        it. A pod that asked for the network of its node gets its own for the node's loopback address."""
        pod, network = self._record.pod, self._node_context.network
        if host and not (host in _LOOPBACK and (pod.get("spec") or {}).get("hostNetwork")):
            return host, port, asyncio.open_connection
        pod_name = f"{namespace_of(pod)}/{hostname_of(pod)}"
        endpoint = network.endpoint(pod_name, self._record.address, port)

        async def dial(target: str, number: int) -> Streams:
            # A redirect may name another port of the pod.
            return await network.dial(pod_name, self._record.address, port if number == endpoint[1] else number)

        return *endpoint, dial

    async def _exec(self, name: str, command: list[str], timeout: float) -> Outcome:
        variables = self._containers[name].get("env") or ()
        env = {str(variable.get("name")): str(variable.get("value") or "") for variable in variables}
        try:
            process = self._runtime.exec_process(name, [expand(word, env) for word in command], tty=False)
        except TooLong as error:
            return Outcome(Verdict.ERRORED, str(error))
        sandbox = self._node_context.sandbox
        return await exec_command.run(
            command, timeout, lambda streams: sandbox.execute(process, streams, timeout=timeout)
        )

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
    if container.state is not ContainerState.RUNNING:
        return False
    if kind is ProbeKind.READINESS:
        return container.has_started
    decides = container.failed_probe is None and pod.kill_at is None
    return decides and container.has_started is (kind is ProbeKind.LIVENESS)


def _port(container: Json, port: object) -> int:
    """The number of a port of a probe: itself, or of the container's port of that name. Raises ValueError."""
    if isinstance(port, str):
        numbers = [entry.get("containerPort") for entry in container.get("ports") or () if entry.get("name") == port]
        if not numbers:
            raise ValueError(f'port "{port}" not found')
        port = numbers[0]
    if not isinstance(port, int) or not 0 < port < 65536:
        raise ValueError(f"invalid port number: {port}")
    return port


async def _connect(host: str, port: int, timeout: float, dial: Dial) -> Outcome:
    """The probe `tcpSocket`: a connection that can be opened passes, and is closed at once."""
    try:
        async with asyncio.timeout(timeout):
            _, writer = await connect(dial, host, port)
    except TimeoutError:
        return Outcome(Verdict.FAILED, f"dial tcp {address_of(host, port)}: i/o timeout")
    except ConnectError as error:
        return Outcome(Verdict.FAILED, str(error))
    writer.close()
    return Outcome(Verdict.PASSED)
