"""A kubelet for benchmarks: a process that moves each pod to Running at once and, `--seconds` later, to Succeeded.

    python -m bench.kubelet --kubeconfig FILE --seconds 0.2
    python -m bench.kubelet --kubeconfig FILE --until-deleted

With `--until-deleted` a pod runs until it is deleted, and has ended then.

It serves the pods whose schedulerName is `bench`, which no scheduler binds, in all namespaces.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import Coroutine

import msgspec

from bench.jobs import SCHEDULER
from trainyard.app.kubeconfig import find_cluster
from trainyard.client import ApiClient, ApiError, Conflict, NotFound
from trainyard.objects import format_time
from trainyard.objects.resources import POD

WIDTH = 64  # requests at one time


class Metadata(msgspec.Struct):
    """The fields of an object's metadata that are read."""

    resourceVersion: str
    name: str = ""  # a bookmark has none
    namespace: str = ""
    uid: str = ""
    deletionTimestamp: str = ""


class Container(msgspec.Struct):
    """One container of a pod."""

    name: str


class Spec(msgspec.Struct, frozen=True):
    """The containers of a pod. Another object has none, and those of a bookmark are null."""

    containers: list[Container] | None = None


class Status(msgspec.Struct, frozen=True):
    """The field of a pod's status that is read."""

    phase: str = ""


class Object(msgspec.Struct):
    """An object of any kind, as far as it is read."""

    metadata: Metadata
    spec: Spec = Spec()
    status: Status = Status()


class Event(msgspec.Struct):
    """A watch event."""

    type: str
    object: Object


class Kubelet:
    """Sends two status patches for each pod. `seconds`: how long a pod runs, None: until it is deleted."""

    def __init__(self, api: ApiClient, seconds: float | None) -> None:
        self._api, self._seconds = api, seconds
        self._gate = asyncio.Semaphore(WIDTH)
        self._tasks: set[asyncio.Task[None]] = set()
        self._confirmed: set[str] = set()  # uids of deleted pods

    async def run(self, revision: str) -> None:
        """Serve the pods that are created after this resourceVersion."""
        decoder = msgspec.json.Decoder(Event)
        while True:  # a watch that ends resumes
            async for line in self._api.watch(POD, "", revision, "", f"spec.schedulerName={SCHEDULER}"):
                event = decoder.decode(line)
                revision = event.object.metadata.resourceVersion
                if event.type == "ADDED":
                    self._start(self._live(event.object))
                elif event.type == "MODIFIED" and event.object.metadata.deletionTimestamp:
                    self._confirm_once(event.object)

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _live(self, pod: Object) -> None:
        await self._report(pod, "Running", {"running": {"startedAt": format_time(time.time())}})
        if self._seconds is None:
            return
        await asyncio.sleep(self._seconds)
        end = {"exitCode": 0, "finishedAt": format_time(time.time()), "reason": "Completed"}
        await self._report(pod, "Succeeded", {"terminated": end})

    def _confirm_once(self, pod: Object) -> None:
        """The confirmation shortens the grace period, which is another event."""
        if pod.metadata.uid not in self._confirmed:
            self._confirmed.add(pod.metadata.uid)
            self._start(self._confirm_end(pod.metadata))

    async def _confirm_end(self, pod: Metadata) -> None:
        """A pod on a node is gone when its kubelet says that nothing of it runs any more. As from a real one, the
        request has no propagationPolicy: a finalizer of one before it stays."""
        async with self._gate:
            with contextlib.suppress(NotFound, Conflict):  # deleted by force
                await self._api.delete(POD, pod.namespace, pod.name, pod.uid, "", grace_period_seconds=0)

    async def _report(self, pod: Object, phase: str, state: dict[str, object]) -> None:
        ready = phase == "Running"
        statuses = [
            {"name": container.name, "state": state, "restartCount": 0, "ready": ready, "image": "none", "imageID": ""}
            for container in pod.spec.containers or ()
        ]
        conditions = [{"type": "Ready", "status": str(ready)}]
        status = {"phase": phase, "conditions": conditions, "containerStatuses": statuses}
        async with self._gate:
            try:
                await self._api.patch(POD, pod.metadata.namespace, pod.metadata.name, {"status": status}, "status")
            except ApiError as error:
                print(f"{pod.metadata.namespace}/{pod.metadata.name}: {error}", flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--until-deleted", action="store_true")
    options = parser.parse_args()
    async with find_cluster(options.kubeconfig).api("bench-kubelet") as api:
        revision = (await api.list(POD, field_selector="metadata.name=none"))["metadata"]["resourceVersion"]
        print("ready", flush=True)
        await Kubelet(api, None if options.until_deleted else options.seconds).run(revision)


if __name__ == "__main__":
    asyncio.run(main())
