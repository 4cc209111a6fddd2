"""Garbage over real sockets: requests that are nearly right, and what must hold of any server that gets them.

    python -m tests.server.malformed_requests --seconds 60 [--seed 1]

A case is the bytes that one connection sends. It is made of a request that is right, with a body out of `BODIES` or
made of pieces of them, and then broken in one of the ways of `BREAKS`; the seed and the number of a case make it again.

What must hold: every answer is HTTP with a Status where it is a refusal, none says 5xx (but for `KNOWN` ones),
nothing is logged as an error, and afterwards the log, read from its beginning, gives the objects that are there.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import logging
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.server.malformed_request_cases import DEFINITION, TOKEN, case, request
from trainyard.objects import NamespacedName
from trainyard.server import RevisionLog, Server
from trainyard.server.model.store import Record

PATIENCE = 10.0  # seconds until a connection counts as hung
KNOWN = (b"Too large resource version", b"replicas field", b"no endpoints available", b"error trying to reach")
"""What is in those answers of 5xx that the real server gives, too."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer on a connection."""

    code: int
    headers: bytes
    body: bytes


class Broken(AssertionError):
    """The server did what it must not."""


@dataclass
class Barrage:
    """Sends cases to a server and judges what comes back."""

    address: tuple[str, int]
    codes: dict[int, int] = field(default_factory=dict)

    def furnish(self) -> None:
        """A kind of our own, whose objects may hold anything."""
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        if self.answer(request("POST", path, DEFINITION)).code != 201:
            raise Broken("the definition of things is not taken")

    def send(self, raw: bytes, pause: float = 0.02) -> list[Reply]:
        """All answers to one connection's bytes. Raises Broken."""
        return self.judge(exchange(self.address, raw, pause), raw)

    def answer(self, raw: bytes) -> Reply:
        """The one answer to a whole request that closes its connection. Raises Broken."""
        (reply,) = self.send(raw, PATIENCE)  # who says before it that no more comes may be taken for gone
        return reply

    def judge(self, got: bytes, raw: bytes) -> list[Reply]:
        """The answers in what came for `raw`. Raises Broken."""
        replies = parse(got)
        for reply in replies:
            self.codes[reply.code] = self.codes.get(reply.code, 0) + 1
            if reply.code >= 500 and not any(known in reply.body for known in KNOWN):
                raise Broken(f"{reply.code} {reply.body[:300]!r} for {raw[:500]!r}")
            if reply.code >= 400 and reply.body and not _is_status(reply):
                raise Broken(f"{reply.code} without a Status: {reply.body[:300]!r} for {raw[:500]!r}")
            if TOKEN.encode() in reply.body or TOKEN.encode() in reply.headers:
                raise Broken(f"the token comes back for {raw[:500]!r}")
        return replies


def _is_status(reply: Reply) -> bool:
    if reply.body == b"404 page not found\n":  # what the real server says to a path that is none
        return True
    try:
        return bool(json.loads(reply.body)["code"] == reply.code)
    except (ValueError, KeyError, TypeError):
        return False


def exchange(address: tuple[str, int], raw: bytes, pause: float) -> bytes:
    """Send the bytes, say after a pause that there will be no more, and take what comes until the server ends it.

    Raises Broken when it does not.
    """
    with socket.create_connection(address, timeout=PATIENCE) as door:
        got = bytearray()
        try:
            door.sendall(raw)
            door.settimeout(pause)
            with contextlib.suppress(TimeoutError):  # it may wait for more, which does not come
                while part := door.recv(65_536):
                    got += part
            door.settimeout(PATIENCE)
            door.shutdown(socket.SHUT_WR)
            while part := door.recv(1 << 20):
                got += part
        except TimeoutError:
            raise Broken(f"the connection hangs for {raw[:500]!r}") from None
        except OSError:
            pass  # it was closed before it had read everything
        return bytes(got)


