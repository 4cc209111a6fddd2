"""Who of several operators works: the holder of one Lease (coordination.k8s.io/v1), as client-go's electors use it.

    election = Election(api, Seat("trainyard", "trainyard-operator", me))
    task = asyncio.create_task(election.run()); await election.won.wait(); ...; await election.release()

The decision is a table (`decide`), over what is known and one clock:

    what is known                                        move
    nothing, or an answer that contradicted it           Look
    there is no lease                                    Make
    nobody holds it                                      Take
    it is ours, renewed a moment ago                     Wait
    it is ours                                           Renew
    another's, unchanged for less than its duration      Wait, and Look again each `retry`
    another's, unchanged for longer                      Take

Rules for this file:
- Clocks of different machines are never compared: what counts is how long *we* have seen no change. Our clock counts
  the time that this machine was suspended, where the system has such a clock.
- We lead for `deadline` seconds after we *sent* a write that was then accepted, which is shorter than the `duration`
  after which another may take over. `check` is asked before each send, so one who was paused sends nothing more.
- Every write names the resourceVersion we know: of two who take it at once, one gets a Conflict.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from typing import TypeAlias

from trainyard.client import AlreadyExists, Api, ApiError, Conflict, NotFound, Unavailable
from trainyard.objects import GVK, Json, revision_of

log = logging.getLogger(__name__)

LEASE = GVK("coordination.k8s.io", "v1", "Lease", "leases")
ANSWER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Seat:
    """Which lease, and the name under which we hold it: nobody else's, and not that of our own former life."""

    namespace: str
    name: str
    me: str


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds: until others take over, until we stop by ourselves, and between two renewals."""

    duration: float = 15.0
    deadline: float = 10.0
    retry: float = 2.0


@dataclass(frozen=True, slots=True)
class Record:
    """A lease as the server holds it."""

    holder: str
    duration: float
    transitions: int
    revision: str


@dataclass(frozen=True, slots=True)
class Known:
    """What we know of the lease. All times are of our own clock."""

    record: Record | None = None
    sure: bool = False  # False: look before anything else
    since: float = float("-inf")  # when we first saw `record` as it is
    looked: float = float("-inf")  # when we last looked and it was not ours, or tried to write
    sent: float = float("-inf")  # when we sent the last accepted write that made it ours; -inf: it is not


class Act(Enum):
    LOOK = "look"
    MAKE = "make"
    TAKE = "take"
    RENEW = "renew"


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


Move: TypeAlias = Act | Wait


def decide(me: str, known: Known, now: float, terms: Terms) -> Move:
    """The table."""
    record = known.record
    rest = known.looked + terms.retry - now
    if not known.sure:
        return Act.LOOK
    if record is None:
        return Act.MAKE
    if record.holder == "":
        return Act.TAKE
    if record.holder == me:
        return Wait(rest) if rest > 0 else Act.RENEW
    over = known.since + record.duration - now
    if over <= 0:
        return Act.TAKE
    return Wait(min(rest, over)) if rest > 0 else Act.LOOK


def leads(known: Known, now: float, terms: Terms) -> bool:
    """True while nobody else can have taken it."""
    return now - known.sent < terms.deadline


def saw(me: str, known: Known, record: Record | None, now: float) -> Known:
    """After a look that was sent at `now`. One that finds it ours follows a write that went wrong: renewing is due."""
    looked = float("-inf")
    if record is None or record.holder != me:
        known, looked = replace(known, sent=float("-inf")), now
    if known.record == record and known.since > float("-inf"):
        return replace(known, sure=True, looked=looked)
    return replace(known, record=record, sure=True, since=now, looked=looked)


def wrote(known: Known, record: Record, sent: float) -> Known:
    """After a write that was accepted. It counts from when it was sent."""
    return replace(known, record=record, sure=True, since=sent, looked=sent, sent=sent)


def contradicted(known: Known) -> Known:
    """After a write that was refused because the lease is not as we know it."""
    return replace(known, sure=False)


def unanswered(known: Known, now: float) -> Known:
    """After a request of which nobody knows what became."""
    return replace(known, looked=now)


def since_boot() -> float:
    """Seconds on a clock that never jumps and, where there is one, does not stop while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class NotLeading(Unavailable):
    """A request that was not sent, because another operator may lead by now."""

    def __init__(self, seat: Seat) -> None:
        super().__init__(0, "NotLeading", f"the lease {seat.namespace}/{seat.name} is not held: nothing is sent")


