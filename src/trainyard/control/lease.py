"""Leader election among operators by a Lease (coordination.k8s.io/v1), with the fields that client-go's election uses.

    election = Election(api, Seat("trainyard", "trainyard-operator", me))
    task = asyncio.create_task(election.run()); await election.won.wait(); ...; await election.release()

`decide` is a table from the known state of the Lease and one clock to the next move (a request, or a wait):

    what is known                                        move
    nothing, or the last request got Conflict/NotFound   Look (read the Lease)
    there is no lease                                    Make
    nobody holds it                                      Take
    it is ours, renewed a moment ago                     Wait
    it is ours                                           Renew
    another's, unchanged for less than its duration      Wait, and Look again each `retry`
    another's, unchanged for longer                      Take
    an overlapping lease is held by another              Wait, and Look again each `retry`; Yield ours if we hold it
    ... unchanged for longer than its duration           Clear it
    it is ours, overlapping leases not checked since     Confirm (list the leases), before we lead

Scopes. A `Claim` is what an operator serves: kinds, in one namespace or in all. Operators with equal claims compete for
one Lease, named after the claim. Operators with different but overlapping claims have different Leases in the same
namespace and exclude each other: each acquires its own Lease, then lists the others, and leads only if no overlapping
one is held. If two do so at the same time, at least one sees the other and releases its own. An expired overlapping
Lease is cleared before anybody leads beside it, so that a late renewal by its holder gets a Conflict.

Rules for this file:
- Clocks of different machines are never compared: a Lease expires when *we* have seen no change for its duration. Our
  clock also counts the time that this machine was suspended, where the system has such a clock (CLOCK_BOOTTIME).
- We lead for `deadline` seconds after we *sent* the last accepted write; that is shorter than `duration`, after which
  another may take over. `check` is called before each request, so a process that was paused sends nothing more.
- Every update carries the resourceVersion we read: of two candidates that acquire at once, one gets a Conflict.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import TypeAlias

import msgspec

from trainyard.client import AlreadyExists, Api, ApiError, Conflict, NotFound, Unavailable
from trainyard.objects import GVK, Json, name_of, revision_of
from trainyard.objects.labels import PREFIX
from trainyard.objects.values import replace

log = logging.getLogger(__name__)

LEASE = GVK("coordination.k8s.io", "v1", "Lease", "leases")
ANSWER_SECONDS = 5.0
UNSTATED_SECONDS = 15.0  # of a lease that names no duration: what client-go writes by default
LABELS = {"app.kubernetes.io/part-of": "trainyard"}
SELECTOR = "app.kubernetes.io/part-of=trainyard"
KINDS, NAMESPACE = f"{PREFIX}kinds", f"{PREFIX}namespace"  # annotations of a lease: its claim


class Claim(msgspec.Struct, frozen=True):
    """What an operator serves: kinds, in one namespace, or in all of them ("")."""

    kinds: frozenset[str]
    namespace: str = ""

    @property
    def lease_name(self) -> str:
        """The same for all operators of this claim: trainyard-mxjob-tfjob, trainyard-tfjob.team-a."""
        name = "-".join(("trainyard", *sorted(kind.lower() for kind in self.kinds)))
        return f"{name}.{self.namespace}" if self.namespace else name

    def overlaps(self, other: Claim) -> bool:
        """True when there may be a job that both serve."""
        same = not self.namespace or not other.namespace or self.namespace == other.namespace
        return same and not self.kinds.isdisjoint(other.kinds)

    def annotations(self) -> dict[str, str]:
        """How a lease says it."""
        return {KINDS: ",".join(sorted(self.kinds)), NAMESPACE: self.namespace}


def claim_of(lease: Json) -> Claim | None:
    """The claim in a lease's annotations, None when it has none."""
    annotations = (lease.get("metadata") or {}).get("annotations")
    if not isinstance(annotations, dict) or not isinstance(kinds := annotations.get(KINDS), str):
        return None
    return Claim(frozenset(filter(None, kinds.split(","))), str(annotations.get(NAMESPACE) or ""))


class Seat(msgspec.Struct, frozen=True):
    """The Lease to compete for, and our holderIdentity (`me`): unique among all processes, our own restarts included.

    Without a claim no other Lease is read.
    """

    namespace: str
    name: str
    me: str
    claim: Claim | None = None


class Terms(msgspec.Struct, frozen=True):
    """Seconds, as client-go's LeaseDuration, RenewDeadline and RetryPeriod; `renew` is the time between two renewals.

    A standby reads the Lease every `retry` seconds, so a killed leader is replaced after `duration` + `retry` at most.
    A renewal that fails is retried after `retry`.
    """

    duration: float = 4.0
    deadline: float = 3.0
    retry: float = 0.5
    renew: float = 1.0


class Record(msgspec.Struct, frozen=True):
    """A lease as the server holds it."""

    holder: str
    duration: float
    transitions: int
    revision: str


