"""The log of a program that runs is bounded: beginning and end are kept, and every reader skips the hole between."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from trainyard.app.history.retention import cut_log
from trainyard.node.kubelet.api.container_logs import ContainerLog, LogOptions, read_log
from trainyard.node.kubelet.api.log_poll import LogPoll
from trainyard.node.supervisor import syscalls
from trainyard.node.supervisor.log_file import LimitedLogFile
from trainyard.objects import log_files
from trainyard.objects.log_files import hole, pieces, read_piece

SIZE = 1 << 18
LINE = 11  # bytes


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LimitedLogFile]:
    flags = os.O_CREAT | os.O_RDWR | os.O_APPEND
    file = LimitedLogFile(os.open(tmp_path / "1.log", flags, 0o600), SIZE)
    yield file
    file.close()


def written(log: LimitedLogFile, lines: range) -> None:
    for n in lines:
        log.append(b"line %05d\n" % n)


def text(log: LimitedLogFile) -> list[str]:
    with open(log.fd, "rb", buffering=0, closefd=False) as file:
        return b"".join(pieces(file)).decode().splitlines()


def left_out(log: LimitedLogFile) -> tuple[int, int] | None:
    with open(log.fd, "rb", buffering=0, closefd=False) as file:
        return hole(file)


async def answer(path: Path, **options: Any) -> list[str]:
    return (
        b"".join(
            [piece async for piece in read_log(ContainerLog(path, lambda: True), LogOptions(**options), LogPoll())]
        )
        .decode()
        .splitlines()
    )


def test_beginning_and_end_of_a_long_log_are_kept_in_whole_lines_with_the_omitted_size(log: LimitedLogFile) -> None:
    written(log, range(60_000))
    stat = os.fstat(log.fd)
    assert stat.st_size == 60_000 * LINE and stat.st_blocks * 512 <= SIZE + 4096
    lines = text(log)
    (note,) = [at for at, line in enumerate(lines) if "were removed" in line]
    assert lines[: note - 1] == [f"line {n:05d}" for n in range(note - 1)]
    last = lines[note + 1 :]
    assert last == [f"line {n:05d}" for n in range(60_000 - len(last), 60_000)]
    assert (note - 1) * LINE > SIZE // 4 - 2 * LINE and len(last) * LINE > SIZE // 2 - 4096
    begin, end = left_out(log) or (0, 0)
    assert f"{end - begin} bytes" in lines[note]


def test_a_log_within_its_limit_is_complete(log: LimitedLogFile) -> None:
    written(log, range(SIZE // LINE))
    assert left_out(log) is None and text(log) == [f"line {n:05d}" for n in range(SIZE // LINE)]


def test_a_file_system_without_sparse_files_keeps_the_complete_log(
    log: LimitedLogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(fd: int, begin: int, size: int) -> None:
        raise OSError("not supported")

    monkeypatch.setattr(syscalls, "punch_hole", unsupported)
    written(log, range(60_000))
    assert text(log) == [f"line {n:05d}" for n in range(60_000)]


@pytest.mark.parametrize("tail", [0, 1, 12_000, 17_000, 50_000])
async def test_the_kubelet_serves_the_kept_parts_of_the_log(log: LimitedLogFile, tmp_path: Path, tail: int) -> None:
    written(log, range(60_000))
    log.append(b"a zero: \0\n")
    lines = text(log)
    assert lines[-1] == "a zero: \0"
    assert await answer(tmp_path / "1.log", tail=tail) == lines[max(0, len(lines) - tail) :]


def test_after_the_end_of_the_job_the_log_file_is_no_longer_sparse(log: LimitedLogFile, tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    written(log, range(60_000))
    before = text(log)
    cut_log(path, SIZE)
    lines = path.read_text().splitlines()
    assert len(lines) == len(before) and b"\0" not in path.read_bytes()
    (note,) = [line for line in lines if "were removed" in line]
    kept = sum(len(line) + 1 for line in lines if line != note)
    assert note.startswith(f"[trainyard: {60_000 * LINE - kept} bytes of this log were removed")


def test_output_that_cannot_be_written_is_counted_with_its_last_bytes() -> None:
    log = LimitedLogFile(os.open("/dev/full", os.O_RDWR | os.O_APPEND), SIZE)
    log.append(b"x" * 5000)
    log.append(b"the last line\n")
    log.close()
    message = log.lost.message()
    assert (message["bytes"], message["reason"]) == (5014, "No space left on device")
    assert message["last"].endswith("xthe last line\n") and len(message["last"]) < 2000


def test_a_line_of_the_log_marks_omitted_output(log: LimitedLogFile, monkeypatch: pytest.MonkeyPatch) -> None:
    write, free = os.write, [6]

    def limited(fd: int, piece: bytes) -> int:
        if not free[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        size = write(fd, piece[: free[0]])
        free[0] -= size
        return size

    monkeypatch.setattr(os, "write", limited)
    for line in (b"one\n", b"two\n", b"three\n"):
        log.append(line)
    free[0] = 1000
    log.append(b"four\n")
    log.append(b"five\n")
    note = "[trainyard: 8 bytes of output are missing here: No space left on device]"
    assert text(log) == ["one", "tw", note, "four", "five"] and log.lost.bytes == 8


def test_on_a_full_disk_the_log_releases_its_middle_for_new_output(
    log: LimitedLogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def limited(fd: int, piece: bytes) -> int:
        if os.fstat(fd).st_blocks * 512 + len(piece) > SIZE // 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, piece)

    monkeypatch.setattr(os, "write", limited)
    written(log, range(60_000))
    lines = text(log)
    assert log.lost.bytes == 0 and os.fstat(log.fd).st_blocks * 512 <= SIZE // 2
    assert lines[:1000] == [f"line {n:05d}" for n in range(1000)]
    assert lines[-1000:] == [f"line {n:05d}" for n in range(59_000, 60_000)]
    assert sum("were removed" in line for line in lines) == 1


async def test_a_followed_log_is_read_when_it_has_grown_or_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job has a thousand followed logs, and most of them are quiet."""
    reads: list[str] = []

    def read_and_count(file: FileIO, offset: int) -> tuple[bytes, int]:
        reads.append(str(file.name))
        if len(reads) == len(paths):
            all_read.set()
        return read_piece(file, offset)

    monkeypatch.setattr(log_files, "read_piece", read_and_count)
    poll, all_read, printed, ended = LogPoll(), asyncio.Event(), asyncio.Event(), asyncio.Event()
    paths = [tmp_path / "main" / f"{number}.log" for number in range(1, 101)]
    paths[0].parent.mkdir()

    async def follow(path: Path) -> bytes:
        output = b""
        async for piece in read_log(ContainerLog(path, ended.is_set), LogOptions(follow=True), poll):
            output += piece
            printed.set()
        return output

    for path in paths:
        path.touch()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        followers = [group.create_task(follow(path)) for path in paths]
        await all_read.wait()
        paths[7].write_text("a line")
        await printed.wait()
        cancelled = followers.pop()
        cancelled.cancel()
        await asyncio.wait([cancelled])
        ended.set()
    assert [task.result() for task in followers] == [b"a line" if number == 7 else b"" for number in range(99)]
    assert len(reads) == 100 + 2 + 99  # at the start, for the line and the end after it, and at the end of the run
