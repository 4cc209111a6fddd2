"""What steady jobs cost an operator: memory, and the time from its start until it has listed and reconciled them all.

    make bench-memory                       # 100, 1,000 and 10,000 PyTorchJobs of 10 pods
    python -m bench.memory --jobs 1000 --rounds 3

The API server is embedded and a process of its own, filled with running jobs, their pods and Services. The operator is
`trainyard operator --leader-elect` as a user starts it. For each number of jobs: RSS when everything is reconciled and
the peak before, seconds and CPU seconds from the start of the process until then, bytes for each job with its children,
and the requests that it sent; then goals, and the exponents of growth of what comes on top of an operator without
jobs. Machines are shared: read bytes, CPU seconds and exponents.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.report import Goal, Row, growth_exponent, print_columns, print_table, write_json
from tests.support import steady_jobs
from trainyard.objects import encode
from trainyard.server import Server

GOAL_MEMORY, GOAL_SECONDS, GOAL_EXPONENT = 200e6, 15.0, 1.05  # at 10,000 jobs of 10 pods
QUIET_SECONDS = 10.0  # after all jobs are reconciled: nothing but the lease is written
READS = ("list", "watch", "get")


@dataclass
class Cost:
    """The cost of one operator process. Memory in bytes; `requests` without the lease."""

    jobs: int
    pods: int
    memory: float
    peak: float
    seconds: float
    cpu: float
    reconciles: int
    lists: int
    writes: int  # of everything but the lease, from the start on
    cpu_quiet: float  # CPU seconds in the QUIET_SECONDS after


class ServerProcess:
    """The filled API server. `requests` has the number of requests by verb and resource so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout
        self.url = process.stdout.readline().strip()

    def requests(self) -> dict[str, int]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("count\n")
        self._process.stdin.flush()
        counts: dict[str, int] = json.loads(self._process.stdout.readline())
        return counts


async def serve(jobs: int, pods: int) -> None:
    """The program of ServerProcess: print the URL, then the requests so far for each line of standard input."""
    server = Server()
    await server.start()
    await steady_jobs.fill(server, jobs, pods)
    server.verbs.clear()
    print(server.url, flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps({" ".join(key): count for key, count in server.verbs.items()}), flush=True)
    await server.stop()


@contextmanager
def filled_server(jobs: int, pods: int) -> Iterator[ServerProcess]:
    argv = [sys.executable, "-m", "bench.memory", "--serve", "--jobs", str(jobs), "--pods", str(pods)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield ServerProcess(process)
        finally:
            process.kill()


class OperatorProcess:
    """`trainyard operator` and what it costs."""

    def __init__(self, url: str, folder: Path) -> None:
        cluster = {"name": "bench", "cluster": {"server": url}}
        context = {"name": "bench", "context": {"cluster": "bench", "user": "bench"}}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [cluster],
            "users": [{"name": "bench", "user": {"token": "bench"}}],
            "contexts": [context],
            "current-context": "bench",
        }
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_bytes(encode(config))
        self._log = folder / "operator.log"
        argv = [
            sys.executable,
            "-m",
            "trainyard",
            "operator",
            "--kubeconfig",
            str(kubeconfig),
            "--leader-elect",
            "--kinds",
            "all",
        ]
        argv += ["--metrics-bind-address", "127.0.0.1:0", "--log-level", "info"]
        self.started = time.monotonic()
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)

    def _get(self, path: str) -> tuple[int, str]:
        port = re.search(r"serving health and metrics .*port=(\d+)", self._log.read_text())
        if self.process.poll() is not None:
            raise SystemExit(f"the operator has ended:\n{self._log.read_text()}")
        if port is None:
            return 0, ""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""

    def wait_ready(self, jobs: int) -> int:
        """Wait until every store has synced and every job was reconciled. Returns the number of reconciles."""
        while True:
            _, metrics = self._get("/metrics")
            reconciles = sum(_values(metrics, r"trainyard_reconcile_total\{.*\}"))
            queued = sum(_values(metrics, r'trainyard_queue_depth\{.*state="(?:due|held)"\}'))
            leads = sum(_values(metrics, "trainyard_leader"))
            if leads and reconciles >= jobs and not queued and self._get("/readyz")[0] == 200:
                return int(reconciles)
            time.sleep(max(0.25, jobs / 10_000))  # a scrape is work of the operator, too

    def memory(self) -> tuple[int, int]:
        """RSS and its peak, in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        now, peak = (re.search(rf"{name}:\s+(\d+) kB", status) for name in ("VmRSS", "VmHWM"))
        assert now
        assert peak
        return int(now[1]) * 1024, int(peak[1]) * 1024

    def cpu(self) -> float:
        """CPU seconds so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


