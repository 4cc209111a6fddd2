"""Leader election among operators: sends the requests that the table of lease.py asks for, through LeaseClient.

    elector = LeaderElector(api, LeaseIdentity("trainyard", "trainyard-operator", hostname))
    tasks.start("hold the lease", elector.run); await elector.won.wait(); ...; await elector.release()

Rule for this file: `check` is called before each request of the operator, so that a process that was suspended past its
deadline sends nothing more.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable

from trainyard.client import AlreadyExists, ApiClient, ApiError, Conflict, NotFound, Unavailable
from trainyard.controller_runtime.lease import (
    LeaseAction,
    LeaseIdentity,
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
from trainyard.controller_runtime.lease_client import LeaseClient
from trainyard.objects import name_of
from trainyard.objects.structs import replace

log = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
"""The timeout of one request for the Lease."""


def boottime() -> float:
    """Seconds on a clock that is never set and, where the system has one, also counts while it is suspended."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class NotLeading(Unavailable):
    """A request was not sent, because this process does not hold the Lease, or may have lost it."""

    def __init__(self, lease_id: LeaseIdentity) -> None:
        super().__init__(
            0, "NotLeading", f"the lease {lease_id.namespace}/{lease_id.name} is not held: nothing is sent"
        )


class LeaderElector:
    """One candidate (client-go: LeaderElector). `run` it as a task, or call `step`. Exactly one of the events `won`
    and `lost` is set."""

    def __init__(
        self,
        api: ApiClient,
        lease_id: LeaseIdentity,
        timings: LeaseTimings | None = None,
        clock: Callable[[], float] = boottime,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`api` is used for the Lease alone, so that its requests do not queue behind others. `clock` times the
        decisions; `now` is the wall clock of the timestamps in the Lease."""
        self.lease_id = lease_id
        self.timings = timings or LeaseTimings()
        self.observed = ObservedLease()
        self.won, self.lost = asyncio.Event(), asyncio.Event()
        self.lost.set()
        self._failures = 0  # consecutive requests that failed
        self._logged_standby = ""
        self._client = LeaseClient(api, lease_id, self.timings.duration, now)
        self._clock = clock

    @property
    def lease(self) -> str:
        """NAMESPACE/NAME of the Lease."""
        return f"{self.lease_id.namespace}/{self.lease_id.name}"

    @property
    def leads(self) -> bool:
        """Whether this process is the leader now: its last accepted write is younger than `timings.deadline`."""
        return is_leading(self.observed, self._clock(), self.timings)

    @property
    def contacted(self) -> bool:
        """Whether the Lease has been read, or found missing, at least once."""
        return self.observed.unchanged_since > float("-inf")

    @property
    def standby(self) -> str:
        """Which Lease this candidate waits for, "LEASE held by HOLDER"; "" when it leads or no holder is known."""
        record = self.observed.record
        for name, rival in self.observed.overlapping.items():
            return f"{self.lease_id.namespace}/{name} held by {rival.record.holder}"
        if record is not None and record.holder not in ("", self.lease_id.identity):
            return f"{self.lease} held by {record.holder}"
        return ""

    def check(self) -> None:
        """Raise NotLeading unless this process leads. To be called before each request of the operator."""
        if not self.leads:
            raise NotLeading(self.lease_id)

    async def run(self) -> None:
        """Acquire and renew the Lease until cancelled; acquire it again after it was lost."""
        while True:
            pause = await self.step()
            await asyncio.sleep(pause * random.uniform(0.9, 1.0))

    async def step(self) -> float:
        """Send at most one request for the Lease. Returns the seconds until the next step is due."""
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
            log.debug("the lease has changed, reading it again lease=%s error=%s", self.lease, error)
            self.observed, pause = invalidate(self.observed), random.uniform(0.0, 0.1)
        except (ApiError, TimeoutError) as error:
            self._failures += 1
            level = logging.WARNING if self._failures in (1, 10) else logging.DEBUG
            why = error if str(error) else "no answer"
            log.log(level, "a request for the lease failed lease=%s action=%s error=%s", self.lease, move.value, why)
            self.observed, pause = record_failure(self.observed, began), self.timings.retry
        else:
            self._failures = 0
        self._update_events()
        return self._until_deadline(pause)

    async def release(self) -> None:
        """Release the Lease if this process holds it, so that the next leader need not wait for its expiry. This
        process does not lead from the call on."""
        self.observed = replace(self.observed, last_renewal=float("-inf"))
        self._update_events()
        for _ in range(2):
            record = self.observed.record
            if record is None or record.holder != self.lease_id.identity:
                return
            try:
                await self._client.release(record)
            except (Conflict, NotFound):  # `record` is outdated: a renewal was in flight when the stop came
                stored = await self._client.get()
                self.observed = observe(self.lease_id.identity, invalidate(self.observed), stored, self._clock())
            else:
                log.info("lease released lease=%s", self.lease)
                self.observed = invalidate(self.observed)
                return

    async def close(self) -> None:
        """Close the connections of the API client. The Lease is released by `release` alone."""
        await self._client.close()

    async def _execute(self, action: LeaseAction, began: float, led: bool) -> None:
        record = self.observed.record
        confirmed = led or self.lease_id.claim is None
        if action is LeaseAction.READ or action is LeaseAction.CONFIRM:
            await self._read_leases(led)
        elif action is LeaseAction.YIELD and record is not None:
            self.observed = replace(invalidate(self.observed), last_renewal=float("-inf"))
            await self._client.release(record)
            await self._read_leases(led)
        elif action is LeaseAction.CLEAR:
            await self._clear_expired(began)
        elif action is LeaseAction.CREATE or record is None:
            self.observed = record_write(self.observed, await self._client.create(), began, confirmed)
        else:
            write = self._client.acquire if action is LeaseAction.ACQUIRE else self._client.renew
            self.observed = record_write(self.observed, await write(record), began, confirmed)

    async def _read_leases(self, led: bool) -> None:
        """Observe the candidate's Lease, and with a claim the overlapping Leases that others hold."""
        claim = self.lease_id.claim
        if claim is None:
            record = await self._client.get()
            self.observed = observe(self.lease_id.identity, self.observed, record, self._clock())
            self._log_standby()
            return
        leases = await self._client.list_all()
        own = next((parse_lease(lease) for lease in leases if name_of(lease) == self.lease_id.name), None)
        overlapping = {}
        for lease in leases:
            other, record = claim_of(lease), parse_lease(lease)
            if name_of(lease) != self.lease_id.name and record.holder and other is not None and claim.overlaps(other):
                overlapping[name_of(lease)] = record
        now = self._clock()
        self.observed = record_list(observe(self.lease_id.identity, self.observed, own, now), overlapping, now, led)
        self._log_standby()

    async def _clear_expired(self, now: float) -> None:
        """Clear the overlapping Leases that have expired: later renewals by their holders get a Conflict."""
        self.observed = invalidate(self.observed)
        for name, rival in self.observed.overlapping.items():
            if rival.unchanged_since + rival.record.duration <= now:
                place, holder = f"{self.lease_id.namespace}/{name}", rival.record.holder
                log.info("overlapping lease expired lease=%s holder=%s", place, holder)
                await self._client.clear(name, rival.record)

    def _log_standby(self) -> None:
        """Log which Lease the candidate waits for, when that has changed."""
        if self.standby != self._logged_standby:
            self._logged_standby = self.standby
            if self._logged_standby:
                log.info("standing by for=%s lease=%s me=%s", self._logged_standby, self.lease, self.lease_id.identity)

    def _timeout(self) -> float:
        """The timeout of a request, in seconds: at most until the deadline of a leader."""
        return self._until_deadline(ANSWER_SECONDS)

    def _until_deadline(self, pause: float) -> float:
        """`pause`, shortened to the moment at which a leader stops leading unless it renews the Lease."""
        rest = self.observed.last_renewal + self.timings.deadline - self._clock()
        return min(pause, rest) if rest > 0 else pause

    def _update_events(self) -> None:
        leading = self.leads
        if leading != self.won.is_set():
            text = "leading lease=%s me=%s" if leading else "stopped leading lease=%s me=%s"
            log.log(logging.INFO if leading else logging.WARNING, text, self.lease, self.lease_id.identity)
        for event, is_set in ((self.won, leading), (self.lost, not leading)):
            event.set() if is_set else event.clear()
