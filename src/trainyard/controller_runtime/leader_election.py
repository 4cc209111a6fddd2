"""Leader election among operators: sends the requests that the table of lease.py asks for.

    elector = LeaderElector(api, LeaseIdentity("trainyard", "trainyard-operator", hostname))
    tasks.start("hold the lease", elector.run); await elector.won.wait(); ...; await elector.release()

Rules for this file:
- `check` is called before each request of the operator, so a process that was paused sends nothing more.
- Every update carries the resourceVersion that was read: of two candidates that acquire at once, one gets a Conflict.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime

from trainyard.client import AlreadyExists, ApiClient, ApiError, Conflict, NotFound, Unavailable
from trainyard.controller_runtime.lease import (
    LeaseAction,
    LeaseIdentity,
    LeaseRecord,
    LeaseTimings,
    ObservedLease,
    Wait,
    claim_of,
    invalidate,
    is_leading,
    next_move,
    observe,
    parse_lease,
    record_failure,
    record_list,
    record_write,
)
from trainyard.objects import Json, name_of
from trainyard.objects.resources import LEASE
from trainyard.objects.structs import replace

log = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
LABELS = {"app.kubernetes.io/part-of": "trainyard"}
SELECTOR = "app.kubernetes.io/part-of=trainyard"


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


class LeaderElector:
    """One candidate. `run` for ever, or `step` by hand; `won` and `lost` are events, exactly one of which is set."""

    def __init__(
        self,
        api: ApiClient,
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
        """Whether this process is the leader now: its last accepted write is younger than `timings.deadline`."""
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
        """Close the connections of the API client. The Lease is released by `release` alone."""
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
