"""The hostfile of ChainerJob's agent: there when every worker runs, whole, or not at all."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from tests.kinds.exec_server import Place, code_of, place, pod, until_requested

__all__ = ["place"]

WORKER = "j-workerset-a-0"


async def test_the_hostfile_is_written_atomically_once_every_worker_runs(place: Place) -> None:
    sets, hosts = place.folder / "sets", place.folder / "hostfile"
    sets.write_text(
        "j-workerset-b slots=4 replicas=2\n\nj-workerset-a slots=1 replicas=1\nj-workerset-c slots=1 replicas=0\n"
    )
    place.toy.pods = {"j-workerset-b-1": pod("j-workerset-b-1")}
    place.toy.trouble = [(403, "not yet"), (500, "not now")]
    process = asyncio.create_task(place.agent("--hostfile", str(hosts), "j-master-x", "slots=3", str(sets)))
    await until_requested(place.toy, 7)
    place.toy.pods["j-workerset-b-0"] = pod("j-workerset-b-0")
    place.toy.pods[WORKER] = pod(WORKER, "Pending")
    before = len(place.toy.requests)
    await until_requested(place.toy, before + 5)  # a whole round has seen both
    assert not hosts.exists()
    place.toy.pods[WORKER] = pod(WORKER)
    done = await process
    assert done.code == 0 and done.out == b""
    assert hosts.read_text().splitlines() == [
        "j-workerset-b-0 slots=4",
        "j-workerset-b-1 slots=4",
        "j-workerset-a-0 slots=1",
        "j-master-x slots=3",
    ]
    assert (place.folder / "hydra-hostfile").read_text().splitlines() == [
        "j-workerset-b-0:4",
        "j-workerset-b-1:4",
        "j-workerset-a-0:1",
        "j-master-x:3",
    ]
    assert "2 of 3 workers run; waiting for j-workerset-a-0: phase Pending" in done.err
    lines = done.err.splitlines()
    assert len(lines) == len(set(lines)) <= 6 and "hostfile: 3 workers and the master" in lines[-1]
    assert not [path for path in place.folder.iterdir() if path.name.endswith(".new")]


async def test_without_workers_the_hostfile_has_the_master_alone_and_no_request_is_sent(place: Place) -> None:
    (place.folder / "sets").write_text("")
    hosts = place.folder / "hostfile"
    env: dict[str, Any] = {"KUBERNETES_SERVICE_HOST": ""}
    assert (await place.agent("--hostfile", str(hosts), "m", "2", f"{place.folder}/sets", **env)).code == 0
    assert hosts.read_text() == "m slots=2\n"


@pytest.mark.parametrize("line", ["a slots=1", "a slots=x replicas=1", "a", "a slots=1 replicas=-1"])
async def test_a_malformed_line_of_the_sets_file_is_reported(place: Place, line: str) -> None:
    (place.folder / "sets").write_text("ok slots=1 replicas=0\n" + line)
    done = await place.agent("--hostfile", str(place.folder / "h"), "m", "slots=1", f"{place.folder}/sets")
    assert done.code == 255 and "sets line 2: write <stateful set> slots=<n> replicas=<n>" in done.err


async def test_a_wait_for_workers_ends_with_a_signal_and_leaves_no_hostfile(place: Place) -> None:
    (place.folder / "sets").write_text("gone slots=1 replicas=1\n")
    process = await place.start("--hostfile", str(place.folder / "h"), "m", "slots=1", f"{place.folder}/sets")
    await until_requested(place.toy, 1)
    process.send_signal(signal.SIGTERM)
    assert await code_of(process) == 128 + signal.SIGTERM and not (place.folder / "h").exists()
