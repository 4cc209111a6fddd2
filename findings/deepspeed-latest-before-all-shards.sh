#!/usr/bin/env bash
# The file `latest` of a DeepSpeed checkpoint names the new one before all ranks have written their shards.
#
# What: deepspeed 0.19.8 with torch 2.15.0, engine.save_checkpoint and load_checkpoint, ZeRO stage 1, two ranks, on CPUs.
# Guess: `latest` is there so that a kill in the middle of a save does no harm: it is written after a barrier.
# Seen: rank 0 writes `latest` as soon as it has written its own files, and waits for the others after that. When rank 1 is
# killed before its shard is written, `latest` names a checkpoint without it, and each new attempt fails: rank 1 with
# FileNotFoundError, while rank 0 has loaded. The checkpoint before it is whole, and is not tried.
# So: keep two checkpoints, and after such an end write the name of the older one into `latest`.
#
# Needs Python 3.11 or 3.12 with venv, and PyPI: torch and its CUDA libraries, which it needs without a GPU, too, are 3 GB
# of downloads. One minute after that. Ends with 1 when the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip install -q --disable-pip-version-check torch==2.15.0 numpy==2.4.6 setuptools==80.9.0 wheel==0.45.1
DS_BUILD_OPS=0 "$python" -m pip install -q --disable-pip-version-check --no-build-isolation deepspeed==0.19.8
cat >"$folder/train.py" <<'PY'
import os, signal, sys, time
import deepspeed
import torch

deepspeed.init_distributed(dist_backend="gloo", verbose=False)
rank = int(os.environ["RANK"])
model = torch.nn.Linear(4, 2)
config = {
    "train_micro_batch_size_per_gpu": 1,
    "optimizer": {"type": "Adam", "params": {"lr": 0.1, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
}
engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


def step():
    engine.backward(engine(torch.ones(1, 4)).sum())
    engine.step()


if sys.argv[1] == "save":
    step()
    engine.save_checkpoint("checkpoints")
    step()
    write_shard = engine._save_zero_checkpoint

    def killed(folder, tag):
        """Rank 1 is slow, and is killed before it has written."""
        while rank == 1 and open("checkpoints/latest").read() != tag:
            time.sleep(0.01)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        write_shard(folder, tag)

    engine._save_zero_checkpoint = killed
    engine.save_checkpoint("checkpoints")
else:
    try:
        engine.load_checkpoint("checkpoints")
        print(f"rank {rank}: loaded step {engine.global_steps}", flush=True)
    except FileNotFoundError as error:
        print(f"rank {rank}: FileNotFoundError, {error.filename}", flush=True)
os._exit(0)
PY
cd "$folder"
export DS_ACCELERATOR=cpu
"$python" -m torch.distributed.run --nproc-per-node 2 --standalone train.py save >save.log 2>&1 && exit 1
echo "latest: $(cat checkpoints/latest); $(cd checkpoints && ls -d */*optim_states.pt | tr '\n' ' ')"
"$python" -m torch.distributed.run --nproc-per-node 2 --standalone train.py load 2>load.err | grep "^rank" | sort | tee load.log
grep -q "rank 1: FileNotFoundError, checkpoints/global_step2/" load.log || { echo "changed"; exit 1; }