class Election:
    """One candidate. `run` for ever, or `step` by hand; `won` and `lost` are events, one of which is set."""

    def __init__(
        self,
        api: Api,
        seat: Seat,
        terms: Terms | None = None,
        clock: Callable[[], float] = since_boot,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`api` is for the lease alone: its requests wait for no others. `now` is what people read in the lease."""
        self.seat = seat
        self.terms = terms or Terms()
        self.known = Known()
        self.won, self.lost = asyncio.Event(), asyncio.Event()
        self.lost.set()
        self._failures = 0  # in a row
        self._api = api
        self._clock = clock
        self._now = now

    @property
    def leads(self) -> bool:
        return leads(self.known, self._clock(), self.terms)

    @property
    def heard(self) -> bool:
        """The server has told us something of the lease, if only that there is none."""
        return self.known.since > float("-inf")

    def check(self) -> None:
        """Raises NotLeading. To be asked before each send."""
        if not self.leads:
            raise NotLeading(self.seat)

    async def run(self) -> None:
        """Until cancelled: take it, keep it, lose it, take it again."""
        while True:
            pause = await self.step()
            await asyncio.sleep(pause * random.uniform(0.9, 1.0))

    async def step(self) -> float:
        """One move. Returns the seconds until the next is due."""
        move = decide(self.seat.me, self.known, self._clock(), self.terms)
        if isinstance(move, Wait):
            self._settle()
            return self._soon(move.seconds)
        began = self._clock()
        pause = 0.0
        try:
            async with asyncio.timeout(self._patience()):
                await self._do(move, began)
        except (Conflict, AlreadyExists, NotFound) as error:
            log.debug("the lease is not as we knew it why=%s", error)
            self.known, pause = contradicted(self.known), random.uniform(0.0, 0.1)
        except (ApiError, TimeoutError) as error:
            self._failures += 1
            level = logging.WARNING if self._failures in (1, 10) else logging.DEBUG
            why = error if str(error) else "no answer"
            log.log(level, "no word about the lease lease=%s move=%s why=%s", self._name, move.value, why)
            self.known, pause = unanswered(self.known, began), self.terms.retry
        else:
            self._failures = 0
        self._settle()
        return self._soon(pause)

    async def release(self) -> None:
        """Let it go, if it is ours, so that the next one need not wait. Nothing more is sent from here on."""
        self.known = replace(self.known, sent=float("-inf"))
        self._settle()
        for _ in range(2):
            record = self.known.record
            if record is None or record.holder != self.seat.me:
                return
            try:
                spec: Json = {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": self._time()}
                await self._patch(record, spec)
            except (Conflict, NotFound):  # a renewal of ours was under way when we were told to stop
                self.known = saw(self.seat.me, contradicted(self.known), await self._get(), self._clock())
            else:
                log.info("lease released lease=%s", self._name)
                self.known = contradicted(self.known)
                return

    async def close(self) -> None:
        await self._api.close()

    async def _do(self, move: Act, began: float) -> None:
        record = self.known.record
        if move is Act.LOOK:
            self.known = saw(self.seat.me, self.known, await self._get(), began)
        elif move is Act.MAKE or record is None:
            body = {
                "apiVersion": LEASE.api_version,
                "kind": LEASE.kind,
                "metadata": {"name": self.seat.name, "namespace": self.seat.namespace},
                "spec": {**self._renewed(), "acquireTime": self._time(), "leaseTransitions": 0},
            }
            made = await self._api.create(LEASE, self.seat.namespace, body)
            self.known = wrote(self.known, read(made), began)
        else:
            spec = self._renewed()
            if move is Act.TAKE:
                spec |= {"acquireTime": self._time(), "leaseTransitions": record.transitions + 1}
            self.known = wrote(self.known, await self._patch(record, spec), began)

    async def _get(self) -> Record | None:
        with contextlib.suppress(NotFound):
            return read(await self._api.get(LEASE, self.seat.namespace, self.seat.name))
        return None

    async def _patch(self, record: Record, spec: Json) -> Record:
        body = {"metadata": {"resourceVersion": record.revision}, "spec": spec}
        return read(await self._api.patch(LEASE, self.seat.namespace, self.seat.name, body))

    def _renewed(self) -> Json:
        duration = max(1, round(self.terms.duration))
        return {"holderIdentity": self.seat.me, "leaseDurationSeconds": duration, "renewTime": self._time()}

    def _patience(self) -> float:
        """How long an answer may take: not longer than we lead, if we do."""
        rest = self.known.sent + self.terms.deadline - self._clock()
        return min(ANSWER_SECONDS, rest) if rest > 0 else ANSWER_SECONDS

    def _soon(self, pause: float) -> float:
        """Not later than the moment at which we must stop, if nothing renews it before."""
        rest = self.known.sent + self.terms.deadline - self._clock()
        return min(pause, rest) if rest > 0 else pause

    def _settle(self) -> None:
        leading = self.leads
        if leading != self.won.is_set():
            words = "leading lease=%s me=%s" if leading else "leading no more lease=%s me=%s"
            log.log(logging.INFO if leading else logging.WARNING, words, self._name, self.seat.me)
        for event, true in ((self.won, leading), (self.lost, not leading)):
            event.set() if true else event.clear()

    @property
    def _name(self) -> str:
        return f"{self.seat.namespace}/{self.seat.name}"

    def _time(self) -> str:
        """Microseconds, as leases have it."""
        return datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def read(lease: Json) -> Record:
    """What a lease says, whoever wrote it."""
    spec = lease.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    return Record(
        holder=str(spec.get("holderIdentity") or ""),
        duration=_number(spec.get("leaseDurationSeconds"), Terms().duration),
        transitions=int(_number(spec.get("leaseTransitions"), 0)),
        revision=revision_of(lease),
    )


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else otherwise
