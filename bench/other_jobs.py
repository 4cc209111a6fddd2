"""How long a job of one replica waits beside somebody's job of 2,000 that starts.

    make bench-other-jobs

An API server in a process of its own, the operator in this one; no node. What is measured is the time from the creation
of the small job to that of its batch Job. The ceiling is the same alone, in the same run. Prints medians, ranges
and the ratio. Machines are shared: read the ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from pathlib import Path

from bench.jobs import tf_job
from bench.report import Goal, Row, print_table, write_json
from trainyard import kinds
from trainyard.client import ApiClient
from trainyard.core import Config
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


async def seconds_to_first(api: ApiClient, name: str, other: str = "", replicas: int = 0) -> float:
    """From the creation of a job with one replica to that of its batch Job. It is created when the first batch Job of
    the job `other` is there; returns when all `replicas` of that have come, too."""
    revision = (await api.list(JOB, "default", field_selector="metadata.name=none"))["metadata"]["resourceVersion"]
    waits = replicas
    created, took = 0.0, 0.0
    if other:
        await api.create(kinds.TFJOB.gvk, "default", tf_job(other, replicas))
    else:
        created = time.perf_counter()
        await api.create(kinds.TFJOB.gvk, "default", tf_job(name, 1))
    async for line in api.watch(JOB, "default", revision):
        if b'"ADDED"' not in line[:20]:
            continue
        if f'"name":"{name}"'.encode() in line:
            took = time.perf_counter() - created
        else:
            waits -= 1
        if not created:
            created = time.perf_counter()
            await api.create(kinds.TFJOB.gvk, "default", tf_job(name, 1))
        if took and waits <= 0:
            return took
    raise SystemExit("the watch ended")


async def measure(url: str, replicas: int, rounds: int) -> Row:
    """The ceiling is the time alone."""
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
    return Row(f"first batch Job, beside a job of {replicas} that starts", "s", Goal(0.15), alone, {}, beside)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--replicas", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the row is written, too")
    args = parser.parse_args()
    argv = [sys.executable, "-c", SERVER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        row = asyncio.run(measure(server.stdout.readline().strip(), args.replicas, args.rounds))
    print_table([row])
    write_json(args.json, [row])


if __name__ == "__main__":
    main()
