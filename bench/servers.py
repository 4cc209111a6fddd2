"""The embedded API server beside kube-apiserver and etcd: the same requests of the same client, in one run.

    make bench-servers            # needs the control plane: make control-plane
    python -m bench.servers --small

Ours is what `trainyard up` serves: TLS, tokens, a log on disk. The real one has etcd without fsync and no controllers.
For each verb: the time of a request when several connections send one after the other, and the CPU of the server for
each. The ceiling is a server in the same run that reads a request and answers with fixed bytes; where a ratio to it is
near 1, the client is what is measured. Machines are shared: read the ratios. Ours is one thread, so where other
programs keep the processors busy the real one, with many threads, is given more of them: read the CPU then.

A hundred watches take about half of the time that they take of the real server, and not less: each line is a TLS record
and a write to a socket of its own in both servers, and the client, one thread too, receives each. With a thousand
watches a writer is faster than the lines can be sent, and several go out together.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import resource
import secrets
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from bench.report import Row, print_table, write_json
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_flags import MEASURED
from trainyard.server import Server
from trainyard.server.auth.certificates import CertificateAuthority
from trainyard.server.storage.disk import DiskLog

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
CONNECTIONS = 8
FIXED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@dataclass
class Subject:
    """A server, where to reach it, and the processes that it is."""

    name: str
    port: int
    token: str
    ca: str
    pids: list[int]
    start: Callable[[], float]
    """Starts it once more, and gives the seconds until it was ready."""
    secure: ssl.SSLContext = field(init=False)

    def __post_init__(self) -> None:
        self.secure = ssl.create_default_context(cadata=self.ca)

    def cpu(self) -> float:
        """Seconds of all its processes so far."""
        return sum(time.clock_gettime(~pid << 3 | 2) for pid in self.pids)  # Linux: the clock of another process

    def memory(self) -> float:
        """MiB that are its own."""
        rolls = (Path(f"/proc/{pid}/smaps_rollup").read_text().split() for pid in self.pids)
        return sum(int(roll[roll.index("Pss:") + 1]) for roll in rolls) / 1024


def http_request(
    subject: Subject, method: str, path: str, body: bytes = b"", media_type: str = "application/json"
) -> bytes:
    """The bytes of a request."""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost:{subject.port}\r\nAccept: application/json\r\n"
        f"Authorization: Bearer {subject.token}\r\nContent-Type: {media_type}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


class Connection:
    """A connection, for one request at a time."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    async def open(self) -> Connection:
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self._subject.port, ssl=self._subject.secure, server_hostname="localhost", limit=1 << 26
        )
        return self

    async def head(self) -> tuple[int, dict[str, str]]:
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = (line.split(":", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), {name.lower(): value.strip() for name, value in headers}

    async def chunk(self) -> bytes:
        size = int(await self.reader.readline(), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    async def request(self, method: str, path: str, body: bytes = b"", media_type: str = "application/json") -> bytes:
        """Send a request and return the body of the response."""
        self.writer.write(http_request(self._subject, method, path, body, media_type))
        code, headers = await self.head()
        if "content-length" in headers:
            content = await self.reader.readexactly(int(headers["content-length"]))
        else:
            parts = []
            while part := await self.chunk():
                parts.append(part)
            content = b"".join(parts)
        if code >= 300:
            raise SystemExit(f"{self._subject.name}: {method} {path}: {code} {content[:300]!r}")
        return content

    def close(self) -> None:
        self.writer.transport.abort()


class WatchClient(asyncio.Protocol):
    """A watch that counts its lines with little CPU: of many, the client must not be what is measured."""

    START = b'{"type":"'  # of a line

    def __init__(self, request: bytes, lines: int) -> None:
        self._request, self._lines, self._tail = request, lines, b""
        self.opened, self.complete = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.opened.set()
        text = self._tail + data
        self._tail = text[1 - len(self.START) :]
        self._lines -= text.count(self.START)
        if self._lines <= 0:
            self.complete.set()


class Cost(NamedTuple):
    """The measured rate and processor time of one kind of request."""

    rate: float  # requests in a second
    cpu: float  # of the server, milliseconds for each request


async def many(subject: Subject, count: int, request: Callable[[Connection, int], Awaitable[object]]) -> Cost:
    """So many requests over a few connections."""
    connections = [await Connection(subject).open() for _ in range(CONNECTIONS)]
    numbers = iter(range(count))

    async def work(connection: Connection) -> None:
        for number in numbers:
            await request(connection, number)

    cpu, began = subject.cpu(), time.perf_counter()
    await asyncio.gather(*map(work, connections))
    seconds, spent = time.perf_counter() - began, subject.cpu() - cpu
    for connection in connections:
        connection.close()
    return Cost(count / seconds, 1000 * spent / count)


def config_map(number: int, version: int = 0) -> bytes:
    meta = {"name": f"bench-{number}", "labels": {"part": str(number % 10)}}
    data = {"text": str(version) + "x" * 1000}
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}).encode()