def _values(metrics: str, series: str) -> list[float]:
    return [float(value) for value in re.findall(rf"(?m)^{series} (\S+)$", metrics)]


def measure(jobs: int, pods: int) -> Cost:
    """The cost of one operator that finds so many steady jobs."""
    with filled_server(jobs, pods) as server, tempfile.TemporaryDirectory() as folder:
        operator = OperatorProcess(server.url, Path(folder))
        try:
            reconciles = operator.wait_ready(jobs)
            seconds, cpu = time.monotonic() - operator.started, operator.cpu()
            time.sleep(QUIET_SECONDS)
            memory, peak = operator.memory()
            cpu_quiet = operator.cpu() - cpu
            requests = {key: count for key, count in server.requests().items() if not key.endswith(" leases")}
        finally:
            operator.stop()
    lists = sum(count for key, count in requests.items() if key.startswith("list "))
    writes = sum(count for key, count in requests.items() if not key.startswith(READS))
    return Cost(jobs, pods, memory, peak, seconds, cpu, reconciles, lists, writes, cpu_quiet)


def median_cost(costs: list[Cost]) -> Cost:
    columns = {name: statistics.median(getattr(cost, name) for cost in costs) for name in asdict(costs[0])}
    return Cost(**columns)


def print_sizes(costs: list[Cost]) -> None:
    """A line for each number of jobs, the first without any; medians."""
    empty = costs[0]
    lines: list[tuple[str, ...]] = [
        ("jobs", "pods", "RSS MB", "peak MB", "B/job", "seconds", "CPU s", "reconciles", "lists", "writes")
    ]
    for cost in costs:
        per_job = (cost.memory - empty.memory) / cost.jobs if cost.jobs else 0
        megabytes = (f"{size / 1e6:.1f}" for size in (cost.memory, cost.peak))
        counts = (f"{count:.0f}" for count in (cost.reconciles, cost.lists, cost.writes))
        sizes = (f"{cost.jobs:.0f}", f"{cost.jobs * cost.pods:.0f}")
        lines.append((*sizes, *megabytes, f"{per_job:.0f}", f"{cost.seconds:.1f}", f"{cost.cpu:.2f}", *counts))
    print_columns(lines)


def table(rounds: list[list[Cost]]) -> list[Row]:
    """Rows of the largest number of jobs, and the exponents of growth of what comes on top of an operator without
    jobs. `rounds`: of each, the costs by number of jobs, the first without any."""
    goal = Goal(GOAL_MEMORY / 1e6)
    name = f"{rounds[0][-1].jobs} jobs: "
    rows = [
        Row(f"{name}memory", "MB", goal, ours=[costs[-1].memory / 1e6 for costs in rounds]),
        Row(f"{name}its peak", "MB", goal, ours=[costs[-1].peak / 1e6 for costs in rounds]),
        Row(f"{name}from the list to ready", "s", Goal(GOAL_SECONDS), ours=[costs[-1].seconds for costs in rounds]),
        Row(f"{name}writes", "", ours=[float(costs[-1].writes) for costs in rounds]),
    ]
    for column in ("memory", "peak", "cpu", "seconds") if len(rounds[0]) > 2 else ():
        slopes = [
            growth_exponent({cost.jobs: getattr(cost, column) - getattr(empty, column) for cost in costs})
            for empty, *costs in rounds
        ]
        slopes = [slope for slope in slopes if not math.isnan(slope)]  # of a cost that is not above that of no job
        rows.append(Row(f"growth of {column} in jobs, exponent", "", Goal(GOAL_EXPONENT), ours=slopes))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--pods", type=int, default=10, help="of each job")
    parser.add_argument("--rounds", type=int, default=1, help="medians of so many")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        asyncio.run(serve(args.jobs[0], args.pods))
        return
    rounds = [[measure(jobs, args.pods) for jobs in (0, *args.jobs)] for _ in range(args.rounds)]
    print_sizes([median_cost(list(column)) for column in zip(*rounds, strict=True)])
    print()
    print_table(table(rounds))
    write_json(args.json, [cost for costs in rounds for cost in costs])


if __name__ == "__main__":
    main()
