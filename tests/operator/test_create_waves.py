"""Which objects of a plan are created at one time, and when they are rendered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.builders import NOW, replicas, tfjob
from trainyard import core
from trainyard.client import ApiClient
from trainyard.controller_runtime.concurrency_limiter import ConcurrencyLimiter, WriteSlot
from trainyard.controller_runtime.event_recorder import EventRecorder
from trainyard.controller_runtime.in_flight_writes import InFlightWrites
from trainyard.core import Config, Job, Observed, PlannedCreate, Slot
from trainyard.core.decide import decide
from trainyard.kinds import TFJOB
from trainyard.objects import GVK, Json
from trainyard.objects.resources import JOB, POD, SERVICE
from trainyard.objects.structs import replace
from trainyard.operator.create_waves import waves_of
from trainyard.operator.plan_executor import PlanExecutor
from trainyard.operator.reconcile import JobState, ReconcileContext

AUXILIARY = PlannedCreate(SERVICE, "job", None, 0)
PODS = [PlannedCreate(POD, f"pod-{index}", Slot("worker", index), 0) for index in range(20)]
SERVICES = [PlannedCreate(SERVICE, f"service-{index}", None, 0) for index in range(20)]
BATCH_JOBS = [PlannedCreate(JOB, f"job-{index}", Slot("worker", index), 0) for index in range(20)]
DEPENDENT = [PlannedCreate(POD, f"pod-{index}", Slot("worker", index), 0, (AUXILIARY.ref,)) for index in range(20)]


@pytest.mark.parametrize(
    ("creates", "waves"),
    [
        ([AUXILIARY, *PODS[:3]], [[AUXILIARY], PODS[:3]]),
        ([*PODS, *SERVICES], [PODS[:1], [*PODS[1:], *SERVICES]]),
        ([AUXILIARY, *BATCH_JOBS], [[AUXILIARY, BATCH_JOBS[0]], BATCH_JOBS[1:]]),
        (SERVICES, [SERVICES[:1], SERVICES[1:]]),
        ([AUXILIARY, *DEPENDENT], [[AUXILIARY], DEPENDENT[:1], DEPENDENT[1:]]),
        ([AUXILIARY, *DEPENDENT[:3]], [[AUXILIARY], DEPENDENT[:3]]),
    ],
    ids=["small", "large", "large, of batch Jobs", "large, Services only", "large, dependent", "small, dependent"],
)
def test_the_replicas_of_a_large_job_wait_for_the_first(
    creates: list[PlannedCreate], waves: list[list[PlannedCreate]]
) -> None:
    assert waves_of(creates) == waves


class SlowApi(ApiClient):
    """Answers a patch when `may_answer` is set, and then notes it; a create at once."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.is_patched = False

    async def patch(
        self, gvk: GVK, namespace: str, name: str, body: Json, subresource: str = "", *, version_only: bool = False
    ) -> Json:
        await self.may_answer.wait()
        self.is_patched = True
        return {"metadata": {"resourceVersion": "2"}}

    async def create(self, gvk: GVK, namespace: str, obj: Json, *_: Any, **options: Any) -> Json:
        assert self.is_patched
        return {"metadata": {"uid": obj["metadata"]["name"], "resourceVersion": "3"}}


async def apply_first_plan(api: ApiClient, workers: int = 0) -> None:
    job = tfjob(replicas("MASTER"), *([replicas("WORKER", workers)] if workers else []))
    plan = replace(decide(core.parse_job(TFJOB, job, Config()), Observed((), config=Config()), NOW), spec_patch=None)
    assert plan.creates
    executor = PlanExecutor(api, Config(), InFlightWrites({}), EventRecorder(api), now=lambda: NOW)
    async with asyncio.timeout(60):
        await executor.apply(ReconcileContext(TFJOB, job, plan, JobState(), NOW))


async def test_the_first_objects_are_rendered_while_the_status_patch_is_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api, render = SlowApi(), core.render_child

    def render_and_answer(job: Job, planned: PlannedCreate) -> Json:
        api.may_answer.set()
        return render(job, planned)

    monkeypatch.setattr(core, "render_child", render_and_answer)
    await apply_first_plan(api)
    assert api.is_patched


async def test_a_reconcile_that_cannot_render_waits_for_its_status_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is retried, and must not find this patch still in flight."""
    api = SlowApi()

    def fail(job: Job, planned: PlannedCreate) -> Json:
        asyncio.get_running_loop().call_soon(api.may_answer.set)
        raise ValueError("the config has changed")

    monkeypatch.setattr(core, "render_child", fail)
    with pytest.raises(ValueError, match="the config has changed"):
        await apply_first_plan(api)
    assert api.is_patched


async def test_each_write_of_a_large_job_counts_as_one_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first replica, a wave of its own, counted as the write of a small job: the others made room for it."""
    api, slot, batches = SlowApi(), ConcurrencyLimiter.slot, list[int]()
    api.may_answer.set()

    def recorded_slot(self: ConcurrencyLimiter, namespace: str, uid: str, batch: int) -> WriteSlot:
        batches.append(batch)
        return slot(self, namespace, uid, batch)

    monkeypatch.setattr(ConcurrencyLimiter, "slot", recorded_slot)
    await apply_first_plan(api, workers=40)
    assert len(batches) >= 42 and set(batches) == {len(batches)}
