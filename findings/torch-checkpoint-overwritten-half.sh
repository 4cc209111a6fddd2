#!/usr/bin/env bash
# A distributed checkpoint of torch that is overwritten half loads without an error, as a mix of two steps.
#
# What: torch 2.15.0, torch.distributed.checkpoint.save and load with a folder, two ranks on CPUs, a sharded tensor.
# Guess: a save to the folder of the last checkpoint (checkpoint_id="last") that is killed leaves the old checkpoint, or
# one that load() refuses: .metadata, which names all files, is written last, by the coordinator.
# Seen: save() replaces the file of each rank by itself, under the same name, and leaves the old .metadata until the
# end. When rank 1 is killed before it has written, load() takes the shard of rank 0 from the new step, that of rank 1 and
# the number of the step from the old one, and says nothing: sizes and offsets are the same, and nothing has a checksum.
# So: a folder for each step, and a name that is moved to the newest (a link, a file) after save() has returned.
#
# Needs Python 3.11 to 3.13 with venv, and PyPI: torch and its CUDA libraries, which it needs without a GPU, too, are 3 GB
# of downloads. Half a minute after that. Ends with 1 when the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip install -q --disable-pip-version-check torch==2.15.0 numpy==2.4.6
cat >"$folder/train.py" <<'PY'
import os, signal, sys
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
rank, mesh = dist.get_rank(), init_device_mesh("cpu", (2,))


def state(step):
    weight = distribute_tensor(torch.full((4, 2), float(step)), mesh, [Shard(0)])
    return {"weight": weight, "step": torch.tensor(step)}


class Killed(dcp.FileSystemWriter):
    """Rank 1 is killed before it writes its shard, rank 0 has written its own."""

    def write_data(self, plan, planner):
        if rank == 1:
            while os.stat("last/__0_0.distcp").st_mtime_ns == first:
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        return super().write_data(plan, planner)


if sys.argv[1] == "save":
    dcp.save(state(1), checkpoint_id="last")
    dist.barrier()
    first = os.stat("last/__0_0.distcp").st_mtime_ns
    dist.barrier()
    dcp.save(state(2), checkpoint_id="last", storage_writer=Killed("last"))
loaded = state(0)
dcp.load(loaded, checkpoint_id="last")
weights = set(loaded["weight"].to_local().flatten().tolist())
print(f"rank {rank}: weights of step {weights}, number of the step {loaded['step'].item()}", flush=True)
os._exit(0)
PY
cd "$folder"
"$python" -m torch.distributed.run --nproc-per-node 2 --standalone train.py save >save.log 2>&1 && exit 1
"$python" -m torch.distributed.run --nproc-per-node 2 --standalone train.py load 2>&1 | grep "^rank" | sort | tee load.log
grep -q "rank 0: weights of step {2.0}, number of the step 1" load.log || { echo "changed"; exit 1; }
grep -q "rank 1: weights of step {1.0}, number of the step 1" load.log || { echo "changed"; exit 1; }
