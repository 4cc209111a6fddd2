"""`trainyard run`, `up` and the commands on one machine, beside the same processes started by hand.

    make bench-local
    python -m bench.local --replicas 1,40 --rounds 5 --json local.json
    python -m bench.local --training    # also the TensorFlow example: first line, first step, end

Each round measures the ceiling and ours one after the other, in an order that alternates, and prints medians and ranges
of all rounds. CPU seconds are user and system time with all descendants. Machines are shared: CPU seconds and ratios
say more than seconds do.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from bench.report import ABOVE_CEILING, ABSOLUTE, Goal, Row, growth_exponent, print_table, write_json

ROOT = Path(__file__).parents[1]
FIRST_LINE = "first line"
PROGRAM = f"print('{FIRST_LINE}', flush=True)"
OFFLINE_LIBRARIES = "import click, msgspec, yaml"
LIBRARIES = "import asyncio, click, msgspec, yaml"
"""The floor of a command: Python, and the imports of the libraries that it needs."""
START_BY_HAND = f"{LIBRARIES}, subprocess, sys; subprocess.run([sys.executable, '-c', {PROGRAM!r}])"
TRAINYARD = [sys.executable, "-m", "trainyard"]
REPLICAS = (1, 4, 40, 200, 1000)
ALIVE_BY_HAND = 64  # processes at one time: a thousand interpreters at once would measure the machine's memory
JOB = f"""
apiVersion: elastic.pytorch.org/v1alpha1
kind: ElasticJob
metadata: {{name: bench}}
spec:
  rdzvBackend: c10d
  minReplicas: COUNT
  maxReplicas: COUNT
  replicaSpecs:
    Worker:
      replicas: COUNT
      restartPolicy: Never
      template:
        spec: {{containers: [{{name: elasticjob-worker, image: none, command: [python, -c, "{PROGRAM}"]}}]}}
