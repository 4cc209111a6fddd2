"""An HTTP proxy between one operator process and the API server, which injects faults.

    requests    delayed; 429 and 503 with and without Retry-After, 500; reset before and after the server has acted;
                429 and 503 with Retry-After although the server has acted; a body that ends in the middle
    lists       an older answer of the same list; 410 for a page after the first
    watches     410 as an answer and as an event; cut in the middle of a line; events doubled, held up, or dropped
                (a stream that has dropped an event ends with 410, and when its connection breaks first, watches of that
                resource get 410 until the next list: no API server goes on in silence after that)
    partition   every connection is reset, as long as `partitioned` is set
    refusals    every write but that of a lease is answered with 503, as long as `refuses_writes` is set; half of them
                are made
    pauses      the answer to one write is held back, until a second fault has begun (`Pause`)

`Journal` records each write that arrives, what the server answered, and whether the operator was told.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from yarl import URL

logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # handlers whose connection was reset on purpose
LEASES = "/apis/coordination.k8s.io/v1/"
LONGEST_GAP = 2.0  # seconds between two renewals of a leader with a lease of 3 s
_REQUEST_FAULTS = (
    *("delay", "delay", "429", "429-retry", "503", "503-retry", "500", "before", "after", "truncate"),
    *("429-after", "503-after"),
)
_LINE_FAULTS = ("double", "hold", "cut", "drop", "gone")
_PASSED_ON = ("Content-Type", "Accept", "Accept-Encoding", "User-Agent", "Authorization")


@dataclass(slots=True)
class Write:
    """One request that is not a GET. `code` is the server's answer, 0 while or where there is none."""

    number: int
    operator: str
    method: str
    path: str
    query: str
    body: bytes
    code: int = 0
    answer: bytes = b""
    delivered: bool = False  # the operator has been given the server's answer

    @property
    def accepted(self) -> bool:
        return 200 <= self.code < 300

    @property
    def lease(self) -> bool:
        return self.path.startswith(LEASES)

    def json(self) -> dict[str, object]:
        value = json.loads(self.body or b"{}")
        return value if isinstance(value, dict) else {}


class Journal:
    """The writes of all operators of one history, in the order of their arrival, and who holds which lease."""

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.holders: dict[str, str] = {}  # by lease: the identity in its last accepted write
        # by lease, holder and when that acquired it: how often in a row, without a gap in which it did not lead
        self.renewals: Counter[tuple[str, str, str]] = Counter()
        self.writer = ""  # the operator that sent the last write of anything else
        self.violations: list[str] = []
        self.faults: Counter[str] = Counter()
        self.takeovers = 0
        self._numbers = itertools.count(1)
        self._renewed: dict[tuple[str, str, str], float] = {}  # when, on the monotonic clock

    def arrived(self, operator: str, request: web.BaseRequest, body: bytes) -> Write:
        write = Write(next(self._numbers), operator, request.method, request.path, request.query_string, body)
        self.writes.append(write)
        if not write.lease:
            if not self.leads(operator):
                text = f"one writer: {operator} sent {write.method} {write.path} without a lease: {self.holders}"
                self.violations.append(text)
            elif self.writer not in ("", operator) and self.leads(self.writer):
                text = f"one writer: {operator} sent {write.method} {write.path} while {self.writer} has its lease"
                self.violations.append(text)
            self.writer = operator
        return write

    def leads(self, operator: str) -> bool:
        """Whether that operator holds a lease, by the responses so far."""
        return any(holder.startswith(f"{operator}_") for holder in self.holders.values())

    def answered(self, write: Write, code: int, answer: bytes) -> None:
        write.code, write.answer = code, answer
        if write.lease and write.accepted:
            lease = json.loads(answer)
            name, spec = lease["metadata"]["name"], lease.get("spec", {})
            holder = str(spec.get("holderIdentity") or "")
            key, now = (name, holder, str(spec.get("acquireTime"))), time.monotonic()
            if now - self._renewed.get(key, now) > LONGEST_GAP:
                self.renewals[key] = 0  # it did not lead all the time
            self.renewals[key], self._renewed[key] = self.renewals[key] + 1, now
            self.takeovers += holder not in ("", self.holders.get(name, ""))
            self.holders[name] = holder

    def injected(self, fault: str) -> None:
        self.faults[fault] += 1


@dataclass(slots=True)
class Rates:
    """How often a fault is injected: per short request, and per event of a watch."""

    request: float = 0.0
    line: float = 0.0
    delay: float = 0.3  # seconds, at most


