"""Operators of different kinds and namespaces: overlapping ones exclude each other, others lead at the same time."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator

import pytest

from tests.operator.operator_cluster import Troubled
from trainyard.client import ApiClient
from trainyard.controller_runtime.leader_election import LeaderElector
from trainyard.controller_runtime.lease import Claim, LeaseIdentity, LeaseTimings, claim_of
from trainyard.objects import Json
from trainyard.objects.resources import LEASE
from trainyard.server import Server

TERMS = LeaseTimings(duration=4, deadline=3, retry=0.5, renew=1)
ALL, TF = Claim(frozenset({"TfJob", "MxJob"})), Claim(frozenset({"TfJob"}))
MX, TEAM = Claim(frozenset({"MxJob"})), Claim(frozenset({"TfJob"}), "team-a")
OTHER = Claim(frozenset({"TfJob"}), "team-b")


class Candidates:
    """The elections of several operators in one cluster, with a clock that the test sets."""

    def __init__(self, server: Server) -> None:
        self.server, self.now = server, 1000.0
        self.elections: list[LeaderElector] = []
        self._apis: list[Troubled] = []

    def add(self, claim: Claim) -> LeaderElector:
        self._apis.append(api := Troubled(self.server.url))
        identity = LeaseIdentity("default", claim.lease_name, f"operator-{len(self.elections)}", claim)
        self.elections.append(election := LeaderElector(api, identity, TERMS, lambda: self.now))
        return election

    async def settle(self, *elections: LeaderElector) -> None:
        for election in elections or self.elections:
            for _ in range(10):
                if await election.step() > 0.25:
                    break

    async def run(self, seconds: float, *elections: LeaderElector) -> None:
        for _ in range(int(seconds / 0.5)):
            self.now += 0.5
            await self.settle(*elections)

    def overlapping_leaders(self) -> list[tuple[str, str]]:
        leaders = [election for election in self.elections if election.leads]
        return [
            (first.lease, second.lease)
            for first, second in itertools.combinations(leaders, 2)
            if first.lease_id.claim and second.lease_id.claim and first.lease_id.claim.overlaps(second.lease_id.claim)
        ]

    async def close(self) -> None:
        for api in self._apis:
            await api.close()


@pytest.fixture
async def candidates() -> AsyncIterator[Candidates]:
    server = Server()
    await server.start()
    candidates = Candidates(server)
    yield candidates
    await candidates.close()
    await server.stop()


@pytest.mark.parametrize(
    ("first", "second", "overlap"),
    [(ALL, TF, True), (TF, MX, False), (TF, TEAM, True), (TEAM, OTHER, False), (MX, TEAM, False), (TEAM, TEAM, True)],
)
def test_claims_overlap_where_both_may_serve_a_job(first: Claim, second: Claim, overlap: bool) -> None:
    assert first.overlaps(second) is second.overlaps(first) is overlap


def test_a_lease_is_named_after_its_scope_and_annotated_with_it() -> None:
    assert (ALL.lease_name, TEAM.lease_name) == ("trainyard-mxjob-tfjob", "trainyard-tfjob.team-a")
    for claim in (ALL, TEAM):
        lease: Json = {"metadata": {"annotations": claim.annotations()}}
        assert claim_of(lease) == claim
    assert claim_of({"metadata": {}}) is None


async def test_operators_that_do_not_overlap_lead_beside_each_other(candidates: Candidates) -> None:
    """As with the operator of the MxJob README beside that of the chart."""
    elections = [candidates.add(claim) for claim in (MX, TEAM, OTHER)]
    await candidates.settle()
    assert all(election.leads for election in elections)
    await candidates.run(10)
    assert all(election.leads for election in elections)


@pytest.mark.parametrize(("first", "second"), [(ALL, TF), (TEAM, ALL), (ALL, TEAM), (TF, TEAM)])
async def test_of_overlapping_operators_the_second_stands_by_and_names_the_leader(
    candidates: Candidates, first: Claim, second: Claim
) -> None:
    leader, other = candidates.add(first), candidates.add(second)
    await candidates.settle()
    await candidates.run(10)
    assert leader.leads and not other.leads
    assert other.standby == f"default/{first.lease_name} held by operator-0" and leader.standby == ""
    await leader.release()
    await candidates.run(0.5, other)
    assert other.leads


async def test_a_leader_that_dies_is_followed_by_an_overlapping_one_within_the_duration_and_a_look(
    candidates: Candidates,
) -> None:
    leader, other = candidates.add(TEAM), candidates.add(ALL)
    await candidates.settle()
    await candidates.run(3.5, other)
    assert not other.leads
    await candidates.run(0.5, other)
    assert other.leads
    # the first leader was only paused: its renewal gets a Conflict, because its Lease was cleared
    candidates.now += 0.1
    await candidates.settle(leader)
    assert not leader.leads and other.leads


async def test_of_two_that_take_their_leases_at_once_at_most_one_leads(candidates: Candidates) -> None:
    first, second = candidates.add(ALL), candidates.add(TEAM)
    await first.step(), await second.step()  # both have read the leases: none is held
    await first.step(), await second.step()  # both have written their own Lease
    await first.step()
    assert not first.leads  # it has read the Lease of the second
    await second.step()
    await candidates.run(2)
    assert sorted([first.leads, second.leads]) == [False, True]


@pytest.mark.parametrize("seed", range(4))
async def test_overlapping_operators_never_lead_at_once_even_if_one_is_paused(
    candidates: Candidates, seed: int
) -> None:
    chance = random.Random(seed)
    for claim in (ALL, TF, TEAM, OTHER, MX):
        candidates.add(claim)
    led = set()
    for _ in range(150):
        candidates.now += chance.choice((0.0, 0.1, 0.5, 1.0, 3.5))
        election = chance.choice(candidates.elections)
        if chance.random() < 0.05:
            await election.release()
        else:
            await election.step()
        assert not candidates.overlapping_leaders()
        led |= {candidate.lease for candidate in candidates.elections if candidate.leads}
    assert len(led) > 1


async def test_a_lease_of_another_program_is_left_alone(candidates: Candidates) -> None:
    async with ApiClient(candidates.server.url) as api:
        body = {"apiVersion": LEASE.api_version, "kind": "Lease", "metadata": {"name": "others"}}
        await api.create(LEASE, "default", {**body, "spec": {"holderIdentity": "other", "leaseDurationSeconds": 1}})
        election = candidates.add(ALL)
        await candidates.run(10)
        assert election.leads and (await api.get(LEASE, "default", "others"))["spec"]["holderIdentity"] == "other"
