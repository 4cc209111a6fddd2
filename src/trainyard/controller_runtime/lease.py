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
from trainyard.objects import Json, name_of, revision_of
from trainyard.objects.labels import PREFIX
from trainyard.objects.resources import LEASE
from trainyard.objects.values import replace

log = logging.getLogger(__name__)

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


class LeaseIdentity(msgspec.Struct, frozen=True):
    """The Lease to compete for, and our holderIdentity (`me`): unique among all processes, our own restarts included.

    Without a claim no other Lease is read.
    """

    namespace: str
    name: str
    identity: str
    claim: Claim | None = None


class LeaseTimings(msgspec.Struct, frozen=True):
    """Seconds, as client-go's LeaseDuration, RenewDeadline and RetryPeriod; `renew` is the time between two renewals.

    A standby reads the Lease every `retry` seconds, so a killed leader is replaced after `duration` + `retry` at most.
    A renewal that fails is retried after `retry`.
    """

    duration: float = 4.0
    deadline: float = 3.0
    retry: float = 0.5
    renew: float = 1.0


class LeaseRecord(msgspec.Struct, frozen=True):
    """A lease as the server holds it."""

    holder: str
    duration: float
    transitions: int
    revision: str


class OverlappingLease(msgspec.Struct, frozen=True):
    """An overlapping Lease held by another, and since when we have seen it unchanged, on our clock."""

    record: LeaseRecord
    unchanged_since: float


class ObservedLease(msgspec.Struct, frozen=True):
    """What we know of the lease. All times are of our own clock."""

    record: LeaseRecord | None = None
    current: bool = False  # False: look before anything else
    unchanged_since: float = float("-inf")  # when we first saw `record` as it is
    last_request: float = float("-inf")  # last read that found it not ours, or last write attempt
    last_renewal: float = float("-inf")  # when we sent the last accepted acquire or renewal; -inf: not the holder
    confirmed: bool = True  # since we took it, a list has shown that no overlapping lease is held
    overlapping: Mapping[str, OverlappingLease] = msgspec.field(
        default_factory=dict
    )  # overlapping leases that others hold, by name


class LeaseAction(Enum):
    READ = "look"
    CREATE = "make"
    ACQUIRE = "take"
    RENEW = "renew"
    CONFIRM = "confirm"
    YIELD = "yield"
    CLEAR = "clear"


class Wait(msgspec.Struct, frozen=True):
    seconds: float


LeaseMove: TypeAlias = LeaseAction | Wait


def next_move(identity: str, observed: ObservedLease, now: float, timings: LeaseTimings) -> LeaseMove:
    """The table."""
    record = observed.record
    rest = observed.last_request + timings.retry - now
    if not observed.current:
        return LeaseAction.READ
    if observed.overlapping and not is_leading(observed, now, timings):
        over = min(rival.unchanged_since + rival.record.duration for rival in observed.overlapping.values()) - now
        if record is not None and record.holder == identity:
            return LeaseAction.YIELD
        if over <= 0:
            return LeaseAction.CLEAR
        return Wait(min(rest, over)) if rest > 0 else LeaseAction.READ
    if record is None:
        return LeaseAction.CREATE
    if record.holder == "":
        return LeaseAction.ACQUIRE
    if record.holder == identity:
        if not observed.confirmed:
            return LeaseAction.CONFIRM
        due = (
            observed.last_request
            + (timings.renew if observed.last_request == observed.last_renewal else timings.retry)
            - now
        )
        return Wait(due) if due > 0 else LeaseAction.RENEW
    over = observed.unchanged_since + record.duration - now
    if over <= 0:
        return LeaseAction.ACQUIRE
    return Wait(min(rest, over)) if rest > 0 else LeaseAction.READ


def is_leading(observed: ObservedLease, now: float, timings: LeaseTimings) -> bool:
    """True while nobody else can have taken it."""
    return observed.confirmed and now - observed.last_renewal < timings.deadline


