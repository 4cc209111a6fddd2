"""The least that an operator of many small jobs does, as a process of its own: its CPU is the floor of ours.

    python -m bench.least_operator --kubeconfig FILE < JOBS

It serves the jobs of `Work`, which is read from stdin, when their watch events come: a write of the status before the
children (the fence), the children at once, and a write of the status when the last Pod has ended. It uses our client,
watches the jobs, Pods and Services, and reads a few fields of each event. It does not plan, render, queue or limit, and
it sends no event. Prints `ready`, and after a line on stdin its CPU seconds since.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine

import msgspec

from bench.kubelet import Event
from trainyard.app.kubeconfig import find_cluster
from trainyard.cli.operator import new_event_loop
from trainyard.client import ApiClient
from trainyard.client import request as requests
from trainyard.client.request import ApiRequest
from trainyard.garbage_collection import collect_seldom
from trainyard.objects import GVK, Json
from trainyard.objects.resources import POD, SERVICE


class Work(msgspec.Struct):
    """The jobs of a namespace, by name, and their resource."""

    gvk: GVK
    namespace: str
    jobs: dict[str, JobWork]


class JobWork(msgspec.Struct):
    """What a job needs: `status` is its last one."""

    pods: list[Json]
    services: list[Json]
    status: Json


class LeastOperator:
    """Serves the jobs of `work`, whose requests are encoded in advance."""

    def __init__(self, api: ApiClient, work: Work) -> None:
        self._api, self._namespace, self._gvk = api, work.namespace, work.gvk
        self._requests = {name: self._encode(name, job) for name, job in work.jobs.items()}
        self._job_of_pod = {pod["metadata"]["name"]: name for name, job in work.jobs.items() for pod in job.pods}
        self._missing = Counter({name: len(job.pods) for name, job in work.jobs.items()})
        self._decoder = msgspec.json.Decoder(Event)
        self._tasks: set[asyncio.Task[object]] = set()

    def _encode(self, name: str, job: JobWork) -> tuple[ApiRequest, list[ApiRequest], ApiRequest]:
        """The first write of the status, the creates, and the last write of the status."""
        first = {"conditions": job.status["conditions"][:1]}
        statuses = [
            requests.patch(self._gvk, self._namespace, name, {"status": status}, "status")
            for status in (first, job.status)
        ]
        children = [(POD, pod) for pod in job.pods] + [(SERVICE, service) for service in job.services]
        return statuses[0], [requests.create(gvk, self._namespace, child) for gvk, child in children], statuses[1]

    async def start(self) -> None:
        """Watch, until `stop`."""
        for gvk, handle in ((self._gvk, self._handle_job), (POD, self._handle_pod), (SERVICE, None)):
            listed = await self._api.list(gvk, field_selector="metadata.name=none")
            self._run(self._watch(gvk, listed["metadata"]["resourceVersion"], handle))

    def stop(self) -> None:
        """End the watches."""
        for task in self._tasks:
            task.cancel()

    async def _watch(self, gvk: GVK, revision: str, handle: Callable[[str, Event], None] | None) -> None:
        while True:
            async for line in self._api.watch(gvk, "", revision):
                event = self._decoder.decode(line)
                revision = event.object.metadata.resourceVersion
                if handle is not None and event.object.metadata.namespace == self._namespace:
                    handle(event.object.metadata.name, event)

    def _handle_job(self, name: str, event: Event) -> None:
        if event.type == "ADDED":
            self._run(self._create_children(name))

    def _handle_pod(self, name: str, event: Event) -> None:
        if event.object.status.phase == "Succeeded":  # one event: the kubelet of the benchmark writes it once
            job = self._job_of_pod[name]
            self._missing[job] -= 1
            if not self._missing[job]:
                self._run(self._api.send(self._requests[job][2]))

    async def _create_children(self, name: str) -> None:
        fence, creates, _ = self._requests[name]
        await self._api.send(fence)
        await asyncio.gather(*map(self._api.send, creates))

    def _run(self, work: Coroutine[object, object, object]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def main(kubeconfig: str) -> None:
    async with find_cluster(kubeconfig).api("bench-least") as api:
        work = msgspec.json.decode(sys.stdin.buffer.readline(), type=Work)
        operator = LeastOperator(api, work)
        await operator.start()
        print("ready", flush=True)
        start = time.process_time()
        await asyncio.to_thread(sys.stdin.buffer.readline)
        print(time.process_time() - start, flush=True)
        operator.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", required=True)
    collect_seldom()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main(parser.parse_args().kubeconfig))
