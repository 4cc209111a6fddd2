"""The API server or etcd is away: killed, silent, gone for long. Nothing is made twice and nothing is lost."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from itertools import accumulate, count, takewhile
from pathlib import Path

import pytest

from tests.control_plane.admission_webhook import gate
from tests.control_plane.fault_stories import (
    Program,
    Story,
    assert_no_child_created_twice,
    assert_operator_healthy,
    count_creates,
    growth,
    gvk_of,
    has_condition,
    operating,
    options,
    restarts,
    tf_job,
    value,
    writes,
)
from tests.support.waiting import SLOW_PAUSE, until_async
from trainyard.app.operating import OperatorProcess, lease_identity, lease_timings, parse_kinds
from trainyard.controller_runtime.reflector import INITIAL_DELAY, MAX_DELAY
from trainyard.objects import Json, uid_of

pytestmark = pytest.mark.cluster
WORKERS = 40


async def ends_well(scenario: Story, job: Json) -> Json:
    """The master ends, and the job has succeeded without a restart."""
    scenario.kubelet.end("MASTER")
    await scenario.condition("Succeeded", job)
    done = await scenario.until(lambda job_now: "completionTime" in job_now["status"], job)
    assert restarts(done) == 0 and not has_condition(done, "Failed")
    return done


@pytest.mark.parametrize("part", ["kube-apiserver", "etcd"])
async def test_an_operator_killed_during_creation_creates_each_child_once(
    scenario: Story, part: str, tmp_path: Path
) -> None:
    job = tf_job("life", WORKERS)
    async with operating(options(scenario.account)) as operator_process:
        await until_async(lambda: operator_process.ready() == "", "the operator is ready")
        async with gate(scenario, tmp_path, passes=8) as held_up:
            await scenario.submit(job)
            await until_async(held_up.held.is_set, "some are made and some are on the wire")
            scenario.plane.stop(part)
            assert one_by_one(operator_process) <= 8
            assert (operator_process.ready(), operator_process.alive()) == ("", "")  # no reason to be started again
            await asyncio.to_thread(scenario.plane.begin(part))
        await scenario.running(job, MASTER=1, WORKER=WORKERS)
        children = await scenario.children()
        await ends_well(scenario, job)
        assert await scenario.children() == children and len(children) == WORKERS + 1
        await assert_operator_healthy(operator_process, scenario)
    requests = scenario.requests()
    assert_no_child_created_twice(requests)
    assert len(writes(requests)) <= 3 * (
        WORKERS + 1
    )  # what was under way is asked about once more, not again and again


def one_by_one(operator_process: OperatorProcess) -> int:
    """How many creates the operator has got a response for."""
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
async def test_requests_back_off_during_an_outage_and_recover_within_ten_seconds(
    scenario: Story, leased: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Gone means: connections are refused for 20 seconds, then they stay open for 15 and nothing is answered."""
    job, next_job = tf_job("long", 2), tf_job("next", 0)
    place = lease_identity({}, parse_kinds("all"), scenario.namespace) if leased else None
    async with operating(options(scenario.account, lease=place, timings=lease_timings(8))) as operator_process:
        await scenario.submit(job)
        await scenario.running(job, MASTER=1, WORKER=2)
        children = await scenario.children()
        most = watches(operator_process) * most_tries(20) + 20 * leased  # a renewal each second, and no more
        await asyncio.to_thread(scenario.plane.stop)
        assert await growth(lambda: unanswered(operator_process), 20) <= most
        assert operator_process.alive() == "" and operator_process.ready() == ""
        await asyncio.to_thread(scenario.plane.begin())
        await scenario.submit(next_job)
        back = [await until_created(scenario, next_job)]
        scenario.plane.pause()
        assert await growth(lambda: unanswered(operator_process), 15) < 20
        scenario.plane.resume()
        last_job = await scenario.submit(tf_job("last", 0))
        back.append(await until_created(scenario, last_job))
        assert max(back) < 15, back  # ten, on a machine that has nothing else to do
        await scenario.fresh_controllers()
        assert children.items() <= (await scenario.children()).items()
        for one_job in (next_job, last_job):
            await scenario.running(one_job, MASTER=1)
        for one_job in (job, next_job, last_job):
            await ends_well(scenario, one_job)
        await assert_operator_healthy(operator_process, scenario)
        assert value(operator_process.metrics.render().decode(), "trainyard_leader") == 1
    assert_no_child_created_twice(scenario.requests())
    with capsys.disabled():
        print(f"\nAPI server away, {'with' if leased else 'without'} a lease: served {back} s after its return")


async def until_created(scenario: Story, job: Json) -> float:
    """The seconds from now until the job is accepted."""
    began = time.monotonic()
    await scenario.condition("Created", job)
    return round(time.monotonic() - began, 1)


@pytest.mark.slow
async def test_an_operator_whose_resource_version_the_server_forgot_lists_once_and_misses_nothing(
    scenario: Story,
) -> None:
    """A real 410: the operator sleeps, the API server starts anew, and much has happened before the operator wakes."""
    program = Program(scenario.account, "--log-level", "debug")
    program.start()
    try:
        gone, ends, stays, born = [tf_job(name, 1) for name in ("gone", "ends", "stay", "born")]
        made_jobs = [await scenario.submit(job) for job in (gone, ends, stays)]
        for job in (gone, ends, stays):
            await scenario.running(job, MASTER=1, WORKER=1)
        await until_async(lambda: "ok" in program.get("/readyz"), "the operator is ready", pause=SLOW_PAUSE)
        program.process.send(signal.SIGSTOP)
        await scenario.api.delete(gvk_of(gone), scenario.namespace, "gone")
        scenario.kubelet.end("MASTER", 0, uid_of(made_jobs[1]))
        await until_async(lambda: any(ended(pod) for pod in scenario.kubelet.pods), "a master has ended")
        scenario.plane.stop()
        await asyncio.to_thread(scenario.plane.begin())
        await scenario.submit(born)
        mark = scenario.plane.audit.mark()
        program.process.send(signal.SIGCONT)
        await scenario.running(born, MASTER=1, WORKER=1)
        await scenario.condition("Succeeded", ends)
        assert has_condition(await scenario.running(stays, MASTER=1, WORKER=1), "Running")
        await until_async(lambda: known(program) == 3, "the deleted job is forgotten")
        assert '"code":410' in program.output()
        lists = Counter(request.right for request in scenario.requests(mark) if request.verb == "list")
        assert set(lists.values()) == {1}, lists
        assert_no_child_created_twice(scenario.requests())
        assert set(count_creates(scenario.requests(mark))) == {
            ("jobs", "master-born-0"),
            ("jobs", "worker-born-0"),
            ("services", "tfjob-born"),
        }
    finally:
        program.end()


def ended(pod: Json) -> bool:
    return bool(pod["status"].get("phase") == "Succeeded")


def known(program: Program) -> float:
    return value(program.get("/metrics"), "trainyard_watch_objects", resource="tfjobs")
