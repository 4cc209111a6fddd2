"""Planted faults of the operator: what the harness must find. Each is applied in a child process of its own.

A mutant replaces one function or method of the product. `caught_by` begins the violation that the harness reports.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainyard import core
from trainyard.app import operating
from trainyard.client import ApiClient, Unavailable
from trainyard.controller_runtime import leader_election, lease
from trainyard.controller_runtime import reflector as watch
from trainyard.objects.structs import replace
from trainyard.operator import operator
from trainyard.operator import plan_executor as reconcile


@dataclass(frozen=True, slots=True)
class Mutant:
    """`caught_by`: how the violations that show it begin."""

    apply: Callable[[], None]
    caught_by: tuple[str, ...]
    text: str


MUTANTS: dict[str, Mutant] = {}


def mutant(*caught_by: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(apply: Callable[[], None]) -> Callable[[], None]:
        text = " ".join((apply.__doc__ or "").split())
        MUTANTS[apply.__name__] = Mutant(apply, caught_by, text)
        return apply

    return register


@mutant("one writer")
def writes_without_the_lease() -> None:
    """Writes are not checked against the lease when they are sent, nor does losing it stop the operator."""
    operating._check_lease = lambda election, request: None
    leader_election.is_leading = lambda known, now, terms: known.last_renewal > float("-inf")


@mutant("one writer")
def takes_a_lease_that_is_held() -> None:
    """A lease that another holds is taken without a wait."""
    original = leader_election.next_move

    def decide(me: str, known: lease.ObservedLease, now: float, terms: lease.LeaseTimings) -> lease.LeaseMove:
        if known.current and known.record is not None and known.record.holder != me:
            return lease.LeaseAction.ACQUIRE
        return original(me, known, now, terms)

    leader_election.next_move = decide


@mutant("one writer")
def leads_until_it_hears_otherwise() -> None:
    """Leadership has no deadline: it ends when the lease is seen in other hands."""
    leader_election.is_leading = lambda known, now, terms: known.last_renewal > float("-inf")


@mutant("one writer")
def replicas_share_an_identity() -> None:
    """Both replicas have the same holder identity."""
    operating.token_hex = lambda length: "0"
    elector = leader_election.LeaderElector
    original = elector.__init__

    def init(self: Any, api: ApiClient, lease_id: lease.LeaseIdentity, *more: Any, **fields: Any) -> None:
        original(self, api, replace(lease_id, identity="operator"), *more, **fields)

    elector.__init__ = init


@mutant("by uid")
def deletes_by_name() -> None:
    """Deletes do not name the uid."""
    original = ApiClient.delete

    async def delete(self: ApiClient, gvk: Any, namespace: str, name: str, uid: str = "", *more: Any) -> Any:
        return await original(self, gvk, namespace, name, "", *more)

    ApiClient.delete = delete


@mutant("ends reached")
def a_broken_watch_stays_broken() -> None:
    """A watch that has failed is not opened again."""
    original = watch.Reflector._failed

    def failed(self: Any, got: Any, *why: Any) -> float:
        original(self, got, *why)
        return math.inf if isinstance(got, watch.Disconnected) else 0.1

    watch.Reflector._failed = failed


@mutant("not doubled", "ends reached")
def names_are_random() -> None:
    """Children have random names, so that a create of unknown outcome is made twice."""
    original = core.render_child

    def render(*arguments: Any) -> Any:
        result = original(*arguments)
        result["metadata"]["name"] += f"-{secrets.token_hex(2)}"
        return result

    core.render_child = render


@mutant("owned")
def children_have_no_owner() -> None:
    """Children have no owner reference, so that nothing collects them."""
    original = core.render_child

    def render(*arguments: Any) -> Any:
        result = original(*arguments)
        result["metadata"].pop("ownerReferences", None)
        return result

    core.render_child = render


@mutant("ends reached")
def an_unknown_outcome_is_a_success() -> None:
    """A create without an answer counts as done: it is noted and never repeated."""
    original = reconcile.PlanExecutor._create
    lost: set[tuple[str, str]] = set()

    async def send(self: Any, this: Any, job: Any, create: Any) -> None:
        if (this.uid, create.name) in lost:
            return
        try:
            await original(self, this, job, create)
        except Unavailable:
            lost.add((this.uid, create.name))

    reconcile.PlanExecutor._create = send


@mutant("ends reached")
def deletions_are_not_seen() -> None:
    """DELETED events of a watch are ignored."""
    original = watch.step

    def step(state: Any, got: Any) -> Any:
        if isinstance(got, watch.ObjectEvent) and got.type == "DELETED":
            return None, state
        return original(state, got)

    watch.step = step


@mutant("ends reached")
def only_the_first_page_is_read() -> None:
    """A list that has more pages counts as whole after the first."""
    watch.PAGE_SIZE = 1
    original = watch.decode_list_page

    def cut(body: bytes) -> Any:
        raws, revision, _ = original(body)
        return raws, revision, ""

    watch.decode_list_page = cut


@mutant("ends reached")
def pods_do_not_wake_their_job() -> None:
    """A change of a child does not queue its job."""
    operator.Operator._child_changed = lambda self, before, after: ()


@mutant("one writer")
def overlapping_leases_are_not_looked_at() -> None:
    """An operator leads as soon as it holds its own lease, whoever holds one that overlaps."""
    original = leader_election.record_list
    leader_election.record_list = lambda known, rivals, now, led: original(known, {}, now, led)
