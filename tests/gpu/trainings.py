"""Trainings on real GPUs: `make test-gpu`, on a machine with one to eight of NVIDIA. Nothing else collects this file.

GPU_PYTHON names a Python with the frameworks, or GPU_WHEELS a folder of wheels, of which an environment is made; what
neither has is skipped with a sentence, and so is everything on a machine without a GPU.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stories.runs import Run, run_to_end
from trainyard.cli.scripts.machine_devices import machine_devices

DEVICES = machine_devices()
GPUS = DEVICES.get("nvidia.com/gpu", 0)
MIG = [name for name in DEVICES if name.startswith("nvidia.com/mig-")]
if not (GPUS or MIG):
    pytest.skip("this machine has no GPU that NVIDIA's driver lists", allow_module_level=True)
NETWORKS = ("shared", "namespace")
DDP = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl")
model = DistributedDataParallel(torch.nn.Linear(64, 1).cuda(), device_ids=[local])
optimizer = torch.optim.SGD(model.parameters(), 0.05)
torch.manual_seed(dist.get_rank())
for step in range(1, 51):
    batch = torch.randn(256, 64, device="cuda")
    loss = ((model(batch) - batch.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step in (1, 50):
        print(f"step {step} loss {loss.item():.4f}", flush=True)
weight = model.module.weight.detach().clone()
dist.broadcast(weight, 0)
print("ranks", dist.get_world_size(), "equal", bool(torch.equal(weight, model.module.weight)), flush=True)
print("sees", torch.cuda.device_count(), torch.cuda.get_device_properties(local).uuid, flush=True)
dist.destroy_process_group()
"""
FULL = """\
import torch

free, _ = torch.cuda.mem_get_info()
torch.empty(4 * free, dtype=torch.uint8, device="cuda")
"""
JAX = """\
import jax

print("on", jax.devices()[0].platform, len(jax.devices()), float(jax.numpy.ones((512, 512)).sum()), flush=True)
"""
TENSORFLOW = """\
import tensorflow as tf

gpus = tf.config.list_physical_devices("GPU")
with tf.device("/GPU:0"):
    print("on", len(gpus), float(tf.reduce_sum(tf.ones((512, 512)))), flush=True)
"""


@pytest.fixture(scope="session")
def python() -> str:
    """The Python that has the frameworks."""
    if wheels := os.environ.get("GPU_WHEELS"):
        folder = Path("build/gpu-environment").absolute()
        if not (folder / "bin/python").exists():
            subprocess.run([os.environ.get("GPU_PYTHON") or "python3", "-m", "venv", str(folder)], check=True)
        names = [
            name for name in ("torch", "numpy", "jax", "jax_cuda13_plugin", "jax_cuda12_plugin", "tensorflow")
            if any(Path(wheels).glob(f"{name}-*.whl"))
        ]  # fmt: skip
        pip = [str(folder / "bin/python"), "-m", "pip", "install", "-q", "--no-index", "--find-links", wheels]
        subprocess.run([*pip, *(name.replace("_", "-") for name in names)], check=True)
        return str(folder / "bin/python")
    return os.environ.get("GPU_PYTHON") or shutil.which("python3") or sys.executable


def trained(folder: Path, python: str, framework: str, source: str, *options: str) -> Run:
    """Run a script with that framework to its end. Skips the test if the Python lacks the framework."""
    module = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    if subprocess.run([python, "-c", module, framework], cwd="/").returncode:
        pytest.skip(f"{python} has no {framework}; name another with GPU_PYTHON, or a folder of wheels with GPU_WHEELS")
    script = folder / "train.py"
    script.write_text(source)
    return run_to_end("--python", python, "--framework", framework, *options, str(script), seconds=170)


@pytest.mark.parametrize("network", NETWORKS)
def test_a_worker_has_its_own_devices_and_one_that_asks_for_none_has_none(network: str) -> None:
    show = 'echo "devices=$CUDA_VISIBLE_DEVICES"; nvidia-smi -L; exec sleep 1'
    resources = f"{GPUS} GPUs" if GPUS else MIG
    run = run_to_end("--gpus", "1", "--network", network, "--", "sh", "-c", show)
    assert run.code == 0, (resources, run.text)
    (devices,) = [line.partition("devices=")[2] for line in run.of("worker-0") if "devices=" in line]
    assert devices.startswith(("GPU-", "MIG-")) and "," not in devices
    if shutil.which("nvidia-smi"):
        assert "GPU 0: " in run.text, "the driver can be reached from the pod"
    run = run_to_end("--gpus", "0", "--network", network, "--", "sh", "-c", show)
    assert run.code == 0 and "devices=\n" in f"{run.text}\n"


def test_a_job_that_asks_for_more_than_there_is_does_not_start() -> None:
    run = run_to_end("--gpus", str(max(GPUS, 8) + 1), "--", "true")
    assert run.code == 3 and "cannot run here" in run.text


@pytest.mark.parametrize("network", NETWORKS)
def test_two_workers_train_over_nccl(network: str, tmp_path: Path, python: str) -> None:
    if GPUS < 2:
        pytest.skip(f"two ranks of NCCL need two GPUs, and this machine has {GPUS}")
    options = ("--workers", "2", "--gpus", "1", "--network", network, "--env", "NCCL_DEBUG=INFO")
    run = trained(tmp_path, python, "torch", DDP, *options)
    assert run.code == 0, run.text
    transports = {match[1] for match in re.finditer(r"\] via (P2P|SHM|NET)/", run.text)}
    print(f"between two pods of the network {network} NCCL used {sorted(transports)}")
    # As docs/gpus.md has it: each pod of `namespace` is a machine of its own to NCCL.
    assert transports == {"NET"} if network == "namespace" else transports and "NET" not in transports
    devices = set()
    for replica in ("master-0", "worker-0"):
        assert "ranks 2 equal True" in run.of(replica)
        devices |= {line for line in run.of(replica) if line.startswith("sees 1 ")}
    assert len(devices) == 2, "each worker has a GPU of its own"


def test_a_process_for_each_gpu_of_one_worker(tmp_path: Path, python: str) -> None:
    if not GPUS:
        pytest.skip("the GPUs are in MIG mode: NCCL does not join MIG devices of one GPU")
    run = trained(tmp_path, python, "torch", DDP, "--nproc", "gpu")
    assert run.code == 0, run.text
    assert f"ranks {GPUS} equal True" in run.text


def test_too_little_memory_is_explained(tmp_path: Path, python: str) -> None:
    run = trained(tmp_path, python, "torch", FULL, "--gpus", "1") if GPUS else pytest.skip("no whole GPU")
    assert run.code == 1
    text = " ".join(run.text.split())
    assert "its GPU has too little memory" in text and "were asked for" in text and "were free on device 0" in text


def test_jax_computes_on_its_device(tmp_path: Path, python: str) -> None:
    run = trained(tmp_path, python, "jax", JAX, "--gpus", "1") if GPUS else pytest.skip("no whole GPU")
    assert run.code == 0 and any(text in run.text for text in ("on gpu 1 262144.0", "on cuda 1 262144.0")), run.text


def test_tensorflow_computes_on_its_device(tmp_path: Path, python: str) -> None:
    run = trained(tmp_path, python, "tensorflow", TENSORFLOW, "--gpus", "1") if GPUS else pytest.skip("no whole GPU")
    assert run.code == 0 and "on 1 262144.0" in run.text, run.text
