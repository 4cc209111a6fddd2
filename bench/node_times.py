"""How long a pod waits for its node: `trainyard node` beside a real kubelet with containerd, on one control plane; and
how long the workers of a PyTorchJob wait behind a DNS that caches *no such name*, beside one that does not.

    make bench-node-times         # as root; needs the real node: docs/real-node.md
    python -m bench.node_times --pods 10 --rounds 3 --json FILE

Rules:
- One pod at a time, on each node in turn, created with its `nodeName`: the scheduler has no part in it. Neither node
  has another pod, and the image is there.
- The moment before the POST and the arrival of a watch event are times of this process; when the program began and when
  it ended is what it writes into its termination message. All of it is one clock: the seconds since this
  machine was booted.
- A job has names of its own, so that no answer of the DNS is from an earlier one.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench.report import TIMES_CEILING, Goal, Row, print_table, write_json, write_table
from tests.control_plane.real_operator import serving
from tests.support import real_node_flags as flags
from tests.support.control_plane_fixtures import create_namespace, install
from tests.support.control_plane_process import ControlPlaneProcess
from tests.support.real_node import RealNode
from tests.support.real_node_build import PYTHON_IMAGE, missing
from tests.support.waiting import until_async
from trainyard import kinds
from trainyard.client import ApiClient
from trainyard.objects import GVK, Json, is_condition_true
from trainyard.objects.resources import NODE, POD

OURS, NODES = "laptop", {"kubelet": flags.NAME, "ours": "laptop"}
RUNNING, PROGRAM, STATUS = "bound to Running", "bound to its program", "exit to its status"
SHARE = 0.5  # of the kubelet's time is the most that ours may take
JOB_ROW, JOB_GOAL = "PyTorchJob of 3 replicas behind a DNS that caches no-such-name: a worker's first line", 1.3
COREFILE = "node/Corefile"
CACHES = {"caches": "cache 30", "does not": ""}
HOLD = 1.5  # seconds that a program runs: a kubelet looks at its containers once a second
_NOTE_TIME = "read now _ </proc/uptime; echo $now >>/dev/termination-log"  # in hundredths, without another process
_numbers = itertools.count(1)
Times = dict[str, dict[str, list[float]]]
"""Name of a row -> node, or DNS -> seconds."""


def pod(name: str, node: str) -> Json:
    command = ["sh", "-c", f"{_NOTE_TIME}; sleep {HOLD}; {_NOTE_TIME}"]
    main = {"name": "main", "image": PYTHON_IMAGE, "command": command}
    spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "nodeName": node, "containers": [main]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def pytorch_job(name: str) -> Json:
    def replicas(count: int, script: str) -> Json:
        main = {"name": "pytorch", "image": PYTHON_IMAGE, "command": ["sh", "-c", script]}
        spec = {"terminationGracePeriodSeconds": 0, "containers": [main]}
        return {"replicas": count, "restartPolicy": "Never", "template": {"spec": spec}}

    roles = {"Master": replicas(1, "sleep 300"), "Worker": replicas(2, _NOTE_TIME)}
    gvk = kinds.PYTORCHJOB.gvk
    spec = {"runPolicy": {"cleanPodPolicy": "All"}, "pytorchReplicaSpecs": roles}
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": {"name": name}, "spec": spec}


def message_times(pod_object: Json) -> list[float]:
    """What the program of the pod has written into its termination message; empty before it has ended."""
    (status,) = (pod_object.get("status") or {}).get("containerStatuses") or [{}]
    terminated = (status.get("state") or {}).get("terminated") or {}
    return [float(line) for line in str(terminated.get("message") or "").split()]


async def watched(api: ApiClient, gvk: GVK, namespace: str, version: str) -> AsyncIterator[tuple[float, Json]]:
    """The states of the objects from that version on, with the time of their arrival."""
    async for line in api.watch(gvk, namespace, version):
        arrival, event = time.clock_gettime(time.CLOCK_BOOTTIME), json.loads(line)
        if event["type"] not in ("ERROR", "BOOKMARK"):
            yield arrival, event["object"]


async def measure_pod(api: ApiClient, namespace: str, node: str) -> dict[str, float]:
    """Seconds by row of one pod on that node."""
    name, began = f"pod-{next(_numbers)}", time.clock_gettime(time.CLOCK_BOOTTIME)
    created = await api.create(POD, namespace, pod(name, node))
    running = 0.0
    async for arrival, state in watched(api, POD, namespace, created["metadata"]["resourceVersion"]):
        if state["metadata"]["name"] != name:
            continue
        if state["status"].get("phase") == "Running" and not running:
            running = arrival
        if times := message_times(state):
            await api.delete(POD, namespace, name, grace_period_seconds=0)
            return {RUNNING: running - began, PROGRAM: times[0] - began, STATUS: arrival - times[1]}
    raise SystemExit(f"the watch of pods ended before {name} did")


async def measure_job(api: ApiClient, namespace: str) -> float:
    """Seconds from the creation of a job to the program of its first worker."""
    name, began = f"job-{next(_numbers)}", time.clock_gettime(time.CLOCK_BOOTTIME)
    created = await api.create(kinds.PYTORCHJOB.gvk, namespace, pytorch_job(name))
    async for _, state in watched(api, POD, namespace, created["metadata"]["resourceVersion"]):
        if state["metadata"]["name"].startswith(f"{name}-worker-") and (times := message_times(state)):
            await api.delete(kinds.PYTORCHJOB.gvk, namespace, name)
            return times[0] - began
    raise SystemExit(f"the watch of pods ended before a worker of {name} did")


async def set_dns(node: RealNode, corefile: str, cache: str) -> None:
    """Start the DNS again, with this line about its cache in its configuration."""
    text, count = re.subn(r"\n  cache [^{\n]*(\{[^}]*\})?", f"\n  {cache}", corefile)
    assert count == 1, corefile
    (node.folder / COREFILE).write_text(text)
    node.stop("coredns")
    await asyncio.to_thread(node.begin("coredns"))
    ready = f"/api/v1/nodes/http:{flags.NAME}:{flags.DNS_HEALTH}/proxy/ready"
    await until_async(
        lambda: asyncio.to_thread(node.ask, "GET", ready), "the DNS is ready", accept=lambda answer: answer[0] == 200
    )


@asynccontextmanager
async def our_node(node: RealNode, api: ApiClient) -> AsyncIterator[None]:
    """`trainyard node`, joined to the control plane of the real one."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "trainyard", "node", "--kubeconfig", str(node.kubeconfig), "--name", OURS]
        command += ["--network", "namespace"]
        environment = {**os.environ, "XDG_STATE_HOME": folder}
        process = ControlPlaneProcess("trainyard-node", command, node.folder / "logs" / "ours.log", environment)
        process.start()
        try:
            await until_async(lambda: _is_ready(api), "our node is ready", seconds=60)
            yield
        finally:
            process.end()


