"""The record of one pod on this node, which the parts of its worker share.

Rules:
- `state` is changed only by the lifecycle runner. The worker sets it only for a pod that ended before the worker was
  created.
- `pod` is replaced only by a newer version of the object (`keep_newer`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from trainyard.node.kubelet.pod_state import Pod
from trainyard.objects import Json, resource_version_of, uid_of

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Starts a task of the pod. An exception in it ends the pod."""


class PodRecord(msgspec.Struct):
    """`pod`: the newest known version of the object. `folder`: the pod's folder on this machine. `address`: its IP, ""
    while it has none."""

    pod: Json
    state: Pod
    folder: Path
    address: str = ""
    object_deleted: bool = False
    had_exec: bool = False  # a command was executed in a container (condition EXEC_SESSION)
    deletes_object: bool = False  # the pod has ended, and the node is to delete its object

    @property
    def uid(self) -> str:
        """The uid of the pod."""
        return uid_of(self.pod)

    def keep_newer(self, pod: Json) -> None:
        """Keep the newer version of the object: the response to a write may arrive before or after the watch event."""
        if int(resource_version_of(pod) or 0) >= int(resource_version_of(self.pod) or 0):
            self.pod = pod

    def run_id(self, container: str, run: int) -> str:
        """The supervisor's name of one run of a container: uid/container/run."""
        return f"{self.uid}/{container}/{run}"
