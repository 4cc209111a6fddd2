"""What idle watches cost: memory of each, and what the others notice of them.

    python -m bench.watchers                # 5,000 watches, plain
    python -m bench.watchers --count 1000 --tls

The server is a process of its own; the watchers are plain sockets here that never read until they are told to. Prints
what a request takes alone, beside the watches, and while all of them are woken, and ratios. Machines are shared: read
the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

SERVER = """
import asyncio, sys, time
from pathlib import Path
from trainyard.server import CertificateAuthority, Server
from trainyard.server.http.limits import raise_descriptor_limit

async def main():
    raise_descriptor_limit()
    server = Server(token="bench")
    await server.start()
    authority = CertificateAuthority.new(time.time())
    await server.start_tls(authority.server_context(Path(sys.argv[1])))
    (Path(sys.argv[1]) / "ca.pem").write_text(authority.pem)
    print(server.url, server.tls_url, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    start = time.perf_counter()
    await server.stop()
    print(time.perf_counter() - start, flush=True)

asyncio.run(main())
"""
MAPS = "/api/v1/namespaces/default/configmaps"
HEAD = f"GET {MAPS}?watch=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer bench\r\n\r\n".encode()
BEARER = {"Authorization": "Bearer bench"}


def memory(pid: int) -> float:
    """MiB that the process holds."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("this needs Linux")


async def requests(session: aiohttp.ClientSession, url: str, count: int = 200) -> list[float]:
    """Milliseconds of one request after the other."""
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        async with session.get(f"{url}/api/v1/namespaces/default", headers=BEARER) as got:
            await got.read()
        taken.append((time.perf_counter() - start) * 1000)
    return taken


def opened(url: str, context: ssl.SSLContext | None) -> socket.socket:
    place = urlsplit(url)
    door = socket.create_connection((place.hostname or "", place.port or 0))
    if context is not None:
        door = context.wrap_socket(door, server_hostname="localhost")
    door.sendall(HEAD)
    return door


def heard(doors: list[socket.socket], mark: bytes) -> float:
    """Seconds until the last of them has read the mark."""
    start = time.perf_counter()
    for door in doors:
        got = b""
        while mark not in got:
            part = door.recv(65_536)
            if not part:
                raise SystemExit("a watch was ended")
            got += part
    return time.perf_counter() - start


async def make(session: aiohttp.ClientSession, url: str, name: str) -> float:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    start = time.perf_counter()
    async with session.post(
        url + MAPS, data=json.dumps(body), headers={**BEARER, "Content-Type": "application/json"}
    ) as got:
        if got.status != 201:
            raise SystemExit(await got.text())
    return (time.perf_counter() - start) * 1000


def report(name: str, taken: list[float]) -> float:
    middle, late = statistics.median(taken), statistics.quantiles(taken, n=20)[-1]
    print(f"{name:34} median {middle:7.2f} ms   95 % {late:7.2f} ms")
    return middle


async def measure(count: int, pid: int, url: str, watched: str, context: ssl.SSLContext | None) -> None:
    async with aiohttp.ClientSession() as session:
        await requests(session, url)
        first = report("a request alone", await requests(session, url))
        created = report("a create alone", [await make(session, url, f"a-{n}") for n in range(30)])
        before = memory(pid)
        start = time.perf_counter()
        doors = [await asyncio.to_thread(opened, watched, context) for _ in range(count)]
        await asyncio.to_thread(heard, doors, b"a-29")  # what is there already
        taken, held = time.perf_counter() - start, memory(pid)
        print(f"{count} watches in {taken:.1f} s, {(held - before) * 1024 / count:.1f} KiB each")
        beside = report("a request beside them", await requests(session, url))
        waked = await make(session, url, "news")
        all_ = await asyncio.to_thread(heard, doors, b'"news"')
        print(
            f"{'a create that wakes them all':34} {waked:.1f} ms   {waked / created:.1f} times; heard in {all_:.2f} s"
        )
        waking = asyncio.create_task(make(session, url, "more"))
        during = report("a request while they are woken", await requests(session, url, 100))
        await waking
        await asyncio.to_thread(heard, doors, b'"more"')
        for door in doors:
            door.close()
        alone = min(first, report("a request alone again", await requests(session, url)))
        print(
            f"beside {count} idle watches a request takes {beside / alone:.1f} times as long as alone, while they are "
        )
        print(f"woken {during / alone:.1f} times")


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--count", type=int, default=5000)
    words.add_argument("--tls", action="store_true")
    options = words.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", SERVER, folder]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdin
            assert server.stdout
            plain, tls = server.stdout.readline().split()
            context = ssl.create_default_context(cafile=f"{folder}/ca.pem") if options.tls else None
            asyncio.run(measure(options.count, server.pid, plain, tls if options.tls else plain, context))
            server.stdin.close()
            print(f"stopped in {float(server.stdout.readline()):.2f} s")


if __name__ == "__main__":
    main()
