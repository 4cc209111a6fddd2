"""The state of a leader election by a Lease (coordination.k8s.io/v1), with the fields that client-go writes. Pure.

`next_move` is a table from the observed state of the Lease and one clock to the next move (a request, or a wait):

    what is observed                                     move
    nothing, or the last request got Conflict/NotFound   READ the Lease
    there is no Lease                                    CREATE
    it has no holder                                     ACQUIRE
    we hold it, renewed a moment ago                     Wait
    we hold it                                           RENEW
    another holds it, unchanged less than its duration   Wait, and READ each `retry`
    another holds it, unchanged for longer               ACQUIRE
    another holds an overlapping Lease                   Wait, and READ each `retry`; YIELD ours if we hold it
    ... unchanged for longer than its duration           CLEAR it
    we hold it, overlapping Leases not checked since     CONFIRM (list the Leases), before we lead

Scopes. A `Claim` is what an operator serves: kinds, in one namespace or in all. Operators with equal claims compete for
one Lease, named after the claim. Operators with different but overlapping claims have different Leases in the same
namespace and exclude each other: each acquires its own Lease, then lists the others, and leads only if no overlapping
one is held. If two do so at the same time, at least one sees the other and releases its own. An expired overlapping
Lease is cleared before anybody leads beside it, so that a late renewal by its holder gets a Conflict.

Rules for this file:
- Clocks of different machines are never compared: a Lease expires when *we* have seen no change for its duration. Our
  clock also counts the time that this machine was suspended, where the system has such a clock (CLOCK_BOOTTIME).
- We lead for `deadline` seconds after we *sent* the last accepted write; that is shorter than `duration`, after which
  another may take over.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

import msgspec

from trainyard.objects import Json, resource_version_of
from trainyard.objects.labels import PREFIX
from trainyard.objects.structs import replace

UNSTATED_SECONDS = 15.0  # the duration of a Lease that has none: what client-go writes by default
KINDS, NAMESPACE = f"{PREFIX}kinds", f"{PREFIX}namespace"  # annotations of a Lease: its claim


class Claim(msgspec.Struct, frozen=True):
    """What an operator serves: kinds, in one namespace, or in all of them ("").

    `names`: the kinds' names in the name of the Lease; unset, the kinds in lower case.
    """

    kinds: frozenset[str]
    namespace: str = ""
    names: frozenset[str] = frozenset()

    @property
    def lease_name(self) -> str:
        """The same for all operators of this claim: trainyard-mxjob-tfjob, trainyard-tfjob.team-a."""
        name = "-".join(("trainyard", *sorted(self.names or (kind.lower() for kind in self.kinds))))
        return f"{name}.{self.namespace}" if self.namespace else name

    def overlaps(self, other: Claim) -> bool:
        """True when there may be a job that both serve."""
        same = not self.namespace or not other.namespace or self.namespace == other.namespace
        return same and not self.kinds.isdisjoint(other.kinds)

    def annotations(self) -> dict[str, str]:
        """The annotations of a Lease with this claim."""
        return {KINDS: ",".join(sorted(self.kinds)), NAMESPACE: self.namespace}


def claim_of(lease: Json) -> Claim | None:
    """The claim in a lease's annotations, None when it has none."""
    annotations = (lease.get("metadata") or {}).get("annotations")
    if not isinstance(annotations, dict) or not isinstance(kinds := annotations.get(KINDS), str):
        return None
    return Claim(frozenset(filter(None, kinds.split(","))), str(annotations.get(NAMESPACE) or ""))


class LeaseIdentity(msgspec.Struct, frozen=True):
    """The Lease to compete for, and the candidate's holderIdentity: another one for each start of a process.

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
    """The fields of a stored Lease. `duration`: seconds; `revision`: its resourceVersion."""

    holder: str
    duration: float
    transitions: int
    revision: str


class OverlappingLease(msgspec.Struct, frozen=True):
    """An overlapping Lease that another candidate holds, and when, on our clock, we first saw it as it is."""

    record: LeaseRecord
    unchanged_since: float


class ObservedLease(msgspec.Struct, frozen=True):
    """What this candidate has observed of its Lease. All times are of its own clock."""

    record: LeaseRecord | None = None
    current: bool = False  # False: the Lease must be read before anything else
    unchanged_since: float = float("-inf")  # when we first saw `record` as it is
    last_request: float = float("-inf")  # the last read that showed another holder or none, or the last write
    last_renewal: float = float("-inf")  # when we sent the last accepted acquire or renewal; -inf: not the holder
    confirmed: bool = True  # since we took it, a list has shown that no overlapping lease is held
    # Overlapping leases that others hold, by name.
    overlapping: Mapping[str, OverlappingLease] = msgspec.field(default_factory=dict)


class LeaseAction(Enum):
    """The request that the leader election sends next."""

    READ = "read"
    CREATE = "create"
    ACQUIRE = "acquire"
    RENEW = "renew"
    CONFIRM = "confirm"
    YIELD = "yield"
    CLEAR = "clear"


class Wait(msgspec.Struct, frozen=True):
    """Send no request for that many seconds."""

    seconds: float


LeaseMove: TypeAlias = LeaseAction | Wait


def next_move(  # noqa: PLR0911  (a table: a row, a return)
    identity: str, observed: ObservedLease, now: float, timings: LeaseTimings
) -> LeaseMove:
    """The table of the module's docstring. `now`: on the clock of `observed`."""
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
    """Whether no other candidate can have acquired the Lease yet."""
    return observed.confirmed and now - observed.last_renewal < timings.deadline


def observe(identity: str, observed: ObservedLease, record: LeaseRecord | None, now: float) -> ObservedLease:
    """The state after a read of the Lease, answered at `now`; the Lease may have changed since the read was sent.

    A read that finds us as the holder follows a failed write, so a renewal is due at once.
    """
    read_at = float("-inf")
    if record is None or record.holder != identity:
        observed, read_at = replace(observed, last_renewal=float("-inf")), now
    if observed.record == record and observed.unchanged_since > float("-inf"):
        return replace(observed, current=True, last_request=read_at)
    return replace(observed, record=record, current=True, unchanged_since=now, last_request=read_at)


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
    overlap = {
        name: before
        if (before := observed.overlapping.get(name)) and before.record == record
        else OverlappingLease(record, now)
        for name, record in overlapping.items()
    }
    return replace(
        observed,
        overlapping=overlap,
        confirmed=led or not overlap,
        last_request=now if overlap else observed.last_request,
    )


def invalidate(observed: ObservedLease) -> ObservedLease:
    """The state in which the Lease must be read again, e.g. after Conflict, AlreadyExists or NotFound."""
    return replace(observed, current=False)


def record_failure(observed: ObservedLease, now: float) -> ObservedLease:
    """The state after a request, sent at `now`, with unknown outcome (error or no answer)."""
    return replace(observed, last_request=now)


def parse_lease(lease: Json) -> LeaseRecord:
    """The record of a Lease that any program may have written: missing and malformed fields get defaults."""
    spec = lease.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    return LeaseRecord(
        holder=str(spec.get("holderIdentity") or ""),
        duration=_number(spec.get("leaseDurationSeconds"), UNSTATED_SECONDS),
        transitions=int(_number(spec.get("leaseTransitions"), 0)),
        revision=resource_version_of(lease),
    )


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else otherwise
