"""A kubelet for benchmarks: a process that moves each pod to Running at once and, `--seconds` later, to Succeeded.

    python -m bench.kubelet --kubeconfig FILE --seconds 0.2

It serves the pods whose schedulerName is `bench`, which no scheduler binds, in all namespaces.
"""

from __future__ import annotations

import argparse
import asyncio
import time

import msgspec

from bench.jobs import SCHEDULER
from trainyard.app.kubeconfig import find_cluster
from trainyard.client import ApiClient, ApiError
from trainyard.objects import format_time
from trainyard.objects.resources import POD

WIDTH = 64  # requests at one time


class Metadata(msgspec.Struct):
    """The fields of an object's metadata that are read."""

    resourceVersion: str
    name: str = ""  # a bookmark has none
    namespace: str = ""


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
    """Sends two status patches for each pod."""

    def __init__(self, api: ApiClient, seconds: float) -> None:
        self._api, self._seconds = api, seconds
        self._gate = asyncio.Semaphore(WIDTH)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, revision: str) -> None:
        """Serve the pods that are created after this resourceVersion."""
        decoder = msgspec.json.Decoder(Event)
        while True:  # a watch that ends resumes
            async for line in self._api.watch(POD, "", revision, "", f"spec.schedulerName={SCHEDULER}"):
                event = decoder.decode(line)
                revision = event.object.metadata.resourceVersion
                if event.type == "ADDED":
                    task = asyncio.create_task(self._live(event.object))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)

    async def _live(self, pod: Object) -> None:
        await self._report(pod, "Running", {"running": {"startedAt": format_time(time.time())}})
        await asyncio.sleep(self._seconds)
        end = {"exitCode": 0, "finishedAt": format_time(time.time()), "reason": "Completed"}
        await self._report(pod, "Succeeded", {"terminated": end})

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
    options = parser.parse_args()
    async with find_cluster(options.kubeconfig).api("bench-kubelet") as api:
        revision = (await api.list(POD, field_selector="metadata.name=none"))["metadata"]["resourceVersion"]
        print("ready", flush=True)
        await Kubelet(api, options.seconds).run(revision)


if __name__ == "__main__":
    asyncio.run(main())
