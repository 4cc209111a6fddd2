"""Starts the pod network of a node: the sandbox, and a network in it on which a first program has run.

Rule: with the network *auto* the first that works is taken, and the reasons against the others are printed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainyard.node.network.directory import Directory
from trainyard.node.network.namespaced import NamespaceNetwork
from trainyard.node.network.pod_network import ClusterNetwork, Network
from trainyard.node.network.shared import SharedNetwork
from trainyard.node.sandbox.supervisor_client import Process, Sandbox, SandboxCallbacks, SandboxError, StartError
from trainyard.node.sandbox.supervisor_process import LOG, SupervisorProcess

_NETWORKS: dict[str, type[Network]] = {"namespace": NamespaceNetwork, "shared": SharedNetwork}


class NodeError(Exception):
    """The node does not work on this machine; the message has the reason and what to try."""


class NetworkStarter:
    """`state`: the node's state folder. `hidden`: folders of this machine that pods see empty. `supervisor`: a
    supervisor process that has been started already, None for none."""

    def __init__(
        self,
        state: Path,
        directory: Directory,
        cluster_network: ClusterNetwork,
        say: Callable[[str], object],
        hidden: Sequence[Path],
        supervisor: SupervisorProcess | None,
        callbacks: SandboxCallbacks,
    ) -> None:
        self._state, self._directory, self._cluster_network, self._say = state, directory, cluster_network, say
        self._hidden, self._early_supervisor = hidden, supervisor
        self._callbacks = callbacks

    async def choose(self, requested: str) -> tuple[Sandbox, Network]:
        """Start the requested network: its name, or `auto` for the first that works. Raises NodeError."""
        if requested != "auto":
            try:
                return await self.start(requested)
            except SandboxError as error:
                alternative = next(name for name in _NETWORKS if name != requested)
                text = f"the network '{requested}' does not work on this machine: {error}; try --network {alternative}"
                raise NodeError(text) from None
        reasons = []
        for name in _NETWORKS:
            try:
                started = await self.start(name)
            except SandboxError as error:
                reasons.append(f"{name} does not work on this machine: {error}")
            else:
                self._say(f"network: {name}" + (f" ({'; '.join(reasons)})" if reasons else ""))
                return started
        raise NodeError("; ".join(reasons))

    async def start(self, mode: str) -> tuple[Sandbox, Network]:
        """Start a sandbox with that network and a probe program in it. Raises SandboxError when it does not work,
        NodeError for an unknown mode."""
        if mode not in _NETWORKS:
            raise NodeError(f"there is no network {mode!r}; write one of auto, {', '.join(_NETWORKS)}")
        probe_exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def exited(container: str, code: int, reason: str, report: dict[str, Any]) -> None:
            if container == "probe":
                probe_exit.set_result(code)
            else:
                self._callbacks.exited(container, code, reason, report)

        sandbox = Sandbox(mode, self._callbacks._replace(exited=exited), self._hidden)
        await sandbox.start(self._supervisor_process(mode))
        network = _NETWORKS[mode](sandbox, self._directory, self._say, self._cluster_network)
        try:
            await _probe(sandbox, self._state / "probe", probe_exit)
            await network.start()
        except BaseException as error:
            await sandbox.close()
            if isinstance(error, OSError | StartError):
                raise SandboxError(str(error)) from None
            raise
        return sandbox, network

    def _supervisor_process(self, mode: str) -> SupervisorProcess:
        """The supervisor that was passed to the node, which is for the first network it tries; later a new one.
        Raises OSError."""
        supervisor, self._early_supervisor = self._early_supervisor, None
        return supervisor or SupervisorProcess(mode, self._state / LOG)


async def _probe(sandbox: Sandbox, folder: Path, exit_code: asyncio.Future[int]) -> None:
    """Start a program as a container would be started, and wait for its end. Raises OSError, StartError,
    SandboxError."""
    await sandbox.add_pod("probe", "probe", "10.244.255.254", {})
    with open("/dev/null", "wb") as devnull:  # noqa: ASYNC230  (a device)
        process = Process("probe", "probe", ["/bin/sh", "-c", "exit 0"], {}, "/", str(folder))
        await sandbox.spawn(process, devnull.fileno())
    code = await exit_code
    await sandbox.remove_pod("probe")
    if code != 0:
        raise OSError(f"a test program ended with {code}")
