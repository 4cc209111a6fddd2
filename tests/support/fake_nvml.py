"""A stand-in for NVIDIA's driver: a C library, built with gcc, that serves the calls of the real nvidia-ml-py from a
file. The file is read again at each call, so that devices appear, vanish, fail or hang while a program runs.

Each line is one fact; `gpu` lines come before the lines that name their index:

    driver 570.86                  version of the driver
    cuda 12080                     newest CUDA that it serves
    gpu UUID NAME PCI BYTES        the next GPU, with its memory; "_" in NAME is a space
    link 0 1                       NVLink connects GPU 0 and 1
    mig-mode 0                     GPU 0 is in MIG mode
    mig 0 UUID NAME BYTES          a MIG device of GPU 0
    used 0 BYTES                   of its memory
    busy 0 GPU% MEMORY%            its utilisation
    capability 0 MAJOR MINOR       its compute capability
    process 0 PID BYTES            a process that computes on it
    lost 0                         each call about it fails with GPU_IS_LOST
    fail nvmlInitWithFlags 18      this function returns the code
    hang nvmlDeviceGetCount_v2     this function never returns
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")
LIBRARY = "libnvidia-ml.so.1"
GIB = 1 << 30


@functools.cache
def library_folder(missing: tuple[str, ...] = ()) -> Path:
    """The folder with the library, built at most once for each state of its source. `missing`: functions that it lacks,
    as that of an older driver. Skips the test without gcc."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("the stand-in for NVML is built with gcc, which is not installed")
    digest = sha256(SOURCE.read_bytes() + repr(missing).encode()).hexdigest()[:12]
    renamed = [f"-D{function}=missing_{function}" for function in missing]
    folder = Path(tempfile.gettempdir()) / f"trainyard-fake-nvml-{os.getuid()}-{digest}"
    if not (folder / LIBRARY).exists():
        folder.mkdir(mode=0o700, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", *renamed, "-o", file.name, str(SOURCE)]
        subprocess.run(command, check=True)
        Path(file.name).replace(folder / LIBRARY)  # several workers of pytest may build it at the same time
    return folder


def uuid(index: int) -> str:
    """The UUID of the GPU `index` of `gpus`."""
    return f"GPU-{index:08x}-0000-4000-8000-{index:012x}"


def gpus(count: int, memory: int = 80 * GIB) -> list[str]:
    """The lines of that many GPUs."""
    return [f"gpu {uuid(index)} NVIDIA_H100_80GB_HBM3 0000{index:04X}:00:00.0 {memory}" for index in range(count)]


class FakeNvml:
    """A machine whose devices are in a file of `folder`; at first it has `count` GPUs."""

    def __init__(self, folder: Path, count: int = 0, missing: tuple[str, ...] = ()) -> None:
        self._file = folder / "nvml.txt"
        self._library = library_folder(missing)
        self.set(gpus(count))

    def set(self, lines: Sequence[str]) -> None:
        """Replace the facts, in one step."""
        new = self._file.with_suffix(".new")
        new.write_text("\n".join(["driver 570.86", "cuda 12080", *lines, ""]))
        new.replace(self._file)

    @property
    def environ(self) -> Mapping[str, str]:
        """The variables with which a program finds the library and the file."""
        return {"LD_LIBRARY_PATH": str(self._library), "TRAINYARD_FAKE_NVML": str(self._file)}
