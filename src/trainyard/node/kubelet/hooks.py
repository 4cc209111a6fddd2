"""Runs the lifecycle hooks of one pod's containers: postStart when a container has started, preStop before SIGTERM.

Rules:
- A pod without hooks has no hook runner.
- The lifecycle says which hook is to run (`Container.hook`); the end of each is fed as `HookEnded`.
- A command ends with its container, which fails the hook. When a container has ended, its pause or request is given up.
- An unexpected exception in a hook is a failure of the hook."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from trainyard.node.kubelet.node_context import NodeContext
from trainyard.node.kubelet.pod_record import PodRecord, Spawn
from trainyard.node.kubelet.pod_state import HookEnded, HookKind, Pod
from trainyard.node.kubelet.probes.handlers import Handlers
from trainyard.objects import Json, pod_containers

log = logging.getLogger(__name__)

_FIELDS = {HookKind.POST_START: "postStart", HookKind.PRE_STOP: "preStop"}
_Key = tuple[str, int, HookKind]  # container, run


def hooks_of(container: Json) -> Mapping[HookKind, Json]:
    """The lifecycle hooks of a container of a pod's spec."""
    lifecycle = container.get("lifecycle") or {}
    return {kind: action for kind, field in _FIELDS.items() if isinstance(action := lifecycle.get(field), dict)}


class HookRunner:
    """`feed` applies the end of a hook to the pod's lifecycle."""

    def __init__(
        self,
        node_context: NodeContext,
        record: PodRecord,
        handlers: Handlers,
        feed: Callable[[HookEnded], None],
        spawn: Spawn,
    ) -> None:
        self._node_context, self._record, self._handlers = node_context, record, handlers
        self._feed, self._spawn = feed, spawn
        self._hooks = {str(container.get("name")): hooks_of(container) for container, _ in pod_containers(record.pod)}
        self._tasks: dict[_Key, asyncio.Task[None]] = {}

    def sync(self, pod: Pod) -> None:
        """Start the hooks that are to run now, and give up the others, but for commands."""
        wanted = {(container.name, container.run, container.hook) for container in pod.containers if container.hook}
        for key in [key for key in self._tasks if key not in wanted]:
            if "exec" not in self._hooks[key[0]][key[2]]:
                self._tasks.pop(key).cancel()
        for key in wanted - self._tasks.keys():
            self._tasks[key] = self._spawn(self._run(key))

    async def _run(self, key: _Key) -> None:
        name, run, kind = key
        succeeded = False
        try:
            succeeded = await self._handlers.hook(name, self._hooks[name][kind])
        except Exception:
            log.exception("a hook failed unexpectedly pod=%s container=%s", self._record.state.name, name)
        self._feed(HookEnded(self._node_context.now(), name, run, kind, not succeeded))
