"""A definition is deleted and installed again while the operator works: its kind is parked and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control_plane.fault_stories import (
    assert_operator_healthy,
    elastic_job,
    growth,
    operating,
    options,
    restarts,
    story,
    tally,
    tf_job,
    value,
)
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import create_namespace, install
from tests.support.waiting import until_async
from trainyard.app.operating import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
def own() -> Iterator[ControlPlane]:
    """A control plane of its own: its garbage collector loses sight of a kind for a while."""
    with ControlPlane() as plane:
        install(plane)
        create_namespace(plane, "crds")
        yield plane


def watched(operator_process: OperatorProcess, state: str) -> bool:
    text = operator_process.metrics.render().decode()
    return value(text, "trainyard_watch_state", resource="elasticjobs", state=state) == 1


async def test_a_kind_whose_crd_is_deleted_is_served_again_later_and_others_are_not_affected(
    own: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, job = tf_job("othe", 1), elastic_job("park", 2)
    async with story(own, "crds", tmp_path) as scenario, operating(options(scenario.account)) as operator_process:
        for submitted, roles in ((other, {"MASTER": 1, "WORKER": 1}), (job, {"Worker": 2})):
            await scenario.submit(submitted)
            await scenario.running(submitted, **roles)
        mark = own.audit.mark()
        await asyncio.to_thread(own.kubectl, "delete", "crd", "elasticjobs.elastic.pytorch.org")
        await until_async(lambda: watched(operator_process, "missing"), "the kind is parked")
        assert (operator_process.alive(), operator_process.ready()) == ("", "")
        before = len(scenario.requests(mark))
        await growth(lambda: 0, 5)
        assert len(scenario.requests(mark)) - before <= 6  # it is asked for again, ever more slowly
        text = operator_process.metrics.render().decode()
        assert value(text, "trainyard_watch_objects", resource="elasticjobs") == 0
        assert value(text, "trainyard_watch_objects", resource="tfjobs") == 1
        await asyncio.to_thread(install, own)
        await until_async(lambda: watched(operator_process, "watching"), "the kind is served again")
        await scenario.submit(job)  # under the same name, while what is left of the first may still hold the names
        # The garbage collector looks for new definitions every half minute, and waits longer after each failure.
        await scenario.until(lambda job_now: tally(job_now).get("Worker") == 2, job, 180)
        scenario.kubelet.end("WORKER")
        scenario.kubelet.end("MASTER")
        for submitted in (other, job):
            await scenario.condition("Succeeded", submitted)
            assert restarts(await scenario.until(lambda job_now: True, submitted)) == 0
        writes = [
            request
            for request in scenario.requests(mark)
            if request.resource == "jobs" and request.verb in ("create", "delete")
        ]
        assert not writes, "the TfJob was not to notice"
        await assert_operator_healthy(operator_process, scenario)
