"""train_cifar10.py with real MXNet, alone. As the dist job of the README: stories/test_mxnet_training.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs.processes import Processes
from trainyard.app.catalogues import cache_folder
from trainyard.node.images import Images, PreparedImage

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]


@pytest.fixture
async def image() -> PreparedImage:
    return await Images([], cache_folder(), print).prepare("10.199.192.16/library/mxnet-gpu-dist:0.12.0", False)


def command(image: PreparedImage, *arguments: str) -> list[str]:
    return [f"{image.path[0]}/python", *image.files.values(), "--model-prefix=./wltest", "--num-layers=2", *arguments]


def losses(lines: list[str]) -> list[float]:
    return [float(match[1]) for line in lines if (match := re.search(r"Train-cross-entropy=(\d+\.\d+)", line))]


async def test_a_local_job_reports_the_missing_gpu_and_trains(image: PreparedImage, tmp_path: Path) -> None:
    async with Processes() as all_:
        await all_.begin("worker", command(image, "--num-epochs=3", "--gpus=0"), image.env, str(tmp_path))
        assert await all_.ended("worker") == 0
        lines = all_.lines["worker"]
        assert "INFO:root:--gpus=0: MXNet finds no GPU here; training runs on the CPU" in lines
        assert any(line.startswith("INFO:root:start with arguments Namespace(") for line in lines)
        batch = r"INFO:root:Epoch\[0\] Batch \[20\]\tSpeed: \d+\.\d\d samples/sec\taccuracy=0\.\d{6}"
        assert [line for line in lines if re.fullmatch(batch, line)]
        assert [line for line in lines if re.fullmatch(r"INFO:root:Epoch\[0\] Time cost=\d+\.\d+", line)]
        assert 'INFO:root:Saved checkpoint to "./wltest-0003.params"' in lines
        assert losses(lines)[-1] < losses(lines)[0] / 2
        assert (tmp_path / "wltest-0003.params").stat().st_size > 1000