class Rival(msgspec.Struct, frozen=True):
    """An overlapping Lease held by another, and since when we have seen it unchanged, on our clock."""

    record: Record
    since: float


class Known(msgspec.Struct, frozen=True):
    """What we know of the lease. All times are of our own clock."""

    record: Record | None = None
    sure: bool = False  # False: look before anything else
    since: float = float("-inf")  # when we first saw `record` as it is
    looked: float = float("-inf")  # last read that found it not ours, or last write attempt
    sent: float = float("-inf")  # when we sent the last accepted acquire or renewal; -inf: not the holder
    confirmed: bool = True  # since we took it, a list has shown that no overlapping lease is held
    rivals: Mapping[str, Rival] = msgspec.field(default_factory=dict)  # overlapping leases that others hold, by name


class Act(Enum):
    LOOK = "look"
    MAKE = "make"
    TAKE = "take"
    RENEW = "renew"
    CONFIRM = "confirm"
    YIELD = "yield"
    CLEAR = "clear"


class Wait(msgspec.Struct, frozen=True):
    seconds: float


Move: TypeAlias = Act | Wait


def decide(me: str, known: Known, now: float, terms: Terms) -> Move:
    """The table."""
    record = known.record
    rest = known.looked + terms.retry - now
    if not known.sure:
        return Act.LOOK
    if known.rivals and not leads(known, now, terms):
        over = min(rival.since + rival.record.duration for rival in known.rivals.values()) - now
        if record is not None and record.holder == me:
            return Act.YIELD
        if over <= 0:
            return Act.CLEAR
        return Wait(min(rest, over)) if rest > 0 else Act.LOOK
    if record is None:
        return Act.MAKE
    if record.holder == "":
        return Act.TAKE
    if record.holder == me:
        if not known.confirmed:
            return Act.CONFIRM
        due = known.looked + (terms.renew if known.looked == known.sent else terms.retry) - now
        return Wait(due) if due > 0 else Act.RENEW
    over = known.since + record.duration - now
    if over <= 0:
        return Act.TAKE
    return Wait(min(rest, over)) if rest > 0 else Act.LOOK


def leads(known: Known, now: float, terms: Terms) -> bool:
    """True while nobody else can have taken it."""
    return known.confirmed and now - known.sent < terms.deadline


def saw(me: str, known: Known, record: Record | None, now: float) -> Known:
    """The state after a read of the Lease, answered at `now`; the Lease may have changed since the read was sent.

    A read that finds us as the holder follows a failed write, so a renewal is due at once.
    """
    looked = float("-inf")
    if record is None or record.holder != me:
        known, looked = replace(known, sent=float("-inf")), now
    if known.record == record and known.since > float("-inf"):
        return replace(known, sure=True, looked=looked)
    return replace(known, record=record, sure=True, since=now, looked=looked)


def wrote(known: Known, record: Record, sent: float, confirmed: bool = True) -> Known:
    """The state after an accepted write, dated from when it was sent. `confirmed`: there is no claim, or we led when it
    was sent, so that nobody can have cleared the Lease in between."""
    return replace(known, record=record, sure=True, since=sent, looked=sent, sent=sent, confirmed=confirmed)


def listed(known: Known, rivals: Mapping[str, Record], now: float, led: bool) -> Known:
    """The state after a list, answered at `now`, of the overlapping Leases held by others. An unchanged one keeps its
    `since`. `led`: we led when the list was sent; then the others must yield."""
    seen = {
        name: before if (before := known.rivals.get(name)) and before.record == record else Rival(record, now)
        for name, record in rivals.items()
    }
    return replace(known, rivals=seen, confirmed=led or not seen, looked=now if seen else known.looked)


def contradicted(known: Known) -> Known:
    """The state in which the Lease must be read again, e.g. after Conflict, AlreadyExists or NotFound."""
    return replace(known, sure=False)


