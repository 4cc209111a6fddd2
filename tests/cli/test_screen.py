from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from trainyard.cli.output.screen import MAX_QUEUED_BYTES, Descriptors, Screen, wants_colour
from trainyard.views.output_lines import OutputLineSplitter


class Pipe(NamedTuple):
    reader: int
    writer: int

    def text(self) -> str:
        os.close(self.writer)
        parts = []
        while part := os.read(self.reader, 1 << 16):
            parts.append(part)
        return b"".join(parts).decode()


@pytest.fixture
def pipes() -> Iterator[tuple[Pipe, Pipe]]:
    both = Pipe(*os.pipe()), Pipe(*os.pipe())
    yield both
    for fd in (*both[0], *both[1]):
        try:
            os.close(fd)
        except OSError:
            continue


def screen(pipes: tuple[Pipe, Pipe], colour: bool = False, live: bool = False, broken: object = None) -> Screen:
    out, err = (pipe.writer for pipe in pipes)
    on_broken = broken if callable(broken) else lambda: None
    return Screen(Descriptors(out, out, err), colour, live, on_broken)


async def test_lines_of_all_replicas_are_prefixed_with_their_names(pipes: tuple[Pipe, Pipe]) -> None:
    shown = screen(pipes)
    shown.align(["worker-0", "ps-0"])
    shown.log("worker-0", b"loss 1")
    shown.log("ps-0", b"ready")
    shown.result("done")
    await shown.close()
    assert pipes[0].text() == "worker-0 | loss 1\nps-0     | ready\ndone\n"


async def test_a_longer_prefix_does_not_change_the_width_of_the_others(pipes: tuple[Pipe, Pipe]) -> None:
    shown = screen(pipes)
    shown.align(["worker-0", "ps-0"])
    for prefix in ("worker-0/fetch-data", "ps-0", "worker-0"):
        shown.log(prefix, b"x")
    await shown.close()
    assert pipes[0].text() == "worker-0/fetch-data | x\nps-0     | x\nworker-0 | x\n"


async def test_colour_is_in_the_prefix_only_and_each_replica_keeps_its_own(pipes: tuple[Pipe, Pipe]) -> None:
    shown = screen(pipes, colour=True)
    for _ in range(2):
        shown.log("a-0", b"x")
        shown.log("b-0", b"y")
    await shown.close()
    first, second, *rest = pipes[0].text().splitlines()
    assert first == "\x1b[36ma-0 | \x1b[0mx" and second == "\x1b[33mb-0 | \x1b[0my" and rest == [first, second]


async def test_the_progress_line_stays_below_the_output_and_is_erased_at_the_end(
    pipes: tuple[Pipe, Pipe],
) -> None:
    shown = screen(pipes, live=True)
    shown.progress("0:01 going", "going")
    await asyncio.get_running_loop().run_in_executor(None, os.read, pipes[1].reader, 10)
    shown.note("warning")
    await shown.close()
    text = pipes[1].text()
    assert text.startswith("\r\x1b[Jwarning\n") and "going" not in text.rpartition("\x1b[J")[2]


async def test_without_a_terminal_progress_is_printed_when_it_changes(pipes: tuple[Pipe, Pipe]) -> None:
    shown = screen(pipes)
    for seconds in range(3):
        shown.progress(f"0:0{seconds} going", "going")
    shown.progress("0:04 done", "done")
    await shown.close()
    assert pipes[1].text() == "going\ndone\n"


async def test_a_closed_pipe_is_reported_once(pipes: tuple[Pipe, Pipe]) -> None:
    breaks = list[int]()
    shown = screen(pipes, broken=lambda: breaks.append(1))
    os.close(pipes[0].reader)
    for _ in range(3):
        shown.log("a", b"x")
    await shown.close()
    assert breaks == [1]
    assert pipes[1].text() == ""


