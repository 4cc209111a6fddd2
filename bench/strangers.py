"""What another user of the machine costs the process of a local cluster, without any right: silent connections to the
page, and ports that are taken.

    python -m bench.strangers --seconds 15

Prints ratios, each within one run: the CPU of the process while its API answers requests, with silent connections to
the page and without; the time of the event loop that a port of a Service takes (network *shared*), with ten, half and
all of the ports in use.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from bench.served_cluster import served_cluster
from trainyard.app.kubeconfig import read_kubeconfig
from trainyard.client import ApiClient
from trainyard.node.network import shared
from trainyard.objects.resources import NAMESPACE
from trainyard.server.http.limits import raise_descriptor_limit

CONNECTIONS = 1000
REQUESTS_PER_SECOND = 200
TICKS = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def cluster_with_log() -> Iterator[tuple[int, dict[str, str], Path]]:
    """A cluster with a page in a process of its own: its id, how to reach it, and the file of its log."""
    with tempfile.NamedTemporaryFile() as log, served_cluster("bench.page", log) as (facts, server):
        assert server.stdin is not None
        print("[]", file=server.stdin, flush=True)
        yield server.pid, facts, Path(log.name)


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
    with cluster_with_log() as (process, facts, log):
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


def taken_ports(ports: Sequence[int], stack: contextlib.ExitStack) -> None:
    """Listen on these ports of loopback, as any user may."""
    for port in ports:
        with contextlib.suppress(OSError):  # it is in use already
            stack.enter_context(socket.create_server(("127.0.0.1", port)))


def milliseconds_of_a_port(count: int) -> float:
    """The mean CPU time until a Service has a port or is told that there is none. Each search looks at other ports."""
    ports = shared.PortAllocator(now=map(float, itertools.count(step=2)).__next__)  # after a second it searches again
    seconds = 0.0
    for number in range(count):
        start = time.thread_time()
        with contextlib.suppress(OSError):
            ports.allocate("default", f"service-{number}", 80, "bench")
        seconds += time.thread_time() - start
        ports.release("bench")
    ports.close()
    return seconds * 1000 / count


def ports_in_use(rounds: int) -> None:
    """The rounds take turns, so that other work of the machine is in all of them."""
    ports = shared._PORT_RANGE
    raise_descriptor_limit()
    times: dict[int, list[float]] = {10: [], len(ports) // 2: [], len(ports): []}
    for _ in range(rounds):
        with contextlib.ExitStack() as stack:
            for number, measured in times.items():
                taken_ports(ports[:number], stack)
                measured.append(milliseconds_of_a_port(2000))
    few, half, none = map(statistics.median, times.values())
    print(f"a port for a Service, of {len(ports):,}")
    print(f"  half of them in use     {half / few:5.2f} of ten in use ({half:.3f} ms beside {few:.3f})")
    print(f"  all of them in use      {none / few:5.2f} of ten in use ({none:.3f} ms, to be at most 5)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=5, help="of the ports")
    options = parser.parse_args()
    asyncio.run(silent_connections(options.seconds))
    ports_in_use(options.rounds)


if __name__ == "__main__":
    main()
