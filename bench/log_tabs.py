"""What eight open tabs on the log of a replica that prints as fast as it can cost: the time of `GET pods`, as a ratio
to the same without a tab, and the CPU of the process that serves them, as a ratio to that of one `kubectl logs -f`.

    python -m bench.log_tabs [--seconds 10] [--rounds 3] [--tabs 8]

The cluster is a process of its own. The rounds take turns, so that other work of the machine is in all of them. The
ceilings are 1.5 and 1.3. Needs kubectl.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

from bench.page import Measure
from bench.served_cluster import served_cluster
from tests.page.browsing import Live
from trainyard import kinds
from trainyard.app.kubeconfig import read_kubeconfig
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.client import ApiClient
from trainyard.garbage_collection import collect_seldom
from trainyard.objects import Json, name_of, uid_of
from trainyard.objects.resources import POD
from trainyard.page.listener import PageServer
from trainyard.page.options import PageOptions

GVK = kinds.KUBEFLOW_TFJOB.gvk
PAUSE = 0.02  # seconds between two requests
CEILINGS = {"p99 of GET pods": 1.5, "CPU": 1.3}


async def serve(folder: Path) -> None:
    """A cluster and its page server; prints how to reach them, and ends with its standard input."""
    options = LocalClusterOptions(network="shared", cache=folder / "cache", parent=folder, say=lambda text: None)
    async with LocalCluster(options) as cluster:
        page_server = PageServer(cluster.api, PageOptions("bench"))
        await page_server.start()
        facts = {"kubeconfig": str(cluster.write_kubeconfig()), "url": page_server.url, "key": page_server.sessions.key}
        print(json.dumps(facts), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await page_server.stop()


def printing_job() -> Json:
    container = {"name": "tensorflow", "image": "example.invalid/x", "command": ["yes", "step 1 loss 0.5"]}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec = {"tfReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}}
    return {"apiVersion": GVK.api_version, "kind": GVK.kind, "metadata": {"name": "prints"}, "spec": spec}


async def until_running(api: ApiClient) -> str:
    """The name of the pod."""
    while True:
        for pod in (await api.list(POD, "default"))["items"]:
            if pod["status"].get("phase") == "Running":
                return name_of(pod)
        await asyncio.sleep(0.1)


async def read_all(page: Live) -> None:
    while True:
        await page.socket.receive()


@contextlib.asynccontextmanager
async def open_tabs(bench: Measure, number: int, uid: str) -> AsyncIterator[None]:
    async with bench.tabs(number, f"logs:{uid}:*") as pages:
        readers = [asyncio.create_task(read_all(page)) for page in pages]
        yield
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)


@contextlib.asynccontextmanager
async def kubectl_follows(kubeconfig: str, pod: str) -> AsyncIterator[None]:
    command = ["kubectl", "--kubeconfig", kubeconfig, "logs", "-f", "--tail=200", pod]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as kubectl:  # noqa: ASYNC220  (it starts in milliseconds)
        yield
        kubectl.kill()


async def look(api: ApiClient, bench: Measure, seconds: float) -> tuple[float, list[float]]:
    """The share of a core that the serving process used for so long, and the seconds of each GET of the pods."""
    await asyncio.sleep(1.0)
    begun, cpu, latencies = time.monotonic(), bench.cpu(), list[float]()
    while time.monotonic() - begun < seconds:
        sent = time.monotonic()
        await api.list(POD, "default")
        latencies.append(time.monotonic() - sent)
        await asyncio.sleep(PAUSE)
    return (bench.cpu() - cpu) / (time.monotonic() - begun), latencies


async def measure(options: argparse.Namespace, facts: Json, server: subprocess.Popen[str]) -> None:
    async with read_kubeconfig([Path(facts["kubeconfig"])]).api() as api:
        bench = Measure(api, server.pid, facts["url"], facts["key"], 0)
        uid = uid_of(await api.create(GVK, "default", printing_job()))
        pod = await until_running(api)
        names = ("no tab", f"{options.tabs} tabs", "kubectl logs -f")
        used: dict[str, list[float]] = {name: [] for name in names}
        latencies: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(options.rounds):
            for name in names:
                async with contextlib.AsyncExitStack() as stack:
                    if name == names[1]:
                        await stack.enter_async_context(open_tabs(bench, options.tabs, uid))
                    elif name == names[2]:
                        await stack.enter_async_context(kubectl_follows(facts["kubeconfig"], pod))
                    share, seconds = await look(api, bench, options.seconds)
                used[name].append(share)
                latencies[name] += seconds
        p99 = {name: statistics.quantiles(latencies[name], n=100)[-1] for name in names}
        for name in names:
            p50 = statistics.median(latencies[name])
            print(
                f"{name:<16} {statistics.mean(used[name]) * 100:5.1f} % of a core; GET pods: p50 {p50 * 1000:.1f} ms,"
                f" p99 {p99[name] * 1000:.1f} ms ({len(latencies[name])} requests)"
            )
        ratios = (p99[names[1]] / p99[names[0]], statistics.mean(used[names[1]]) / statistics.mean(used[names[2]]))
        for (what, ceiling), ratio in zip(CEILINGS.items(), ratios, strict=True):
            print(f"{what}: {ratio:.2f} of at most {ceiling}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tabs", type=int, default=8)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        collect_seldom()  # as the daemon of `trainyard up` has it
        asyncio.run(serve(options.serve))
        return
    with served_cluster("bench.log_tabs") as (facts, server):
        asyncio.run(measure(options, facts, server))


if __name__ == "__main__":
    main()