async def test_a_reader_that_does_not_read_blocks_the_logs_but_not_the_event_loop(pipes: tuple[Pipe, Pipe]) -> None:
    shown = screen(pipes)
    shown.log("a", b"x" * (2 * MAX_QUEUED_BYTES))
    held = asyncio.create_task(shown.wait_for_space())
    await asyncio.sleep(0)
    assert not held.done()

    def read() -> int:
        size = 0
        while size < 2 * MAX_QUEUED_BYTES:
            size += len(os.read(pipes[0].reader, 1 << 16))
        return size

    await asyncio.to_thread(read)
    await held
    await shown.close()


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], [b"a", b"b"]),
        ([b"a", b"b\nc"], [b"ab", b"c"]),
        ([b"10%\r20%\r30%\nend"], [b"30%", b"end"]),
        ([b"windows\r\n"], [b"windows"]),
        ([b"\r10%" * 30_000, b"\r100%\n"], [b"100%"]),
        ([b"10%\r", b"20%\r", b"\n"], [b"20%"]),
        ([b"\router 0%", *(b"\n\rinner %d%%\x1b[A" % n for n in range(3))], [b"outer 0%", b"inner 2%"]),
        (
            [b"\router 0%\n\rinner 0%\x1b[A", b"\n\r        \r\x1b[A", b"\router 100%\n", b"done\n"],
            [b"outer 0%", b"outer 100%", b"done"],
        ),
        ([b"a\n\n\rthird 0%\x1b[A\x1b[A", b"\n\n\rthird 1%\x1b[2A", b"\n\nend\n"], [b"a", b"", b"end"]),
        ([b"hidden?\x1b[999A\n", b"shown\n"], [b"shown"]),
        ([b"\n\n"], [b"", b""]),
        ([b""], []),
        ([b"not enough slots\n\0", b"rank \0", b"0\n\0"], [b"not enough slots", b"rank 0"]),
        ([b"x" * (OutputLineSplitter.MAX_LINE_BYTES + 1)], [b"x" * OutputLineSplitter.MAX_LINE_BYTES, b"x"]),
    ],
)
def test_output_is_split_into_lines_without_loss(chunks: list[bytes], lines: list[bytes]) -> None:
    cut = OutputLineSplitter()
    output_lines = [line for chunk in chunks for line in cut.feed(chunk)]
    assert [*output_lines, *cut.finish()] == lines


def test_no_colour_when_it_is_disabled() -> None:
    assert wants_colour(True, {})
    assert not wants_colour(False, {})
    assert not wants_colour(True, {"NO_COLOR": "1"})
    assert not wants_colour(True, {"TERM": "dumb"})


async def test_an_activity_begins_the_progress_line_until_it_ends(
    pipes: tuple[Pipe, Pipe],
) -> None:
    shown = screen(pipes, live=True)
    shown.progress("0:01  a Pending", "a Pending")
    shown.activity("torch", "torch: 12 of 800 MB")
    await asyncio.sleep(0)
    assert shown._writer.footer_lines == ["torch: 12 of 800 MB · 0:01  a Pending".encode()]
    shown.activity("torch", None)
    assert shown._writer.footer_lines == [b"0:01  a Pending"]
    await shown.close()


async def test_without_a_terminal_an_activity_is_a_note_now_and_then(pipes: tuple[Pipe, Pipe]) -> None:
    shown = screen(pipes)
    for done in range(1, 5):
        shown.activity("torch", f"torch: {done} of 800 MB")
    shown.activity("jax", "jax: downloading")
    shown.activity("torch", None)
    shown.activity("torch", "torch: building")
    await shown.close()
    assert pipes[1].text().splitlines() == ["torch: 1 of 800 MB", "jax: downloading", "torch: building"]


async def test_a_full_disk_is_reported_once_on_stderr(pipes: tuple[Pipe, Pipe]) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    event = asyncio.Event()
    shown = Screen(Descriptors(full, full, pipes[1].writer), False, False, event.set)
    shown.log("a-0", b"x")
    await asyncio.wait_for(event.wait(), 10)
    shown.result("y")
    await shown.close()
    os.close(full)
    assert shown.output_error is not None
    assert pipes[1].text().count("the output cannot be written: No space left on device") == 1


