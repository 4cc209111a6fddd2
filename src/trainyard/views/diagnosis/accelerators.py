"""What the output of machine-learning frameworks, NCCL and NVIDIA's driver tells about accelerators.

PATTERNS is the part of `output.OUTPUT_PATTERNS` about devices; it precedes the others, because the texts of NCCL also
match "connection refused" or "No space left on device". `with_details` completes a cause with what other lines tell:
sizes, processes, capabilities, the collective. The texts are those of torch 2.15, NCCL 2.32, TensorFlow 2.21, JAX 0.10,
PaddlePaddle 3.3 and XGBoost 3.2, and the older ones that they replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from trainyard.core.diagnosis import Cause, OutputPattern
from trainyard.objects.patterns import lazy_pattern

NO_MEMORY = "its GPU has too little memory"
NO_KERNEL = "its framework's build has no code for this GPU"
OLD_DRIVER = "the NVIDIA driver is older than the CUDA version of its framework needs"
NCCL_CALL = "a call of NCCL failed"
_NO_CUDA = "its framework is a build without CUDA"
_ABSENT = "a process that did not take part"
COLLECTIVE = f"a collective waited for {_ABSENT} until the timeout"
SAME_DEVICE = "two ranks use the same GPU"

_BUILD_FIX = "install a build of the framework for this GPU and driver; `trainyard doctor` compares them"
_RESET_FIX = "see the kernel log, `dmesg | grep Xid`; a device that stays lost needs a reset, or its machine a restart"
_MEMORY_FIX = "lower the batch size or the model's precision, or give it a GPU with more memory"
_XID_CAUSES = {
    13: "a kernel of the program failed",
    31: "a kernel of the program read or wrote memory that is not its own",
    43: "a kernel of the program failed, and its channel was stopped",
    45: "its work was stopped after an earlier error, or when its process was killed",
    48: "a memory error that the device cannot correct",
    63: "a memory row was retired after errors",
    64: "a memory row with errors could not be retired",
    74: "an NVLink failed",
    79: "the device has fallen off the bus",
    94: "a memory error that the device cannot correct, of this program alone",
    95: "a memory error that the device cannot correct, of all programs on it",
    119: "the device's own processor (GSP) does not answer",
    120: "the device's own processor (GSP) failed",
}
"""Of https://docs.nvidia.com/deploy/xid-errors: those that end a training."""


