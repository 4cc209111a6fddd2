"""Thousands of short jobs in one local cluster: what a pod, a Service or a job holds is given back with it.

    python -m tests.attacks.soak COUNT [NETWORK ...]

After 500 jobs (a tenth of COUNT, where that is less) and at the end it counts ports, addresses, names, open files by
type, threads, tasks and memory. Ends with 1 when one number has grown, or the memory by more than a tenth."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.waiting import SLOW_PAUSE, until_async
from trainyard import kinds
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.controller_runtime.heap import trim_heap
from trainyard.garbage_collection import collect_seldom
from trainyard.objects import GVK, Json, decode, is_condition_true, name_of
from trainyard.objects.resources import POD, SERVICE

TFJOB: GVK = kinds.TFJOB.gvk
AT_ONCE = 8
BEGIN = 500
PATIENCE = 120.0


def job(name: str) -> Json:
    container = {"name": "tensorflow", "image": "example.invalid/x", "command": ["/bin/sh", "-c", "exit 0"]}
    template = {"spec": {"restartPolicy": "OnFailure", "containers": [container]}}
    roles = [{"replicas": 1, "tfReplicaType": role, "template": template} for role in ("MASTER", "WORKER")]
    spec = {"replicaSpecs": roles}
    return {"apiVersion": TFJOB.api_version, "kind": TFJOB.kind, "metadata": {"name": name}, "spec": spec}


def descriptors(pid: int | str) -> Counter[str]:
    """Open descriptors of a process by type: socket, net, pipe, file..."""
    types: Counter[str] = Counter()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
            types[target.partition(":")[0] if not target.startswith("/") else "file"] += 1
    return types


def children(pid: int) -> list[int]:
    pids = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            pids += [int(child) for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    return pids


def held(cluster: LocalCluster) -> dict[str, int]:
    """What the cluster holds now, in numbers."""
    node: Any = cluster._node
    network = node._context.network
    numbers = {
        "pods of the node": len(node._pods.workers),
        "folders of pods": len(list((cluster.folder / "pods").glob("*"))),
        "links of TMPDIR": len(list((cluster.folder / "t").glob("*"))),
        "names": len(network.directory.peers),
        "forwarders": len(network._forwarders),
        "ports": len(network.ports) if network.name == "shared" else 0,
        "addresses": len(network._used) if network.name == "namespace" else 0,
        # The threads of asyncio.to_thread are a pool: bounded, as large as the busiest moment.
        "threads": sum(not thread.name.startswith("asyncio_") for thread in threading.enumerate()),
        "processes": len(children(os.getpid())),
    }
    tasks = Counter(getattr(task.get_coro(), "__qualname__", "?") for task in asyncio.all_tasks())
    connections = tasks.pop("RequestHandler.start", 0)  # the clients' pools: bounded, as large as the busiest moment
    tasks.pop("RequestHandler._handle_request", None)
    numbers |= {f"tasks: {name}": count for name, count in tasks.items()}
    numbers |= {f"descriptors: {name}": count for name, count in descriptors("self").items()}
    numbers["descriptors: socket"] -= 2 * connections
    for child in children(os.getpid()):
        for name, count in descriptors(child).items():
            numbers[f"descriptors of the supervisor: {name}"] = (
                numbers.get(f"descriptors of the supervisor: {name}", 0) + count
            )
    return numbers


def memory() -> int:
    """Resident bytes of this process, after the heap was trimmed as the API server does it every 30 seconds."""
    trim_heap()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def run_jobs(cluster: LocalCluster, names: list[str]) -> None:
    """Create each, wait until it has succeeded, delete it; AT_ONCE of them side by side."""
    ended: dict[str, asyncio.Event] = {name: asyncio.Event() for name in names}
    slots = asyncio.Semaphore(AT_ONCE)

    async def watch(revision: str) -> None:
        async for line in cluster.api.watch(TFJOB, "default", revision):
            obj = decode(line)["object"]
            conditions = (obj.get("status") or {}).get("conditions")
            if is_condition_true(conditions, "Succeeded") and name_of(obj) in ended:
                ended[name_of(obj)].set()
            elif is_condition_true(conditions, "Failed"):
                print(f"{name_of(obj)} failed: {conditions}", file=sys.stderr)

    async def run(name: str) -> None:
        async with slots, asyncio.timeout(PATIENCE):
            await cluster.api.create(TFJOB, "default", job(name))
            await ended[name].wait()
            await cluster.api.delete(TFJOB, "default", name)

    listed = await cluster.api.list(TFJOB, "default")
    watching = asyncio.create_task(watch(listed["metadata"]["resourceVersion"]))
    try:
        await asyncio.gather(*(run(name) for name in names))
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def until_given_back(cluster: LocalCluster, before: dict[str, int] | None = None) -> dict[str, int]:
    """Wait until the pods and Services of all jobs are gone and the numbers do not move, at least down to `before`."""
    last: dict[str, int] = {}
    pods: list[Json] = []

    async def is_given_back() -> bool:
        nonlocal last, pods
        pods = (await cluster.api.list(POD, "default"))["items"]
        services = (await cluster.api.list(SERVICE, "default"))["items"]
        before_last, last = last, held(cluster)
        gone = not pods and all(name_of(service) == "kubernetes" for service in services)
        return gone and last == before_last and (before is None or not grown(before, last))

    seconds = PATIENCE / 12  # less than what waits for a write that never arrives
    try:
        await until_async(is_given_back, "everything is given back", seconds=seconds, pause=SLOW_PAUSE)
    except AssertionError:  # the caller tells what has grown
        for pod in pods:
            print(f"still there: {pod['metadata']} {pod.get('status')}", file=sys.stderr)
        for running in cluster._node._pods.workers.values():  # type: ignore[union-attr]
            print(f"still there: {running.state} {running._tasks.running}", file=sys.stderr)
    return last


def grown(before: dict[str, int], after: dict[str, int]) -> dict[str, tuple[int, int]]:
    return {name: (before.get(name, 0), count) for name, count in after.items() if count > before.get(name, 0)}


async def soak(count: int, network: str) -> bool:
    """Whether every resource was released."""
    begin = min(BEGIN, max(1, count // 10))
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        options: Any = {
            "network": network,
            "cache": Path(folder) / "cache",
            "parent": Path(folder),
            "say": lambda text: None,
        }
        async with LocalCluster(LocalClusterOptions(**options)) as cluster:
            started = time.monotonic()
            await run_jobs(cluster, [f"warm-{number}" for number in range(begin)])
            before, used = await until_given_back(cluster), memory()
            print(f"{network}: after {begin} jobs: {before}, {used >> 20} MiB", flush=True)
            for first in range(begin, count, 500):
                await run_jobs(cluster, [f"job-{number}" for number in range(first, min(count, first + 500))])
                print(f"{network}: {min(count, first + 500)} jobs, {memory() >> 20} MiB", flush=True)
            after = await until_given_back(cluster, before)
            now = memory()
            more = grown(before, after)
            seconds = time.monotonic() - started
            print(
                f"{network}: after {count} jobs: {after}, {now >> 20} MiB, {seconds:.0f} s; grown: {more or 'nothing'}"
            )
            return not more and now <= 1.1 * used


if __name__ == "__main__":
    collect_seldom()  # as `trainyard up` has it, whose memory this is
    chosen = sys.argv[2:] or ["namespace", "shared"]
    sys.exit(sum(not asyncio.run(soak(int(sys.argv[1]), name)) for name in chosen))
