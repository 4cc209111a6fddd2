"""The programs behind our images, with real TensorFlow: the environment is the one that the catalogue builds."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.programs.tasks import PS_PROGRAM, Tasks
from trainyard.app.catalogues import cache_folder
from trainyard.node.images import Images

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]


@pytest.fixture
async def python() -> str:
    images = Images([], cache_folder(), print)
    prepared = await images.prepare("tensorflow/tensorflow:1.3.0", need_command=False)
    return str(Path(prepared.path[0]) / "python")


async def test_every_task_of_the_sample_connects_even_a_late_one(python: str, tmp_path: Path) -> None:
    async with Tasks(python, tmp_path, master=1, worker=1, ps=2) as tasks:
        await tasks.start("master-0", "tf_sample.py", f"--log_dir={tmp_path}/logs", "--unknown")
        await tasks.start("ps-0", PS_PROGRAM)
        await tasks.start("worker-0", "tf_sample.py")
        await tasks.printed_line("master-0", "waiting for 4 tasks: master-0 ps-0 ps-1 worker-0")
        await tasks.start("ps-1", PS_PROGRAM)
        assert await tasks.ended("master-0") == 0
        answers = [line for line in tasks.lines["master-0"] if "checksum" in line and " on " in line]
        assert [line.split(" on ")[0] for line in answers] == ["master 0", "ps 0", "ps 1", "worker 0"]
        assert all(line.endswith("checksum 65011.4766 ok") for line in answers)
        # One machine, one host name: the addresses tell the tasks apart.
        assert all(tasks.cluster["ps"][at] in line for at, line in enumerate(answers[1:3]))
        assert "all 4 tasks answered from 4 servers" in tasks.lines["master-0"][-1]
        assert list((tmp_path / "logs").glob("events.*"))
        assert [await tasks.stopped(name) for name in ("worker-0", "ps-0", "ps-1")] == [143, 143, 143]


async def test_without_gradients_the_accuracy_does_not_reach_the_target(python: str, tmp_path: Path) -> None:
    async with Tasks(python, tmp_path, master=1) as tasks:
        await tasks.start("master-0", "tf_train.py", "--zero_gradients", "--steps=300")
        assert await tasks.ended("master-0") == 1
        assert re.search(r"held-out accuracy 0\.[01]\d+ is below the target 0\.900", tasks.lines["master-0"][-1])
    assert not os.listdir(tmp_path), "the temporary checkpoints are gone"


async def test_a_master_that_writes_summaries_waits_for_a_worker_that_trains_on(python: str, tmp_path: Path) -> None:
    """The summaries are due while the master asks who is done: they need pictures, and that question has none."""
    async with Tasks(python, tmp_path, master=1, worker=1, ps=1) as tasks:
        await tasks.start("ps-0", PS_PROGRAM)
        await tasks.start("worker-0", "tf_train.py", "--steps=5000")
        await tasks.start("master-0", "tf_train.py", "--steps=600", f"--log_dir={tmp_path}/logs")
        assert await tasks.ended("master-0") == 0, tasks.lines["master-0"][-5:]


async def test_training_gets_over_a_lost_parameter_server(python: str, tmp_path: Path) -> None:
    arguments = ["--steps=1200", "--print_every=50", "--delay=0.01", f"--checkpoint_dir={tmp_path}/saved"]
    async with Tasks(python, tmp_path, master=1, worker=1, ps=2) as tasks:
        for name in ("ps-0", "ps-1"):
            await tasks.start(name, PS_PROGRAM)
        for name in ("master-0", "worker-0"):
            await tasks.start(name, "tf_train.py", *arguments)
        await tasks.printed_line("master-0", "loss")
        await tasks.killed("ps-1")
        await tasks.start("ps-1", PS_PROGRAM)
        assert "hidden/weights" in await tasks.printed_line("master-0", "restored step")
        assert [await tasks.ended(name) for name in ("master-0", "worker-0")] == [0, 0]
        match = re.search(r"held-out accuracy (\d\.\d+)", tasks.lines["master-0"][-1])
        assert match and float(match[1]) >= 0.9
        assert tasks.lines["worker-0"][-1] == "worker 0: done"
        losses = [float(loss[1]) for line in tasks.lines["master-0"] if (loss := re.search(r"loss (\d\.\d+)", line))]
        assert losses[-1] < losses[0] / 4
