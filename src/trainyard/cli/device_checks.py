"""The checks of `doctor` about GPUs: the devices, who uses them, and whether driver and frameworks fit together.

The CUDA version that a framework was built for stands in its files, but for XGBoost. Which GPUs torch has code for is
known to torch alone; both are asked in a process of their own, on machines with NVIDIA's GPUs.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from trainyard.node.devices.device import Device, Inventory
from trainyard.objects.extended_resources import AMD_GPU
from trainyard.objects.usage import DeviceUsage

_LIST_TIMEOUT = 5.0  # seconds
_SHARED_MEMORY = "/dev/shm"  # noqa: S108  (where NCCL puts its segments)
_LEAST_SHARED_MEMORY = 1 << 30
"""Bytes of it for eight GPUs; NVIDIA's own advice for containers with NCCL. Docker gives 64 MiB."""
MINIMUM_DRIVERS = {11: "450.80", 12: "525.60", 13: "580.65"}
"""The oldest driver of Linux for each major version of CUDA, whose minor versions it serves, too
(docs.nvidia.com/deploy/cuda-compatibility)."""
_TORCH_VERSION = re.compile(r"^__version__ = '([^']+)'", re.MULTILINE)
_TORCH_CUDA = re.compile(r"^cuda: Optional\[str\] = '([^']+)'|^cuda = '([^']+)'", re.MULTILINE)
_PADDLE_VERSION = re.compile(r"^full_version\s*= '([^']+)'", re.MULTILINE)
_PADDLE_CUDA = re.compile(r"^cuda_version\s*= '(\d[\d.]*)'", re.MULTILINE)
_TENSORFLOW_CUDA = re.compile(r"'cuda_version', '([\d.]+)'")
_DIST_INFO = re.compile(r"-([\w.+]+)\.dist-info$")
_ARCHITECTURE = re.compile(r"\b(?:sm|compute)_\d+[a-z]?\b")
_JAX_PLUGIN = re.compile(r"jax_cuda(\d+)_plugin-")


class FrameworkBuild(NamedTuple):
    """A framework in a folder of packages. `cuda`: the version that it was built for, "" for a build without CUDA."""

    name: str
    version: str
    cuda: str
    folder: Path


def framework_builds(folder: Path) -> Iterator[FrameworkBuild]:
    """The frameworks in a folder such as site-packages, by their files."""
    text = _read(folder / "torch" / "version.py")
    if version := _TORCH_VERSION.search(text):
        cuda = _TORCH_CUDA.search(text)
        yield FrameworkBuild("torch", version[1], (cuda[1] or cuda[2]) if cuda else "", folder)
    if text := _read(folder / "tensorflow" / "python" / "platform" / "build_info.py"):
        cuda = _TENSORFLOW_CUDA.search(text)
        version_text = _version(folder, "tensorflow") or _version(folder, "tensorflow_cpu")
        yield FrameworkBuild("tensorflow", version_text, cuda[1] if cuda else "", folder)
    if version_text := _version(folder, "jaxlib"):
        plugins = (_JAX_PLUGIN.match(entry.name) for entry in folder.glob("jax_cuda*_plugin-*.dist-info"))
        major = next((plugin[1] for plugin in plugins if plugin), "")
        yield FrameworkBuild("jax", version_text, f"{major}.0" if major else "", folder)
    text = _read(folder / "paddle" / "version" / "__init__.py")
    if version := _PADDLE_VERSION.search(text):
        cuda = _PADDLE_CUDA.search(text)  # 'False' of a build without CUDA
        yield FrameworkBuild("paddle", version[1], cuda[1] if cuda else "", folder)


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


def _version(folder: Path, package: str) -> str:
    names = (_DIST_INFO.search(entry.name) for entry in folder.glob(f"{package}-*.dist-info"))
    return next((name[1] for name in names if name), "")


def mismatch(build: FrameworkBuild, driver: str, cuda: str) -> tuple[str, str]:
    """What will not work with a driver that serves CUDA up to `cuda`, and the fix; ("", "") if it works."""
    label = f"{build.name} {build.version} in {build.folder}"
    if not build.cuda:
        return (
            f"{label} is a build without CUDA: it trains on the CPU",
            f"install the build with CUDA: {_WITH_CUDA[build.name]}",
        )
    built, served = _major(build.cuda), _major(cuda)
    if not served or built <= served:
        return "", ""
    needed = MINIMUM_DRIVERS.get(built, "a newer one")
    text = f"{label} is built for CUDA {build.cuda}, and the driver {driver} serves up to {cuda}: it finds no GPU"
    return text, f"update the driver to {needed} or newer, or install a build for CUDA {served}"


