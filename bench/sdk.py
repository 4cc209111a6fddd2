"""A job of two nodes from `train()` of the Kubeflow SDK to its first line, beside `trainyard submit` of the same job.

    make bench-sdk
    python -m bench.sdk --rounds 10

A cluster of `up` runs, and has run the job before. The program prints the time, so that neither the reading of logs nor
the polling of `wait_for_job_status` is measured. `train()` begins when the SDK has been imported and its client made;
`submit` with the process.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.report import TIMES_CEILING, Goal, Row, print_table, write_json

ROOT = Path(__file__).parents[1]
SDK_PYTHON = ROOT / ".venv/kubeflow/bin/python"
TRAINYARD = [sys.executable, "-m", "trainyard"]
PROGRAM = """
import json, time
from kubernetes import client as kubernetes
from kubeflow.trainer import CustomTrainer, TrainerClient

def train():
    import time
    print("at", time.time(), flush=True)

client = TrainerClient()
begin = time.time()
name = client.train(runtime="jax-distributed", trainer=CustomTrainer(func=train, num_nodes=2))
group = ("trainer.kubeflow.org", "v1alpha1", "default", "trainjobs")
job = kubernetes.CustomObjectsApi().get_namespaced_custom_object(*group, name)
client.wait_for_job_status(name, polling_interval=1)
print(json.dumps({"begin": begin, "job": job}))
"""
"""The runtime runs the function by `python`: torchrun takes seconds to import torch, whoever submits the job."""


class Bench:
    """Rounds with one cluster, whose state is in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._variables = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        self._variables.pop("KUBECONFIG", None)
        self._program = folder / "program.py"
        self._program.write_text(PROGRAM)

    def trainyard(self, *words: str) -> str:
        """The output of a command. Raises CalledProcessError."""
        command = [*TRAINYARD, *words]
        return subprocess.run(command, env=self._variables, check=True, stdout=subprocess.PIPE, text=True).stdout

    def start(self) -> None:
        """Start the cluster."""
        exported = shlex.split(self.trainyard("up", "--python", sys.executable))
        self._variables |= dict(word.split("=", 1) for word in exported if word.startswith("KUBECONFIG="))

    def train(self) -> tuple[float, Any]:
        """Seconds from `train()` to the first line, and the TrainJob that the SDK has made."""
        command = [str(SDK_PYTHON), str(self._program)]
        output = subprocess.run(command, env=self._variables, check=True, stdout=subprocess.PIPE, text=True).stdout
        result = json.loads(output.splitlines()[-1])
        return self._first_line(result["job"]["metadata"]["name"]) - result["begin"], result["job"]

    def submit(self, job: Any) -> float:
        """Seconds from the start of `trainyard submit` of that job to its first line."""
        manifest = self._folder / "job.json"
        name = "submitted"
        identity = {field: job[field] for field in ("apiVersion", "kind")}
        manifest.write_text(json.dumps({**identity, "metadata": {"name": name}, "spec": job["spec"]}))
        begin = time.time()
        self.trainyard("submit", str(manifest), "--wait")
        return self._first_line(name) - begin

    def _first_line(self, name: str) -> float:
        """When the first of the nodes has printed. The job is deleted then."""
        times = re.findall(r"\bat (\d+\.\d+)", self.trainyard("logs", name))
        self.trainyard("delete", name, "--wait")
        if len(times) != 2:
            raise SystemExit(f"{len(times)} nodes of {name} have printed, not 2")
        return min(map(float, times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the rows are written, too")
    args = parser.parse_args()
    row = Row("train() of two nodes: to the first line, beside submit", "s", Goal(1.5, TIMES_CEILING))
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        bench.start()
        try:
            _, job = bench.train()
            for number in range(args.rounds):
                if number % 2:
                    row.ceiling.append(bench.submit(job))
                row.ours.append(bench.train()[0])
                if not number % 2:
                    row.ceiling.append(bench.submit(job))
        finally:
            bench.trainyard("down", "--delete")
    print_table([row])
    write_json(args.json, [row])


if __name__ == "__main__":
    main()
