"""How long a job of one replica waits beside somebody's job of 2,000 that starts.

    make bench-neighbours

An API server in a process of its own, the operator in this one; no node. What is measured is the time from the creation
of the small job to that of its batch Job. The ceiling is the same alone, in the same run. Prints medians in seconds,
and the ratio. Machines are shared: read the ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time

from trainyard import kinds
from trainyard.client import ApiClient
from trainyard.core import Config
from trainyard.objects import Json
from trainyard.objects.resources import CRD, JOB
from trainyard.operator import Operator

SERVER = """
import asyncio, sys
from trainyard.server import Server

async def main():
    server = Server(token="bench")
    await server.start()
    print(server.url, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop()

asyncio.run(main())
"""
TOKEN = "bench"  # noqa: S105  (of a server that ends with this run)


def tf_job(name: str, workers: int) -> Json:
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "none"}], "restartPolicy": "OnFailure"}}
    roles = [{"tfReplicaType": "MASTER", "replicas": 1, "template": template}]
    if workers:
        roles.append({"tfReplicaType": "WORKER", "replicas": workers, "template": template})
    return {
        "apiVersion": kinds.TFJOB.gvk.api_version,
        "kind": "TfJob",
        "metadata": {"name": name},
        "spec": {"replicaSpecs": roles},
    }


async def seconds_to_first(api: ApiClient, name: str, neighbour: str = "", replicas: int = 0) -> float:
    """From the creation of a job with one replica to that of its batch Job. It is created when the first batch Job of
    the neighbour is there; returns when all of that have come, too."""
    revision = (await api.list(JOB, "default", field_selector="metadata.name=none"))["metadata"]["resourceVersion"]
    waits = replicas + 1 if neighbour else 0
    created, took = 0.0, 0.0
    if neighbour:
        await api.create(kinds.TFJOB.gvk, "default", tf_job(neighbour, replicas))
    else:
        created = time.perf_counter()
        await api.create(kinds.TFJOB.gvk, "default", tf_job(name, 0))
    async for line in api.watch(JOB, "default", revision):
        if b'"ADDED"' not in line[:20]:
            continue
        if f'"name":"{name}"'.encode() in line:
            took = time.perf_counter() - created
        else:
            waits -= 1
        if not created:
            created = time.perf_counter()
            await api.create(kinds.TFJOB.gvk, "default", tf_job(name, 0))
        if took and waits <= 0:
            return took
    raise SystemExit("the watch ended")


async def measure(url: str, replicas: int, rounds: int) -> None:
    async with ApiClient(url, TOKEN) as api, ApiClient(url, TOKEN) as own:
        for kind in kinds.ALL:
            await api.create(CRD, "", kinds.crd(kind))
        operator = Operator(own, kinds.ALL, Config())
        await operator.start()
        await operator.synced
        await seconds_to_first(api, "warm")
        alone = [await seconds_to_first(api, f"alone-{number}") for number in range(rounds)]
        beside = [await seconds_to_first(api, f"small-{number}", f"big-{number}", replicas) for number in range(rounds)]
        await operator.stop()
    lone, other = statistics.median(alone), statistics.median(beside)
    print(f"alone   {lone:.3f} s  ({min(alone):.3f} to {max(alone):.3f})")
    print(f"beside  {other:.3f} s  ({min(beside):.3f} to {max(beside):.3f})")
    print(f"beside a job of {replicas} that starts, the first batch Job comes {other / lone:.1f} times as late")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--replicas", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    argv = [sys.executable, "-c", SERVER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        asyncio.run(measure(server.stdout.readline().strip(), args.replicas, args.rounds))


if __name__ == "__main__":
    main()
