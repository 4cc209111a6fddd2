"""Our operator beside Kubeflow's training-operator: the same PyTorchJobs, each operator on a control plane of its own,
in turn, several rounds.

    make bench-peers
    python -m bench.peers --rounds 3 --replicas 1000 --jobs 300 --json FILE

The rows are those of docs/performance.md. Prints medians and ranges, each beside the peer's of the same run and beside
the ceiling measured with the same objects. Machines are shared: read the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from bench.kubelet import SCHEDULER
from bench.measurements import Probe, Subject
from tests.drop_in.operators import OperatorUnderTest, TrainingOperator, Trainyard
from tests.support.control_plane import ControlPlane
from trainyard import kinds
from trainyard.objects import Json

Samples = dict[str, list[float]]
"""Measured values by the name of the row."""
IDLE = 30  # one-pod jobs, one after the other


def pytorch_job(name: str, replicas: int) -> Json:
    container = {"name": "pytorch", "image": "none", "command": ["python", "train.py"]}
    template = {"spec": {"schedulerName": SCHEDULER, "containers": [container]}}
    roles = {"Master": 1, "Worker": replicas - 1}
    specs = {
        role: {"replicas": count, "restartPolicy": "OnFailure", "template": template}
        for role, count in roles.items()
        if count
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"runPolicy": {"cleanPodPolicy": "None"}, "pytorchReplicaSpecs": specs},
    }


def master(job: str) -> str:
    return f"{job}-master-0"


def subjects() -> Iterator[tuple[Subject, OperatorUnderTest]]:
    gvk = kinds.PYTORCHJOB.gvk
    yield Subject("trainyard", "trainyard-operator", gvk, pytorch_job, master), Trainyard(module="trainyard")
    yield Subject("training-operator", "training-operator", gvk, pytorch_job, master), TrainingOperator()


async def measure(probe: Probe, options: argparse.Namespace) -> Samples:
    rows = options.rows
    values: Samples = {}
    if "idle" in rows:
        values["idle, first pod"] = await probe.idle(IDLE)
        values["idle, a bare pod"] = await probe.bare(IDLE)
    if "big" in rows:
        for name, value in (await probe.big(options.replicas)).items():
            values[f"one job of {options.replicas}, {name}"] = [value]
    if "beside" in rows:
        for same, place in ((False, "another"), (True, "the same")):
            seconds = await probe.beside(2 * options.replicas, IDLE, same)
            values[f"beside {2 * options.replicas}, {place} namespace"] = seconds
    if "many" in rows:
        for name, value in (await probe.many(options.jobs, 4)).items():
            values[f"{options.jobs} four-pod jobs, {name}"] = [value]
    return values


async def run(options: argparse.Namespace) -> dict[str, Samples]:
    """By operator: the values of all rounds."""
    results: dict[str, Samples] = defaultdict(lambda: defaultdict(list))
    chosen = [pair for pair in subjects() if pair[0].name in options.operators]
    for number in range(options.rounds):
        for subject, operator in chosen if number % 2 == 0 else reversed(chosen):
            with ControlPlane() as plane:
                operator.install(plane)
                with operator.running(plane) as process:
                    async with Probe(plane, subject, process) as probe:
                        for name, values in (await measure(probe, options)).items():
                            results[subject.name][name] += values
            print(f"round {number + 1} of {options.rounds}: {subject.name}", flush=True)
            if options.json:
                options.json.write_text(json.dumps(results, indent=1))
    return results


def show(results: dict[str, Samples]) -> None:
    names = list(results)
    rows = dict.fromkeys(row for samples in results.values() for row in samples)
    width = max(map(len, rows))
    print(f"{'':<{width}}  " + "  ".join(f"{name:>28}" for name in names))
    for row in rows:
        cells = [cell(results[name].get(row, [])) for name in names]
        print(f"{row:<{width}}  " + "  ".join(f"{text:>28}" for text in cells))


def cell(values: list[float]) -> str:
    """Median and range."""
    if not values:
        return "-"
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", default=["idle", "big", "beside", "many"])
    parser.add_argument("--operators", nargs="*", default=["trainyard", "training-operator"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--replicas", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = asyncio.run(run(options))
    show(results)


if __name__ == "__main__":
    main()
