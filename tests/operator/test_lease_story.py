"""Candidates for one Lease on the embedded API server, with a clock that the test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.operator.operator_cluster import Troubled
from trainyard.client import ApiClient, ApiRequest, Unavailable
from trainyard.controller_runtime.leader_election import LeaderElector, NotLeading
from trainyard.controller_runtime.lease import LeaseIdentity, LeaseTimings
from trainyard.objects import Json
from trainyard.objects.resources import LEASE
from trainyard.server import Server

TERMS = LeaseTimings(duration=15, deadline=10, retry=2)


class LeaseServer:
    """A server, a clock, and candidates."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.now = 1000.0
        self.apis: list[Troubled] = []

    def candidate(self, me: str) -> tuple[LeaderElector, Troubled]:
        api = Troubled(self.server.url)
        self.apis.append(api)
        return LeaderElector(api, LeaseIdentity("default", "operator", me), TERMS, lambda: self.now), api

    async def lease(self) -> Json:
        async with ApiClient(self.server.url) as api:
            return dict((await api.get(LEASE, "default", "operator"))["spec"])


@pytest.fixture
async def cluster() -> AsyncIterator[LeaseServer]:
    server = Server()
    await server.start()
    lease_server = LeaseServer(server)
    yield lease_server
    for api in lease_server.apis:
        await api.close()
    await server.stop()


async def settle(*elections: LeaderElector) -> None:
    """Make moves with each election until it would wait."""
    for election in elections:
        for _ in range(10):
            if await election.step() > 0.5:
                break


async def test_the_first_candidate_creates_the_lease_and_the_second_waits(cluster: LeaseServer) -> None:
    first, _ = cluster.candidate("first")
    second, _ = cluster.candidate("second")
    await settle(first, second)
    assert (first.leads, second.leads) == (True, False) and first.won.is_set() and second.lost.is_set()
    spec = await cluster.lease()
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("first", 15, 0)
    assert len(spec["renewTime"]) == len("2026-11-21T20:00:00.000000Z")


async def test_of_two_concurrent_candidates_one_wins(cluster: LeaseServer) -> None:
    first, _ = cluster.candidate("first")
    second, _ = cluster.candidate("second")
    await first.step(), await second.step()  # both have read: there is no Lease
    await first.step(), await second.step()  # both create it
    assert [first.leads, second.leads] == [True, False]
    await settle(second)
    assert not second.leads and second.observed.record is not None and second.observed.record.holder == "first"


async def test_a_renewed_lease_is_not_taken_by_another(cluster: LeaseServer) -> None:
    first, api = cluster.candidate("first")
    second, _ = cluster.candidate("second")
    await settle(first, second)
    for _ in range(30):
        cluster.now += 2
        await settle(first, second)
        assert first.leads and not second.leads
    renewals = [request for request in api.sent if request.method == "PATCH"]
    assert len(renewals) == 30 and not [request for request in api.sent[3:] if request.method == "GET"]


async def test_the_lease_of_a_dead_leader_is_taken_after_it_expires(cluster: LeaseServer) -> None:
    first, _ = cluster.candidate("first")
    second, _ = cluster.candidate("second")
    await settle(first, second)
    for _ in range(7):
        cluster.now += 2
        await settle(second)
        assert not second.leads
    cluster.now += 2
    await settle(second)
    assert second.leads and (await cluster.lease())["leaseTransitions"] == 1


async def test_a_paused_leader_stops_leading_before_it_sends_anything(cluster: LeaseServer) -> None:
    first, api = cluster.candidate("first")
    second, _ = cluster.candidate("second")
    await settle(first)
    first.check()
    cluster.now += 10
    with pytest.raises(NotLeading, match="default/operator is not held"):
        first.check()
    cluster.now += 30
    await settle(second)  # reads the Lease for the first time, so its full duration counts from now
    assert not second.leads
    cluster.now += 15
    await settle(second)
    assert second.leads
    before = len(api.sent)
    await settle(first)
    assert not first.leads and first.lost.is_set()
    # the renewal gets a Conflict, then a read
    assert [request.method for request in api.sent[before:]] == ["PATCH", "GET"]


async def test_a_release_lets_the_next_one_in_at_its_next_look(cluster: LeaseServer) -> None:
    first, _ = cluster.candidate("first")
    second, _ = cluster.candidate("second")
    await settle(first, second)
    await first.release()
    assert not first.leads and not (await cluster.lease()).get("holderIdentity")
    cluster.now += 2
    await settle(second)
    assert second.leads


async def test_a_release_after_a_renewal_of_unknown_outcome_still_releases_the_lease(cluster: LeaseServer) -> None:
    first, api = cluster.candidate("first")
    await settle(first)

    def lose(request: ApiRequest) -> None:
        if request.method == "PATCH":
            api.after = lambda request: None
            raise Unavailable(0, "ConnectionLost", "the answer is lost")

    api.after = lose
    cluster.now += 2
    assert await first.step() > 0 and first.leads
    await first.release()
    assert not (await cluster.lease()).get("holderIdentity")


async def test_a_release_of_another_holders_lease_changes_nothing(cluster: LeaseServer) -> None:
    first, _ = cluster.candidate("first")
    second, _ = cluster.candidate("second")
    await settle(first, second)
    await second.release()
    assert (await cluster.lease())["holderIdentity"] == "first"


async def test_without_responses_the_leadership_expires_and_is_regained_afterwards(cluster: LeaseServer) -> None:
    first, api = cluster.candidate("first")
    await settle(first)

    def no_answer(request: ApiRequest) -> None:
        raise Unavailable(0, "ConnectionLost", "nobody is there")

    api.before = no_answer
    pauses = []
    while first.leads:
        pauses.append(await first.step())
        cluster.now += pauses[-1]
    await first.step()
    assert first.lost.is_set() and sum(pauses) == pytest.approx(10)  # not a moment later than the deadline
    api.before = lambda request: None
    cluster.now += 2
    await settle(first)
    assert first.leads and (await cluster.lease())["leaseTransitions"] == 0  # no other candidate has held it


async def test_a_deleted_lease_is_created_again(cluster: LeaseServer) -> None:
    first, api = cluster.candidate("first")
    await settle(first)
    await api.delete(LEASE, "default", "operator")
    cluster.now += 2
    await settle(first)
    assert first.leads and (await cluster.lease())["holderIdentity"] == "first"