def pod(number: int) -> bytes:
    container = {
        "name": "main", "image": "registry.example/training:1", "command": ["python", "train.py"],
        "env": [{"name": f"NAME_{at}", "value": f"value {at}"} for at in range(8)],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }  # fmt: skip
    spec = {"containers": [container], "restartPolicy": "Never", "automountServiceAccountToken": False}
    meta = {"name": f"bench-{number}", "labels": {"job": f"job-{number // 100}"}}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}).encode()


async def verbs(subject: Subject, count: int) -> dict[str, Cost]:
    merge = "application/merge-patch+json"
    patch = [json.dumps({"metadata": {"annotations": {"number": str(number)}}}).encode() for number in range(count)]
    paths = [f"{MAPS}/bench-{number}" for number in range(count)]
    return {
        "create": await many(subject, count, lambda connection, n: connection.request("POST", MAPS, config_map(n))),
        "get": await many(subject, count, lambda connection, n: connection.request("GET", paths[n])),
        "update": await many(
            subject, count, lambda connection, n: connection.request("PUT", paths[n], config_map(n, 1))
        ),
        "patch": await many(
            subject, count, lambda connection, n: connection.request("PATCH", paths[n], patch[n], merge)
        ),
        "list of 100": await many(
            subject, count // 10, lambda connection, n: connection.request("GET", f"{MAPS}?limit=100")
        ),
        "delete": await many(subject, count, lambda connection, n: connection.request("DELETE", paths[n])),
    }


async def pods(subject: Subject, count: int) -> dict[str, Cost]:
    """Created one by one; read whole and in pages; deleted at once."""

    async def pages(connection: Connection, number: int) -> None:
        token = ""
        while True:
            page = json.loads(await connection.request("GET", f"{PODS}?limit=500&continue={token}"))
            if not (token := page["metadata"].get("continue", "")):
                return

    creates = await many(subject, count, lambda connection, n: connection.request("POST", PODS, pod(n)))
    whole = await many(subject, 2 * CONNECTIONS, lambda connection, n: connection.request("GET", PODS))
    paged = await many(subject, CONNECTIONS, pages)
    chosen = await many(
        subject, 4 * CONNECTIONS, lambda connection, n: connection.request("GET", f"{PODS}?labelSelector=job%3Djob-7")
    )
    at_once = b'{"gracePeriodSeconds":0}'
    removed = await many(
        subject, count, lambda connection, n: connection.request("DELETE", f"{PODS}/bench-{n}", at_once)
    )
    return {
        "create a pod": creates,
        f"list {count} pods": whole,
        f"list {count} pods in pages": paged,
        f"list 100 of {count} pods by label": chosen,
        "delete a pod": removed,
    }


def _same(client: WatchClient) -> WatchClient:
    return client


async def watches(subject: Subject, clients: int, changes: int) -> dict[str, Cost]:
    """A second's worth is counted in lines that have arrived."""
    writer = await Connection(subject).open()
    newest = json.loads(await writer.request("GET", f"{MAPS}?limit=1"))
    request = http_request(subject, "GET", f"{MAPS}?watch=1&resourceVersion={newest['metadata']['resourceVersion']}")
    watching = [WatchClient(request, changes) for _ in range(clients)]
    tls: dict[str, Any] = {"ssl": subject.secure, "server_hostname": "localhost"}
    for client in watching:
        await asyncio.get_running_loop().create_connection(partial(_same, client), "127.0.0.1", subject.port, **tls)
        await client.opened.wait()
    cpu, began = subject.cpu(), time.perf_counter()
    for number in range(changes):
        await writer.request("POST", MAPS, config_map(number))
    for client in watching:
        await client.complete.wait()
    seconds, spent = time.perf_counter() - began, subject.cpu() - cpu
    for client in watching:
        client.transport.abort()
    for number in range(changes):
        await writer.request("DELETE", f"{MAPS}/bench-{number}")
    lines_sent = clients * changes
    return {f"lines of {clients} watches": Cost(lines_sent / seconds, 1000 * spent / lines_sent)}


@contextlib.contextmanager
def ours() -> Iterator[Subject]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ends:

        def start() -> float:
            began = time.perf_counter()
            command = [sys.executable, "-m", "bench.servers", "--serve", folder]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            ends.callback(process.wait)
            ends.callback(process.kill)
            assert process.stdout
            started.update(json.loads(process.stdout.readline()), pid=process.pid)
            return time.perf_counter() - began

        started: dict[str, Any] = {}
        start()

        def again() -> float:
            ends.pop_all().close()
            seconds = start()
            subject.port, subject.token, subject.pids[:] = started["port"], started["token"], [started["pid"]]
            subject.secure = ssl.create_default_context(cadata=started["ca"])
            return seconds

        subject = Subject("trainyard", started["port"], started["token"], started["ca"], [started["pid"]], again)
        yield subject


