"""A create that was made although the operator had no answer, or 503, while the watch of pods shows nothing."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from tests.operator.operator_cluster import Troubled
from tests.support.samples import kubeflow_job
from trainyard import core
from trainyard.client import ApiRequest, Unavailable
from trainyard.client.request import create
from trainyard.controller_runtime.event_recorder import EventRecorder
from trainyard.controller_runtime.in_flight_writes import InFlightWrites
from trainyard.controller_runtime.object_adapter import dict_adapter
from trainyard.controller_runtime.store import Store
from trainyard.core import Config
from trainyard.kinds import PYTORCHJOB, crd
from trainyard.objects import GVK, Json, uid_of
from trainyard.objects.resources import CRD, NAMESPACE, POD, SERVICE
from trainyard.operator.plan_executor import PlanExecutor
from trainyard.operator.reconcile import JobState, ReconcileContext
from trainyard.server import Server

JOB = PYTORCHJOB.gvk


@pytest.fixture
async def api() -> AsyncIterator[Troubled]:
    server = Server()
    await server.start()
    async with Troubled(server.url) as api:
        await api.send(create(CRD, "", crd(PYTORCHJOB)))
        await api.create(NAMESPACE, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
        yield api
    await server.stop()


class Reconciler:
    """Reconciles one job. Its stores stay empty: no watch delivers anything."""

    def __init__(self, api: Troubled) -> None:
        self.api, self.state = api, JobState()
        self.writes: InFlightWrites[GVK] = InFlightWrites({POD: Store(dict_adapter()), SERVICE: Store(dict_adapter())})
        self.executor = PlanExecutor(api, Config(), self.writes, EventRecorder(api, time.time))

    async def reconcile(self) -> float | None:
        job = await self.api.get(JOB, "n", "example")
        plan = core.plan(PYTORCHJOB, job, core.Observed(), time.time())
        return await self.executor.apply(ReconcileContext(PYTORCHJOB, job, plan, self.state, time.time()))

    async def suspend(self, suspend: bool) -> None:
        await self.api.patch(JOB, "n", "example", {"spec": {"runPolicy": {"suspend": suspend}}})


def creates_of_pods(api: Troubled) -> int:
    return sum(request.method == "POST" and request.path.endswith("/pods") for request in api.sent)


async def with_a_lost_answer(api: Troubled) -> Reconciler:
    """A job of which one Pod was created, and the answer to that was 503."""
    job: Json = kubeflow_job("PyTorchJob", Master={}, Worker={"replicas": 1})
    await api.create(JOB, "n", {**job, "metadata": {"name": "example", "namespace": "n"}})
    reconciler = Reconciler(api)

    def lose(request: ApiRequest) -> None:
        if request.method == "POST" and request.path.endswith("/pods"):
            raise Unavailable(503, "ServiceUnavailable", "the answer is lost")

    api.after = lose
    with pytest.raises(Unavailable):
        await reconciler.reconcile()
    api.after = lambda request: None
    reconciler.writes.forget(uid_of(await api.get(JOB, "n", "example")))  # the store has all that was answered
    return reconciler


async def test_it_is_awaited_before_the_next_attempt_begins(api: Troubled) -> None:
    """A resume created the other Pods of the next attempt beside it, and took it for one of them: found by the
    worlds."""
    reconciler = await with_a_lost_answer(api)
    uid = uid_of(await api.get(JOB, "n", "example"))
    await reconciler.suspend(True)
    sent = len(api.writes)
    assert await reconciler.reconcile() == 0.0
    assert len(api.writes) == sent and reconciler.writes.has_pending(uid)


async def test_the_same_create_is_sent_again_without_a_look(api: Troubled) -> None:
    reconciler = await with_a_lost_answer(api)
    before = creates_of_pods(api)
    await reconciler.reconcile()
    assert creates_of_pods(api) > before and not reconciler.state.unanswered


async def test_one_that_was_not_made_does_not_hold_up_the_job(api: Troubled) -> None:
    reconciler = await with_a_lost_answer(api)
    for pod in (await api.list(POD, "n"))["items"]:
        await api.delete(POD, "n", pod["metadata"]["name"], grace_period_seconds=0)
    await reconciler.suspend(True)
    await reconciler.reconcile()
    assert not reconciler.state.unanswered
    conditions = (await api.get(JOB, "n", "example"))["status"]["conditions"]
    assert [condition["status"] for condition in conditions if condition["type"] == "Suspended"] == ["True"]
