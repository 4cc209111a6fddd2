"""What the page costs the process that serves it: its CPU without a tab, with one and with eight, while the pods of a
job of 1,000 replicas change 20 times a second; and the time from a change in the API to the frame, beside the time to
the event of a watch.

    python -m bench.page --replicas 1000 --seconds 20 [--steps] [--list]

The cluster is a process of its own, without an operator and with pods that nobody runs; what changes and what looks are
another one. `--steps`: all pods report steps, too. `--list`: the pages show the list of jobs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp

from bench.served_cluster import served_cluster
from tests.page.browsing import Browser, Live
from trainyard import kinds
from trainyard.app.kubeconfig import read_kubeconfig
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.client import ApiClient
from trainyard.garbage_collection import collect_seldom
from trainyard.objects import Json, uid_of
from trainyard.objects.labels import INDEX, OWNER, ROLE
from trainyard.objects.resources import POD
from trainyard.objects.usage import ContainerUsage, PodUsage, Progress, UsageReport
from trainyard.page.listener import PageServer
from trainyard.page.options import PageOptions

GVK = kinds.KUBEFLOW_TFJOB.gvk  # no gang, so that each replica has restarts of its own
CHANGES_PER_SECOND = 20
TICKS = os.sysconf("SC_CLK_TCK")


async def serve(folder: Path) -> None:
    """A cluster and its page server; prints how to reach them, and ends with its standard input."""
    options = LocalClusterOptions(
        network="shared", cache=folder / "cache", parent=folder, say=lambda text: None, operator=False
    )
    async with LocalCluster(options) as cluster:
        page_server = PageServer(cluster.api, PageOptions("bench"))
        await page_server.start()
        facts = {"kubeconfig": str(cluster.write_kubeconfig()), "url": page_server.url, "key": page_server.sessions.key}
        print(json.dumps(facts), flush=True)
        if uids := json.loads(await asyncio.to_thread(sys.stdin.readline) or "[]"):
            cluster.server.serve_usage(lambda: usage_report(uids))
        await asyncio.to_thread(sys.stdin.read)
        await page_server.stop()


def usage_report(uids: list[str]) -> UsageReport:
    """What a node would measure of the pods, whose steps grow every 2 seconds."""
    now = time.time() // 2 * 2
    progress = Progress({"step": now - 1_790_000_000, "loss": 1000 / now}, 1.0, "file")
    containers = (ContainerUsage("tensorflow", 1, 0.9, 1 << 30, 1 << 30, True),)
    return UsageReport(
        tuple(
            PodUsage("default", f"big-worker-{index}", uid, now, 2.0, containers, progress)
            for index, uid in enumerate(uids)
        )
    )


def pod(job: Json, index: int) -> Json:
    owner = {"apiVersion": GVK.api_version, "kind": GVK.kind, "name": "big", "uid": uid_of(job), "controller": True}
    labels = {OWNER: uid_of(job), ROLE: "Worker", INDEX: str(index)}
    metadata = {"name": f"big-worker-{index}", "labels": labels, "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {"nodeName": "nowhere", "containers": [{"name": "tensorflow", "image": "x"}]}}


def job(replicas: int) -> Json:
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "x"}]}}
    spec = {"tfReplicaSpecs": {"Worker": {"replicas": replicas, "template": template}}}
    return {"apiVersion": GVK.api_version, "kind": GVK.kind, "metadata": {"name": "big"}, "spec": spec}


class Measure:
    """Changes pods, and measures what the serving process uses for it."""

    def __init__(self, api: ApiClient, process: int, url: str, key: str, replicas: int) -> None:
        self._api, self._process, self._url, self._key, self._replicas = api, process, url, key, replicas
        self._changed: dict[str, float] = {}  # by pod: when its restarts were set to a new number
        self._numbers = iter(range(1, 10**9))
        self._session = ""

    async def create(self) -> tuple[str, list[str]]:
        """The uid of the job, and those of its pods."""
        created = await self._api.create(GVK, "default", job(self._replicas))
        pods = [await self._api.create(POD, "default", pod(created, index)) for index in range(self._replicas)]
        return uid_of(created), [uid_of(pod) for pod in pods]

    async def change(self, seconds: float, on_change: Callable[[str, float], None] = lambda name, sent: None) -> float:
        """Change pods for so long. Returns the share of a core that the serving process used."""
        begun, cpu = time.monotonic(), self.cpu()
        while time.monotonic() - begun < seconds:
            number = next(self._numbers)
            name = f"big-worker-{number % self._replicas}"
            status = {
                "name": "tensorflow",
                "restartCount": number,
                "state": {"running": {}},
                "image": "x",
                "imageID": "x",
            }
            on_change(name, time.monotonic())
            body = {"status": {"phase": "Running", "containerStatuses": [status]}}
            await self._api.patch(POD, "default", name, body, "status")
            await asyncio.sleep(1 / CHANGES_PER_SECOND)
        return (self.cpu() - cpu) / (time.monotonic() - begun)

    def cpu(self) -> float:
        """The seconds of CPU that the serving process has used."""
        fields = Path(f"/proc/{self._process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    @contextlib.asynccontextmanager
    async def tabs(self, number: int, *topics: str) -> AsyncIterator[list[Live]]:
        """So many pages are open, and read all that they get."""
        async with aiohttp.ClientSession() as http, contextlib.AsyncExitStack() as stack:
            browser = Browser(self._url, http)
            if not self._session:  # few invitations are looked at in a minute
                headers = {"Authorization": f"Bearer {self._key}"}
                async with http.post(f"{self._url}v1/invitations", headers=headers) as response:
                    await browser.log_in((await response.json())["link"])
                self._session = browser.session
            browser.session = self._session
            pages = [await stack.enter_async_context(browser.live("jobs", *topics)) for _ in range(number)]
            yield pages


class Latencies:
    """The seconds from a change of a replica to the first frame of a page that has it."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._sent: dict[str, float] = {}  # by replica
        self._restarts: dict[str, int] = {}  # of the frame before

    def sent(self, pod: str, now: float) -> None:
        """The pod is changed now."""
        self._sent[pod.removeprefix("big-")] = now

    async def read(self, page: Live) -> None:
        """Read all frames of the page."""
        while True:
            frame = await page.socket.receive_json()
            if frame["type"] != "ranks":
                continue
            now, columns = time.monotonic(), frame["columns"]
            for replica, restarts in zip(columns["replica"], columns["restarts"], strict=True):
                if self._restarts.get(replica) != restarts and replica in self._sent:
                    self.seconds.append(now - self._sent.pop(replica))
                self._restarts[replica] = restarts