async def _is_ready(api: ApiClient) -> bool:
    nodes = {item["metadata"]["name"]: item for item in (await api.list(NODE))["items"]}
    return OURS in nodes and is_condition_true(nodes[OURS]["status"].get("conditions"), "Ready")


async def measure(node: RealNode, pods: int, rounds: int) -> Times:
    namespace = "bench"
    await asyncio.to_thread(install, node)
    await asyncio.to_thread(create_namespace, node, namespace)
    times: Times = defaultdict(lambda: defaultdict(list))
    async with node.api() as api:
        async with our_node(node, api):
            for target in NODES.values():  # what only the first pod needs is read and imported
                await measure_pod(api, namespace, target)
            for _ in range(rounds):
                seconds: Times = defaultdict(lambda: defaultdict(list))
                for _ in range(pods):
                    for name, target in NODES.items():
                        for row, value in (await measure_pod(api, namespace, target)).items():
                            seconds[row][name].append(value)
                for row, by_node in seconds.items():
                    for name, values in by_node.items():
                        times[row][name].append(statistics.median(values))
        async with serving(node, namespace):
            corefile = (node.folder / COREFILE).read_text()
            await measure_job(api, namespace)  # what only the first job needs is read and imported
            for _ in range(rounds):
                for name, cache in CACHES.items():
                    await set_dns(node, corefile, cache)
                    times[JOB_ROW][name].append(await measure_job(api, namespace))
    return times


def table(times: Times) -> list[Row]:
    rows = []
    for name in (RUNNING, PROGRAM, STATUS):
        kubelet = times[name]["kubelet"]
        goal = Goal(SHARE * statistics.median(kubelet)) if name != PROGRAM else None
        rows.append(Row(f"a pod of one container: {name}", "s", goal, [], {"kubelet": kubelet}, times[name]["ours"]))
    dns = times[JOB_ROW]
    rows.append(Row(JOB_ROW, "s", Goal(JOB_GOAL, TIMES_CEILING), dns["does not"], {}, dns["caches"]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.node_times")
    parser.add_argument("--pods", type=int, default=10, help="on each node in each round; a round has their median")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path, help="a page with `<!-- table node-times -->`")
    options = parser.parse_args()
    if text := missing():
        raise SystemExit(f"no real node here: {text}")
    node = RealNode()
    with node:
        times = asyncio.run(measure(node, options.pods, options.rounds))
    rows = table(times)
    print_table(rows)
    write_json(options.json, rows)
    if options.page:
        write_table(options.page, "node-times", rows)


if __name__ == "__main__":
    main()
