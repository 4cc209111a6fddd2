"""Two operators and one lease: they compete for it, and one that was paused sends nothing after it is continued."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.control_plane.admission_webhook import gate
from tests.control_plane.fault_stories import (
    Program,
    Story,
    assert_no_child_created_twice,
    count_creates,
    enlist,
    restarts,
    tf_job,
    writes,
)
from tests.support.control_plane_audit import AuditedRequest, of
from tests.support.waiting import SLOW_PAUSE, until_async
from trainyard.client import ApiClient
from trainyard.objects import Json
from trainyard.objects.resources import LEASE

pytestmark = pytest.mark.cluster
WORKERS = 40  # more than are on the wire at once
LEASED = ("--leader-elect", "--lease-duration", "3")
LONG = ("--leader-elect", "--lease-duration", "15")


@pytest.fixture
async def pair(scenario: Story, request: pytest.FixtureRequest) -> AsyncIterator[tuple[Program, Program]]:
    """Two processes, each under a user of its own, so that the audit log tells them apart."""
    leased = getattr(request, "param", LEASED)
    other = enlist(scenario.plane, scenario.namespace, scenario.account.kubeconfig.parent, "another")
    first, two = Program(scenario.account, *leased), Program(other, *leased)
    yield first, two
    first.end()
    two.end()


def requests_of(scenario: Story, program: Program, mark: int) -> list[AuditedRequest]:
    return of(program.account.user, scenario.plane.audit.since(mark))


async def lease(api: ApiClient, namespace: str) -> Json:
    name = f"trainyard-elasticjob-mxjob-tfjob.{namespace}"
    return dict((await api.get(LEASE, "default", name))["spec"])


@pytest.mark.parametrize("pair", [LONG], indirect=True, ids=["15 s"])  # no renewal comes too late
async def test_of_two_concurrent_operators_one_leads_and_the_other_only_reads(
    scenario: Story, pair: tuple[Program, Program]
) -> None:
    mark, job = scenario.plane.audit.mark(), tf_job("race", 2)
    await scenario.submit(job)
    for program in pair:
        program.start()
    await scenario.running(job, MASTER=1, WORKER=2)
    await until_async(
        lambda: all("ok" in program.get("/readyz") for program in pair), "both are ready", pause=SLOW_PAUSE
    )
    scenario.kubelet.end("MASTER")
    await scenario.condition("Succeeded", job)
    leader, other = sorted(pair, key=Program.leads, reverse=True)
    assert leader.leads() and not other.leads()
    assert (await lease(scenario.api, scenario.namespace))["leaseTransitions"] == 0
    assert_no_child_created_twice(requests_of(scenario, leader, mark))
    assert {request.resource for request in requests_of(scenario, other, mark)} == {"leases"}
    assert count_creates(requests_of(scenario, leader, mark)).total() == 4


@pytest.mark.slow
async def test_a_paused_leader_writes_nothing_after_it_is_continued(
    scenario: Story, pair: tuple[Program, Program], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is stopped while it makes children: what is on the wire arrives, the other makes the rest."""
    killed, two = pair
    killed.start()
    await until_async(killed.leads, "the first leads", pause=SLOW_PAUSE)
    two.start()
    await until_async(lambda: "ok" in two.get("/readyz"), "the second stands by", pause=SLOW_PAUSE)
    mark, job = scenario.plane.audit.mark(), tf_job("fenc", WORKERS)
    async with gate(scenario, tmp_path) as held_up:
        await scenario.submit(job)
        await until_async(held_up.held.is_set, "children are on the wire")
        killed.process.send(signal.SIGSTOP)
    paused = time.monotonic()
    await until_async(two.leads, "the second leads", pause=SLOW_PAUSE)
    took = time.monotonic() - paused
    await scenario.running(job, MASTER=1, WORKER=WORKERS)
    first, second = requests_of(scenario, killed, mark), requests_of(scenario, two, mark)
    both = count_creates(first) + count_creates(second)
    assert set(both.values()) == {1} and both.total() == WORKERS + 2, both
    assert count_creates(first) and count_creates(second), both
    scenario.kubelet.end("MASTER")
    await scenario.condition("Succeeded", job)
    before = await scenario.until(lambda job_now: "completionTime" in job_now["status"], job)
    children, again = await scenario.children(), scenario.plane.audit.mark()
    killed.process.send(signal.SIGCONT)
    await until_async(
        lambda: "stopped leading" in killed.output(), "the first knows that it does not lead", pause=SLOW_PAUSE
    )
    await until_async(lambda: "ok" in killed.get("/readyz"), "the first stands by", pause=SLOW_PAUSE)
    late = [late for late in requests_of(scenario, killed, again) if late.verb not in ("get", "list", "watch")]
    assert len(writes(late)) <= 1 and all(late.code in (404, 409) for late in writes(late)), late
    assert Counter((request.resource, request.code) for request in late if request not in writes(late)) <= Counter(
        {("leases", 409): 1}
    )
    after = await scenario.until(lambda job: True, job)
    assert after == before and restarts(after) == 0 and await scenario.children() == children
    assert two.leads() and not killed.leads()
    with capsys.disabled():
        print(f"\nthe other led {took:.1f} s after the leader was paused; late writes: {len(writes(late))}")


@pytest.mark.slow
async def test_a_standby_takes_over_at_once_after_a_release_and_after_the_lease_of_a_dead_leader(
    scenario: Story, pair: tuple[Program, Program], capsys: pytest.CaptureFixture[str]
) -> None:
    first, two = pair
    first.start()
    await until_async(first.leads, "the first leads", pause=SLOW_PAUSE)
    two.start()
    await until_async(lambda: "ok" in two.get("/readyz"), "the second stands by", pause=SLOW_PAUSE)
    took = {}
    for name, (ends, follows), number in (
        ("told to end", (first, two), signal.SIGTERM),
        ("killed", (two, first), signal.SIGKILL),
    ):
        job = tf_job(name[:4], 0)
        began = time.monotonic()
        ends.process.end(number)
        await scenario.submit(job)
        await scenario.condition("Created", job)
        took[name] = round(time.monotonic() - began, 1)
        ends.start()
        await until_async(
            lambda follows=follows: follows.leads(), "the other leads", pause=SLOW_PAUSE
        )  # a default, no argument
    assert took["told to end"] < 3 and took["killed"] < 8, took
    with capsys.disabled():
        print(f"\ntaken over, first write after: {took}")
