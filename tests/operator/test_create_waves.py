"""Which objects of a plan are created at one time."""

from __future__ import annotations

import pytest

from trainyard.core import PlannedCreate, Slot
from trainyard.objects.resources import JOB, POD, SERVICE
from trainyard.operator.create_waves import waves_of

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