async def serve(folder: Path) -> None:
    """What `trainyard up` serves, and nothing beside it."""
    log = DiskLog(folder)
    token = secrets.token_urlsafe()
    server = Server(token=token, log=log)
    authority = CertificateAuthority.new(time.time())
    await server.start()
    await server.start_tls(authority.server_context(folder))
    port = int(server.tls_url.rsplit(":", 1)[1])
    print(json.dumps({"port": port, "token": token, "ca": authority.pem}), flush=True)
    await asyncio.Event().wait()


@contextlib.contextmanager
def real() -> Iterator[Subject]:
    with ControlPlane(MEASURED) as plane:
        for name in ("kube-controller-manager", "kube-scheduler"):
            plane.stop(name)
        both = ("kube-apiserver", "etcd")

        def start() -> float:
            for name in both:
                plane.stop(name)
            began = time.perf_counter()
            plane._part("etcd").start()
            plane.start("kube-apiserver")
            subject.pids[:] = pids()
            return time.perf_counter() - began

        def pids() -> list[int]:
            return [process.pid for process in plane.processes if process.name in both]

        cluster = yaml.safe_load(plane.kubeconfig.read_text())["clusters"][0]["cluster"]
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        port = int(plane.url.rsplit(":", 1)[1])
        subject = Subject("kube-apiserver + etcd", port, plane.token(), ca, pids(), start)
        yield subject


@contextlib.contextmanager
def ceiling() -> Iterator[Subject]:
    """Reads a request and answers with fixed bytes, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.servers", "--ceiling", folder], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout
        started = json.loads(process.stdout.readline())
        yield Subject("ceiling", started["port"], "", started["ca"], [process.pid], lambda: 0.0)
        process.kill()
        process.wait()


class Fixed(asyncio.Protocol):
    """Answers every request with the same bytes: the ceiling of the client."""

    def connection_made(self, transport: Any) -> None:
        self.transport, self.received = transport, b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, separator, rest = self.received.partition(b"\r\n\r\n")
        if separator and len(rest) >= int(head.rsplit(b"Content-Length: ", 1)[1]):
            self.received = b""
            self.transport.write(FIXED)


async def serve_fixed(folder: Path) -> None:
    authority = CertificateAuthority.new(time.time())
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Fixed, "127.0.0.1", 0, ssl=authority.server_context(folder))
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"port": port, "ca": authority.pem}), flush=True)
    await server.serve_forever()


async def measured(subject: Subject, small: bool) -> tuple[dict[tuple[str, str], float], dict[str, Cost]]:
    begun = min(subject.start() for _ in range(3))
    state = {("start-up", "s"): begun, ("memory at rest", "MiB"): subject.memory()}
    costs = await verbs(subject, 300 if small else 3000)
    costs |= await pods(subject, 1000 if small else 10_000)
    state["memory after the pods", "MiB"] = subject.memory()
    costs |= await watches(subject, 100 if small else 1000, 20)
    return state, costs


async def compare(small: bool, rounds: int) -> list[Row]:
    """Rows whose peer is the real server; both in an order that alternates."""
    rows: dict[str, Row] = {}
    with ceiling() as fixed:
        top = await many(fixed, 3000, lambda connection, n: connection.request("GET", "/"))
    for number in range(rounds):
        for start in (ours, real) if number % 2 == 0 else (real, ours):
            with start() as subject:
                state, costs = await measured(subject, small)
            for (name, unit), value in state.items():
                _add(rows, subject, name, unit, value)
            for name, cost in costs.items():
                # A line of a watch is no request, so that the ceiling of requests is none of it.
                _add(
                    rows,
                    subject,
                    f"{name}: time",
                    "ms",
                    1000 / cost.rate,
                    0 if name.startswith("lines") else 1000 / top.rate,
                )
                _add(rows, subject, f"{name}: CPU", "ms", cost.cpu)
    return list(rows.values())


def _add(rows: dict[str, Row], subject: Subject, name: str, unit: str, value: float, ceiling: float = 0) -> None:
    row = rows.setdefault(name, Row(name, unit, ceiling=[ceiling] if ceiling else []))
    values = row.ours if subject.name == "trainyard" else row.peers.setdefault(subject.name, [])
    values.append(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a tenth of everything")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the rows are written, too")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--ceiling", help=argparse.SUPPRESS)
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if options.serve:
        asyncio.run(serve(Path(options.serve)))
    elif options.ceiling:
        asyncio.run(serve_fixed(Path(options.ceiling)))
    else:
        rows = asyncio.run(compare(options.small, options.rounds))
        print_table(rows)
        write_json(options.json, rows)


if __name__ == "__main__":
    main()