def unanswered(known: Known, now: float) -> Known:
    """The state after a request, sent at `now`, with unknown outcome (error or no answer)."""
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
        self._told = ""
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
        led = self.leads
        try:
            async with asyncio.timeout(self._patience()):
                await self._do(move, began, led)
        except (Conflict, AlreadyExists, NotFound) as error:
            log.debug("the lease is not as we knew it why=%s", error)
            self.known, pause = contradicted(self.known), random.uniform(0.0, 0.1)
        except (ApiError, TimeoutError) as error:
            self._failures += 1
            level = logging.WARNING if self._failures in (1, 10) else logging.DEBUG
            why = error if str(error) else "no answer"
            log.log(level, "no word about the lease lease=%s move=%s why=%s", self.lease, move.value, why)
            self.known, pause = unanswered(self.known, began), self.terms.retry
        else:
            self._failures = 0
        self._settle()
        return self._soon(pause)

    async def release(self) -> None:
        """Release the Lease if we hold it, so that the next leader need not wait. We do not lead from here on."""
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
                log.info("lease released lease=%s", self.lease)
                self.known = contradicted(self.known)
                return

    async def close(self) -> None:
        await self._api.close()

    async def _do(self, move: Act, began: float, led: bool) -> None:
        record = self.known.record
        confirmed = led or self.seat.claim is None
        if move is Act.LOOK or move is Act.CONFIRM:
            await self._look(led)
        elif move is Act.YIELD and record is not None:
            await self._let_go(record)
            await self._look(led)
        elif move is Act.CLEAR:
            await self._clear(began)
        elif move is Act.MAKE or record is None:
            body = {
                "apiVersion": LEASE.api_version,
                "kind": LEASE.kind,
                "metadata": {"name": self.seat.name, "namespace": self.seat.namespace, **self._claimed()},
                "spec": {**self._renewed(), "acquireTime": self._time(), "leaseTransitions": 0},
            }
            made = await self._api.create(LEASE, self.seat.namespace, body)
            self.known = wrote(self.known, read(made), began, confirmed)
        else:
            spec = self._renewed()
            if move is Act.TAKE:
                spec |= {"acquireTime": self._time(), "leaseTransitions": record.transitions + 1}
            self.known = wrote(self.known, await self._patch(record, spec), began, confirmed)

    async def _get(self) -> Record | None:
        if self.seat.claim is not None:
            return next((read(lease) for lease in await self._leases() if name_of(lease) == self.seat.name), None)
        with contextlib.suppress(NotFound):
            return read(await self._api.get(LEASE, self.seat.namespace, self.seat.name))
        return None

    async def _leases(self) -> list[Json]:
        """List the Leases of all operators, without resourceVersion: a consistent read, no older than the request."""
        return list((await self._api.list(LEASE, self.seat.namespace, SELECTOR)).get("items") or ())

    async def _look(self, led: bool) -> None:
        """What our lease is, and with a claim which overlapping leases others hold."""
        claim = self.seat.claim
        if claim is None:
            found = await self._get()
            self.known = saw(self.seat.me, self.known, found, self._clock())
            self._tell()
            return
        leases = await self._leases()
        own = next((read(lease) for lease in leases if name_of(lease) == self.seat.name), None)
        rivals = {}
        for lease in leases:
            other, record = claim_of(lease), read(lease)
            if name_of(lease) != self.seat.name and record.holder and other is not None and claim.overlaps(other):
                rivals[name_of(lease)] = record
        now = self._clock()
        self.known = listed(saw(self.seat.me, self.known, own, now), rivals, now, led)
        self._tell()

    async def _let_go(self, record: Record) -> None:
        """Give ours up: an overlapping lease is held."""
        self.known = replace(contradicted(self.known), sent=float("-inf"))
        await self._patch(record, {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": self._time()})

    async def _clear(self, now: float) -> None:
        """End the overlapping leases that have expired: their holders' renewals are refused from here on."""
        self.known = contradicted(self.known)
        spec: Json = {"holderIdentity": None, "renewTime": self._time()}
        for name, rival in self.known.rivals.items():
            if rival.since + rival.record.duration <= now:
                log.info(
                    "overlapping lease expired lease=%s/%s holder=%s", self.seat.namespace, name, rival.record.holder
                )
                await self._patch(rival.record, spec, name)

    def _tell(self) -> None:
        """Log for whom we stand by, when that changes."""
        if self.standby != self._told:
            self._told = self.standby
            if self._told:
                log.info("standing by for=%s lease=%s me=%s", self._told, self.lease, self.seat.me)

    @property
    def standby(self) -> str:
        """For whom we stand by, "LEASE held by HOLDER"; "" when we lead or nobody is known to."""
        record = self.known.record
        for name, rival in self.known.rivals.items():
            return f"{self.seat.namespace}/{name} held by {rival.record.holder}"
        if record is not None and record.holder not in ("", self.seat.me):
            return f"{self.lease} held by {record.holder}"
        return ""

    async def _patch(self, record: Record, spec: Json, name: str = "") -> Record:
        own = self._claimed() if not name else {}
        body = {"metadata": {"resourceVersion": record.revision, **own}, "spec": spec}
        return read(await self._api.patch(LEASE, self.seat.namespace, name or self.seat.name, body))

    def _claimed(self) -> Json:
        """What a lease of a claim has beside its spec."""
        claim = self.seat.claim
        return {} if claim is None else {"labels": LABELS, "annotations": claim.annotations()}

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
            log.log(logging.INFO if leading else logging.WARNING, words, self.lease, self.seat.me)
        for event, true in ((self.won, leading), (self.lost, not leading)):
            event.set() if true else event.clear()

    @property
    def lease(self) -> str:
        """NAMESPACE/NAME."""
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
        duration=_number(spec.get("leaseDurationSeconds"), UNSTATED_SECONDS),
        transitions=int(_number(spec.get("leaseTransitions"), 0)),
        revision=revision_of(lease),
    )


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else otherwise