_ARCHITECTURES = "import torch; print(*torch._C._cuda_getArchFlags().split())"  # get_arch_list() asks the driver, too
_IMPORT_SECONDS = 30.0  # torch is read from a slow disk


async def torch_architectures(interpreter: str) -> tuple[str, ...]:
    """What the torch of an interpreter is built for: sm_90, compute_120. () where it cannot be imported."""
    return tuple(_ARCHITECTURE.findall(await _printed(interpreter, _ARCHITECTURES)))


_XGBOOST = """import os, xgboost
info = xgboost.build_info()
folder = os.path.dirname(xgboost.__path__[0])
print("xgboost", xgboost.__version__, ".".join(map(str, info.get("CUDA_VERSION", ()))) or "-", folder)"""


_XGBOOST_FOLDER = "lib/python3*/*-packages/xgboost"  # below the prefix of an interpreter


async def xgboost_build(interpreter: str) -> FrameworkBuild | None:
    """The XGBoost of an interpreter; None where it cannot be imported. Its library alone knows whether it was built for
    CUDA: the two wheels have the same files."""
    name, _, text = (await _printed(interpreter, _XGBOOST)).strip().rpartition("\n")[2].partition(" ")
    if name != "xgboost":
        return None
    version, cuda, folder = text.split(" ", 2)
    return FrameworkBuild(name, version, cuda.strip("-"), Path(folder))