def observe(identity: str, observed: ObservedLease, record: LeaseRecord | None, now: float) -> ObservedLease:
    """The state after a read of the Lease, answered at `now`; the Lease may have changed since the read was sent.

    A read that finds us as the holder follows a failed write, so a renewal is due at once.
    """
    looked = float("-inf")
    if record is None or record.holder != identity:
        observed, looked = replace(observed, last_renewal=float("-inf")), now
    if observed.record == record and observed.unchanged_since > float("-inf"):
        return replace(observed, current=True, last_request=looked)
    return replace(observed, record=record, current=True, unchanged_since=now, last_request=looked)


def record_write(observed: ObservedLease, record: LeaseRecord, sent: float, confirmed: bool = True) -> ObservedLease:
    """The state after an accepted write, dated from when it was sent. `confirmed`: there is no claim, or we led when it
    was sent, so that nobody can have cleared the Lease in between."""
    return replace(
        observed,
        record=record,
        current=True,
        unchanged_since=sent,
        last_request=sent,
        last_renewal=sent,
        confirmed=confirmed,
    )


def record_list(
    observed: ObservedLease, overlapping: Mapping[str, LeaseRecord], now: float, led: bool
) -> ObservedLease:
    """The state after a list, answered at `now`, of the overlapping Leases held by others. An unchanged one keeps its
    `since`. `led`: we led when the list was sent; then the others must yield."""
    seen = {
        name: before
        if (before := observed.overlapping.get(name)) and before.record == record
        else OverlappingLease(record, now)
        for name, record in overlapping.items()
    }
    return replace(
        observed, overlapping=seen, confirmed=led or not seen, last_request=now if seen else observed.last_request
    )


def invalidate(observed: ObservedLease) -> ObservedLease:
    """The state in which the Lease must be read again, e.g. after Conflict, AlreadyExists or NotFound."""
    return replace(observed, current=False)


def record_failure(observed: ObservedLease, now: float) -> ObservedLease:
    """The state after a request, sent at `now`, with unknown outcome (error or no answer)."""
    return replace(observed, last_request=now)