PATTERNS = (
    OutputPattern(
        r"(?:CUDA|HIP) out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"
        r"|OOM when allocating tensor.*GPU:|\(GPU_\d+_bfc\) ran out of memory",
        NO_MEMORY,
        _MEMORY_FIX,
    ),
    OutputPattern(
        r"RESOURCE_EXHAUSTED: (?:Out of memory while trying to allocate|Failed to allocate request for)",
        NO_MEMORY,
        f"{_MEMORY_FIX}; JAX takes 75 % of a GPU at its start: XLA_PYTHON_CLIENT_PREALLOCATE=false in env where "
        "another process uses the same GPU",
    ),
    OutputPattern(
        r"no kernel image is available|cudaErrorNoKernelImageForDevice|CUDA_ERROR_NO_BINARY_FOR_GPU"
        r"|is not compatible with the current PyTorch installation",
        NO_KERNEL,
        _BUILD_FIX,
    ),
    OutputPattern(
        r"NVIDIA driver on your system is too old|CUDA driver version is insufficient|cudaErrorInsufficientDriver"
        r"|provided PTX was compiled with an unsupported toolchain",
        OLD_DRIVER,
        "update the driver, or install a build of the framework for an older CUDA; `trainyard doctor` compares them",
    ),
    OutputPattern(
        r"forward compatibility was attempted on non supported HW|cudaErrorCompatNotSupportedOnDevice",
        "the libraries of CUDA's forward compatibility (cuda-compat) are loaded, and this GPU or driver does not "
        "support them",
        "remove their folder from LD_LIBRARY_PATH, or update the driver: only data-center GPUs support them",
    ),
    OutputPattern(
        r"unsupported display driver / cuda driver combination|Driver/library version mismatch",
        "the kernel module of the NVIDIA driver and its libraries have different versions",
        "restart the machine: the driver was updated while it ran",
    ),
    OutputPattern(
        r"CUDA-capable device\(s\) is/are busy or unavailable",
        "another process has its GPU for itself (compute mode EXCLUSIVE_PROCESS), or the GPU has failed",
        "see `nvidia-smi -q -d COMPUTE` and which process uses it: `trainyard doctor`",
    ),
    OutputPattern(
        r"PaddlePaddle is not compiled with CUDA",
        _NO_CUDA,
        "install the build with CUDA, paddlepaddle-gpu, of https://www.paddlepaddle.org.cn",
    ),
    OutputPattern(
        r"use wrong place, Please check",
        "its build of PaddlePaddle does not support the place that it names",
        "for a GPU install paddlepaddle-gpu, of https://www.paddlepaddle.org.cn; for a CPU use paddle.CPUPlace()",
    ),
    OutputPattern(
        r"ValueError: No available device found\.$",
        "PaddlePaddle finds no GPU",
        "see whether its build has CUDA, and the driver serves it: `trainyard doctor`",
    ),
    OutputPattern(
        r"XGBoost version not compiled with GPU support",
        _NO_CUDA,
        "install the build with CUDA: `pip uninstall xgboost-cpu` and `pip install xgboost`",
    ),
    OutputPattern(
        r"Invalid Input: 'gpu_hist'",
        "this version of XGBoost has no tree_method gpu_hist",
        "set device: cuda and tree_method: hist, which XGBoost has since 2.0",
    ),
    OutputPattern(
        r"no CUDA-capable device|Found no NVIDIA driver|No CUDA GPUs are available"
        r"|Cuda is not available|CUDA_ERROR_NO_DEVICE",
        "there is no GPU it can use",
        "ask for one (resources.limits: nvidia.com/gpu) where the cluster has them, or run it on CPUs",
    ),
    OutputPattern(
        r"NVRM: Xid \(PCI:(?P<device>[\da-f:.]+)\): (?P<xid>\d+)",
        "the driver reports Xid {xid} of the GPU at {device}",
        _RESET_FIX,
        anywhere=True,
        before_exceptions=False,
    ),
    OutputPattern(
        r"GPU is lost|fallen off the bus|CUDA_ERROR_DEVICE_UNAVAILABLE",
        "its GPU is lost: the driver cannot reach it",
        _RESET_FIX,
        anywhere=True,
    ),
    OutputPattern(
        r"uncorrectable (ECC|NVLink) error|CUDA_ERROR_ECC_UNCORRECTABLE",
        "its GPU has a hardware error that cannot be corrected",
        _RESET_FIX,
        anywhere=True,
    ),
    OutputPattern(
        r"CUDA error: unspecified launch failure|CUDA_ERROR_LAUNCH_FAILED|cudaErrorLaunchFailure",
        "a kernel on its GPU was ended by an error that CUDA cannot name",
        "see the kernel log, `dmesg | grep Xid`; without an Xid of the hardware, `compute-sanitizer` names the kernel",
        anywhere=True,
    ),
    OutputPattern(
        r"device-side assert triggered|CUDA_ERROR_ASSERT",
        "an assertion in a kernel failed: often a label or index that is out of range",
        "set CUDA_LAUNCH_BLOCKING=1 in env to see the line, or run that step on the CPU",
        anywhere=True,
    ),
    OutputPattern(
        r"illegal memory access was encountered|CUDA_ERROR_ILLEGAL_ADDRESS",
        "a kernel read or wrote memory that is not its own",
        "set CUDA_LAUNCH_BLOCKING=1 in env to see the line; `compute-sanitizer` names the kernel",
        anywhere=True,
    ),
    OutputPattern(
        r"Watchdog caught collective operation timeout|the lagging ranks that caused this timeout",
        COLLECTIVE,
        "see what that process does: `trainyard logs`, and py-spy dump in its pod",
        anywhere=True,
        before_exceptions=False,
    ),
    OutputPattern(
        r"Multiple Ranks are using the same GPU|Duplicate GPU detected",
        SAME_DEVICE,
        "give each process a device of its own: `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))` at its start, "
        "and no more processes than `nvidia.com/gpu` in limits",
    ),
    OutputPattern(
        r"no socket interface found|No usable listening interface found",
        "NCCL finds no network interface that it may use",
        "let NCCL_SOCKET_IFNAME in env name an interface that the pod has (`ip link`), or leave it out",
    ),
    OutputPattern(
        r"Could not enable P2P between dev|peer access is not supported between|P2P is disabled between"
        r"|peer access has not been enabled",
        "two of its GPUs cannot read each other's memory",
        "set NCCL_P2P_DISABLE=1 in env, which is slower; `nvidia-smi topo -p2p r` shows which can",
    ),
    OutputPattern(
        r"(?:failed to (?:create|extend)|Error while)[^\n]*/dev/shm/nccl-",
        "NCCL has too little space in /dev/shm",
        "mount an emptyDir with medium Memory at /dev/shm (NCCL_SHM_DISABLE=1 in env does without, and is slower)",
    ),
    OutputPattern(
        r"NCCL error in:? .*(?:unhandled|invalid|internal)|unhandled (?:system|cuda) error",
        NCCL_CALL,
        "see why another process ended, in `trainyard logs`; if none did, NCCL_DEBUG=INFO in env shows which call",
    ),
)

