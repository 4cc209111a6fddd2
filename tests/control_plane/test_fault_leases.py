"""Two operators and one lease: they race for it, and one that was paused sends nothing more when it goes on."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.control_plane.faulty import Program, Story, enlist, made, nothing_twice, restarts, so, story, tf_job, writes
from tests.control_plane.gate import gate
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_audit import Asked, of
from trainyard.client import ApiClient
from trainyard.objects import Json
from trainyard.objects.resources import LEASE

pytestmark = pytest.mark.cluster
WORKERS = 40  # more than are on the wire at once
LEASED = ("--leader-elect", "--lease-duration", "3")
LONG = ("--leader-elect", "--lease-duration", "15")


@pytest.fixture
async def told(installed: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[Story]:
    async with story(installed, namespace, tmp_path) as one:
        yield one


@pytest.fixture
async def pair(told: Story, request: pytest.FixtureRequest) -> AsyncIterator[tuple[Program, Program]]:
    """Two processes, each under a user of its own, so that the audit log tells them apart."""
    leased = getattr(request, "param", LEASED)
    other = enlist(told.plane, told.namespace, told.account.kubeconfig.parent, "another")
    one, two = Program(told.account, *leased), Program(other, *leased)
    yield one, two
    one.end()
    two.end()


def asked(told: Story, program: Program, mark: int) -> list[Asked]:
    return of(program.account.user, told.plane.audit.since(mark))


async def lease(api: ApiClient, namespace: str) -> Json:
    name = f"trainyard-elasticjob-mxjob-tfjob.{namespace}"
    return dict((await api.get(LEASE, "default", name))["spec"])


@pytest.mark.parametrize("pair", [LONG], indirect=True, ids=["15 s"])  # no renewal comes too late
async def test_of_two_who_race_for_the_lease_one_works_and_the_other_only_looks(
    told: Story, pair: tuple[Program, Program]
) -> None:
    mark, job = told.plane.audit.mark(), tf_job("race", 2)
    await told.submit(job)
    for program in pair:
        program.start()
    await told.running(job, MASTER=1, WORKER=2)
    await so(lambda: all("ok" in program.asked("/readyz") for program in pair), "both are ready")
    told.kubelet.end("MASTER")
    await told.condition("Succeeded", job)
    leader, other = sorted(pair, key=Program.leads, reverse=True)
    assert leader.leads() and not other.leads()
    assert (await lease(told.api, told.namespace))["leaseTransitions"] == 0
    nothing_twice(asked(told, leader, mark))
    assert {request.resource for request in asked(told, other, mark)} == {"leases"}
    assert made(asked(told, leader, mark)).total() == 4


@pytest.mark.slow
async def test_a_paused_leader_sends_nothing_more_when_it_goes_on_and_changes_nothing(
    told: Story, pair: tuple[Program, Program], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is stopped while it makes children: what is on the wire arrives, the other makes the rest."""
    one, two = pair
    one.start()
    await so(one.leads, "the first leads")
    two.start()
    await so(lambda: "ok" in two.asked("/readyz"), "the second stands by")
    mark, job = told.plane.audit.mark(), tf_job("fenc", WORKERS)
    async with gate(told, tmp_path) as held_up:
        await told.submit(job)
        await so(held_up.held.is_set, "children are on the wire")
        one.process.send(signal.SIGSTOP)
    paused = time.monotonic()
    await so(two.leads, "the second leads")
    took = time.monotonic() - paused
    await told.running(job, MASTER=1, WORKER=WORKERS)
    first, second = asked(told, one, mark), asked(told, two, mark)
    both = made(first) + made(second)
    assert set(both.values()) == {1} and both.total() == WORKERS + 2, both
    assert made(first) and made(second), both
    told.kubelet.end("MASTER")
    await told.condition("Succeeded", job)
    before = await told.until(lambda one: "completionTime" in one["status"], job)
    children, again = await told.children(), told.plane.audit.mark()
    one.process.send(signal.SIGCONT)
    await so(lambda: "stopped leading" in one.said(), "the first knows that it does not lead")
    await so(lambda: "ok" in one.asked("/readyz"), "the first stands by")
    late = [late for late in asked(told, one, again) if late.verb not in ("get", "list", "watch")]
    assert len(writes(late)) <= 1 and all(late.code in (404, 409) for late in writes(late)), late
    assert Counter((one.resource, one.code) for one in late if one not in writes(late)) <= Counter({("leases", 409): 1})
    after = await told.until(lambda job: True, job)
    assert after == before and restarts(after) == 0 and await told.children() == children
    assert two.leads() and not one.leads()
    with capsys.disabled():
        print(f"\nthe other led {took:.1f} s after the leader was paused; late writes: {len(writes(late))}")


@pytest.mark.slow
async def test_who_stands_by_takes_over_at_once_when_the_leader_ends_and_when_it_dies_after_its_lease(
    told: Story, pair: tuple[Program, Program], capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = pair
    one.start()
    await so(one.leads, "the first leads")
    two.start()
    await so(lambda: "ok" in two.asked("/readyz"), "the second stands by")
    took = {}
    for name, (ends, follows), number in (
        ("told to end", (one, two), signal.SIGTERM),
        ("killed", (two, one), signal.SIGKILL),
    ):
        job = tf_job(name[:4], 0)
        began = time.monotonic()
        ends.process.end(number)
        await told.submit(job)
        await told.condition("Created", job)
        took[name] = round(time.monotonic() - began, 1)
        ends.start()
        await so(lambda follows=follows: follows.leads(), "the other leads")  # a default, no argument
    assert took["told to end"] < 3 and took["killed"] < 8, took
    with capsys.disabled():
        print(f"\ntaken over, first write after: {took}")
