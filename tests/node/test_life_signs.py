"""When a pod with a deadline counts as one that makes no progress, and what is a sign of life."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.node.kubelet.usage.life_signs import LATE_SECONDS, LifeSigns
from trainyard.node.kubelet.usage.process_table import NOTHING_WRITTEN, Written, parse_io, read_io
from trainyard.objects.no_progress import Activity, NoProgress, parse_no_progress, progress_deadline

DEADLINE, PID, UNIX = 10.0, 7, 1_800_000_000.0


class Pod:
    """A pod with one process, looked at every two seconds."""

    def __init__(self, tmp_path: Path) -> None:
        self.at = 0.0
        self.written: Written | None = NOTHING_WRITTEN
        self.log = tmp_path / "main" / "1.log"
        self.log.parent.mkdir()
        self.step: tuple[float, float] | None = None
        self.activity: Activity = "waits"
        self.signs = LifeSigns(DEADLINE, self.at, UNIX, self._read)
        self.changes = 0

    def _read(self, pid: int) -> Written:
        if self.written is None:
            raise ProcessLookupError
        return self.written

    def pass_by(self, seconds: float, every: float = 2.0) -> NoProgress | None:
        end = self.at + seconds
        while self.at < end:
            self.at += every
            self.changes += self.signs.look([PID], [self.log], self.step, self.activity, self.at, UNIX + self.at)
        return self.signs.no_progress

    def make_step(self, step: float) -> None:
        self.step = (step, UNIX + self.at + 1.0)

    def write(self, characters: int = 0, calls: int = 0, disk_bytes: int = 0) -> None:
        assert self.written is not None
        before = self.written
        self.written = Written(before.characters + characters, before.calls + calls, before.disk_bytes + disk_bytes)


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_a_program_that_makes_steps_costs_no_write(pod: Pod) -> None:
    for step in range(30):
        pod.make_step(step)
        assert pod.pass_by(8) is None
    assert pod.changes == 0


def test_a_program_without_a_sign_of_life_is_noted_once_until_its_next_step(pod: Pod) -> None:
    pod.make_step(3)
    pod.pass_by(2)
    assert pod.pass_by(8) is None
    assert pod.pass_by(40) == NoProgress(UNIX + 2, True, 3.0, "waits") and pod.changes == 1
    pod.make_step(4)
    assert pod.pass_by(2) is None and pod.changes == 2


@pytest.mark.parametrize("sign", ["output", "file on a disk", "file in memory", "many wakeups"])
def test_signs_of_life(pod: Pod, sign: str) -> None:
    pod.make_step(3)
    pod.pass_by(2)
    for number in range(10):
        if sign == "output":
            pod.log.write_text("x" * number)
        elif sign == "file on a disk":
            pod.write(disk_bytes=4096)
        elif sign == "file in memory":
            pod.write(characters=9, calls=1)
        else:
            pod.write(characters=8000, calls=1000)
        state = pod.pass_by(4)
    assert state is not None and state.silent is (sign == "many wakeups")
    assert pod.changes == 1, "a sign of life that comes again and again is no further write"
    state = pod.pass_by(20)
    assert state is not None and state.silent


def test_before_its_first_step_a_program_is_noted_only_when_it_is_silent(pod: Pod) -> None:
    for _ in range(10):
        pod.write(disk_bytes=1)
        assert pod.pass_by(4) is None
    state = pod.pass_by(12)
    assert state is not None and state.silent and state.step is None


def test_a_container_that_starts_again_compiles_again(pod: Pod) -> None:
    pod.make_step(3)
    assert pod.pass_by(20) is not None
    pod.signs.restart(pod.at, UNIX + pod.at)
    assert pod.pass_by(2) is None and pod.changes == 2
    state = pod.pass_by(20)
    assert state is not None and state.step is None, "the last step was that of the earlier run"


def test_the_drift_of_two_clocks_is_no_step(pod: Pod) -> None:
    pod.make_step(3)
    for _ in range(10):
        assert pod.step is not None
        pod.step = (3, pod.step[1] + 0.02)
        state = pod.pass_by(2)
    assert state is not None and state.silent


def test_a_node_that_was_stopped_blames_no_program(pod: Pod) -> None:
    pod.make_step(3)
    pod.pass_by(2)
    assert pod.pass_by(LATE_SECONDS + 1000, every=LATE_SECONDS + 1000) is None
    assert pod.pass_by(8) is None
    assert pod.pass_by(4) is not None


def test_a_stopped_process_and_one_that_has_ended(pod: Pod) -> None:
    pod.make_step(3)
    pod.activity, pod.written = "stopped", None
    state = pod.pass_by(20)
    assert state is not None and state.stopped and state.silent
    assert parse_no_progress(state.text) == state
    pod.activity = "sleep"
    assert pod.pass_by(2) != state and pod.changes == 2


WRITER = """
import os, socket, subprocess, sys
file, event, commands = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY), os.eventfd(0), socket.socket(fileno=0)
while command := commands.recv(100):
    match command:
        case b"file": os.pwrite(file, b"123456789", 0)
        case b"child": subprocess.run(["sh", "-c", "echo 123456789 > $0", sys.argv[1]])
        case b"wakeup": os.eventfd_write(event, 1)
    commands.send(b"done")  # no write(2)
"""


@pytest.mark.parametrize("folder", ["/dev/shm", ""])
def test_what_a_process_writes_is_seen_wherever_the_file_lies(tmp_path: Path, folder: str) -> None:
    """Also what a child has written for which it has waited; and no wakeup of a thread."""
    file = Path(folder or tmp_path) / f"trainyard-life-signs-{os.getpid()}"
    commands, theirs = socket.socketpair()
    with (
        commands,
        theirs,
        subprocess.Popen([sys.executable, "-c", WRITER, str(file)], stdin=theirs.fileno()) as program,
    ):

        def wrote(command: bytes) -> bool:
            before = read_io(program.pid)
            commands.sendall(command)
            assert commands.recv(100) == b"done"
            return read_io(program.pid).wrote_since(before)

        commands.sendall(b"begin")
        commands.recv(100)
        assert [wrote(command) for command in (b"wakeup", b"file", b"child", b"wakeup")] == [False, True, True, False]
        commands.shutdown(socket.SHUT_WR)
    file.unlink()


def test_the_counters_of_a_process() -> None:
    text = b"rchar: 1\nwchar: 20\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 4096\ncancelled_write_bytes: 0\n"
    assert parse_io(text) == Written(20, 4, 4096)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10m", 600), ("1h30m5s", 5405), ("5s", 5), ("4s", None), ("", None), ("m", None), ("10", None), ("-5m", None),
     ("1d", None), ("5 m", None), ("9" * 9 + "s", None), ("0s", None)],
)  # fmt: skip
def test_a_deadline(text: str, seconds: int | None) -> None:
    assert progress_deadline({"trainyard.dev/progress-deadline": text}) == seconds
