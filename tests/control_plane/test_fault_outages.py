"""The API server or etcd is away: killed, silent, gone for long. Nothing is made twice and nothing is lost."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from itertools import accumulate, count, takewhile
from pathlib import Path

import pytest

from tests.control_plane.faulty import (
    Program,
    Story,
    gvk_of,
    holds,
    made,
    nothing_twice,
    operating,
    options,
    restarts,
    so,
    still,
    story,
    tf_job,
    value,
    well,
    writes,
)
from tests.control_plane.gate import gate
from tests.support.control_plane import ControlPlane
from trainyard.app.operating import OperatorProcess, lease_identity, lease_timings, parse_kinds
from trainyard.controller_runtime.reflector import INITIAL_DELAY, MAX_DELAY
from trainyard.objects import Json, uid_of

pytestmark = pytest.mark.cluster
WORKERS = 40


@pytest.fixture
async def told(installed: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[Story]:
    async with story(installed, namespace, tmp_path) as one:
        yield one


async def ends_well(told: Story, job: Json) -> Json:
    """The master ends, and the job has succeeded without a restart."""
    told.kubelet.end("MASTER")
    await told.condition("Succeeded", job)
    done = await told.until(lambda one: "completionTime" in one["status"], job)
    assert restarts(done) == 0 and not holds(done, "Failed")
    return done


@pytest.mark.parametrize("part", ["kube-apiserver", "etcd"])
async def test_a_job_whose_children_are_being_made_when_it_is_killed_gets_each_of_them_once(
    told: Story, part: str, tmp_path: Path
) -> None:
    job = tf_job("life", WORKERS)
    async with operating(options(told.account)) as one:
        await so(lambda: one.ready() == "", "the operator is ready")
        async with gate(told, tmp_path, passes=8) as held_up:
            await told.submit(job)
            await so(held_up.held.is_set, "some are made and some are on the wire")
            told.plane.stop(part)
            assert one_by_one(one) <= 8
            assert (one.ready(), one.alive()) == ("", "")  # no reason to be started again
            await asyncio.to_thread(told.plane.begin(part))
        await told.running(job, MASTER=1, WORKER=WORKERS)
        children = await told.children()
        await ends_well(told, job)
        assert await told.children() == children and len(children) == WORKERS + 1
        await well(one, told)
    asked = told.asked()
    nothing_twice(asked)
    assert len(writes(asked)) <= 3 * (WORKERS + 1)  # what was under way is asked about once more, not again and again


def one_by_one(operator_process: OperatorProcess) -> int:
    """How many children it has been told that it has made."""
    text = operator_process.metrics.render().decode()
    return int(value(text, "trainyard_api_requests_total", verb="create", resource="jobs", code="201"))


def unanswered(operator_process: OperatorProcess) -> int:
    return int(value(operator_process.metrics.render().decode(), "trainyard_api_requests_total", code="none"))


def watches(operator_process: OperatorProcess) -> int:
    return operator_process.metrics.render().count(b"\ntrainyard_watch_objects{")


def most_tries(seconds: float) -> int:
    """How often one watch can be tried at most: a pause is at least half of what it has doubled to."""
    ends = accumulate(min(MAX_DELAY, INITIAL_DELAY * 2**tries) / 2 for tries in count())
    return 1 + sum(1 for _ in takewhile(lambda end: end < seconds, ends))


@pytest.mark.slow
@pytest.mark.parametrize("leased", [False, True], ids=["alone", "with a lease"])
async def test_while_the_api_server_is_away_nobody_hurries_and_ten_seconds_after_it_is_back_all_is_well(
    told: Story, leased: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Gone means: connections are refused for 20 seconds, then they stay open for 15 and nothing is answered."""
    job, next_job = tf_job("long", 2), tf_job("next", 0)
    place = lease_identity({}, parse_kinds("all"), told.namespace) if leased else None
    async with operating(options(told.account, lease=place, timings=lease_timings(8))) as one:
        await told.submit(job)
        await told.running(job, MASTER=1, WORKER=2)
        children = await told.children()
        most = watches(one) * most_tries(20) + 20 * leased  # a renewal each second, and no more
        await asyncio.to_thread(told.plane.stop)
        assert await still(lambda: unanswered(one), 20) <= most
        assert one.alive() == "" and one.ready() == ""
        await asyncio.to_thread(told.plane.begin())
        await told.submit(next_job)
        back = [await until_created(told, next_job)]
        told.plane.pause()
        assert await still(lambda: unanswered(one), 15) < 20
        told.plane.resume()
        last_job = await told.submit(tf_job("last", 0))
        back.append(await until_created(told, last_job))
        assert max(back) < 15, back  # ten, on a machine that has nothing else to do
        await told.fresh_controllers()
        assert children.items() <= (await told.children()).items()
        for one_job in (next_job, last_job):
            await told.running(one_job, MASTER=1)
        for one_job in (job, next_job, last_job):
            await ends_well(told, one_job)
        await well(one, told)
        assert value(one.metrics.render().decode(), "trainyard_leader") == 1
    nothing_twice(told.asked())
    with capsys.disabled():
        print(f"\nAPI server away, {'with' if leased else 'without'} a lease: served {back} s after its return")


async def until_created(told: Story, job: Json) -> float:
    """The seconds from now until the job is accepted."""
    began = time.monotonic()
    await told.condition("Created", job)
    return round(time.monotonic() - began, 1)


@pytest.mark.slow
async def test_who_comes_back_to_a_server_that_has_forgotten_where_it_was_lists_once_and_sees_all(told: Story) -> None:
    """A real 410: the operator sleeps, the API server starts anew, and much has happened before the operator wakes."""
    program = Program(told.account, "--log-level", "debug")
    program.start()
    try:
        gone, ends, stays, born = [tf_job(name, 1) for name in ("gone", "ends", "stay", "born")]
        made_jobs = [await told.submit(job) for job in (gone, ends, stays)]
        for job in (gone, ends, stays):
            await told.running(job, MASTER=1, WORKER=1)
        await so(lambda: "ok" in program.asked("/readyz"), "the operator is ready")
        program.process.send(signal.SIGSTOP)
        await told.api.delete(gvk_of(gone), told.namespace, "gone")
        told.kubelet.end("MASTER", 0, uid_of(made_jobs[1]))
        await so(lambda: any(ended(pod) for pod in told.kubelet.pods), "a master has ended")
        told.plane.stop()
        await asyncio.to_thread(told.plane.begin())
        await told.submit(born)
        mark = told.plane.audit.mark()
        program.process.send(signal.SIGCONT)
        await told.running(born, MASTER=1, WORKER=1)
        await told.condition("Succeeded", ends)
        assert holds(await told.running(stays, MASTER=1, WORKER=1), "Running")
        await so(lambda: known(program) == 3, "the deleted job is forgotten")
        assert '"code":410' in program.said()
        lists = Counter(request.right for request in told.asked(mark) if request.verb == "list")
        assert set(lists.values()) == {1}, lists
        nothing_twice(told.asked())
        assert set(made(told.asked(mark))) == {
            ("jobs", "master-born-0"),
            ("jobs", "worker-born-0"),
            ("services", "tfjob-born"),
        }
    finally:
        program.end()


def ended(pod: Json) -> bool:
    return bool(pod["status"].get("phase") == "Succeeded")


def known(program: Program) -> float:
    return value(program.asked("/metrics"), "trainyard_watch_objects", resource="tfjobs")
