"""The PodGroup of a TrainJob counts the pods that there are at a time: a scheduler waits for no other."""

from __future__ import annotations

import pytest

from tests.drop_in.scenarios_trainjob import replicated_job, runtime
from tests.model.simulated_job import SimulatedJob
from tests.support.samples import trainjob
from trainyard.core import Config
from trainyard.kinds import TRAINJOB
from trainyard.objects import Json

ONE_CPU = {"resources": {"requests": {"cpu": "1"}}}
TWO_CPUS = {"resources": {"requests": {"cpu": "2"}}}


def job_of(scheduler: str, policy: str, *jobs: Json) -> SimulatedJob:
    source = runtime({"torch": {}}, *jobs, podGroupPolicy={policy: {}})
    simulated = SimulatedJob(
        TRAINJOB, trainjob(nodes=3), template_source=source, config=Config(gang_scheduler=scheduler)
    )
    simulated.settle()
    return simulated


def gang(job: SimulatedJob) -> tuple[int, str]:
    spec = job.get("PodGroup", "example")["spec"]
    return spec["minMember"], spec["minResources"]["cpu"]


@pytest.mark.parametrize(
    ("scheduler", "policy", "later"), [("plugins", "coscheduling", (3, "6")), ("volcano", "volcano", (4, "6"))]
)
def test_nodes_that_wait_for_an_initializer_are_no_members_yet(
    scheduler: str, policy: str, later: tuple[int, str]
) -> None:
    node = replicated_job(container=TWO_CPUS, dependsOn=[{"name": "prepare", "status": "Complete"}])
    job = job_of(scheduler, policy, replicated_job("prepare", "", container=ONE_CPU), node)
    assert gang(job) == (1, "1")
    job.run()
    job.end(job.names("Pod")[0], 0)
    job.settle()
    assert len(job.names("Pod")) == 4 and gang(job) == later


def test_without_an_order_all_are_members_as_in_trainer() -> None:
    job = job_of(
        "plugins",
        "coscheduling",
        replicated_job("prepare", "", container=ONE_CPU),
        replicated_job(container=TWO_CPUS),
    )
    assert gang(job) == (4, "7")
