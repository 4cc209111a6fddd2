"""How long `trainyard run` takes, against the same processes started by hand in the same run.

    make bench                      # small programs
    python -m bench.run --training  # also the TensorFlow example: first line, first step, end

The goals, on a quiet machine: `trainyard run` of a plain script takes at most 0.4 s longer than the script alone, and a
command about a job of a running cluster less than 0.25 s. Prints medians and spreads in seconds, and ratios. Machines
are shared: read the ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROGRAM = "import time; print('first line', flush=True)"
JOB = """
apiVersion: tensorflow.org/v1alpha1
kind: TfJob
metadata: {name: bench}
spec:
  replicaSpecs:
  - tfReplicaType: MASTER
    template:
      spec: {restartPolicy: OnFailure, containers: [{name: tensorflow, image: none, command: [python, -c, "PROGRAM"]}]}
  - tfReplicaType: WORKER
    replicas: 3
    template:
      spec: {restartPolicy: OnFailure, containers: [{name: tensorflow, image: none, command: [python, -c, "PROGRAM"]}]}
"""


def timed(command: list[str], marks: dict[str, str], environment: dict[str, str] | None = None) -> dict[str, float]:
    """Seconds from the start to the first line that holds each mark, and to the end."""
    seconds_to: dict[str, Any] = {}
    start = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as ran:
        for line in ran.stdout or ():
            for name, mark in marks.items():
                if mark in line:
                    seconds_to.setdefault(name, time.perf_counter() - start)
    if ran.returncode:
        raise SystemExit(f"{command} ended with {ran.returncode}")
    return {**seconds_to, "end": time.perf_counter() - start}


def by_hand(count: int) -> dict[str, float]:
    """The ceiling: the same programs, started at once by nobody in particular."""
    start = time.perf_counter()
    programs = [
        subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) for _ in range(count)
    ]
    first = 0.0
    for program in programs:
        assert program.stdout
        program.stdout.readline()
        first = first or time.perf_counter() - start
    for program in programs:
        program.wait()
        assert program.stdout
        program.stdout.close()
    return {"first line": first, "end": time.perf_counter() - start}


def report(name: str, times: int, measure: Callable[[], dict[str, float]]) -> dict[str, float]:
    runs = [measure() for _ in range(times)]
    medians = {}
    for mark in runs[0]:
        values = [run[mark] for run in runs]
        medians[mark] = statistics.median(values)
        print(f"{name:<26} {mark:<12} {medians[mark]:7.2f} s  ({min(values):.2f} to {max(values):.2f}, {times} runs)")
    return medians


def commands_of_a_running_cluster(times: int, manifest: Path) -> None:
    """How long each command takes that asks a cluster of `trainyard up` about one job."""
    trainyard = [sys.executable, "-m", "trainyard"]
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "XDG_STATE_HOME": home}
        environment.pop("KUBECONFIG", None)
        run = partial(subprocess.run, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        run([*trainyard, "up"])
        try:
            run([*trainyard, "submit", str(manifest), "--wait"])
            for command in ("get", "describe", "logs", "events", "why"):
                words = [*trainyard, command, *([] if command in ("get", "events") else ["bench"])]
                report(f"trainyard {command}", times, lambda c=words: timed(c, {}, environment))
        finally:
            run([*trainyard, "down", "--delete"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--training", action="store_true")
    args = parser.parse_args()
    trainyard = [sys.executable, "-m", "trainyard", "run"]
    ceiling = report("4 processes by hand", args.times, lambda: by_hand(4))
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder, "job.yaml")
        job.write_text(JOB.replace("PROGRAM", PROGRAM))
        for network in ("namespace", "shared"):
            command = [*trainyard, "--network", network, str(job)]
            ours = report(
                f"trainyard run, {network}", args.times, lambda c=command: timed(c, {"first line": "first line"})
            )
            print(f"{'':<26} over the ceiling: {ours['first line'] - ceiling['first line']:.2f} s to the first line")
        script = Path(folder, "train.py")
        script.write_text(PROGRAM)
        alone = report("python train.py", args.times, lambda: timed([sys.executable, str(script)], {}))
        ours = report("trainyard run train.py", args.times, lambda: timed([*trainyard, str(script)], {}))
        print(f"{'':<26} over the script alone: {ours['end'] - alone['end']:.2f} s")
        commands_of_a_running_cluster(args.times, job)
    if args.training:
        marks = {"first line": "|", "first step": "step     0"}
        report(
            "the training example", 1, lambda: timed([*trainyard, str(ROOT / "examples/tf_job_dist_train.yaml")], marks)
        )


if __name__ == "__main__":
    main()
