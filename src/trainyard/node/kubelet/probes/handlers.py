"""The handlers of probes and lifecycle hooks: what a spec says by `exec`, `httpGet`, `tcpSocket`, `grpc` or `sleep` is
done to a container of this pod."""

from __future__ import annotations

import asyncio

from trainyard.node.kubelet.container_runtime import ContainerRuntime
from trainyard.node.kubelet.node_context import NodeContext
from trainyard.node.kubelet.pod_record import PodRecord
from trainyard.node.kubelet.probes import exec_command, grpc_health, http_get
from trainyard.node.kubelet.probes.outcome import ConnectError, Dial, Outcome, Verdict, address_of, connect
from trainyard.node.kubelet.probes.schedule import Probe
from trainyard.node.kubelet.spec.interpolation import TooLong, expand
from trainyard.node.network.directory import hostname_of
from trainyard.node.network.proxy import Streams
from trainyard.objects import Json, namespace_of, pod_containers

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Handlers:
    """Runs the probes and hooks of one pod's containers."""

    def __init__(self, node_context: NodeContext, record: PodRecord, runtime: ContainerRuntime) -> None:
        self._node_context, self._record, self._runtime = node_context, record, runtime
        self._containers = {str(container.get("name")): container for container, _ in pod_containers(record.pod)}

    async def probe(self, name: str, probe: Probe) -> Outcome:
        """Run a probe of the container."""
        action, container = probe.action, self._containers[name]
        if isinstance(command := action.get("exec"), dict):
            return await self._exec(name, command, probe.timeout)
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

    async def hook(self, name: str, action: Json) -> bool:
        """Run a lifecycle hook of the container, however long it takes. Returns whether it has succeeded. As in the
        kubelet `tcpSocket` fails."""
        if isinstance(command := action.get("exec"), dict):
            return (await self._exec(name, command, None)).passed is True
        if isinstance(pause := action.get("sleep"), dict):
            await asyncio.sleep(float(pause.get("seconds") or 0))
            return True
        if isinstance(settings := action.get("httpGet"), dict):
            try:
                port = _port(self._containers[name], settings.get("port"))
            except ValueError:
                return False
            return await http_get.is_answered(settings, *self._place(str(settings.get("host") or ""), port))
        return False

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

    async def _exec(self, name: str, action: Json, timeout: float | None) -> Outcome:
        command = [str(word) for word in action.get("command") or ()]
        variables = self._containers[name].get("env") or ()
        env = {str(variable.get("name")): str(variable.get("value") or "") for variable in variables}
        try:
            process = self._runtime.exec_process(name, [expand(word, env) for word in command], tty=False)
        except TooLong as error:
            return Outcome(Verdict.ERRORED, str(error))
        sandbox = self._node_context.sandbox
        return await exec_command.run(
            command, timeout, lambda streams: sandbox.execute(process, streams, timeout=timeout or 0.0)
        )


def _port(container: Json, port: object) -> int:
    """The number of a port of a probe or hook: itself, or of the container's port of that name. Raises ValueError."""
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
