"""How far an installation is: bytes that the kernel counts, steps that the installer prints, reports that are read."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.images.image_fixtures import make, messages
from trainyard.node.images import Images
from trainyard.node.images.progress import Meter, Progress, format_bytes
from trainyard.node.images.received_bytes import ReceivedBytes

__all__ = ["make", "messages"]

SENT = 5_000_000
DOWNLOADER = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
count = 0
while count < int(sys.argv[2]):
    count += len(connection.recv(65536))
print("Downloading a (5 MB)", flush=True)
sys.stdin.read()
"""


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(bytes(SENT))
    await writer.drain()
    await reader.read()
    writer.close()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux counts for us")
async def test_bytes_are_those_that_a_program_and_its_children_received() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    shell = f"{sys.executable} -c '{DOWNLOADER}' {port} {SENT}; true"  # the program is a child of a shell
    process = await asyncio.create_subprocess_exec("sh", "-c", shell, stdin=-1, stdout=-1)
    assert process.stdin is not None and process.stdout is not None
    try:
        received = ReceivedBytes()
        await process.stdout.readline()
        assert (received.measure(process.pid), received.is_countable) == (SENT, True)
        assert ReceivedBytes().measure(1 << 22) == 0, "other programs do not count"
    finally:
        process.stdin.close()
        await process.wait()
    assert received.measure(process.pid) == SENT, "what a closed connection had brought still counts"
    server.close()


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress("a 1"), "installing a 1: preparing, 0:00"),
        (
            Progress("a 1", "downloading", 123_400_000, 360e6, 75),
            "installing a 1: downloading, 123 MB of about 360 MB, 1:15",
        ),
        (Progress("a 1", "downloading", 1_230, 0, 5), "installing a 1: downloading, 1 kB so far, 0:05"),
        (Progress("a 1", "building", None, 360e6, 5), "installing a 1: building, 0:05"),
    ],
)
def test_progress_is_one_line(progress: Progress, text: str) -> None:
    assert str(progress) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1e3, "1 kB"), (359.6e6, "360 MB"), (1.74e9, "1.7 GB")]
)
def test_sizes_are_formatted_as_in_an_entry(count: float, text: str) -> None:
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("printed", "step"),
    [
        ("Resolved 2 packages in 77ms\n", "downloading"),  # uv
        ("Downloading pyarrow (52.5MiB)\n Downloaded pyarrow\n", "downloading"),
        ("   Building chainer==7.8.1\n", "building"),
        ("Prepared 2 packages in 2.96s\n", "unpacking"),
        ("Collecting a==1\n  Downloading a-1.whl (55.0 MB)\n", "downloading"),  # pip
        ("  Using cached a-1.whl (13 kB)\n", "downloading"),
        ("Building wheels for collected packages: a\n", "building"),
        ("Installing collected packages: a\n", "unpacking"),
        ("something else\n", "preparing"),
    ],
)
def test_the_lines_of_an_installer_name_its_step(printed: str, step: str) -> None:
    meter = Meter("x", "a", 0, None, print)
    meter.read_output(printed)
    assert meter.progress.step == step


INSTALLER = """#!/bin/sh
[ "$1" = venv ] && for last; do :; done && mkdir -p "$last/bin" && ln -s {python} "$last/bin/python" && exit 0
echo 'Downloading a (5MiB)'
while [ ! -e {folder}/go ]; do sleep 0.05; done
"""


async def test_a_report_names_the_image_and_ends_with_the_build(
    make: Callable[..., Images], tmp_path: Path, messages: list[str]
) -> None:
    installer = tmp_path / "installer"
    installer.write_text(INSTALLER.format(python=sys.executable, folder=tmp_path))
    installer.chmod(0o755)
    reports: list[tuple[str, str | None]] = []
    reported = asyncio.Event()

    def report(image: str, text: str | None) -> None:
        reports.append((image, text))
        if text and "downloading" in text:
            reported.set()

    entry = "images:\n- match: x\n  providers: [{requirements: [a==1], name: Tiny, download: 5 MB}]\n"
    images = make(entry, uv=str(installer), progress=report)
    building = asyncio.create_task(images.prepare("x", False))
    async with asyncio.timeout(30):
        await reported.wait()
    (tmp_path / "go").touch()
    await building
    assert {image for image, _ in reports} == {"x"} and reports[-1] == ("x", None)
    assert all(text and text.startswith("installing Tiny: ") for _, text in reports[:-1])
    assert not [line for line in messages if "installing Tiny:" in line], "whoever shows reports says them"
    await images.close()
