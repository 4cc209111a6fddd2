"""The lease of the operator's process: one leads, the others stand by, and one that loses the lease stops writing."""

from __future__ import annotations

import asyncio

import aiohttp

from tests.app.operating_setup import LEASE_NAME, QUICK, metric, options, until_metric, until_ready
from tests.app.operating_values import NARROW, TFJOB, Site, tf_job
from tests.support.running_operator import operating
from tests.support.waiting import until_async
from trainyard.app.operating import OperatorProcess, lease_identity, lease_timings, parse_kinds
from trainyard.controller_runtime.lease import LeaseTimings
from trainyard.objects.resources import LEASE


async def test_the_second_operator_takes_over_when_the_first_ends(site: Site) -> None:
    await site.account(NARROW)
    both = [options(site, lease=lease_identity({}, options(site).kinds), timings=QUICK) for _ in range(2)]
    async with operating(both[0]) as first, operating(both[1]) as second:
        await site.api.create(TFJOB, "default", tf_job("a"))
        await site.says("a", "Created")
        created = 'trainyard_jobs{job_namespace="default",kind="TfJob",state="Created"}'

        def jobs_of_leaders() -> list[float | None]:
            return [metric(process, created) for process in (first, second) if metric(process, "trainyard_leader")]

        await until_async(jobs_of_leaders, "the leader counts its job", accept=lambda counts: counts == [1])
        await until_ready(first)
        await until_ready(second)  # a standby is ready


async def test_a_leader_that_stops_lets_the_next_one_in_at_once(site: Site) -> None:
    await site.account(NARROW)
    slow = LeaseTimings(duration=600, deadline=300, retry=0.1, renew=200)
    both = [options(site, lease=lease_identity({}, options(site).kinds), timings=slow) for _ in range(2)]
    async with operating(both[0]):
        await site.api.create(TFJOB, "default", tf_job("a"))
        await site.says("a", "Created")
    assert "holderIdentity" not in (await site.api.get(LEASE, "default", LEASE_NAME))["spec"]
    async with operating(both[1]):
        await site.api.create(TFJOB, "default", tf_job("b"))
        await site.says("b", "Created")
    spec = (await site.api.get(LEASE, "default", LEASE_NAME))["spec"]
    assert spec["leaseTransitions"] == 1


async def test_an_operator_that_loses_the_lease_stops_writing_and_resumes_when_it_leads_again(site: Site) -> None:
    await site.account(NARROW)
    mine = options(site, lease=lease_identity({}, options(site).kinds), timings=QUICK)
    async with operating(mine) as process:
        await site.api.create(TFJOB, "default", tf_job("a"))
        await site.says("a", "Created")
        theirs = {"holderIdentity": "somebody", "leaseDurationSeconds": 600}
        await site.api.patch(LEASE, "default", LEASE_NAME, {"spec": theirs})
        await until_metric(process, "trainyard_leader", 0)
        await site.api.create(TFJOB, "default", tf_job("b"))
        await asyncio.sleep(0.3)  # nothing happens: there is no condition to wait for
        assert "status" not in await site.api.get(TFJOB, "default", "b")
        await site.api.patch(LEASE, "default", LEASE_NAME, {"spec": {"holderIdentity": None}})
        await site.says("b", "Created")


async def test_a_write_decided_before_the_lease_was_over_is_not_sent(site: Site) -> None:
    """A pause at the worst place: the plan is made, the connection is had, and the process is stopped there."""
    await site.account(NARROW)
    process = OperatorProcess(options(site, lease=lease_identity({}, options(site).kinds), timings=QUICK))
    election = process._election
    assert election is not None
    stop = asyncio.Event()
    task = asyncio.create_task(process.run(stop))
    await asyncio.wait_for(election.won.wait(), 20)
    real, paused = election._clock, [0.0]
    election._clock = lambda: real() + paused[0]
    paused[0] = 3600.0  # the machine slept for an hour; no timer has noticed yet, and somebody else has it now
    theirs = {"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 6000}}
    await site.api.patch(LEASE, "default", LEASE_NAME, theirs)
    before = site.server.verbs.copy()
    await site.api.create(TFJOB, "default", tf_job())
    await asyncio.wait_for(election.lost.wait(), 20)
    watched = 'trainyard_watch_objects{group="batch",resource="jobs"}'
    await until_async(lambda: metric(process, watched) is None, "Jobs are no longer watched")
    writes = [
        verb
        for verb in site.server.verbs - before
        if verb[0] in ("create", "patch") and verb[1] in ("tfjobs/status", "jobs")
    ]
    assert not writes
    stop.set()
    await task


async def test_a_standby_operator_logs_the_leaders_identity(site: Site) -> None:
    """In the metrics and in /readyz?verbose; the log is the election's. An operator of all namespaces leads."""
    await site.account(NARROW)
    leader, other = (
        options(
            site,
            lease=lease_identity({}, parse_kinds("tfjob"), namespace),
            timings=QUICK,
            namespace=namespace,
            bind=("127.0.0.1", 0),
        )
        for namespace in ("", "default")
    )
    async with operating(leader) as process:
        await until_ready(process)
        await until_metric(process, "trainyard_leader", 1)
        async with operating(other) as two:
            await until_async(
                lambda: f"default/{LEASE_NAME} held by" in dict(_states(two))["lease"], "the standby names the lease"
            )
            assert "trainyard_standby_info{" in two.metrics.render().decode()
            url = f"http://127.0.0.1:{two.health.port}/readyz?verbose"
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                text = await answer.text()
            assert answer.status == 200 and text.endswith("readyz check passed\n")
            assert text.startswith(f"[+]lease ok: standing by for default/{LEASE_NAME} held by ")
            assert dict(_states(process))["lease"] == f"leading default/{LEASE_NAME}"
            assert "trainyard_standby_info{" not in process.metrics.render().decode()


def test_the_lease_has_the_shared_name_and_an_identity_of_this_process() -> None:
    """Not in the pod's namespace: operators of different namespaces would not meet."""
    env = {"MY_POD_NAME": "pod-1", "MY_POD_NAMESPACE": "system"}
    first, other = (lease_identity(env, parse_kinds("tfjob")) for _ in range(2))
    assert (first.namespace, first.name) == ("default", LEASE_NAME)
    assert first.identity.startswith("pod-1_") and first.identity != other.identity
    assert lease_identity({}, parse_kinds("tfjob"), "team", "leases").name == f"{LEASE_NAME}.team"


def test_by_default_a_dead_leader_is_followed_within_five_seconds_and_has_stopped_before() -> None:
    default = lease_timings()
    assert default == LeaseTimings() and default.duration + default.retry < 5
    assert default.deadline + default.retry < default.duration  # an answer under way does not bridge it
    assert default.renew + 2 * default.retry < default.deadline  # one renewal that fails is no loss


def _states(process: OperatorProcess) -> list[tuple[str, str]]:
    return [(name, known) for name, _, known in process.checks()]
