"""What a job costs in requests, events and plans, counted. A regression fails here without a clock."""

from __future__ import annotations

import math

import pytest

from tests.counts.counted_operator import counted_operator, live, running, set_pods, start
from tests.support.steady_jobs import NAMESPACE
from trainyard.controller_runtime.reflector import EVENTS_PER_YIELD, PAGE_SIZE
from trainyard.kinds.native_gang import NATIVE
from trainyard.objects.resources import POD
from trainyard.operator import operator, plan_executor

BURST = 1000  # pods that change at one time
RUN_WRITES = 5  # writes of a job's life besides its children: statuses
GROUP_WRITES = 2  # of a gang: its PodGroup is created and deleted
MAX_EVENTS = 10  # of a job's life


@pytest.mark.parametrize("pods", [1, 10, 100])
async def test_a_life_costs_a_request_for_each_child_and_five(monkeypatch: pytest.MonkeyPatch, pods: int) -> None:
    async with counted_operator(monkeypatch) as counted:
        await live(counted, 1, pods, BURST)
        assert counted.creates == 2 * pods
        assert counted.writes <= counted.creates + RUN_WRITES
        assert {verb for verb, _ in counted.requests} == {"list", "watch", "create", "patch"}


@pytest.mark.parametrize(("pods", "burst", "patches"), [(1, 1, 0), (50, BURST, 0), (10, 1, 1), (50, 1, 1)])
async def test_a_life_of_a_gang_costs_two_requests_more_and_its_count_is_lowered_as_counts_are_written(
    monkeypatch: pytest.MonkeyPatch, pods: int, burst: int, patches: int
) -> None:
    """Members that end one by one lower `minCount` with the counts in the status: once a second at most, and here a
    second is longer than a life."""
    monkeypatch.setattr(plan_executor, "REPLICA_COUNTS_INTERVAL", 1e6)
    async with counted_operator(monkeypatch, gang_scheduler=NATIVE) as counted:
        await live(counted, 1, pods, burst, master_last=True)
        assert counted.writes <= counted.creates + RUN_WRITES + GROUP_WRITES + patches
        assert counted.requests["create", "podgroups"] == counted.requests["delete", "podgroups"] == 1
        assert counted.requests["patch", "podgroups"] <= patches


@pytest.mark.parametrize("pods", [10, 100])
async def test_a_gang_is_restarted_by_a_delete_and_a_create_of_each_pod(
    monkeypatch: pytest.MonkeyPatch, pods: int
) -> None:
    """No garbage collector runs here: a Pod is gone as soon as it is deleted. And a plan that takes long delays no
    restart: the next one comes with the end of the last old Pod."""
    async with counted_operator(monkeypatch) as counted:
        await start(counted, 1, pods)
        await set_pods(counted, BURST, running)
        await counted.settled()
        counted.requests.clear()
        monkeypatch.setattr(operator, "PLAN_PAUSE_FACTOR", math.inf)
        monkeypatch.setattr(operator, "MAX_PLAN_PAUSE", 3600.0)
        failed = {"phase": "Failed", "reason": "Error"}
        await counted.user.patch(POD, NAMESPACE, "job-00000-worker-0", {"status": failed}, "status")
        await counted.until(lambda: counted.requests["create", "pods"] == pods, "every pod is created again")
        assert counted.requests["delete", "pods"] == pods
        assert counted.writes <= 2 * pods + RUN_WRITES


@pytest.mark.parametrize("pods", [1, 10, 100])
async def test_a_life_has_at_most_ten_events_however_many_pods(monkeypatch: pytest.MonkeyPatch, pods: int) -> None:
    async with counted_operator(monkeypatch) as counted:
        await live(counted, 1, pods, BURST)
        await counted.events_sent()
        assert 0 < counted.events <= MAX_EVENTS


@pytest.mark.parametrize("pods", [10, 100, 500])
async def test_a_burst_of_changes_is_planned_once(monkeypatch: pytest.MonkeyPatch, pods: int) -> None:
    async with counted_operator(monkeypatch) as counted:
        await start(counted, 1, pods)
        counted.plans = 0
        await set_pods(counted, BURST, running)
        await counted.settled()
        # one for each portion of watch events, and one after the write of the status
        assert 1 <= counted.plans <= math.ceil(pods / EVENTS_PER_YIELD) + 2


@pytest.mark.parametrize("pods", [10, 100])
async def test_a_single_change_is_planned_at_most_once(monkeypatch: pytest.MonkeyPatch, pods: int) -> None:
    """At most: each plan is of the whole job, and a pause that grows with it follows (PLAN_PAUSE_FACTOR)."""
    async with counted_operator(monkeypatch) as counted:
        await start(counted, 1, pods)
        counted.plans = 0
        counted.requests.clear()
        await set_pods(counted, 1, running)
        await counted.settled()
        statuses = counted.requests["patch", "pytorchjobs/status"]
        # a status is planned again when it may be sent, and once more when the watch has delivered it
        assert 1 <= counted.plans <= pods + 2 * statuses + 2


async def test_a_restart_beside_steady_jobs_lists_each_resource_once(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, pods = 120, 10
    async with counted_operator(monkeypatch, jobs, pods) as counted:
        await counted.until(lambda: counted.operator.counts.get("reconciles") == jobs, "each job is reconciled")
        await counted.settled()
        assert counted.lists("pytorchjobs") == 1
        assert counted.lists("pods") == counted.lists("services") == math.ceil(jobs * pods / PAGE_SIZE)
        assert counted.writes == counted.events == 0
        assert counted.plans == jobs


@pytest.mark.slow
async def test_a_thousand_steady_jobs_wake_the_operator_never(monkeypatch: pytest.MonkeyPatch) -> None:
    """No timer is left, so nothing happens until an object changes."""
    jobs, pods = 1000, 4
    async with counted_operator(monkeypatch, jobs, pods) as counted:
        await counted.until(lambda: counted.operator.counts.get("reconciles") == jobs, "each job is reconciled")
        await counted.settled()
        assert not list(counted.operator.queue.states())
        assert counted.writes == counted.events == 0
        counted.requests.clear()
        counted.server.hub.send_bookmarks()
        await counted.settled()
        assert not counted.requests
        assert counted.operator.counts["reconciles"] == counted.plans == jobs
