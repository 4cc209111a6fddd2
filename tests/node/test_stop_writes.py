"""What containers write between SIGTERM and their end: what is seen, what is told, and both with real processes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.node.node_cluster import NodeCluster
from tests.support.waiting import until_async
from trainyard.node.kubelet.usage.stop_report import StopReport, host_path
from trainyard.node.kubelet.usage.stop_writes import OpenFile, StoppingRun, StopWrites, WrittenFile, open_files
from trainyard.node.kubelet.usage.usage import UsageSampler
from trainyard.node.sandbox.supervisor_client import Mount
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import POD
from trainyard.objects.usage import FILES_SAVED, KILLED_AFTER_GRACE_PERIOD


def file(path: str, position: int, inode: int = 0) -> OpenFile:
    return OpenFile(1, inode, path, position)


def looked(*passes: Iterable[OpenFile]) -> tuple[WrittenFile, ...]:
    run = StoppingRun(10.0)
    for number, files in enumerate(passes):
        run.look(files, 10.0 + number)
    return tuple(run.files.values())


def test_a_process_has_these_files_open_for_writing(tmp_path: Path) -> None:
    (tmp_path / "read").write_text("x")
    with (
        (tmp_path / "new").open("wb", buffering=0) as new,
        (tmp_path / "read").open(),
        (tmp_path / "removed").open("w") as removed,
        open(os.devnull, "w"),
    ):
        os.unlink(removed.name)
        new.write(b"12345")
        (new_file,) = [entry for entry in open_files(os.getpid()) if entry.path.startswith(str(tmp_path))]
        assert (new_file.path, new_file.position) == (new.name, 5)
        assert new_file.inode in (0, os.fstat(new.fileno()).st_ino)  # 0 before Linux 5.14
        assert not [entry for entry in open_files(os.getpid()) if entry.path == os.devnull]


LOG = file("/log", 100)


@pytest.mark.parametrize(
    ("passes", "written"),
    [
        ([[LOG], [LOG]], []),
        ([[LOG], [file("/log", 130)]], [("/log", 30, False, True, 1.0)]),
        ([[LOG], [LOG, file("/new", 0)], [file("/new", 7)]], [("/new", 7, True, True, 2.0)]),
        ([[LOG], [LOG, file("/new", 7)], [LOG]], [("/new", 7, True, False, 1.0)]),
        ([[], [file("/a.tmp", 7, 3)], [file("/a", 9, 3)]], [("/a", 9, True, True, 2.0)]),
        ([[file("/a", 7)], []], []),  # it was closed as it was
    ],
    ids=["not written", "appended", "new", "closed", "renamed", "closed at once"],
)
def test_a_file_that_grows_after_sigterm_was_written(
    passes: list[list[OpenFile]], written: list[tuple[str, int, bool, bool, float]]
) -> None:
    files = [(entry.path, entry.size, entry.is_new, entry.is_open, entry.seconds) for entry in looked(*passes)]
    assert files == written


def report_of(tmp_path: Path, *files: WrittenFile, killed_after: float | None = None) -> tuple[str, str]:
    report = StopReport()
    report.add("main", StopWrites(files, killed_after))
    reason, message = report.message({"main": [Mount(str(tmp_path), "/data")]})
    return reason, message


def test_the_files_that_were_saved_are_told_with_the_names_that_they_have_now(tmp_path: Path) -> None:
    (tmp_path / "ckpt-40.pt").write_bytes(b"x" * 1500)
    inode = (tmp_path / "ckpt-40.pt").stat().st_ino
    (tmp_path / "train.log").write_bytes(b"x" * 9000)
    written = WrittenFile("/data/ckpt.tmp", inode, 1000, True, True, 2.06)
    text = "saved 1 file, 1.5 kB, in 2.1 s after SIGTERM: /data/ckpt-40.pt"
    assert report_of(tmp_path, written) == (FILES_SAVED, text)
    log = WrittenFile("/data/train.log", (tmp_path / "train.log").stat().st_ino, 30, False, False, 0.5)
    two = "saved 2 files, 1.5 kB, in 2.1 s after SIGTERM: /data/ckpt-40.pt, /data/train.log"
    assert report_of(tmp_path, written, log) == (FILES_SAVED, two)  # of the log what was appended
    gone = "saved 1 file, 7 bytes, in 1.0 s after SIGTERM: /tmp/x (renamed or removed since)"
    assert report_of(tmp_path, WrittenFile("/tmp/x", 1, 7, True, False, 1.0)) == (FILES_SAVED, gone)


def test_the_file_that_sigkill_left_unfinished_is_told(tmp_path: Path) -> None:
    (tmp_path / "ckpt-40.pt").write_bytes(b"x" * 1500)
    unfinished = WrittenFile("/data/ckpt-40.pt", 0, 1500, True, True, 29.9)
    text = "was killed while it wrote /data/ckpt-40.pt: 1.5 kB in its grace period of 30 s"
    assert report_of(tmp_path, unfinished, killed_after=30.02) == (KILLED_AFTER_GRACE_PERIOD, text)
    nothing = "was killed after its grace period of 30 s, and had no file open for writing"
    assert report_of(tmp_path, killed_after=30.0) == (KILLED_AFTER_GRACE_PERIOD, nothing)
    closed = unfinished._replace(is_open=False, seconds=2.0)
    both = f"saved 1 file, 1.5 kB, in 2.0 s after SIGTERM: /data/ckpt-40.pt; {nothing}"
    assert report_of(tmp_path, closed, killed_after=30.0) == (KILLED_AFTER_GRACE_PERIOD, both)


def test_what_was_seen_is_told_when_the_disk_does_not_answer() -> None:
    report = StopReport()
    report.add("main", StopWrites((WrittenFile("/data/ckpt.tmp", 7, 1000, True, False, 2.0),)))
    assert report.message(None) == (FILES_SAVED, "saved 1 file, 1.0 kB, in 2.0 s after SIGTERM: /data/ckpt.tmp")


def test_a_container_that_wrote_nothing_and_ended_by_itself_is_not_told(tmp_path: Path) -> None:
    assert report_of(tmp_path)[1] == ""


def test_a_path_in_a_container_is_one_on_this_machine() -> None:
    mounts = [Mount("/host/a", "/data"), Mount("/host/b", "/data/deep", subpath="c")]
    paths = {"/data": "/host/a", "/data/x": "/host/a/x", "/data/deep/x": "/host/b/c/x", "/database/x": "/database/x"}
    assert {path: host_path(path, mounts) for path in paths} == paths


async def test_a_container_that_has_just_ended_is_not_watched() -> None:
    usage = UsageSampler()
    usage.container_started("uid/main/0", os.getpid())
    usage.stops.begin("uid/main/0")
    assert usage.stops.end("uid/main/0") is not None
    usage.container_ended("uid/main/0", 0)
    usage.stops.begin("uid/main/0")
    assert not usage.stops._runs


PROGRAM = """
import os, signal, sys, time
def save(*_):
    with open(FOLDER + "/ckpt.tmp", "wb", buffering=0) as file:
        file.write(b"x" * 1500)
        while not os.path.exists(FOLDER + "/go"):
            time.sleep(0.01)
    os.rename(FOLDER + "/ckpt.tmp", FOLDER + "/ckpt-40.pt")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    time.sleep(1)
