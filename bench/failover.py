"""How long a job waits when the operator that leads is killed (`kill -9`) or stopped (SIGTERM), and another stands by:
ours beside the peers, each on a real control plane of its own, with every default of its leader election.

    make bench-failover           # needs the control plane: make control-plane
    python -m bench.failover --times 10 --operators trainyard --json FILE

Two processes of each operator; ours has the rights that the README installs. For each end of the leader: seconds until
the lease names the other process, and until that one has written the status of a job that was made at that moment. Our
ceiling after a kill is what the timings of the lease allow: `duration` + `retry` (controller_runtime/lease.py).

A Service takes a pod that has gone out of its endpoints. Here the API server is told where a peer's webhooks are, and
before the leader ends that is the process that stands by.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from bench.jobs import job_set, pytorch_job
from bench.report import Goal, Row, print_table, write_json, write_table
from tests.drop_in.job_set import NAMESPACE, JobSet
from tests.drop_in.operators import TrainingOperator, start_process
from tests.drop_in.snapshot import JOB_SET
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_flags import MEASURED
from tests.support.control_plane_process import ControlPlaneProcess, free_ports
from trainyard import kinds
from trainyard.app.install.installation import Install, access
from trainyard.client import ApiClient
from trainyard.controller_runtime.lease import LeaseTimings
from trainyard.objects import GVK, Json, encode, name_of
from trainyard.objects.resources import LEASE

OURS = "trainyard"
ENDS = {"kill -9": signal.SIGKILL, "stop": signal.SIGTERM}
GOALS = {"kill -9": Goal(5), "stop": Goal(1)}
LEADS, WRITES = "the other leads", "its first status"

# The training-operator reads the namespace of its lease from this file of a pod, and has no flag for it.
IN_A_POD = """
mount -t tmpfs none "$(readlink -f /var/run)" && mkdir -p /var/run/secrets/kubernetes.io/serviceaccount &&
printf kubeflow > /var/run/secrets/kubernetes.io/serviceaccount/namespace && exec "$@"
"""


class Contender(Protocol):
    """An operator that is measured."""

    gvk: GVK
    lease_namespace: str

    def job(self, name: str) -> Json: ...

    def install(self, plane: ControlPlane) -> None: ...

    def start(self, plane: ControlPlane) -> ControlPlaneProcess:
        """One more process of it, which leads or stands by."""
        ...

    def serve_webhooks(self, plane: ControlPlane, process: ControlPlaneProcess) -> None:
        """Let the API server call the webhooks of this process."""
        ...


class OurOperator:
    """Processes of one ServiceAccount."""

    gvk, lease_namespace = kinds.PYTORCHJOB.gvk, "default"

    def job(self, name: str) -> Json:
        return pytorch_job(name, 1)

    def install(self, plane: ControlPlane) -> None:
        self._started = 0
        install = Install(namespace="default", kinds=kinds.KINDS)
        items = [*(kinds.crd(kind) for kind in kinds.ALL), *access(install)]
        listed = encode({"apiVersion": "v1", "kind": "List", "items": items}).decode()
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=listed)
        path = f"/api/v1/namespaces/default/serviceaccounts/{install.names.operator}/token"
        code, answer = plane.ask("POST", path, {"spec": {"expirationSeconds": 7200}})
        if code != 201:
            raise SystemExit(f"no token for the operator: {answer}")
        config = json.loads(plane.kubectl("config", "view", "--raw", "--flatten", "--minify", "-o", "json"))
        config["users"][0]["user"] = {"token": answer["status"]["token"]}
        self._kubeconfig = plane.folder / "operator.kubeconfig"
        self._kubeconfig.touch(0o600)
        self._kubeconfig.write_bytes(encode(config))

    def start(self, plane: ControlPlane) -> ControlPlaneProcess:
        self._started += 1
        name = f"operator-{self._started}"
        command = [sys.executable, "-m", "trainyard", "operator", "--kubeconfig", str(self._kubeconfig)]
        command += [
            "--kinds",
            kinds.unique_name(kinds.PYTORCHJOB),
            "--leader-elect",
            "--metrics-bind-address",
            "127.0.0.1:0",
        ]
        log = plane.folder / "logs" / f"{name}.log"
        process = ControlPlaneProcess(name, command, log, {**os.environ, "MY_POD_NAME": name})
        process.start()
        words = ("standing by", "leading lease")
        process.wait_until(lambda: any(word in log.read_text() for word in words), "it led or stood by")
        return process

    def serve_webhooks(self, plane: ControlPlane, process: ControlPlaneProcess) -> None:
        """There are none."""


class Peer:
    """An operator of others: `command(port)` gives the command that serves its webhooks at that port."""

    def __init__(
        self,
        gvk: GVK,
        lease_namespace: str,
        job: Callable[[str, int], Json],
        operator: TrainingOperator | JobSet,
    ) -> None:
        self.gvk, self.lease_namespace, self._job, self._operator = gvk, lease_namespace, job, operator
        self._ports: dict[int, int] = {}  # by process

    def job(self, name: str) -> Json:
        return self._job(name, 1)

    def install(self, plane: ControlPlane) -> None:
        self._operator.install(plane)

    def start(self, plane: ControlPlane) -> ControlPlaneProcess:
        (port,) = free_ports(1)
        if isinstance(self._operator, JobSet):
            command, urls = self._operator.command(plane, port, "--leader-elect")
        else:
            command, urls = self._operator.command(port, "--leader-elect")
            command = ["/usr/bin/env", "unshare", "--mount", "--map-root-user", "sh", "-c", IN_A_POD, "sh", *command]
        process = start_process(plane, command, *urls)
        self._ports[process.pid] = port
        return process

    def serve_webhooks(self, plane: ControlPlane, process: ControlPlaneProcess) -> None:
        items = self._operator.webhooks(self._ports[process.pid])
        for item in items if isinstance(items, list) else [items]:
            plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=encode(item).decode())


CONTENDERS: dict[str, Callable[[], Contender]] = {
    OURS: OurOperator,
    "training-operator": lambda: Peer(kinds.PYTORCHJOB.gvk, "kubeflow", pytorch_job, TrainingOperator()),
    "jobset": lambda: Peer(JOB_SET, NAMESPACE, job_set, JobSet()),
}


async def until(api: ApiClient, gvk: GVK, namespace: str, true: Callable[[Json], object]) -> Json:
    """The first object of the namespace of which that holds, as soon as there is one."""
    while True:
        listed = await api.list(gvk, namespace)
        for obj in listed["items"]:
            if true(obj):
                return dict(obj)
        async for line in api.watch(gvk, namespace, listed["metadata"]["resourceVersion"]):
            event = json.loads(line)
            if event["type"] != "ERROR" and true(event["object"]):
                return dict(event["object"])


def holder(lease: Json) -> str:
    return str(lease["spec"].get("holderIdentity") or "")


async def measure(plane: ControlPlane, contender: Contender, ends: Sequence[str]) -> dict[str, list[float]]:
    """Seconds by row, for these ends of the leader, one after the other."""
    seconds: dict[str, list[float]] = defaultdict(list)
    contender.install(plane)
    processes = [contender.start(plane)]
    namespace = contender.lease_namespace
    try:
        async with plane.api() as api:
            for number, end in enumerate(ends):
                before = holder(await until(api, LEASE, namespace, holder))
                processes.append(contender.start(plane))
                contender.serve_webhooks(plane, processes[-1])
                leader, name = processes.pop(0), f"job-{number}"
                began = time.monotonic()
                leader.send(ENDS[end])
                await api.create(contender.gvk, "default", contender.job(name))
                await until(api, LEASE, namespace, lambda obj, old=before: holder(obj) not in ("", old))
                seconds[f"{end}: {LEADS}"].append(time.monotonic() - began)
                await until(api, contender.gvk, "default", lambda obj, n=name: name_of(obj) == n and obj.get("status"))
                seconds[f"{end}: {WRITES}"].append(time.monotonic() - began)
                leader.end()
    finally:
        for process in processes:
            process.end()
    return seconds


def table(results: dict[str, dict[str, list[float]]]) -> list[Row]:
    timings = LeaseTimings()
    rows = []
    for end in ENDS:
        ceiling = [timings.duration + timings.retry] if end == "kill -9" else []
        for what in (LEADS, WRITES):
            name = f"{end}: {what}"
            measured = {operator: seconds[name] for operator, seconds in results.items() if name in seconds}
            ours = measured.pop(OURS, [])
            rows.append(Row(name, "s", GOALS[end], ceiling, measured, ours))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=3, help="how often the leader is killed, and how often stopped")
    parser.add_argument("--operators", nargs="*", default=list(CONTENDERS), choices=list(CONTENDERS))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the seconds there, too")
    parser.add_argument("--page", type=Path, help="the Markdown page that has the table")
    options = parser.parse_args()
    results = {}
    for name in options.operators:
        with ControlPlane(MEASURED) as plane:
            results[name] = asyncio.run(measure(plane, CONTENDERS[name](), [*ENDS] * options.times))
        print(f"measured: {name}", flush=True)
        write_json(options.json, results)
    print_table(table(results))
    if options.page:
        write_table(options.page, "failover", table(results))


if __name__ == "__main__":
    main()