def boottime() -> float:
    """Seconds on a clock that never jumps and, where there is one, does not stop while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class NotLeading(Unavailable):
    """A request that was not sent, because another operator may lead by now."""

    def __init__(self, lease_id: LeaseIdentity) -> None:
        super().__init__(
            0, "NotLeading", f"the lease {lease_id.namespace}/{lease_id.name} is not held: nothing is sent"
        )


class Election:
    """One candidate. `run` for ever, or `step` by hand; `won` and `lost` are events, one of which is set."""

    def __init__(
        self,
        api: Api,
        lease_id: LeaseIdentity,
        timings: LeaseTimings | None = None,
        clock: Callable[[], float] = boottime,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`api` is for the lease alone: its requests wait for no others. `now` is what people read in the lease."""
        self.lease_id = lease_id
        self.timings = timings or LeaseTimings()
        self.observed = ObservedLease()
        self.won, self.lost = asyncio.Event(), asyncio.Event()
        self.lost.set()
        self._failures = 0  # in a row
        self._logged_standby = ""
        self._api = api
        self._clock = clock
        self._now = now

    @property
    def leads(self) -> bool:
        return is_leading(self.observed, self._clock(), self.timings)

    @property
    def contacted(self) -> bool:
        """The server has told us something of the lease, if only that there is none."""
        return self.observed.unchanged_since > float("-inf")

    def check(self) -> None:
        """Raises NotLeading. To be asked before each send."""
        if not self.leads:
            raise NotLeading(self.lease_id)

    async def run(self) -> None:
        """Until cancelled: take it, keep it, lose it, take it again."""
        while True:
            pause = await self.step()
            await asyncio.sleep(pause * random.uniform(0.9, 1.0))

    async def step(self) -> float:
        """One move. Returns the seconds until the next is due."""
        move = next_move(self.lease_id.identity, self.observed, self._clock(), self.timings)
        if isinstance(move, Wait):
            self._update_events()
            return self._until_deadline(move.seconds)
        began = self._clock()
        pause = 0.0
        led = self.leads
        try:
            async with asyncio.timeout(self._timeout()):
                await self._execute(move, began, led)
        except (Conflict, AlreadyExists, NotFound) as error:
            log.debug("the lease is not as we knew it why=%s", error)
            self.observed, pause = invalidate(self.observed), random.uniform(0.0, 0.1)
        except (ApiError, TimeoutError) as error:
            self._failures += 1
            level = logging.WARNING if self._failures in (1, 10) else logging.DEBUG
            why = error if str(error) else "no answer"
            log.log(level, "no word about the lease lease=%s move=%s why=%s", self.lease, move.value, why)
            self.observed, pause = record_failure(self.observed, began), self.timings.retry
        else:
            self._failures = 0
        self._update_events()
        return self._until_deadline(pause)

    async def release(self) -> None:
        """Release the Lease if we hold it, so that the next leader need not wait. We do not lead from here on."""
        self.observed = replace(self.observed, last_renewal=float("-inf"))
        self._update_events()
        for _ in range(2):
            record = self.observed.record
            if record is None or record.holder != self.lease_id.identity:
                return
            try:
                spec: Json = {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": self._timestamp()}
                await self._patch(record, spec)
            except (Conflict, NotFound):  # a renewal of ours was under way when we were told to stop
                self.observed = observe(
                    self.lease_id.identity, invalidate(self.observed), await self._get(), self._clock()
                )
            else:
                log.info("lease released lease=%s", self.lease)
                self.observed = invalidate(self.observed)
                return

    async def close(self) -> None:
        await self._api.close()

    async def _execute(self, move: LeaseAction, began: float, led: bool) -> None:
        record = self.observed.record
        confirmed = led or self.lease_id.claim is None
        if move is LeaseAction.READ or move is LeaseAction.CONFIRM:
            await self._read_leases(led)
        elif move is LeaseAction.YIELD and record is not None:
            await self._yield_lease(record)
            await self._read_leases(led)
        elif move is LeaseAction.CLEAR:
            await self._clear_expired(began)
        elif move is LeaseAction.CREATE or record is None:
            body = {
                "apiVersion": LEASE.api_version,
                "kind": LEASE.kind,
                "metadata": {
                    "name": self.lease_id.name,
                    "namespace": self.lease_id.namespace,
                    **self._claim_metadata(),
                },
                "spec": {**self._renewed_spec(), "acquireTime": self._timestamp(), "leaseTransitions": 0},
            }
            made = await self._api.create(LEASE, self.lease_id.namespace, body)
            self.observed = record_write(self.observed, parse_lease(made), began, confirmed)
        else:
            spec = self._renewed_spec()
            if move is LeaseAction.ACQUIRE:
                spec |= {"acquireTime": self._timestamp(), "leaseTransitions": record.transitions + 1}
            self.observed = record_write(self.observed, await self._patch(record, spec), began, confirmed)

    async def _get(self) -> LeaseRecord | None:
        if self.lease_id.claim is not None:
            return next(
                (parse_lease(lease) for lease in await self._leases() if name_of(lease) == self.lease_id.name), None
            )
        with contextlib.suppress(NotFound):
            return parse_lease(await self._api.get(LEASE, self.lease_id.namespace, self.lease_id.name))
        return None

    async def _leases(self) -> list[Json]:
        """List the Leases of all operators, without resourceVersion: a consistent read, no older than the request."""
        return list((await self._api.list(LEASE, self.lease_id.namespace, SELECTOR)).get("items") or ())

    async def _read_leases(self, led: bool) -> None:
        """What our lease is, and with a claim which overlapping leases others hold."""
        claim = self.lease_id.claim
        if claim is None:
            found = await self._get()
            self.observed = observe(self.lease_id.identity, self.observed, found, self._clock())
            self._log_standby()
            return
        leases = await self._leases()
        own = next((parse_lease(lease) for lease in leases if name_of(lease) == self.lease_id.name), None)
        rivals = {}
        for lease in leases:
            other, record = claim_of(lease), parse_lease(lease)
            if name_of(lease) != self.lease_id.name and record.holder and other is not None and claim.overlaps(other):
                rivals[name_of(lease)] = record
        now = self._clock()
        self.observed = record_list(observe(self.lease_id.identity, self.observed, own, now), rivals, now, led)
        self._log_standby()

    async def _yield_lease(self, record: LeaseRecord) -> None:
        """Give ours up: an overlapping lease is held."""
        self.observed = replace(invalidate(self.observed), last_renewal=float("-inf"))
        await self._patch(record, {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": self._timestamp()})

    async def _clear_expired(self, now: float) -> None:
        """End the overlapping leases that have expired: their holders' renewals are refused from here on."""
        self.observed = invalidate(self.observed)
        spec: Json = {"holderIdentity": None, "renewTime": self._timestamp()}
        for name, rival in self.observed.overlapping.items():
            if rival.unchanged_since + rival.record.duration <= now:
                log.info(
                    "overlapping lease expired lease=%s/%s holder=%s",
                    self.lease_id.namespace,
                    name,
                    rival.record.holder,
                )
                await self._patch(rival.record, spec, name)

    def _log_standby(self) -> None:
        """Log for whom we stand by, when that changes."""
        if self.standby != self._logged_standby:
            self._logged_standby = self.standby
            if self._logged_standby:
                log.info("standing by for=%s lease=%s me=%s", self._logged_standby, self.lease, self.lease_id.identity)

    @property
    def standby(self) -> str:
        """For whom we stand by, "LEASE held by HOLDER"; "" when we lead or nobody is known to."""
        record = self.observed.record
        for name, rival in self.observed.overlapping.items():
            return f"{self.lease_id.namespace}/{name} held by {rival.record.holder}"
        if record is not None and record.holder not in ("", self.lease_id.identity):
            return f"{self.lease} held by {record.holder}"
        return ""

    async def _patch(self, record: LeaseRecord, spec: Json, name: str = "") -> LeaseRecord:
        own = self._claim_metadata() if not name else {}
        body = {"metadata": {"resourceVersion": record.revision, **own}, "spec": spec}
        return parse_lease(await self._api.patch(LEASE, self.lease_id.namespace, name or self.lease_id.name, body))

    def _claim_metadata(self) -> Json:
        """What a lease of a claim has beside its spec."""
        claim = self.lease_id.claim
        return {} if claim is None else {"labels": LABELS, "annotations": claim.annotations()}

    def _renewed_spec(self) -> Json:
        duration = max(1, round(self.timings.duration))
        return {
            "holderIdentity": self.lease_id.identity,
            "leaseDurationSeconds": duration,
            "renewTime": self._timestamp(),
        }

    def _timeout(self) -> float:
        """How long an answer may take: not longer than we lead, if we do."""
        rest = self.observed.last_renewal + self.timings.deadline - self._clock()
        return min(ANSWER_SECONDS, rest) if rest > 0 else ANSWER_SECONDS

    def _until_deadline(self, pause: float) -> float:
        """Not later than the moment at which we must stop, if nothing renews it before."""
        rest = self.observed.last_renewal + self.timings.deadline - self._clock()
        return min(pause, rest) if rest > 0 else pause

    def _update_events(self) -> None:
        leading = self.leads
        if leading != self.won.is_set():
            words = "leading lease=%s me=%s" if leading else "leading no more lease=%s me=%s"
            log.log(logging.INFO if leading else logging.WARNING, words, self.lease, self.lease_id.identity)
        for event, true in ((self.won, leading), (self.lost, not leading)):
            event.set() if true else event.clear()

    @property
    def lease(self) -> str:
        """NAMESPACE/NAME."""
        return f"{self.lease_id.namespace}/{self.lease_id.name}"

    def _timestamp(self) -> str:
        """Microseconds, as leases have it."""
        return datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_lease(lease: Json) -> LeaseRecord:
    """What a lease says, whoever wrote it."""
    spec = lease.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    return LeaseRecord(
        holder=str(spec.get("holderIdentity") or ""),
        duration=_number(spec.get("leaseDurationSeconds"), UNSTATED_SECONDS),
        transitions=int(_number(spec.get("leaseTransitions"), 0)),
        revision=revision_of(lease),
    )


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else otherwise
