"""What `doctor` says about GPUs, drivers and builds of frameworks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.fake_nvml import GIB, FakeNvml, gpus, uuid
from trainyard.cli.device_checks import (
    FrameworkBuild,
    device_findings,
    findings,
    framework_builds,
    has_code_for,
    mismatch,
    shared_memory_problem,
    torch_architectures,
    xgboost_build,
)
from trainyard.node.devices.device import Device, Inventory
from trainyard.objects.usage import DeviceProcess, DeviceUsage

PADDLE = "full_version     = '3.3.1'\nnccl_version     = '0'\ncuda_version     = '12.6'\ncudnn_version    = 'False'\n"
TORCH = "__version__ = '2.15.0+cu132'\ncuda: Optional[str] = '13.2'\n"


def build(name: str, cuda: str) -> FrameworkBuild:
    return FrameworkBuild(name, "1.0", cuda, Path("/site"))


@pytest.mark.parametrize(
    ("name", "cuda", "text", "fix"),
    [
        ("torch", "12.8", "", ""),
        ("torch", "12.9", "", ""),  # of the same major version
        ("torch", "11.8", "", ""),
        (
            "torch",
            "13.2",
            "torch 1.0 in /site is built for CUDA 13.2, and the driver 570.86 serves up to 12.8: it finds no GPU",
            "update the driver to 580.65 or newer, or install a build for CUDA 12",
        ),
        (
            "jax",
            "",
            "jax 1.0 in /site is a build without CUDA: it trains on the CPU",
            "install the build with CUDA: `pip install jax[cuda13]`",
        ),
        (
            "xgboost",
            "",
            "xgboost 1.0 in /site is a build without CUDA: it trains on the CPU",
            "install the build with CUDA: `pip uninstall xgboost-cpu` and `pip install xgboost`",
        ),
    ],
)
def test_a_build_that_does_not_fit_the_driver(name: str, cuda: str, text: str, fix: str) -> None:
    assert mismatch(build(name, cuda), "570.86", "12.8") == (text, fix)


def test_builds_are_read_from_files(tmp_path: Path) -> None:
    for file, text in (
        ("torch/version.py", TORCH),
        (
            "tensorflow/python/platform/build_info.py",
            "[('cuda_version', '12.5.1'), ('is_cuda_build', True)]",
        ),
        ("tensorflow-2.21.0.dist-info/METADATA", ""),
        ("jaxlib-0.10.2.dist-info/METADATA", ""),
        ("jax_cuda13_plugin-0.10.2.dist-info/METADATA", ""),
        ("paddle/version/__init__.py", PADDLE),
    ):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    assert [tuple(framework_build[:3]) for framework_build in framework_builds(tmp_path)] == [
        ("torch", "2.15.0+cu132", "13.2"),
        ("tensorflow", "2.21.0", "12.5.1"),
        ("jax", "0.10.2", "13.0"),
        ("paddle", "3.3.1", "12.6"),
    ]
    (tmp_path / "paddle/version/__init__.py").write_text(PADDLE.replace("12.6", "False"))
    assert [build.cuda for build in framework_builds(tmp_path)][-1] == ""
    assert list(framework_builds(tmp_path / "none")) == []


def test_devices_and_other_programs_have_a_line_each() -> None:
    devices = tuple(Device("nvidia.com/gpu", uuid(index), index) for index in range(2))
    inventory = Inventory(devices, "570.86", "12.8")
    process = DeviceProcess(4711, 20 * GIB, command="python train.py")
    used = DeviceUsage(1, uuid(1), "H100", 80 * GIB, 20 * GIB, 97, (process,))
    lines, problems = findings(inventory, 1, ["X"], [used], [build("torch", "12.8")])
    assert lines == [
        ("gpus", "2, of which this shell's variables allow 1; driver 570.86, CUDA up to 12.8"),
        ("  1", "H100: 20.0 GiB of 80.0 GiB, 97 % busy"),
        ("", "device 1: 20.0 GiB used by another program, pid 4711 (python train.py)"),
        ("  torch", "1.0 for CUDA 12.8, which this driver serves"),
    ]
    assert problems == [("X", "see `nvidia-smi`")]


async def test_the_devices_of_a_machine_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml(tmp_path)
    nvml.set([*gpus(1), f"process 0 {os.getpid()} {GIB}"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in nvml.environ.items():
        monkeypatch.setenv(name, value)
    lines = [text for _, text in (await device_findings([])).lines]
    assert "1; driver 570.86, CUDA up to 12.8" in lines
    assert any(f"1.0 GiB used by another program, pid {os.getpid()} (" in line for line in lines)


@pytest.mark.parametrize(
    ("capability", "architectures", "has_code"),
    [
        ("9.0", "sm_80 sm_90", True),
        ("8.6", "sm_80 sm_90", True),  # of the same major version
        ("8.0", "sm_86 sm_90", False),
        ("6.1", "sm_75 sm_80 sm_90 compute_90", False),
        ("10.0", "sm_90 compute_90", True),  # PTX is compiled for it
        ("12.0", "sm_90 sm_100", False),
        ("12.1", "sm_90 sm_120", True),
        ("10.0", "sm_90a", False),
        ("9.0", "sm_90a", True),
    ],
)
def test_a_build_has_code_for_some_gpus(capability: str, architectures: str, has_code: bool) -> None:
    assert has_code_for(capability, architectures.split()) == has_code


def environment(folder: Path, package: str, source: str) -> tuple[Path, Path]:
    """An environment with one package of this source: its folder of packages, and its interpreter."""
    site, python = folder / "env" / "lib" / "python3.11" / "site-packages", folder / "env" / "bin" / "python"
    (site / package).mkdir(parents=True)
    (site / package / "__init__.py").write_text(source)
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return site, python


async def test_a_torch_without_code_for_the_gpu_is_known_before_it_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A torch that says what it is built for, in an environment of its own."""
    nvml = FakeNvml(tmp_path)
    nvml.set([*gpus(2), "capability 0 9 0"])
    for name, value in nvml.environ.items():
        monkeypatch.setenv(name, value)
    flags = "class _C:\n    _cuda_getArchFlags = staticmethod(lambda: 'sm_75 sm_80')\n"
    site, python = environment(tmp_path, "torch", flags)
    (site / "torch" / "version.py").write_text("__version__ = '2.15.0+cu128'\ncuda: Optional[str] = '12.8'\n")
    assert await torch_architectures(str(python)) == ("sm_75", "sm_80")
    problems = [text for text, _ in (await device_findings([str(python)])).problems]
    ((problem,)) = [text for text in problems if "has no code for" in text]
    label = f"torch 2.15.0+cu128 in {site} has no code for NVIDIA H100 80GB HBM3 (compute capability 9.0)"
    assert problem == f"{label}; it is built for sm_75 sm_80"