async def test_neither_notes_nor_the_lines_of_programs_wrap_in_a_pipe(
    pipes: tuple[Pipe, Pipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    shown = screen(pipes)
    shown.log("a-0", b"word " * 30)
    shown.note("word " * 30)
    await shown.close()
    assert [len(pipe.text().splitlines()) for pipe in pipes] == [1, 1]


def drain(terminal: int, until: str) -> str:
    """The text that the terminal gets, up to the first occurrence of `until`."""
    text = ""
    while until not in text:
        text += os.read(terminal, 1 << 16).decode()
    return text


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    monkeypatch.setenv("COLUMNS", "40")
    both = Pipe(*os.openpty())
    yield both
    os.close(both.reader), os.close(both.writer)


async def test_notes_wrap_on_a_terminal_and_the_lines_of_programs_do_not(terminal: Pipe) -> None:
    tty = terminal.writer
    shown = Screen(Descriptors(tty, tty, tty), False, False, lambda: None)
    shown.log("a-0", b"log " * 30)
    shown.note("word " * 30 + "end")
    text = await asyncio.to_thread(drain, terminal.reader, "end\r\n")
    lines = text.splitlines()
    assert len(lines) > 2 and lines[0].count("log") == 30
    assert all(len(line) <= 40 for line in lines[1:]) and lines[2].startswith("  word")
    await shown.close()


async def test_progress_bars_are_printed_above_the_progress_line(terminal: Pipe) -> None:
    tty = terminal.writer
    shown = Screen(Descriptors(tty, tty, tty), False, True, lambda: None)
    shown.progress("0:01  a Running", "")
    for replica, bar in (("worker-0", b"\x1b[32m10%\x1b[0m \x1b[A"), ("worker-1", "█".encode() * 60)):
        shown.open_line(replica, bar, True)
    text = await asyncio.to_thread(drain, terminal.reader, "█…\r\n0:01  a Running")
    last = text.rpartition("\x1b[J")[2]
    assert last == "worker-0 | 10% \\x1b[A\r\nworker-1 | " + "█" * 27 + "…\r\n0:01  a Running"
    shown.open_line("worker-0", b"", False)
    shown.log("worker-0", b"100%")
    text = await asyncio.to_thread(drain, terminal.reader, "worker-0 | 100%")
    assert "\r\x1b[2A\x1b[J" in text
    await shown.close()


async def test_open_lines_take_at_most_half_of_the_terminal(terminal: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "6")
    tty = terminal.writer
    shown = Screen(Descriptors(tty, tty, tty), False, True, lambda: None)
    for index in range(5):
        shown.open_line(f"w-{index}", b"1%", True)
    assert shown._writer.footer_lines == [b"w-0 | 1%", b"w-1 | 1%", b"... and 3 more lines are open"]
    await shown.close()


async def test_without_a_terminal_a_progress_bar_is_a_line_now_and_then(
    pipes: tuple[Pipe, Pipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    shown = screen(pipes)
    monkeypatch.setattr(shown._loop, "time", lambda: now[0])
    for second in range(25):
        shown.open_line("w-0", b"%d%%" % second, True)
        shown.open_line("w-1", b"a line that is not overwritten", False)
        now[0] += 1.0
    shown.open_line("w-0", b"", False)
    shown.log("w-0", b"100%")
    await shown.close()
    assert pipes[0].text().splitlines() == ["w-0 | 10%", "w-0 | 20%", "w-0 | 100%"]


def test_the_open_line_is_the_bar_that_was_written_last() -> None:
    cut, states = OutputLineSplitter(), []
    for chunk in (
        b"\router 0%",
        b"\n\rinner 0%\x1b[A",
        b"\n\rinner 50%\x1b[A",
        b"\n\r         \r\x1b[A",
        b"\router 9%",
    ):
        cut.feed(chunk)
        states.append((cut.open_line, cut.is_overwritten))
    assert states == [(b"outer 0%", True), (b"inner 0%", True), (b"inner 50%", True), (b"", True), (b"outer 9%", True)]
