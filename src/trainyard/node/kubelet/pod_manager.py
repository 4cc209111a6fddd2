"""The pods of this node: the handlers of the watch of pods, with one `PodWorker` for each pod.

Rules: a pod is identified by its uid, never by its name; a pod that was deleted while no watch was open is stopped; a
pod that is already Succeeded or Failed when it is first seen is not started."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainyard.controller_runtime import TaskSupervisor
from trainyard.node.devices.sampler import SAMPLES
from trainyard.node.kubelet.api.handlers import RequestError
from trainyard.node.kubelet.api_client import NodeApiClient
from trainyard.node.kubelet.node_context import NodeContext
from trainyard.node.kubelet.pod_worker import UNEXPECTED_ADMISSION_ERROR, PodWorker
from trainyard.node.kubelet.volumes.removal import remove
from trainyard.objects import Json, NamespacedName, key_of, name_of, namespace_of, uid_of

log = logging.getLogger(__name__)


class PodManager:
    """`workers`: uid -> worker. `context` is set while the node runs. `on_added` is called when a pod was started,
    `on_gone` with the uid of a pod of which nothing is left."""

    def __init__(
        self,
        cluster: NodeApiClient,
        state: Path,
        tasks: TaskSupervisor,
        say: Callable[[str], object],
        on_added: Callable[[], None],
        on_gone: Callable[[str], None],
    ) -> None:
        self._cluster, self._pod_folders, self._tasks, self._say = cluster, state / "pods", tasks, say
        self._on_added, self._on_gone = on_added, on_gone
        self.workers: dict[str, PodWorker] = {}
        self._by_name: dict[NamespacedName, dict[str, PodWorker]] = {}  # uid -> worker, the newest pod last
        self.context: NodeContext | None = None
        self._folders_swept = False

    def find(self, namespace: str, pod: str) -> PodWorker:
        """The worker of the newest pod with that name. Raises RequestError."""
        namesakes = self._by_name.get(NamespacedName(namespace, pod), {})
        if not namesakes:
            raise RequestError(404, f"pod {namespace}/{pod} is not on this node")
        return next(reversed(namesakes.values()))

    def on_listed(self, pods: list[Json]) -> None:
        """The pods bound to this node: start those that are new, end those that are gone."""
        present = {uid_of(pod) for pod in pods}
        if not self._folders_swept:
            self._folders_swept = True
            self._release_devices(pods)
            # Some folders belong to pods that were deleted while the node was stopped.
            stale_folders = [
                folder for folder in self._pod_folders.glob("*") if folder.name.rpartition("_")[2] not in present
            ]
            self._tasks.spawn("remove folders of pods that are gone", asyncio.to_thread(_remove_folders, stale_folders))
        for uid, worker in list(self.workers.items()):
            if uid not in present:
                worker.object_deleted()
        for pod in pods:
            self.on_changed("ADDED", pod)

    def devices_changed(self) -> None:
        """Devices were found, lost, or came back. A pod that the driver has left without its device is evicted: its
        program cannot go on, and may wait for the device for ever."""
        for worker in list(self.workers.values()):
            worker.evict_without_devices(SAMPLES)

    def report_xid(self, uid: str, text: str) -> None:
        """The driver has reported an error of a device of that pod."""
        if worker := self.workers.get(uid):
            worker.report_xid(text)

    def _release_devices(self, pods: list[Json]) -> None:
        """Of pods that ended or were deleted while the node was stopped."""
        if self.context:
            running = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
            self.context.devices.keep(map(uid_of, running))

    def on_changed(self, verb: str, pod: Json) -> None:
        """An exception ends this pod as Failed; the watch continues."""
        try:
            self._apply(verb, pod)
        except Exception as error:  # a `PodWorker` handles its own exceptions; this one came before it exists
            self._reject(pod, error)

    def output_lost(self, run_id: str, report: dict[str, Any]) -> None:
        """`run_id`: as for `container_exited`."""
        uid, container, run = run_id.split("/")
        if worker := self.workers.get(uid):
            worker.output_lost(container, int(run), report)

    def container_exited(self, run_id: str, code: int, reason: str, report: dict[str, Any]) -> None:
        """`run_id`: uid/container/run."""
        uid, container, run = run_id.split("/")
        if worker := self.workers.get(uid):
            worker.container_exited(container, int(run), code, reason, report)

    def progress_changed(self, uid: str) -> None:
        """What the pod misses of its deadline (objects/no_progress.py), or its progress, is to be written."""
        if worker := self.workers.get(uid):
            worker.status_writer.trigger()

    def supervisor_lost(self) -> None:
        """The supervisor died, and with it all containers."""
        for worker in list(self.workers.values()):
            worker.supervisor_lost()

    def _apply(self, verb: str, pod: Json) -> None:
        worker = self.workers.get(uid_of(pod))
        if verb == "DELETED":
            if worker:
                worker.object_deleted()
        elif worker:
            worker.object_changed(pod)
        elif self.context:
            self._admit(pod, self.context)

    def _admit(self, pod: Json, context: NodeContext) -> None:
        """Take in a pod that has no worker yet."""
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            worker = PodWorker(context, pod, self._worker_gone)
            self._add(worker)
            worker.start()
            self._on_added()
        elif pod["metadata"].get("deletionGracePeriodSeconds"):
            # It had ended, and the node was killed before it deleted the object.
            self._tasks.spawn("delete an ended pod", self._cluster.delete_pod(pod))
        elif (worker := PodWorker(context, pod, self._worker_gone)).restore_ended():
            self._add(worker)

    def _add(self, worker: PodWorker) -> None:
        uid = worker.record.uid
        self.workers[uid] = worker
        self._by_name.setdefault(key_of(worker.record.pod), {})[uid] = worker

    def _reject(self, pod: Json, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        log.error("a pod cannot be handled pod=%s/%s", namespace_of(pod), name_of(pod), exc_info=error)
        self._say(f"node: pod {name_of(pod)}_{namespace_of(pod)} ends: {text}")
        meta = pod.get("metadata") or {}
        if meta.get("deletionTimestamp"):
            self._tasks.spawn("remove a pod that cannot be handled", self._cluster.delete_pod(pod))
        elif (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            self._tasks.spawn(
                "end a pod that cannot be handled", self._cluster.end_pod(pod, UNEXPECTED_ADMISSION_ERROR, text)
            )

    def _worker_gone(self, worker: PodWorker) -> None:
        uid, key = worker.record.uid, key_of(worker.record.pod)
        self.workers.pop(uid, None)
        if self.context:
            self.context.usage.progress.forget(uid)
        namesakes = self._by_name.get(key, {})
        namesakes.pop(uid, None)
        if not namesakes:
            self._by_name.pop(key, None)
        self._on_gone(worker.record.uid)


def _remove_folders(folders: list[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            remove(folder)
