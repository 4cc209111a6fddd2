"""What `why` says about the texts of frameworks, NCCL and NVIDIA's driver, in testdata/accelerators."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from trainyard.core.diagnosis import ContainerContext
from trainyard.kinds import PYTORCHJOB
from trainyard.views.diagnosis.accelerators import with_lagging_ranks
from trainyard.views.diagnosis.output import cause_of

FILES = Path(__file__).parents[2] / "testdata" / "accelerators"
PYTORCH = ContainerContext(output_patterns=PYTORCHJOB.diagnosis.output_patterns, launcher=PYTORCHJOB.diagnosis.launcher)


class Output(NamedTuple):
    file: str
    explanation: str
    fix: str
    code: int = 1


OUTPUTS = (
    Output(
        "torch-2.15-out-of-memory-beside-other-processes",
        "its GPU has too little memory: 2.00 GiB were asked for, 1.20 GiB of 23.69 GiB were free "
        "on device 1, process 4711 uses 20.00 GiB (OutOfMemoryError at /src/train.py:7)",
        "end process 4711 if it is not part of this job, or lower the batch size",
    ),
    Output(
        "torch-1.13-out-of-memory",
        "its GPU has too little memory: 2.00 GiB were asked for, 1.20 GiB of 11.17 GiB were free on device 0",
        "lower the batch size",
    ),
    Output(
        "tensorflow-2.21-out-of-memory",
        "its GPU has too little memory: 5.96GiB were asked for (ResourceExhaustedError at /src/train.py:7)",
        "lower the batch size",
    ),
    Output(
        "jax-0.10-out-of-memory",
        "its GPU has too little memory: 40.00GiB were asked for (JaxRuntimeError at /src/train.py:7)",
        "XLA_PYTHON_CLIENT_PREALLOCATE=false",
    ),
    Output(
        "torch-no-kernel-image",
        "its framework's build has no code for this GPU: NVIDIA GeForce GTX 1080 is sm_61, "
        "the build is for sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 (AcceleratorError at /src/train.py:7)",
        "trainyard doctor",
    ),
    Output(
        "torch-the-driver-is-too-old",
        "needs: the driver has CUDA 12.8 (RuntimeError at /src/train.py:7)",
        "update the driver",
    ),
    Output(
        "forward-compatibility",
        "the libraries of CUDA's forward compatibility (cuda-compat) are loaded",
        "LD_LIBRARY_PATH",
    ),
    Output(
        "paddle-3.3-build-for-cpus-set-device",
        "its framework is a build without CUDA (ValueError at /src/train.py:7)",
        "paddlepaddle-gpu",
    ),
    Output(
        "paddle-3.3-build-for-cpus-place",
        "its build of PaddlePaddle does not support the place that it names (ValueError at /src/train.py:7)",
        "paddlepaddle-gpu",
    ),
    Output("paddle-3.3-build-for-cpus-tensor", "PaddlePaddle finds no GPU", "trainyard doctor"),
    Output(
        "xgboost-3.2-build-for-cpus",
        "its framework is a build without CUDA (XGBoostError at /src/train.py:7)",
        "pip install xgboost",
    ),
    Output("xgboost-3.2-gpu-hist", "this version of XGBoost has no tree_method gpu_hist", "device: cuda"),
    Output("a-driver-that-was-updated-while-it-ran", "have different versions", "restart the machine"),
    Output("a-device-without-driver", "there is no GPU it can use", "nvidia.com/gpu"),
    Output(
        "nccl-2.32-two-ranks-on-a-device",
        "two ranks use the same GPU (DistBackendError at /src/train.py:7)",
        "LOCAL_RANK",
    ),
    Output(
        "nccl-2.27-two-ranks-on-a-device",
        "two ranks use the same GPU (DistBackendError at /src/train.py:7)",
        "LOCAL_RANK",
    ),
    Output(
        "nccl-dev-shm-is-full",
        "NCCL has too little space in /dev/shm (DistBackendError at /src/train.py:7)",
        "medium Memory",
    ),
    Output(
        "nccl-no-interface",
        "NCCL finds no network interface that it may use (DistBackendError at /src/train.py:7)",
        "NCCL_SOCKET_IFNAME",
    ),
    Output(
        "nccl-no-peer-access",
        "two of its GPUs cannot read each other's memory (DistBackendError at /src/train.py:7)",
        "NCCL_P2P_DISABLE=1",
    ),
    Output(
        "nccl-another-system-call",
        "a call of NCCL failed: Call to bind failed: Cannot assign requested address",
        "NCCL_DEBUG=INFO",
    ),
    Output(
        "watchdog-the-process-aborts",
        "collective ALLREDUCE, number 5, waited 600 s for a process that did not take part",
        "py-spy",
        code=134,
    ),
    Output("watchdog-another-process-has-failed-before", "KeyError: 'rate' at /src/train.py:7", ""),
    Output(
        "xid-79",
        "the driver reports Xid 79 of the GPU at 0000:3b:00: the device has fallen off the bus",
        "dmesg",
        code=134,
    ),
    Output("a-lost-device", "its GPU is lost", "dmesg", code=15),
    Output("ecc", "its GPU has a hardware error that cannot be corrected", "Xid"),
    Output(
        "unspecified-launch-failure-ends-the-process",
        "a kernel on its GPU was ended by an error that CUDA cannot name",
        "compute-sanitizer",
        code=134,
    ),
    Output("device-side-assert", "an assertion in a kernel failed", "CUDA_LAUNCH_BLOCKING=1"),
)


def read(name: str) -> list[str]:
    return (FILES / f"{name}.txt").read_text().splitlines()


@pytest.mark.parametrize("context", [ContainerContext(), PYTORCH], ids=["any kind", "PyTorchJob"])
@pytest.mark.parametrize("output", OUTPUTS, ids=[output.file for output in OUTPUTS])
def test_the_text_of_a_device_error_is_explained(output: Output, context: ContainerContext) -> None:
    cause = cause_of(read(output.file), output.code, "Error", context)
    assert output.explanation in cause.explanation and output.fix in cause.fix, cause


def test_the_memory_of_the_host_is_no_device() -> None:
    for line in (
        "ResourceExhaustedError: OOM when allocating tensor with shape[9,9] and type float on /device:CPU:0 by cpu",
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 4000000000000 bytes.",
    ):
        assert "GPU" not in cause_of([line], 1, "Error", ContainerContext()).explanation


@pytest.mark.parametrize(
    ("logs", "waited_for"),
    [
        (("watchdog-and-the-dump-of-the-lagging-rank",), "rank 0, which did not take part"),
        (("watchdog-the-process-aborts", "the-dump-of-the-lagging-rank"), "rank 0, which did not take part"),
        (("watchdog-the-process-aborts",), "a process that did not take part"),
        (("watchdog-with-lagging-ranks",), "ranks 0, 2, which did not take part"),
        (("watchdog-with-desync-report",), "ranks 0, 1, which did not take part"),
    ],
)
def test_the_ranks_that_a_collective_waited_for_are_named(logs: tuple[str, ...], waited_for: str) -> None:
    outputs = [read(log) for log in logs]
    cause = with_lagging_ranks(cause_of(outputs[0], 134, "Error", PYTORCH), outputs)
    assert cause.explanation == f"collective ALLREDUCE, number 5, waited 600 s for {waited_for}"