async def measure(options: argparse.Namespace, facts: Json, server: subprocess.Popen[str]) -> None:
    access = read_kubeconfig([Path(facts["kubeconfig"])])
    async with access.api() as api:
        bench = Measure(api, server.pid, facts["url"], facts["key"], options.replicas)
        uid, pods = await bench.create()
        assert server.stdin is not None
        server.stdin.write(json.dumps(pods if options.steps else []) + "\n")
        server.stdin.flush()
        base = await bench.change(options.seconds)
        print(f"{'no tab':<8} {base * 100:5.1f} % of a core, {CHANGES_PER_SECOND} changes a second")
        for number in (1, 8):
            latencies = Latencies()
            async with bench.tabs(number, "progress" if options.list else f"job:{uid}") as pages:
                measured, *rest = pages
                reads = [latencies.read(measured), *(Latencies().read(page) for page in rest)]
                readers = [asyncio.create_task(read) for read in reads]
                await asyncio.sleep(2.0)
                used = await bench.change(options.seconds, latencies.sent)
                for reader in readers:
                    reader.cancel()
                await asyncio.gather(*readers, return_exceptions=True)
            text = f"{number} tab{'s' if number > 1 else ''}"
            if options.list:
                print(f"{text:<8} {(used - base) * 100:5.1f} % of a core more")
                continue
            p95 = statistics.quantiles(latencies.seconds, n=20)[-1]
            p50 = statistics.median(latencies.seconds)
            print(
                f"{text:<8} {(used - base) * 100:5.1f} % of a core more; change to frame: "
                f"p50 {p50 * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms ({len(latencies.seconds)} changes)"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--steps", action="store_true", help="all pods report steps")
    parser.add_argument("--list", action="store_true", help="the pages show the list of jobs")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        collect_seldom()  # as the daemon of `trainyard up` has it
        asyncio.run(serve(options.serve))
        return
    with served_cluster("bench.page") as (facts, server):
        asyncio.run(measure(options, facts, server))


if __name__ == "__main__":
    main()