_SIZE = r"[\d.]+ ?(?:[KMGT]i?B|bytes)"
_ASKED = lazy_pattern(
    rf"(?:Tried to allocate|trying to allocate|Failed to allocate request for) ({_SIZE})", re.IGNORECASE
)
_SHAPE = lazy_pattern(r"OOM when allocating tensor with shape(\[[\d,]*\]) and type (\w+)")
_CAPACITY = lazy_pattern(
    rf"GPU (\d+) has a total capacity of ({_SIZE}) of which ({_SIZE}) is free"
    rf"|\(GPU (\d+); ({_SIZE}) total capacity; .*?({_SIZE}) free"
)
_OTHER_PROCESS = lazy_pattern(rf"Process (\d+) has ({_SIZE}) memory in use")
_CAPABILITY = lazy_pattern(r"(\S[^\n:]*?) with CUDA capability (sm_\d+) is not compatible")
_BUILT_FOR = lazy_pattern(r"install supports CUDA capabilities ((?:(?:sm|compute)_\d+\s*)+)")
_DRIVER_CUDA = re.compile(r"too old \(found version (\d+)\)")
_WORK = lazy_pattern(r"collective operation timeout: WorkNCCL\(SeqNum=(\d+), OpType=(\w+),.*?Timeout\(ms\)=(\d+)\)")
_LAGGING = lazy_pattern(
    r"ranks \[([\d, ]+)\] are the lagging ranks|^\s*\[([\d, ]+)\] finished collective #.*didn't join"
)
_RANK_STATE = lazy_pattern(r"Rank (\d+)\].*last enqueued (?:NCCL )?work: (-?\d+)", re.IGNORECASE)
_XID = lazy_pattern(r"NVRM: Xid \(PCI:[\da-f:.]+\): (\d+)", re.IGNORECASE)


def with_details(cause: Cause, lines: Sequence[str]) -> Cause:
    """The cause, with what the last lines of the output tell about it; as it is where it is about no device."""
    for explanation, details in _DETAILS.items():
        if explanation in cause.explanation:
            return details(cause, explanation, lines)
    return cause


def is_device_out_of_memory(lines: Sequence[str]) -> bool:
    """Whether the output says that a GPU has too little memory."""
    patterns = [pattern.pattern for pattern in PATTERNS if pattern.explanation == NO_MEMORY]
    return any(re.search(pattern, line, re.IGNORECASE) for line in lines for pattern in patterns)


def _last(pattern: re.Pattern[str], lines: Sequence[str]) -> re.Match[str] | None:
    return next((match for line in reversed(lines) if (match := pattern.search(line))), None)


def _memory_details(cause: Cause, explanation: str, lines: Sequence[str]) -> Cause:
    """The size that was asked for, what was free, and the other processes that PyTorch names."""
    parts: list[str] = []
    if requested := _last(_ASKED, lines):
        parts.append(f"{requested[1]} were asked for")
    elif shape := _last(_SHAPE, lines):
        parts.append(f"a tensor of shape {shape[1]}, {shape[2]}, was asked for")
    if capacity := _last(_CAPACITY, lines):
        device, total, free = (capacity[number] or capacity[number + 3] for number in (1, 2, 3))
        parts.append(f"{free} of {total} were free on device {device}")
    others: list[tuple[str, str]] = []
    if (line := next((line for line in reversed(lines) if _OTHER_PROCESS.search(line)), None)) is not None:
        others = _OTHER_PROCESS.findall(line)
    parts += [f"process {pid} uses {size}" for pid, size in others]
    if not parts:
        return cause
    fix = f"end process {others[0][0]} if it is not part of this job, or {cause.fix}" if others else cause.fix
    return Cause(cause.explanation.replace(explanation, f"{explanation}: {', '.join(parts)}"), fix)


def _kernel_details(cause: Cause, explanation: str, lines: Sequence[str]) -> Cause:
    if (device := _last(_CAPABILITY, lines)) is None:
        return cause
    built_for = _last(_BUILT_FOR, lines)
    text = f"{explanation}: {_without_warning(device[1])} is {device[2]}"
    text += f", the build is for {' '.join(built_for[1].split())}" if built_for else ""
    return cause._replace(explanation=cause.explanation.replace(explanation, text))


