"""What the network *namespace* costs a training: all-reduces of gloo between the pods of a PyTorchJob, beside the same
processes on loopback without Trainyard.

    make bench-collectives
    python -m bench.collectives --ranks 2 --rounds 3 --json FILE

Each round runs both, in an order that alternates. A value is the median over the all-reduces of a run; the table has
medians of all rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.report import TIMES_CEILING, Goal, Row, print_table, write_json
from tests.support.torch_environments import torch_environment

GOAL = 1.05
SIZES = {"4 kB": (1000, 500), "100 MB": (25_000_000, 10)}  # floats, all-reduces
PROGRAM = f"""
import json, os, statistics, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
medians = {{}}
for name, (floats, count) in {SIZES!r}.items():
    tensor, times = torch.ones(floats), []
    for number in range(count + 3):
        tensor.fill_(1.0)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(tensor)
        times.append(time.perf_counter() - start)
    assert tensor[0] == dist.get_world_size()
    medians[name] = statistics.median(times[3:])
if dist.get_rank() == 0:
    print("MEDIANS", json.dumps(medians), flush=True)
dist.destroy_process_group()
"""
JOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: collectives}
spec:
  pytorchReplicaSpecs:
    Master: {replicas: 1, restartPolicy: Never, template: TEMPLATE}
    Worker: {replicas: WORKERS, restartPolicy: Never, template: TEMPLATE}
"""
TEMPLATE = "{spec: {containers: [{name: pytorch, image: trainyard/local, command: [PYTHON, PROGRAM]}]}}"
Medians = dict[str, float]


def medians_of(output: str) -> Medians:
    """The seconds of an all-reduce by its size, from what rank 0 has printed."""
    for line in output.splitlines():
        if "MEDIANS" in line:
            medians: Medians = json.loads(line.partition("MEDIANS ")[2])
            return medians
    raise SystemExit(f"no medians in:\n{output}")


def by_hand(python: str, program: Path, ranks: int) -> Medians:
    """The floor: the same processes on loopback."""
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29533", "WORLD_SIZE": str(ranks)}
    environment = {**os.environ, **rendezvous, "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen(
            [python, str(program)], env={**environment, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True
        )
        for rank in range(ranks)
    ]
    outputs = [process.communicate()[0] for process in processes]
    return medians_of(outputs[0])


def in_pods(python: str, program: Path, ranks: int) -> Medians:
    """The same as a PyTorchJob."""
    template = TEMPLATE.replace("PYTHON", python).replace("PROGRAM", str(program))
    manifest = program.with_suffix(".yaml")
    manifest.write_text(JOB.replace("WORKERS", str(ranks - 1)).replace("TEMPLATE", template))
    command = [sys.executable, "-m", "trainyard", "run", "--network", "namespace", str(manifest)]
    return medians_of(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    python = str(torch_environment() / "bin" / "python")
    rows = {name: Row(f"all-reduce of {name}, {options.ranks} ranks", "s", Goal(GOAL, TIMES_CEILING)) for name in SIZES}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "collectives.py"
        program.write_text(PROGRAM)
        for number in range(options.rounds):
            for run in (by_hand, in_pods) if number % 2 else (in_pods, by_hand):
                for name, seconds in run(python, program, options.ranks).items():
                    (rows[name].ceiling if run is by_hand else rows[name].ours).append(seconds)
    print_table(rows.values())
    write_json(options.json, list(rows.values()))


if __name__ == "__main__":
    main()