def parse(got: bytes) -> list[Reply]:
    """The answers in what came; one that is cut off is left out. Raises Broken when it is not HTTP."""
    replies: list[Reply] = []
    while got:
        head, separator, rest = got.partition(b"\r\n\r\n")
        if not separator:
            break
        matched = re.match(rb"HTTP/\d\.\d (\d\d\d) ", head)
        if matched is None:
            raise Broken(f"not HTTP: {got[:200]!r}")
        code = int(matched[1])
        length = re.search(rb"\r\nContent-Length: (\d+)", head, re.IGNORECASE)
        if code == 100:
            got = rest
            continue
        if length is None:  # a stream: the last thing on its connection
            replies.append(Reply(code, head, b""))
            break
        size = 0 if rest[:5] == b"HTTP/" else int(length[1])  # HEAD
        replies.append(Reply(code, head, rest[:size] if len(rest) >= size else b""))
        got = rest[size:]
    return replies


def replayed(log: RevisionLog) -> dict[str, dict[NamespacedName, Record]]:
    """The objects that the entries of a log make, from its beginning."""
    stores: dict[str, dict[NamespacedName, Record]] = {}
    for number, entry in enumerate(log.after(0), 1):
        if entry.revision != number:
            raise Broken(f"entry {number} has the number {entry.revision}")
        if entry.record is None:
            stores[entry.store].pop(entry.key)
        else:
            stores.setdefault(entry.store, {})[entry.key] = entry.record
    return {store: objects for store, objects in stores.items() if objects}


def stored(log: RevisionLog) -> dict[str, dict[NamespacedName, Record]]:
    """The objects that a log says there are."""
    names = {entry.store for entry in log.after(0)}
    return {store: dict(objects) for store in names if (objects := log.list(store))}


def sound(log: RevisionLog) -> None:
    """Raises Broken when the log is not what it was made of, or holds what is no JSON."""
    if replayed(log) != stored(log):
        raise Broken("the log, read from its beginning, gives other objects than there are")
    for entry in log.after(0):
        if entry.record is not None:
            meta = json.loads(entry.record.body)["metadata"]
            if meta["resourceVersion"] != str(entry.revision) or meta["name"] != entry.key.name:
                raise Broken(f"entry {entry.revision} holds another object: {meta}")


class Complaints(logging.Handler):
    """What the server logs that a client must not be able to make it log."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        if record.levelno >= logging.ERROR or "Traceback" in text or TOKEN in text:
            self.lines.append(text)


@contextlib.contextmanager
def target(
    make: Callable[[], RevisionLog] = lambda: RevisionLog(keep=10_000_000, keep_bytes=1 << 40),
) -> Iterator[Target]:
    """A server on a loop of its own, with a log that forgets nothing. What it complains of is at hand."""
    complaints = Complaints()
    root = logging.getLogger()
    level = root.level
    root.addHandler(complaints)
    root.setLevel(logging.DEBUG)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    do = functools.partial(_within, loop)
    server = do(_started(make))
    try:
        yield Target(server, complaints, do)
    finally:
        do(server.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()
        root.removeHandler(complaints)
        root.setLevel(level)


class Target(NamedTuple):
    """`do` runs something in the server's thread, and gives what it gives."""

    server: Server
    complaints: Complaints
    do: Callable[[Coroutine[Any, Any, Any]], Any]


def _within(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE)


async def _started(make: Callable[[], RevisionLog]) -> Server:
    server = Server(token=TOKEN, log=make())
    await server.start()
    return server


def place(server: Server) -> tuple[str, int]:
    """Its address."""
    url = urlsplit(server.url)
    return url.hostname or "", url.port or 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    options = parser.parse_args()
    with target() as (server, complaints, _):
        barrage, number = Barrage(place(server)), options.first
        barrage.furnish()
        until = time.monotonic() + options.seconds
        while time.monotonic() < until and not complaints.lines:
            barrage.send(case(options.seed, number))
            number += 1
        sound(server.log)
        codes = ", ".join(f"{code}: {count}" for code, count in sorted(barrage.codes.items()))
        print(f"{number - options.first} cases, {server.log.revision} entries, answers {codes}")
        for line in complaints.lines[:3]:
            print(f"logged at case {number - 1} of seed {options.seed}:\n{line}", file=sys.stderr)
        return 1 if complaints.lines else 0


if __name__ == "__main__":
    sys.exit(main())