"""

Measured = dict[str, float]
Measurement = Callable[[], Measured]


def timed(command: Sequence[str], environment: Mapping[str, str], marks: Mapping[str, str]) -> Measured:
    """Seconds to the first line of output that holds each mark, seconds to the end, and CPU seconds of the process and
    all descendants."""
    start = time.perf_counter()
    measured: Measured = {}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        for line in process.stdout or ():
            for name, mark in marks.items():
                if mark in line:
                    measured.setdefault(name, time.perf_counter() - start)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return {**measured, "end": time.perf_counter() - start, "CPU": usage.ru_utime + usage.ru_stime}


def by_hand(count: int) -> Measured:
    """The ceiling: the same programs without a cluster, ALIVE_BY_HAND at one time."""
    start, cpu, first = time.perf_counter(), 0.0, 0.0
    alive: list[subprocess.Popen[str]] = []
    for number in range(count + ALIVE_BY_HAND):
        if number < count:
            argv = [sys.executable, "-c", PROGRAM]
            alive.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        if alive and (number >= count or len(alive) == ALIVE_BY_HAND):
            with alive.pop(0) as process:
                assert process.stdout
                process.stdout.readline()
                first = first or time.perf_counter() - start
                _, _, usage = os.wait4(process.pid, 0)
                process.returncode, cpu = 0, cpu + usage.ru_utime + usage.ru_stime
    return {FIRST_LINE: first, "end": time.perf_counter() - start, "CPU": cpu}


class Bench:
    """Rounds of measurements on this machine, with a state folder of their own."""

    def __init__(self, rounds: int, folder: Path) -> None:
        self.rounds, self.folder = rounds, folder
        self.rows: dict[str, Row] = {}
        self._environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        self._environment.pop("KUBECONFIG", None)

    def trainyard(self, *words: str, marks: Mapping[str, str] | None = None) -> Measured:
        """Measure one command."""
        return timed([*TRAINYARD, *words], self._environment, marks or {})

    def python(self, *words: str) -> Measured:
        """Measure one Python program."""
        return timed([sys.executable, *words], self._environment, {FIRST_LINE: FIRST_LINE})

    def job(self, replicas: int) -> str:
        """The path of a manifest with a job of so many replicas, each of which runs PROGRAM."""
        path = self.folder / f"job-{replicas}.yaml"
        path.write_text(JOB.replace("COUNT", str(replicas)))
        return str(path)

    def row(self, name: str, unit: str = "s", goal: float | None = None, kind: str = ABSOLUTE) -> Row:
        """The row of this name; the parameters are those of the first call."""
        return self.rows.setdefault(name, Row(name, unit, None if goal is None else Goal(goal, kind)))

    def compare(self, ceiling: Measurement, ours: Measurement, rows: Mapping[str, Row]) -> None:
        """Measure both, in an order that alternates. `rows`: what is measured -> its row."""
        for number in range(self.rounds):
            order = [(ceiling, "ceiling"), (ours, "ours")]
            for measure, column in order if number % 2 == 0 else reversed(order):
                measured = measure()
                for key, row in rows.items():
                    getattr(row, column).append(measured[key])

    # --- what is measured

    def runs(self, counts: Iterable[int]) -> None:
        """`trainyard run` of jobs with so many replicas."""
        for count in counts:
            arguments = ["run", "--network", "namespace", "--python", sys.executable, self.job(count)]
            rows = {
                FIRST_LINE: self.row(f"run, {count} replicas: to the first line"),
                "end": self.row(f"run, {count} replicas: to the end"),
                "CPU": self.row(f"run, {count} replicas: CPU", "CPU-s"),
            }
            self.compare(
                lambda n=count: by_hand(n), lambda a=arguments: self.trainyard(*a, marks={FIRST_LINE: FIRST_LINE}), rows
            )
        self._derive(list(counts))

    def _derive(self, counts: list[int]) -> None:
        """The fixed part, the CPU of each further replica, and the exponent by which CPU grows with the replicas."""
        cpu = {count: self.rows[f"run, {count} replicas: CPU"] for count in counts}
        if 1 in cpu:
            fixed = [ours - bare for ours, bare in zip(cpu[1].ours, cpu[1].ceiling, strict=True)]
            self.row("run: fixed part over bare processes", "CPU-s", 0.4).ours = fixed
            for count, row in cpu.items():
                if count > 1:
                    over = [ours - bare for ours, bare in zip(row.ours, row.ceiling, strict=True)]
                    per_start = [1000 * (value - start) / (count - 1) for value, start in zip(over, fixed, strict=True)]
                    self.row(f"run: each of {count} replicas over bare", "CPU-ms", 30).ours = per_start
        large = {count: row for count, row in cpu.items() if count >= 40}
        if len(large) > 1:
            exponent = self.row("run: growth exponent of CPU from 40 replicas", "", 1.05)
            for number in range(self.rounds):
                exponent.ours.append(growth_exponent({n: row.ours[number] for n, row in large.items()}))
                exponent.ceiling.append(growth_exponent({n: row.ceiling[number] for n, row in large.items()}))

    def script(self) -> None:
        """`trainyard run train.py`."""
        path = self.folder / "train.py"
        path.write_text(PROGRAM)
        rows = {
            "end": self.row("run train.py", goal=0.4, kind=ABOVE_CEILING),
            "CPU": self.row("run train.py: CPU", "CPU-s"),
        }
        self.compare(lambda: self.python(str(path)), lambda: self.trainyard("run", str(path)), rows)

    def offline_commands(self) -> None:
        """Commands that need no cluster."""
        manifest = str(ROOT / "examples/tf_job.yaml")
        for command in ("lint", "plan"):
            rows = {"end": self.row(command, goal=0.12), "CPU": self.row(f"{command}: CPU", "CPU-s")}
            self.compare(
                lambda: self.python("-c", OFFLINE_LIBRARIES), lambda c=command: self.trainyard(c, manifest), rows
            )

    def background_cluster(self) -> None:
        """`up`, and the commands of the cluster that it starts."""
        job, up = self.job(1), ("up", "--python", sys.executable)  # the Python of the ceilings
        for _ in range(self.rounds):
            self.row("up", goal=0.3).ours.append(self.trainyard(*up)["end"])
            self.row("up: memory of the cluster", "MB", 60).ours.append(self._daemon_memory())
            self.trainyard("down", "--delete")
        self.trainyard(*up)
        try:
            self.trainyard("submit", job, "--wait")
            for command in ("get", "status", "describe", "why", "events", "logs"):
                words = [command, *(["bench"] if command in ("describe", "why", "logs") else [])]
                rows = {"end": self.row(command, goal=0.15), "CPU": self.row(f"{command}: CPU", "CPU-s")}
                self.compare(lambda: self.python("-c", LIBRARIES), lambda w=words: self.trainyard(*w), rows)
            self._submit(job)
        finally:
            self.trainyard("down", "--delete")

    def _submit(self, job: str) -> None:
        """`submit` alone, and from its start to the program's first line."""

        def submit(*words: str) -> Measured:
            self.trainyard("delete", "bench", "--wait")
            return self.trainyard("submit", job, *words, marks={FIRST_LINE: FIRST_LINE})

        rows = {"end": self.row("submit", goal=0.15), "CPU": self.row("submit: CPU", "CPU-s")}
        self.compare(lambda: self.python("-c", LIBRARIES), submit, rows)
        first_line = self.row("submit --logs: to the first line", goal=0.1)
        self.compare(lambda: self.python("-c", START_BY_HAND), lambda: submit("--logs"), {FIRST_LINE: first_line})

    def _daemon_memory(self) -> float:
        """MB that the process of the background cluster holds."""
        facts = json.loads(next(self.folder.glob("state/**/cluster.json")).read_text())
        fields = dict(
            line.split(":", 1) for line in Path(f"/proc/{facts['pid']}/status").read_text().splitlines() if ":" in line
        )
        return int(fields["VmRSS"].split()[0]) * 1024 / 1e6

    def training(self) -> None:
        """The TensorFlow example, once."""
        marks = {"first line": "|", "first step": "step     0"}
        measured = self.trainyard("run", str(ROOT / "examples/tf_job_dist_train.yaml"), marks=marks)
        for name, value in measured.items():
            self.row(f"the training example: {name}").ours = [value]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--replicas", default=",".join(map(str, REPLICAS)), help="numbers of replicas, '' for none")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the rows are written, too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args.rounds, Path(folder))
        bench.offline_commands()
        bench.background_cluster()
        bench.script()
        bench.runs([int(count) for count in args.replicas.split(",") if count])
        if args.training:
            bench.training()
    print_table(bench.rows.values())
    write_json(args.json, list(bench.rows.values()))


if __name__ == "__main__":
    main()