@dataclass(slots=True)
class Pause:
    """The answer to the next accepted write of that method is passed on once `ended` is set. `began`: it is there."""

    method: str
    began: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Proxy:
    """Listens for one operator process. `url` is what its kubeconfig names."""

    operator: str
    upstream: Callable[[], str]
    session: aiohttp.ClientSession
    journal: Journal
    rates: Rates
    random: random.Random
    partitioned: bool = False
    refuses_writes: bool = False
    pause: Pause | None = None
    url: str = ""
    _runner: web.ServerRunner | None = None
    _open: set[asyncio.Transport] = field(default_factory=set)
    _lists: dict[str, tuple[bytes, str]] = field(default_factory=dict)  # an older answer of each list
    _dropped: set[str] = field(default_factory=set)  # resources of whose watches an event was dropped, until a list

    async def start(self) -> None:
        server = web.Server(self._serve, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        self.partition()
        if self._runner is not None:
            await self._runner.cleanup()

    def partition(self) -> None:
        """Reset what is open. Nothing passes until `partitioned` is cleared."""
        self.partitioned = True
        for transport in list(self._open):
            transport.abort()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        if transport is None:
            raise asyncio.CancelledError
        if self.partitioned:
            return _reset(request)
        self._open.add(transport)
        try:
            if request.query.get("watch") == "true":
                return await self._watch(request)
            return await self._short(request)
        except (aiohttp.ClientError, ConnectionError):
            return _reset(request)
        finally:
            self._open.discard(transport)

    def _fault(self, rate: float, faults: tuple[str, ...]) -> str:
        if self.random.random() >= rate:
            return ""
        fault = self.random.choice(faults)
        self.journal.injected(fault)
        return fault

    async def _short(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        write = self.journal.arrived(self.operator, request, body) if request.method != "GET" else None
        fault = self._fault(self.rates.request, _REQUEST_FAULTS)
        if self.refuses_writes and write is not None and not write.lease:
            fault = self._fault(1.0, ("503-retry", "503-after"))
        elif request.query.get("continue") and self._fault(self.rates.request, ("gone-page",)):
            return web.Response(status=410, text="injected")
        if fault == "delay":
            await asyncio.sleep(self.random.uniform(0.01, self.rates.delay))
        elif fault == "before":
            return _reset(request)
        elif fault.startswith(("429", "503", "500")) and not fault.endswith("-after"):
            return _overloaded(fault)
        stale = write is None and self._fault(self.rates.request / 2, ("stale",))
        if stale and (older := self._lists.get(request.path_qs)):
            return web.Response(body=older[0], headers={"Content-Type": older[1]})
        async with self._forward(request, body) as response:
            answer = await response.read()
            kind = response.headers.get("Content-Type", "application/json")
            if write is not None:
                self.journal.answered(write, response.status, answer)
            elif response.status == 200:
                self._dropped.discard(_resource(request))
                self._lists.setdefault(request.path_qs, (answer, kind))
            if (pause := self.pause) and write is not None and write.accepted and pause.method == write.method:
                self.pause = None
                pause.began.set()
                await pause.ended.wait()
            if fault == "after" or self.partitioned:
                return _reset(request)
            if fault.endswith("-after"):
                return _overloaded(fault)
            if fault == "truncate":
                head = web.StreamResponse(headers={"Content-Type": kind, "Content-Length": str(len(answer))})
                await head.prepare(request)
                await head.write(answer[: len(answer) // 2])
                return _reset(request)
            if write is not None:
                write.delivered = True
            headers = {
                name: value for name, value in response.headers.items() if name in ("Content-Type", "Retry-After")
            }
            return web.Response(status=response.status, headers=headers, body=answer)

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        resource = _resource(request)
        fault = self._fault(self.rates.request, ("before", "503", "429-retry", "gone"))
        if fault == "before":
            return _reset(request)
        if fault or resource in self._dropped:
            return web.Response(status=410, text="injected") if fault in ("gone", "") else _overloaded(fault)
        async with self._forward(request, b"") as response:
            if response.status != 200:
                return web.Response(status=response.status, body=await response.read())
            stream = web.StreamResponse(headers={"Content-Type": "application/json"})
            await stream.prepare(request)
            dropped = False
            with suppress(ConnectionError):
                async for line in response.content:
                    fault = (
                        "gone" if dropped and self.random.random() < 0.5 else self._fault(self.rates.line, _LINE_FAULTS)
                    )
                    if fault == "hold":
                        await asyncio.sleep(self.random.uniform(0.01, self.rates.delay))
                    elif fault == "cut":
                        await stream.write(line[: len(line) // 2])
                        return _reset(request)
                    elif fault == "drop":
                        dropped = True
                        self._dropped.add(resource)
                        asyncio.get_running_loop().call_later(self.rates.delay, _expire, stream, request)
                        continue
                    elif fault == "gone":
                        _expire(stream, request)
                        return stream
                    await stream.write(line * (2 if fault == "double" else 1))
            return stream

    def _forward(self, request: web.BaseRequest, body: bytes) -> aiohttp.client._RequestContextManager:
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        url = URL(self.upstream() + request.path_qs, encoded=True)
        return self.session.request(request.method, url, data=body or None, headers=headers)


def _resource(request: web.BaseRequest) -> str:
    """What a list and its watch have in common."""
    return f"{request.path}?{request.query.get('labelSelector', '')}"


def _expire(stream: web.StreamResponse, request: web.BaseRequest) -> None:
    """End a watch as the API server does when it has forgotten the revision: an ERROR event, and the end."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}
    line = json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"
    transport = request.transport
    if transport is not None and not transport.is_closing():
        transport.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(line), line))
        transport.close()


def _overloaded(fault: str) -> web.Response:
    """429, 500 or 503, as `fault` begins; with Retry-After if it says more."""
    headers = {"Retry-After": "1"} if fault.endswith(("-retry", "-after")) else {}
    return web.Response(status=int(fault[:3]), headers=headers, text="injected")


def _reset(request: web.BaseRequest) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