def _without_warning(name: str) -> str:
    """The name of a device without what Python's warnings module writes before it."""
    return name.rpartition("Warning")[2].strip(" :")


def _driver_details(cause: Cause, explanation: str, lines: Sequence[str]) -> Cause:
    if (driver := _last(_DRIVER_CUDA, lines)) is None:
        return cause
    version = int(driver[1])  # of the CUDA that the driver has, as cudaDriverGetVersion counts: 12080 is 12.8
    text = f"{explanation}: the driver has CUDA {version // 1000}.{version % 1000 // 10}"
    return cause._replace(explanation=cause.explanation.replace(explanation, text))


def _nccl_details(cause: Cause, explanation: str, lines: Sequence[str]) -> Cause:
    """The cause that NCCL itself writes after `Last error:` or as a warning, where a pattern knows it."""
    warnings = [line for line in lines if "NCCL WARN" in line]
    last_errors = [after for line, after in pairwise(lines) if line.strip() == "Last error:"]
    for line in (*reversed(last_errors), *reversed(warnings)):
        for pattern in PATTERNS:
            if re.search(pattern.pattern, line, re.IGNORECASE) and pattern.explanation != NCCL_CALL:
                return Cause(cause.explanation.replace(explanation, pattern.explanation), str(pattern.fix))
    if not last_errors or not last_errors[-1].strip():
        return cause
    return cause._replace(
        explanation=cause.explanation.replace(explanation, f"{explanation}: {last_errors[-1].strip()}")
    )


def _collective_details(cause: Cause, explanation: str, lines: Sequence[str]) -> Cause:
    if (work := _last(_WORK, lines)) is None:
        return cause
    text = (
        f"collective {work[2]}, number {work[1]}, waited {int(work[3]) / 1000:g} s for a process that did not take part"
    )
    return cause._replace(explanation=cause.explanation.replace(explanation, text))


def _xid_details(cause: Cause, explanation: str, lines: Sequence[str]) -> Cause:
    xid = _last(_XID, lines)
    meaning = _XID_CAUSES.get(int(xid[1]), "") if xid else ""
    return cause._replace(explanation=f"{cause.explanation}: {meaning}") if meaning else cause


def with_xids(cause: Cause, messages: Sequence[str]) -> Cause:
    """The cause of the end of a program, with the last Xid error of its device that stands in the kernel log.
    `messages`: of the events of its pod."""
    match = next((match for message in reversed(messages) if (match := _XID.search(message))), None)
    if match is None or f"Xid {match[1]}" in cause.explanation:
        return cause
    meaning = f" ({known})" if (known := _XID_CAUSES.get(int(match[1]))) else ""
    text = f"the driver has reported Xid {match[1]} of its GPU{meaning}"
    return Cause(f"{cause.explanation}; {text}" if cause.explanation else text, cause.fix or _RESET_FIX)


_DETAILS: dict[str, Callable[[Cause, str, Sequence[str]], Cause]] = {
    NO_MEMORY: _memory_details,
    NO_KERNEL: _kernel_details,
    OLD_DRIVER: _driver_details,
    NCCL_CALL: _nccl_details,
    COLLECTIVE: _collective_details,
    "the driver reports Xid": _xid_details,
}


def with_lagging_ranks(cause: Cause, logs: Iterable[Sequence[str]]) -> Cause:
    """The cause, with the ranks for which a collective waited, according to the outputs of all replicas.

    PyTorch names them where TORCH_NCCL_DESYNC_DEBUG is set; else they are those that have started fewer collectives
    than the others, as far as each rank has written how many it has started."""
    if _ABSENT not in cause.explanation:
        return cause
    lagging: set[int] = set()
    started: dict[int, int] = {}
    for line in (line for lines in logs for line in lines):
        if match := _LAGGING.search(line):
            lagging |= {int(rank) for rank in re.findall(r"\d+", match[1] or match[2])}
        elif match := _RANK_STATE.search(line):
            started[int(match[1])] = int(match[2])
    if not lagging and started:
        lagging = {rank for rank, count in started.items() if count < max(started.values())}
    if not lagging:
        return cause
    ranks = f"rank{'s' * (len(lagging) > 1)} {', '.join(str(rank) for rank in sorted(lagging))}"
    waited_for = re.sub(f"{_ABSENT}( until the timeout)?", ranks, cause.explanation)
    return Cause(f"{waited_for}, which did not take part", cause.fix.replace("that process does", f"{ranks} does"))
