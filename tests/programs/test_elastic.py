"""Elastic training with real torch and a real etcd: members come and go, and no step is lost."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.programs.processes import Processes, free_ports
from trainyard.app.catalogues import cache_folder
from trainyard.node.images import Images, PreparedImage
from trainyard.node.images.catalogue import PROGRAMS

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

STEP = re.compile(r"epoch (\d+) step (\d+) pictures (\d+)/\d+ world (\d+) rank \d+ loss (\d+\.\d+)")


@pytest.fixture
async def image() -> PreparedImage:
    return await Images([], cache_folder(), print).prepare("torchelastic/examples:0.2.0", need_command=True)


async def serve(all_: Processes, port: int, folder: Path) -> None:
    """An etcd of our own at that port."""
    prepared = await Images([], cache_folder(), print).prepare("quay.io/coreos/etcd:latest", need_command=True)
    (peer,) = free_ports(1)
    address, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
    program = [prepared.files["/usr/local/bin/etcd"], "--enable-v2", f"--data-dir={folder}/etcd"]
    program += [f"--listen-client-urls={address}", f"--advertise-client-urls={address}"]
    program += [f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"]
    await all_.begin("etcd", [*program, f"--initial-cluster=default={peers}"], {})
    await all_.printed_line("etcd", "ready to serve client requests")


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[str]:
    (port,) = free_ports(1)
    async with Processes() as all_:
        await serve(all_, port, tmp_path)
        yield f"127.0.0.1:{port}"


def steps(lines: list[str]) -> list[tuple[int, int, int, int, float]]:
    """(epoch, step, pictures so far, members, loss) of every step that was told."""
    matches = [STEP.search(line) for line in lines]
    return [(int(match[1]), int(match[2]), int(match[3]), int(match[4]), float(match[5])) for match in matches if match]


class Agents(Processes):
    """One launcher per member, as the pods of an ElasticJob start it."""

    def __init__(self, image: PreparedImage, etcd: str, folder: Path, *arguments: str) -> None:
        super().__init__()
        self.image, self.etcd, self.folder, self.words = image, etcd, folder, arguments

    async def __aenter__(self) -> Agents:
        return self

    async def join(self, name: str, nnodes: str, program: str = "elastic_imagenet.py") -> None:
        path = f"{self.image.path[0]}:{os.environ['PATH']}"
        env = {**self.image.env, "PATH": path, "PET_LOG_DIR": f"{self.folder}/logs"}
        rendezvous = ["--rdzv_backend=etcd", f"--rdzv_endpoint={self.etcd}", "--rdzv_id=job", f"--nnodes={nnodes}"]
        launcher = [f"{self.image.path[0]}/{self.image.entrypoint[0]}", *self.image.entrypoint[1:], *rendezvous]
        file = f"--checkpoint-file={self.folder}/{name}.tar"
        command = ["--nproc_per_node=1", str(PROGRAMS / program), file, *self.words]
        await self.begin(name, [*launcher, *command], env)


def assert_every_step_is_trained_once(lines: list[str]) -> None:
    """Each step follows the one before, or the checkpoint that training goes on from: never one that was told before.

    A trainer that is stopped between saving a step and telling of it leaves the step in the checkpoint all the same.
    """
    last = 0
    for line in lines:
        if match := re.search(r"continues from .*step (\d+)", line):
            assert int(match[1]) >= last, "\n".join(lines)
            last = int(match[1])
        elif match := re.search(r"epoch \d+ step (\d+) pictures", line):
            assert int(match[1]) == last + 1, "\n".join(lines)
            last += 1
    assert last > 30


async def test_no_step_is_lost_when_a_member_joins_and_another_is_killed(
    image: PreparedImage, etcd: str, tmp_path: Path
) -> None:
    async with Agents(image, etcd, tmp_path, "--epochs=999", "--print-freq=1", "--delay=0.03", "data") as agents:
        for name in ("a", "b"):
            await agents.join(name, "1:3")
        await agents.printed_line("a", "world 2 rank")
        await agents.join("c", "1:3")
        for name in ("a", "c"):  # of a step: the end of an epoch is told with the number of members, too
            await agents.printed_line(name, "world 3 rank")
        await agents.killed("b")
        gone = len(agents.lines["a"])
        await agents.printed_line("a", "epoch ", after=gone)
        await agents.printed_line("a", "world 2 rank", after=gone)
        await agents.printed_line("a", "done: step", after=len(agents.lines["a"]))
        await agents.printed_line("a", "epoch 4 done: step")
        assert [await agents.stopped(name, 30) for name in ("a", "c")] == [143, 143]
        step_numbers = steps(agents.lines["a"])
        # By one who saw all of it; the third began where the others were.
        assert_every_step_is_trained_once(agents.lines["a"])
        worlds = [
            world for at, (*_, world, _) in enumerate(step_numbers) if at == 0 or step_numbers[at - 1][3] != world
        ]
        assert [world for world in worlds if world > 1][-3:] == [2, 3, 2]  # who waits for others may begin alone
        assert steps(agents.lines["c"])[0][1] > 1
        assert max(step for _, step, *_ in steps(agents.lines["b"])) < step_numbers[-1][1]
        assert step_numbers[-1][4] < step_numbers[0][4] / 2
        # Each epoch that is over took each picture once, whoever shared them, and whoever told of it.
        every = [step for name in ("a", "b", "c") for step in steps(agents.lines[name])]
        for epoch in range(step_numbers[-1][0]):
            assert max(samples for which, _, samples, *_ in every if which == epoch) == 2048


async def test_a_launcher_waits_for_an_etcd_that_starts_late(image: PreparedImage, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    arguments = ["--epochs=1", "--pictures=64", "data"]
    async with Agents(image, f"127.0.0.1:{port}", tmp_path, *arguments) as agents, Processes() as all_:
        await agents.join("a", "1:1")
        await agents.printed_line("a", f"waiting for the rendezvous at 127.0.0.1:{port}")
        await serve(all_, port, tmp_path)
        assert await agents.ended("a") == 0
        assert "1 epochs, 2 steps" in await agents.printed_line("a", "done: rank 0 of 1")


async def test_the_second_sample_trains_by_its_configuration(image: PreparedImage, etcd: str, tmp_path: Path) -> None:
    arguments = [f"--config_file={PROGRAMS / 'classy_template.json'}", "--num_workers=0", "--pictures=512"]
    launcher = [f"{image.path[0]}/python", *image.entrypoint[1:], f"--rdzv_endpoint={etcd}", "--rdzv_id=classy"]
    program = ["--nnodes=1:1", "--nproc_per_node=2", str(PROGRAMS / "elastic_classy.py"), *arguments]
    env = {**image.env, "PET_LOG_DIR": f"{tmp_path}/logs"}
    async with Processes() as all_:
        await all_.begin("a", [*launcher, *program, f"--checkpoint_folder={tmp_path}/saved"], env)
        assert await all_.ended("a") == 0
        done = [line for line in all_.lines["a"] if "done: rank" in line]
        assert len(done) == 2 and all("8 epochs, 64 steps" in line for line in done)
        losses = [float(match[1]) for line in all_.lines["a"] if (match := re.search(r"done: .* loss (\d\.\d+)", line))]
        assert losses[-1] < losses[0]
        assert (tmp_path / "saved" / "checkpoint.pth.tar").exists()
