"""Our operator beside Kubeflow's training-operator (the same PyTorchJobs) and JobSet (a JobSet of the same shape), each
on a control plane of its own, in turn, several rounds.

    make bench-peers
    python -m bench.peers idle big --rounds 3 --replicas 1000 --json FILE

    idle      one-pod jobs, one after the other
    big       a job of `--replicas`
    beside    one-pod jobs while a job of twice as many replicas is created
    many      four-pod jobs, as many as `--jobs`, their whole life
    tfjob     `big` with our TfJob, which makes batch Jobs and has no peer
    growth    `big`, `many` and `tfjob` at other sizes: exponents of time, CPU and requests

The rows are those of docs/performance.md. CPU and requests are the operator's, `with controllers` also those of
kube-controller-manager, which makes the pods of batch Jobs. Prints medians and ranges beside the peers' of the same run
and beside the ceiling measured with the same objects. Machines are shared: read the ratios. `bench.pictures` draws the
JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import re
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.jobs import job_set, pytorch_job, tf_job
from bench.measurements import Probe, Subject
from bench.report import TIMES_CEILING, Goal, Row, growth_exponent, print_table, write_json
from tests.drop_in.job_set import POD_LABEL, JobSet
from tests.drop_in.operators import OperatorUnderTest, TrainingOperator, Trainyard
from tests.drop_in.snapshot import JOB_SET
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_flags import MEASURED
from trainyard import kinds
from trainyard.objects import GVK
from trainyard.objects.resources import JOB, POD, SERVICE

OURS = "trainyard"
ROWS = ("idle", "big", "beside", "many", "tfjob", "growth")
IDLE = 30  # one-pod jobs, one after the other
PODS = 4  # of each small job

Samples = dict[str, list[float]]
"""Measured values by name: `idle.pod`, `replicas.1000.seconds`, `jobs.300.CPU`. Times in seconds."""


@dataclass(frozen=True, slots=True)
class Contender:
    """An operator under test, with the rows that are measured of it."""

    subject: Subject
    operator: Callable[[], OperatorUnderTest]
    rows: frozenset[str]


def children_per_replica(*resources: GVK) -> Callable[[int], dict[GVK, int]]:
    """The children of a job of so many replicas: one of each resource for a replica."""
    return lambda replicas: dict.fromkeys(resources, replicas)


def children_with_one_service(resource: GVK) -> Callable[[int], dict[GVK, int]]:
    """The children of a job of so many replicas: one for a replica, and one Service."""
    return lambda replicas: {resource: replicas, SERVICE: 1}


def contenders() -> Iterator[Contender]:
    rows = frozenset(ROWS) - {"tfjob"}
    pytorch = kinds.PYTORCHJOB.gvk
    children = children_per_replica(POD, SERVICE)
    ours = Subject(OURS, "trainyard-operator", pytorch, pytorch_job, children, 2)
    yield Contender(ours, lambda: Trainyard(module="trainyard"), rows)
    theirs = Subject("training-operator", "training-operator", pytorch, pytorch_job, children, 2)
    yield Contender(theirs, TrainingOperator, rows)
    children = children_with_one_service(POD)
    ended = b'"terminalState":"Completed"'
    yield Contender(Subject("jobset", "jobset/", JOB_SET, job_set, children, 4, ended, POD_LABEL), JobSet, rows)
    children = children_with_one_service(JOB)
    gvk = kinds.TFJOB.gvk
    ours = Subject(OURS, "trainyard-operator", gvk, tf_job, children, 3)
    yield Contender(ours, lambda: Trainyard(gvk.group, "trainyard"), frozenset({"tfjob", "growth"}))


async def measure(probe: Probe, rows: frozenset[str], options: argparse.Namespace) -> Samples:
    """The values of one round."""
    values: Samples = {}

    def add(prefix: str, measured: dict[str, float]) -> None:
        values.update({f"{prefix}.{name}": [value] for name, value in measured.items()})

    if "idle" in rows:
        values["idle.pod"] = await probe.idle(IDLE)
        values["idle.bare"] = await probe.bare(IDLE)
        values["idle.by hand"] = await probe.by_hand(IDLE)
    if "beside" in rows:
        for place, seconds in (await probe.beside(2 * options.replicas, IDLE)).items():
            values[f"beside.{place}"] = seconds
    curve, whole = ("tfjob", "tfjob") if JOB in probe.children else ("replicas", "big")
    if whole in rows:  # the control plane is warm then, as it is for the ceiling
        await probe.big(options.replicas)
    for size in sizes(rows, whole, options.replicas):
        namespace, measured = await probe.big(size)
        add(f"{curve}.{size}", measured)
        if whole in rows:
            add(f"{curve}.{size}.ceiling", await probe.ceiling(namespace, size))
    for size in sizes(rows, "many", options.jobs) if curve == "replicas" else ():
        namespace, measured = await probe.many(size, PODS)
        add(f"jobs.{size}", measured)
        if size == options.jobs and "many" in rows:
            for name, with_jobs in (("floor", True), ("children", False)):
                values[f"jobs.{size}.{name}"] = [await probe.floor(namespace, size, PODS, with_jobs=with_jobs)]
            if probe.subject.name == OURS:
                values[f"jobs.{size}.CPU.least"] = [await probe.least(namespace, size, PODS)]
    return values


def sizes(rows: frozenset[str], whole: str, size: int) -> list[int]:
    """The whole size for its own row; with `growth` also a third and a ninth of it."""
    parts = [9, 3, 1] if "growth" in rows else [1] if whole in rows else []
    return list(dict.fromkeys(max(1, size // part) for part in parts))


async def run(options: argparse.Namespace) -> dict[str, Samples]:
    """By operator: the values of all rounds."""
    results: dict[str, Samples] = defaultdict(lambda: defaultdict(list))
    rows = frozenset(options.rows)
    chosen = [
        contender for contender in contenders() if contender.subject.name in options.operators and contender.rows & rows
    ]
    for number in range(options.rounds):
        for contender in chosen if number % 2 == 0 else reversed(chosen):
            subject, began = contender.subject, time.monotonic()
            with ControlPlane(MEASURED) as plane:
                operator = contender.operator()
                operator.install(plane)
                with operator.running(plane) as process:
                    async with Probe(plane, subject, process) as probe:
                        for name, values in (await measure(probe, contender.rows & rows, options)).items():
                            results[subject.name][name] += values
            took = f"{time.monotonic() - began:.0f} s"
            print(f"round {number + 1} of {options.rounds}: {subject.name}, {subject.gvk.kind}: {took}", flush=True)
            write_json(options.json, content(options, results))
    return results


def content(options: argparse.Namespace, results: dict[str, Samples]) -> dict[str, object]:
    """What the file of a run has."""
    facts = {name: getattr(options, name) for name in ("rows", "rounds", "replicas", "jobs")}
    return {"date": time.strftime("%Y-%m-%d", time.gmtime()), "cores": os.cpu_count(), **facts, "samples": results}


# --- the table


class Table:
    """Rows from the samples of a run; a row that was not measured is left out."""

    def __init__(self, results: dict[str, Samples]) -> None:
        self._results = results
        self.rows: list[Row] = []

    def add(
        self,
        name: str,
        unit: str,
        values: Callable[[Samples], list[float]],
        goal: Goal | None = None,
        ceiling: str | Callable[[Samples], list[float]] = "",
    ) -> None:
        """`values` gives those of one operator, in this unit; `ceiling` those of the ceiling from our samples, or it is
        the name of their sample."""
        by_operator = {operator: values(samples) for operator, samples in self._results.items()}
        ours = by_operator.pop(OURS, [])
        peers = {operator: measured for operator, measured in by_operator.items() if measured}
        if ours or peers:
            if isinstance(ceiling, str):
                ceiling = sample(ceiling, 1000 if unit == "ms" else 1)
            top = ceiling(self._results.get(OURS, {}))
            self.rows.append(Row(name, unit, goal, top, peers, ours))


def sample(name: str, scale: float = 1) -> Callable[[Samples], list[float]]:
    return lambda samples: [value * scale for value in samples.get(name, [])]


def share(name: str, ceiling: str) -> Callable[[Samples], list[float]]:
    """A measurement over its own ceiling, round by round."""
    return lambda samples: [
        value / top for value, top in zip(samples.get(name, []), samples.get(ceiling, []), strict=False)
    ]


def slowest(name: str, of: int) -> Callable[[Samples], list[float]]:
    """The slowest of each round, in milliseconds."""

    def maxima(samples: Samples) -> list[float]:
        values = samples.get(name, [])
        return [1000 * max(values[start : start + of]) for start in range(0, len(values), of)]

    return maxima


def percentile(name: str) -> Callable[[Samples], list[float]]:
    """The 99th percentile of all rounds, in milliseconds."""

    def last(samples: Samples) -> list[float]:
        values = samples.get(name, [])
        return [1000 * statistics.quantiles(values, n=100, method="inclusive")[-1]] if len(values) > 1 else []

    return last


def exponents(curve: str, metric: str) -> Callable[[Samples], list[float]]:
    """The exponent of growth of each round."""

    def slopes(samples: Samples) -> list[float]:
        costs = points(samples, curve, metric)
        rounds = (dict(zip(costs, values, strict=True)) for values in zip(*costs.values(), strict=False))
        return [slope for slope in map(growth_exponent, rounds) if not math.isnan(slope)]

    return slopes


def points(samples: Samples, curve: str, metric: str) -> dict[float, list[float]]:
    """The values of a metric by size: `points(samples, "replicas", "seconds")`."""
    matches = ((re.fullmatch(rf"{curve}\.(\d+)\.{metric}", name), values) for name, values in samples.items())
    return dict(sorted((float(match[1]), values) for match, values in matches if match))


def table(results: dict[str, Samples], replicas: int, jobs: int) -> list[Row]:
    table = Table(results)
    add, most = table.add, Goal(1.18, TIMES_CEILING)  # 85 % of what is possible
    add("one-pod job, idle, to its Pod", "ms", sample("idle.pod", 1000), Goal(2, TIMES_CEILING), "idle.bare")
    median = statistics.median(results.get(OURS, {}).get("idle.pod") or [0])
    add("  beside its two writes by hand", "ms", sample("idle.pod", 1000), None, "idle.by hand")
    add(f"  the slowest of {IDLE}", "ms", slowest("idle.pod", IDLE), Goal(3000 * median))  # three times the median
    for curve, job, child, services in (
        ("replicas", "a job", "Pod", "all Services"),
        ("tfjob", "a TfJob", "batch Job", "its Service"),
    ):
        at = f"{curve}.{replicas}"
        add(f"{job} of {replicas}: first {child}", "s", sample(f"{at}.first"), Goal(0.05))
        add(f"  all {child}s", "s", sample(f"{at}.replicas"), None, f"{at}.ceiling.replicas")
        add(f"  and {services}", "s", sample(f"{at}.seconds"), most, f"{at}.ceiling.seconds")
        add("  over the ceiling of the same objects", "x", share(f"{at}.seconds", f"{at}.ceiling.seconds"), Goal(1.18))
        for metric in ("CPU", "CPU with controllers"):
            add(f"  {metric}", "s", sample(f"{at}.{metric}"))
        for metric in ("requests", "requests with controllers"):
            add(f"  {metric}, each replica", "", sample(f"{at}.{metric}", 1 / replicas))
    for place in ("another", "same"):
        name = "another" if place == "another" else "the same"
        add(f"one-pod job beside one of {2 * replicas}, {name} namespace", "ms", sample(f"beside.{place}", 1000))
        add("  the 99th percentile", "ms", percentile(f"beside.{place}"), Goal(150))
    at = f"jobs.{jobs}"
    add(f"{jobs} four-pod jobs, to the last end", "s", sample(f"{at}.seconds"), most, f"{at}.floor")
    add("  over the floor of the same objects", "x", share(f"{at}.seconds", f"{at}.floor"), Goal(1.18))
    add("  over a floor of Pods and Services alone", "x", share(f"{at}.seconds", f"{at}.children"))
    add("  CPU, 1,000 jobs", "s", sample(f"{at}.CPU", 1000 / jobs), Goal(3))
    add("  CPU over the floor of the same requests and watches", "x", share(f"{at}.CPU", f"{at}.CPU.least"))
    add("  CPU with controllers, 1,000 jobs", "s", sample(f"{at}.CPU with controllers", 1000 / jobs))
    for metric in ("requests", "requests with controllers", "events", "reads"):
        goal = Goal(2 * PODS + 5) if metric == "requests" else None  # without events
        add(f"  {metric}, each job", "", sample(f"{at}.{metric}", 1 / jobs), goal)
    for curve, name in (("replicas", "replicas"), ("jobs", "jobs"), ("tfjob", "replicas of a TfJob")):
        for metric, measured in (("seconds", "time"), ("CPU", "CPU"), ("requests", "requests")):
            ceiling = exponents(curve, f"ceiling.{metric}")
            add(f"growth in {name}: exponent of {measured}", "", exponents(curve, metric), Goal(1.05), ceiling)
    return table.rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", default=ROWS, help=f"any of {', '.join(ROWS)}; all of them by default")
    parser.add_argument("--operators", nargs="*", default=[OURS, "training-operator", "jobset"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where all values are written")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    print_table(table(asyncio.run(run(options)), options.replicas, options.jobs))


if __name__ == "__main__":
    main()
