"""A job of which a replica hangs: it is told, and restarted where its annotation says so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stories.harness import POD, Harness
from tests.stories.job_fixtures import kubeflow_job
from trainyard import kinds
from trainyard.objects import Json, annotations_of, find_condition, name_of, uid_of
from trainyard.objects.no_progress import NO_PROGRESS, ON_STALL, PROGRESS_DEADLINE

PYTORCHJOB = next(kind for kind in kinds.KINDS if kind.gvk.kind == "PyTorchJob")
REPLICAS = (("master", 0), ("worker", 0), ("worker", 1))
HANGS = ("worker", 1)


def job_with(**annotations: str) -> Json:
    job = kubeflow_job(PYTORCHJOB, {"Master": 1, "Worker": 2}, policy="OnFailure")
    return {**job, "metadata": {**job["metadata"], "annotations": annotations}}


async def make_step(harness: Harness, replica: tuple[str, int], step: int) -> None:
    controlled = await harness.controlled_pod(*replica)
    await controlled.ask(f"print('step={step} loss=0.5', flush=True)")


async def hang(harness: Harness) -> str:
    """All replicas make the first step, and all but one the second. Returns the name of its pod."""
    for replica in REPLICAS:
        await make_step(harness, replica, 1)
    for replica in REPLICAS:
        if replica != HANGS:
            await make_step(harness, replica, 2)
    return name_of(await harness.pod(*HANGS))


def stalled(job: Json) -> Json:
    return find_condition(job.get("status", {}).get("conditions") or [], "Stalled") or {"status": "", "message": ""}


@pytest.mark.slow
async def test_a_hang_is_told_until_the_replica_makes_steps_again(harness: Harness) -> None:
    await harness.submit(job_with(**{PROGRESS_DEADLINE: "5s"}))
    pod = await hang(harness)
    job = await harness.until(lambda job: stalled(job)["status"] == "True")
    assert stalled(job)["message"].startswith(f"pod {pod} stopped first: no step after 1, and no output and no write")
    assert stalled(job)["message"].endswith("(trainyard.dev/progress-deadline: 5s); 2 others wait")
    for replica in REPLICAS:
        await make_step(harness, replica, 3)
    await harness.until(lambda job: stalled(job)["status"] == "False")


@pytest.mark.slow
async def test_a_job_that_hangs_is_restarted(harness: Harness) -> None:
    await harness.submit(job_with(**{PROGRESS_DEADLINE: "5s", ON_STALL: "restart"}))
    before = [await harness.pod(*replica) for replica in REPLICAS]
    await hang(harness)
    for pod in before:
        await harness.gone(POD, name_of(pod), uid_of(pod))
    after: list[Any] = [await harness.pod(*replica) for replica in REPLICAS]
    assert not any(annotations_of(pod).get(NO_PROGRESS) for pod in after)
    job = await harness.until(lambda job: stalled(job)["status"] == "False")
    assert {role["attempt"] for role in job["status"]["roles"].values()} == {1}
    assert find_condition(job["status"]["conditions"], "Failed") is None
