"""Candidates for one lease on our real server, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from operator_cluster import Troubled

from trainyard.client import Api, Request, Unavailable
from trainyard.controller_runtime.lease import Election, LeaseIdentity, LeaseTimings, NotLeading
from trainyard.objects import Json
from trainyard.objects.resources import LEASE
from trainyard.server import Server

TERMS = LeaseTimings(duration=15, deadline=10, retry=2)


class Room:
    """A server, a clock, and candidates."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.now = 1000.0
        self.apis: list[Troubled] = []

    def candidate(self, me: str) -> tuple[Election, Troubled]:
        api = Troubled(self.server.url)
        self.apis.append(api)
        return Election(api, LeaseIdentity("default", "operator", me), TERMS, lambda: self.now), api

    async def lease(self) -> Json:
        async with Api(self.server.url) as api:
            return dict((await api.get(LEASE, "default", "operator"))["spec"])


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    server = Server()
    await server.start()
    made = Room(server)
    yield made
    for api in made.apis:
        await api.close()
    await server.stop()


async def settle(*elections: Election) -> None:
    """Each makes moves until it would wait."""
    for election in elections:
        for _ in range(10):
            if await election.step() > 0.5:
                break


async def test_the_first_makes_it_the_second_waits(room: Room) -> None:
    one, _ = room.candidate("one")
    two, _ = room.candidate("two")
    await settle(one, two)
    assert (one.leads, two.leads) == (True, False) and one.won.is_set() and two.lost.is_set()
    spec = await room.lease()
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("one", 15, 0)
    assert len(spec["renewTime"]) == len("2026-11-21T20:00:00.000000Z")


async def test_of_two_who_take_it_at_once_one_wins(room: Room) -> None:
    one, _ = room.candidate("one")
    two, _ = room.candidate("two")
    await one.step(), await two.step()  # both have looked: there is none
    await one.step(), await two.step()  # both make it
    assert [one.leads, two.leads] == [True, False]
    await settle(two)
    assert not two.leads and two.observed.record is not None and two.observed.record.holder == "one"


async def test_it_is_renewed_and_nobody_else_gets_it(room: Room) -> None:
    one, api = room.candidate("one")
    two, _ = room.candidate("two")
    await settle(one, two)
    for _ in range(30):
        room.now += 2
        await settle(one, two)
        assert one.leads and not two.leads
    renewals = [request for request in api.sent if request.method == "PATCH"]
    assert len(renewals) == 30 and not [request for request in api.sent[3:] if request.method == "GET"]


async def test_who_dies_is_followed_when_the_lease_is_over(room: Room) -> None:
    one, _ = room.candidate("one")
    two, _ = room.candidate("two")
    await settle(one, two)
    for _ in range(7):
        room.now += 2
        await settle(two)
        assert not two.leads
    room.now += 2
    await settle(two)
    assert two.leads and (await room.lease())["leaseTransitions"] == 1


async def test_who_was_paused_leads_no_more_before_it_has_sent_anything(room: Room) -> None:
    one, api = room.candidate("one")
    two, _ = room.candidate("two")
    await settle(one)
    one.check()
    room.now += 10
    with pytest.raises(NotLeading, match="default/operator is not held"):
        one.check()
    room.now += 30
    await settle(two)  # sees it for the first time: as fresh as can be
    assert not two.leads
    room.now += 15
    await settle(two)
    assert two.leads
    before = len(api.sent)
    await settle(one)
    assert not one.leads and one.lost.is_set()
    assert [request.method for request in api.sent[before:]] == ["PATCH", "GET"]  # a renewal that is refused, a look


async def test_a_release_lets_the_next_one_in_at_its_next_look(room: Room) -> None:
    one, _ = room.candidate("one")
    two, _ = room.candidate("two")
    await settle(one, two)
    await one.release()
    assert not one.leads and not (await room.lease()).get("holderIdentity")
    room.now += 2
    await settle(two)
    assert two.leads


async def test_a_release_after_a_renewal_of_unknown_outcome_still_lets_it_go(room: Room) -> None:
    one, api = room.candidate("one")
    await settle(one)

    def lose(request: Request) -> None:
        if request.method == "PATCH":
            api.after = lambda request: None
            raise Unavailable(0, "ConnectionLost", "the answer is lost")

    api.after = lose
    room.now += 2
    assert await one.step() > 0 and one.leads
    await one.release()
    assert not (await room.lease()).get("holderIdentity")


async def test_a_release_of_what_is_not_ours_changes_nothing(room: Room) -> None:
    one, _ = room.candidate("one")
    two, _ = room.candidate("two")
    await settle(one, two)
    await two.release()
    assert (await room.lease())["holderIdentity"] == "one"


async def test_while_nobody_answers_the_term_ends_by_itself_and_begins_again_after(room: Room) -> None:
    one, api = room.candidate("one")
    await settle(one)

    def nobody(request: Request) -> None:
        raise Unavailable(0, "ConnectionLost", "nobody is there")

    api.before = nobody
    pauses = []
    while one.leads:
        pauses.append(await one.step())
        room.now += pauses[-1]
    await one.step()
    assert one.lost.is_set() and sum(pauses) == pytest.approx(10)  # not a moment later than the deadline
    api.before = lambda request: None
    room.now += 2
    await settle(one)
    assert one.leads and (await room.lease())["leaseTransitions"] == 0  # nobody else has had it


async def test_a_lease_that_somebody_deletes_is_made_again(room: Room) -> None:
    one, api = room.candidate("one")
    await settle(one)
    await api.delete(LEASE, "default", "operator")
    room.now += 2
    await settle(one)
    assert one.leads and (await room.lease())["holderIdentity"] == "one"