async def _printed(interpreter: str, program: str) -> str:
    """What a program of Python prints; "" when it fails, or takes too long."""
    import asyncio
    from asyncio.subprocess import DEVNULL, PIPE

    try:
        process = await asyncio.create_subprocess_exec(
            interpreter, "-c", program, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, cwd="/"
        )
    except OSError:
        return ""
    try:
        async with asyncio.timeout(_IMPORT_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return ""
    return output.decode(errors="replace") if process.returncode == 0 else ""


def has_code_for(capability: str, architectures: Sequence[str]) -> bool:
    """Whether a build runs on a GPU: machine code (sm_) of the same major version and no higher minor one does, PTX
    (compute_) of any lower version. Code for one architecture alone, such as sm_90a, runs on no other."""
    major, minor = map(int, capability.split("."))
    for architecture in architectures:
        kind, _, version = architecture.partition("_")
        if not version.isdecimal():
            if version[:-1] == f"{major}{minor}":
                return True
            continue
        built = int(version[:-1]), int(version[-1])
        if built <= (major, minor) and (kind == "compute" or built[0] == major):
            return True
    return False


def missing_code(
    build: FrameworkBuild, architectures: Sequence[str], devices: Sequence[Device]
) -> list[tuple[str, str]]:
    """A problem and its fix for each kind of GPU that the build of torch has no code for."""
    kinds = {device.name: device.capability for device in devices if device.capability}
    return [
        (
            f"{build.name} {build.version} in {build.folder} has no code for {name} (compute capability {capability}); "
            f"it is built for {' '.join(architectures)}",
            "install a build for this GPU: of a newer version for a newer GPU, for an older CUDA for an older one",
        )
        for name, capability in kinds.items()
        if architectures and not has_code_for(capability, architectures)
    ]


_WITH_CUDA = {
    "torch": "`pip install torch`",
    "tensorflow": "`pip install tensorflow[and-cuda]`",
    "jax": "`pip install jax[cuda13]`",
    "paddle": "paddlepaddle-gpu, of https://www.paddlepaddle.org.cn",
    "xgboost": "`pip uninstall xgboost-cpu` and `pip install xgboost`",
}


def _major(version: str) -> int:
    number = version.partition(".")[0]
    return int(number) if number.isdecimal() else 0


def package_folders(interpreters: Sequence[str]) -> list[Path]:
    """The folders of packages of these interpreters, and of Debian's, which exist."""
    prefixes = [Path(interpreter).parent.parent for interpreter in interpreters]
    folders = [folder for prefix in prefixes for folder in sorted(prefix.glob("lib/python3*/site-packages"))]
    return list(dict.fromkeys(filter(Path.is_dir, [*folders, Path("/usr/lib/python3/dist-packages")])))


def shared_memory_problem(shared: os.statvfs_result, devices: Sequence[Device]) -> tuple[str, str] | None:
    """The problem and its fix where /dev/shm is too small for NCCL between several of NVIDIA's GPUs."""
    size = shared.f_blocks * shared.f_frsize
    if sum(device.resource != AMD_GPU for device in devices) < 2 or size >= _LEAST_SHARED_MEMORY:
        return None
    text = f"{_SHARED_MEMORY} has {size >> 20} MiB: NCCL between GPUs without NVLink or PCIe peer access needs more"
    return text, "start this container with --shm-size=1g, or an emptyDir with medium Memory there"


class DeviceFindings(NamedTuple):
    """What `doctor` says about GPUs: lines (name, text) and problems (text, fix)."""

    lines: list[tuple[str, str]]
    problems: list[tuple[str, str]]


async def device_findings(interpreters: Sequence[str]) -> DeviceFindings:
    """Asks the driver, in a process of its own; nothing is started without one."""
    from trainyard.node.devices.discovery import discover
    from trainyard.node.devices.drivers import has_amd_driver, has_nvidia_driver
    from trainyard.node.devices.kernel_log import unreadable_reason
    from trainyard.node.devices.processes import with_owners
    from trainyard.node.devices.sampler import sample_once
    from trainyard.node.devices.visibility import visible

    if not (has_nvidia_driver(os.environ) or has_amd_driver()):
        return DeviceFindings([("gpus", "none: there is no driver of NVIDIA or AMD; programs run on the CPU")], [])
    inventory = await discover(os.environ)
    allowed, problems = visible(inventory.devices, os.environ)
    samples = with_owners(await sample_once(os.environ), *await _pods()) if inventory.devices else ()
    builds = [build for folder in package_folders(interpreters) for build in framework_builds(folder)]
    if inventory.driver and inventory.devices:
        pythons = [
            path for path in interpreters if list(Path(path).parent.parent.glob("lib/python3*/site-packages/xgboost"))
        ]
        builds += filter(None, [await xgboost_build(python) for python in pythons])
    result = findings(inventory, len(allowed), [*inventory.problems, *problems], samples, builds)
    is_of_nvidia = any(device.resource != AMD_GPU for device in allowed)
    if is_of_nvidia and (reason := unreadable_reason()):
        result.lines.append(("  kernel log", f"cannot be read ({reason}): `why` does not see the driver's Xid errors"))
    with contextlib.suppress(OSError):
        if problem := shared_memory_problem(os.statvfs(_SHARED_MEMORY), allowed):
            result.problems.append(problem)
    for build in builds if any(device.capability for device in inventory.devices) else ():
        python = next((path for path in interpreters if build.folder.is_relative_to(Path(path).parent.parent)), "")
        if build.name == "torch" and build.cuda and python:
            result.problems.extend(missing_code(build, await torch_architectures(python), inventory.devices))
    return result


async def _pods() -> tuple[dict[int, str], dict[str, str]]:
    """The pods of the clusters that are up, by the pids of their processes that use a GPU, and by the uuids of their
    GPUs."""
    from trainyard.app.background.cluster_folders import BackgroundError, cluster_names
    from trainyard.app.background.clusters import Background
    from trainyard.cli.command.cluster_jobs import list_devices

    try:
        up = [cluster for cluster in map(Background, cluster_names()) if cluster.facts() is not None]
    except BackgroundError:
        return {}, {}
    devices = [device for cluster in up for device in await list_devices(cluster, _LIST_TIMEOUT)]
    by_pid = {process.pid: process.pod for device in devices for process in device.processes if process.pod}
    return by_pid, {device.uuid: device.pod for device in devices if device.pod}


def findings(
    inventory: Inventory,
    allowed: int,
    problems: Sequence[str],
    samples: Sequence[DeviceUsage],
    builds: Sequence[FrameworkBuild],
) -> DeviceFindings:
    """The findings about what was read. `allowed`: the number of devices that the shell's variables allow."""
    from trainyard.views.device_view import device_text, other_programs

    count = len(inventory.devices)
    text = f"{count}, of which this shell's variables allow {allowed}" if allowed != count else str(count)
    text += f"; driver {inventory.driver}, CUDA up to {inventory.cuda}" if inventory.driver else ""
    lines = [("gpus", text)] if count else []
    lines += [(f"  {sample.index}", device_text(sample)) for sample in samples]
    lines += [("", line) for line in other_programs(samples)]
    problems_and_fixes = [(problem, "see `nvidia-smi`") for problem in problems]
    for build in builds if inventory.driver and count else ():
        mismatch_text, fix = mismatch(build, inventory.driver, inventory.cuda)
        if mismatch_text:
            problems_and_fixes.append((mismatch_text, fix))
        else:
            lines.append((f"  {build.name}", f"{build.version} for CUDA {build.cuda}, which this driver serves"))
    return DeviceFindings(lines, problems_and_fixes)


def usual_interpreters() -> list[str]:
    """The interpreters of programs without an image: that of the active environment, else the one on PATH."""
    import shutil

    prefixes = [os.environ.get(name, "") for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    paths = [f"{prefix}/bin/python" for prefix in prefixes if prefix]
    return [*paths, shutil.which("python") or shutil.which("python3") or sys.executable]