async def test_a_torch_that_cannot_be_imported_tells_nothing(tmp_path: Path) -> None:
    assert await torch_architectures(str(tmp_path / "nothing")) == ()
    (tmp_path / "python").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    assert await torch_architectures(str(tmp_path / "python")) == ()


@pytest.mark.parametrize(
    ("size", "resources", "is_problem"),
    [
        (64 << 20, ["nvidia.com/gpu"] * 2, True),
        (64 << 20, ["nvidia.com/gpu"], False),
        (64 << 20, ["nvidia.com/gpu", "amd.com/gpu"], False),
        (1 << 30, ["nvidia.com/gpu"] * 8, False),
    ],
)
def test_little_shared_memory_is_a_problem_between_gpus(size: int, resources: list[str], is_problem: bool) -> None:
    shared = os.statvfs_result((4096, 4096, size // 4096, 0, 0, 0, 0, 0, 0, 255))
    problem = shared_memory_problem(shared, [Device(name, str(index), index) for index, name in enumerate(resources)])
    assert (problem is not None) == is_problem
    assert problem is None or "/dev/shm has 64 MiB" in problem[0]


@pytest.mark.parametrize(
    ("info", "cuda", "problem"),
    [  # of the wheels xgboost 3.2.0 and xgboost-cpu 3.2.0, which differ in nothing else
        (
            {"USE_CUDA": True, "CUDA_VERSION": [13, 0]},
            "13.0",
            "is built for CUDA 13.0, and the driver",
        ),
        ({"USE_CUDA": True, "CUDA_VERSION": [12, 9]}, "12.9", ""),
        ({"USE_CUDA": False}, "", "is a build without CUDA: it trains on the CPU"),
    ],
)
async def test_xgboost_itself_knows_its_build(
    info: dict[str, object], cuda: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in FakeNvml(tmp_path, 1).environ.items():
        monkeypatch.setenv(name, value)
    site, python = environment(tmp_path, "xgboost", f"__version__ = '3.2.0'\nbuild_info = lambda: {info}\n")
    assert await xgboost_build(str(python)) == FrameworkBuild("xgboost", "3.2.0", cuda, site)
    result = await device_findings([str(python)])
    problems = [text for text, _ in result.problems if text.startswith("xgboost")]
    lines = [text for name, text in result.lines if name == "  xgboost"]
    if problem:
        assert problem in problems[0] and not lines
    else:
        assert lines == ["3.2.0 for CUDA 12.9, which this driver serves"] and not problems


async def test_an_xgboost_that_cannot_be_imported_tells_nothing(tmp_path: Path) -> None:
    _, python = environment(tmp_path, "xgboost", "raise ImportError('numpy')")
    assert await xgboost_build(str(python)) is None
