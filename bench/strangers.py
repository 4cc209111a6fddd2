"""What another user of the machine costs the process of a local cluster, without any right: silent connections to the
page, and ports that are taken.

    python -m bench.strangers --seconds 15

Prints ratios, each within one run: the CPU of the process while its API answers requests, with silent connections to
the page and without.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from trainyard.app.kubeconfig import read_kubeconfig
from trainyard.client import ApiClient
from trainyard.objects.resources import NAMESPACE

CONNECTIONS = 1000
REQUESTS_PER_SECOND = 50
TICKS = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def served_cluster() -> Iterator[tuple[int, dict[str, str], Path]]:
    """A cluster with a page in a process of its own: its id, how to reach it, and the file of its log."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as stderr:
            command = [sys.executable, "-m", "bench.page", "--serve", folder]
            server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True)
            try:
                assert server.stdin is not None
                assert server.stdout is not None
                facts = json.loads(server.stdout.readline())
                print("[]", file=server.stdin, flush=True)
                yield server.pid, facts, log
            finally:
                server.communicate()  # closes its standard input


def cpu_seconds(process: int) -> float:
    """The CPU time that the process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def cpu_of_requests(api: ApiClient, process: int, seconds: float) -> tuple[float, float]:
    """The share of a core that the process uses for requests at a fixed rate, and the longest time that one took."""
    begun, cpu, longest = time.monotonic(), cpu_seconds(process), 0.0
    for number in range(round(seconds * REQUESTS_PER_SECOND)):
        await asyncio.sleep(max(0.0, begun + number / REQUESTS_PER_SECOND - time.monotonic()))
        sent = time.monotonic()
        await api.get(NAMESPACE, "", "default")
        longest = max(longest, time.monotonic() - sent)
    return (cpu_seconds(process) - cpu) / (time.monotonic() - begun), longest


async def silent_connections(seconds: float) -> None:
    with served_cluster() as (process, facts, log):
        page = urlsplit(facts["url"])
        async with read_kubeconfig([Path(facts["kubeconfig"])]).api() as api:
            await cpu_of_requests(api, process, 2)
            before, longest_before = await cpu_of_requests(api, process, seconds)
            written = log.stat().st_size
            opened = [await asyncio.open_connection(page.hostname, page.port) for _ in range(CONNECTIONS)]
            held, longest_held = await cpu_of_requests(api, process, seconds)
            for _, writer in opened:
                writer.close()
            after, _ = await cpu_of_requests(api, process, seconds)
            lines = log.read_bytes()[written:].splitlines()
    alone = (before + after) / 2
    print(f"{CONNECTIONS:,} silent connections to the page, {REQUESTS_PER_SECOND} requests a second to the API")
    print(f"  CPU of the process      {held / alone:5.2f} of none ({held:.3f} beside {alone:.3f} of a core)")
    print(f"  the longest request     {longest_held / longest_before:5.2f} of none ({longest_held * 1000:.0f} ms)")
    print(f"  lines in its log        {len(lines):5}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0)
    options = parser.parse_args()
    asyncio.run(silent_connections(options.seconds))


if __name__ == "__main__":
    main()