"""


def usage_of(cluster: NodeCluster) -> UsageSampler:
    assert cluster.node._context is not None
    return cluster.node._context.usage


async def begin_to_save(cluster: NodeCluster, folder: Path) -> None:
    """A pod of a job that is told to stop, and has a file open for writing."""
    volume = {"name": "data", "hostPath": {"path": str(folder)}}
    container = {"volumeMounts": [{"name": "data", "mountPath": str(folder)}]}
    program = PROGRAM.replace("FOLDER", repr(str(folder)))
    labelled = {"labels": {OWNER: "job-uid"}}
    await cluster.pod("worker", program, container=container, volumes=[volume], metadata=labelled)
    await cluster.phase("worker", "Running")
    assert await anext(cluster.api.logs("default", "worker", "main", follow=True))
    usage = usage_of(cluster)
    await until_async(usage._meter.members, "the processes of the pod have been seen", seconds=20)
    await cluster.api.delete(POD, "default", "worker")
    await until_async(lambda: any(run.files for run in usage.stops._runs.values()), "the file is seen", seconds=20)


async def test_what_a_pod_of_a_job_saved_in_its_grace_period_is_an_event(cluster: NodeCluster, tmp_path: Path) -> None:
    await begin_to_save(cluster, tmp_path)
    (tmp_path / "go").touch()
    await cluster.gone("worker")
    event = (await cluster.events("worker", FILES_SAVED))[-1]
    assert event["type"] == "Normal" and event["metadata"]["labels"] == {OWNER: "job-uid"}
    assert event["message"].startswith("saved 1 file, 1.5 kB, in ")
    assert event["message"].endswith(f" after SIGTERM: {tmp_path}/ckpt-40.pt")
    assert not usage_of(cluster).stops._runs


async def test_what_a_killed_pod_left_unfinished_is_an_event(cluster: NodeCluster, tmp_path: Path) -> None:
    await begin_to_save(cluster, tmp_path)
    await cluster.api.delete(POD, "default", "worker", grace_period_seconds=1)
    await cluster.gone("worker")
    event = (await cluster.events("worker", KILLED_AFTER_GRACE_PERIOD))[-1]
    assert event["type"] == "Warning"
    assert event["message"].startswith(f"was killed while it wrote {tmp_path}/ckpt.tmp: 1.5 kB in its grace period of ")
