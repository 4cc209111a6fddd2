"""`status.trainerStatus` from what the node of the first pod has read, and the state in one word."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kinds.trainjob.test_recorded import schema
from tests.model.simulated_job import SimulatedJob, simulate
from tests.support.samples import trainjob
from trainyard.kinds import TRAINJOB
from trainyard.kinds.trainjob.progress import fraction_done
from trainyard.objects import Json, as_dict
from trainyard.objects.usage import REPORT_PROGRESS, Progress

TIME, TEXT = 1_700_000_100.0, "2023-11-14T22:15:00Z"


@pytest.mark.parametrize(
    ("values", "source", "expected"),
    [
        ({"step": 10, "loss": 1}, "pattern", (None, 0)),
        ({"step": 10, "total_steps": 40}, "pattern", (0.25, 40)),
        ({"step": 50, "total_steps": 40}, "pattern", (None, 0)),
        ({"step": 0, "total_steps": 0}, "pattern", (None, 0)),
        ({"total_steps": 40}, "file", (None, 0)),
        ({"step": 10, "total_steps": 40, "epoch": 2}, "pattern", (None, 0)),
        ({"step": 10, "total_steps": 40, "epoch": 2}, "file", (0.25, 40)),
        ({"step": 10, "total_steps": 40, "epoch": 2, "total_epochs": 4}, "pattern", (1.25 / 4, 160)),
        ({"step": 10, "total_steps": 40, "epoch": 2, "total_epochs": 4}, "output", (0.25, 40)),
        ({"step": 10, "epoch": 2, "total_epochs": 4}, "pattern", (0.25, 0)),
        ({"epoch": 0, "total_epochs": 4}, "pattern", (0, 0)),
        ({"epoch": 4, "total_epochs": 4}, "pattern", (0.75, 0)),
        ({"epoch": 5, "total_epochs": 4}, "pattern", (None, 0)),
    ],
)
def test_the_part_of_a_training_that_is_done(
    values: dict[str, float], source: str, expected: tuple[float | None, float]
) -> None:
    assert fraction_done(values, source) == expected


def running_job(**values: float) -> SimulatedJob:
    job = simulate(TRAINJOB, trainjob())
    job.run()
    job.settle()
    if values:
        report(job, values)
    return job


def report(job: SimulatedJob, values: dict[str, float]) -> Json:
    """The node writes the annotation of the first pod. The job's trainerStatus then."""
    pod = job.get("Pod", job.names("Pod")[0])
    pod["metadata"]["annotations"] |= Progress(values, 2.0, "pattern", time=TIME).annotation
    status = job.settle()
    assert schema("TrainJob").validate({**job.job, "status": status}) == []
    return as_dict(status.get("trainerStatus"))


def test_the_first_pod_alone_reports() -> None:
    job = running_job()
    pods = [job.get("Pod", name)["metadata"]["annotations"] for name in job.names("Pod")]
    assert [annotations.get(REPORT_PROGRESS) for annotations in pods] == ["true", None]
    assert "trainerStatus" not in job.job["status"]


def test_the_launcher_reports_for_a_job_of_mpi() -> None:
    job = simulate(TRAINJOB, trainjob(runtime="deepspeed-distributed"))
    job.run()
    job.settle()
    reporting = [
        name for name in job.names("Pod") if REPORT_PROGRESS in job.get("Pod", name)["metadata"]["annotations"]
    ]
    assert [name.rpartition("-")[0] for name in reporting] == ["example-launcher-0-0"]


def test_steps_with_a_total_are_percent_and_seconds() -> None:
    job = running_job()
    values: dict[str, float] = {"step": 11, "total_steps": 40, "loss": 0.4123, "accuracy": float("nan"), "": 1}
    assert report(job, values) == {
        "progressPercentage": 27,
        "estimatedRemainingSeconds": 15,
        "metrics": [
            {"name": "step", "value": "11"},
            {"name": "loss", "value": "0.4123"},
            {"name": "accuracy", "value": "nan"},
        ],
        "lastUpdatedTime": TEXT,
    }
    assert job.look().idle


def test_steps_without_a_total_are_values_alone() -> None:
    assert report(running_job(), {"step": 11}) == {
        "metrics": [{"name": "step", "value": "11"}],
        "lastUpdatedTime": TEXT,
    }


@pytest.mark.parametrize("step", range(101))
def test_a_step_of_a_hundred_is_a_percent(step: int) -> None:
    assert report(running_job(), {"step": step, "total_steps": 100})["progressPercentage"] == step


def test_a_suspended_job_has_no_time_that_remains() -> None:
    job = running_job(step=11, total_steps=40)
    job.edit(suspend=True)
    assert job.settle()["trainerStatus"] == {
        "progressPercentage": 27,
        "metrics": [{"name": "step", "value": "11"}],
        "lastUpdatedTime": TEXT,
    }


@pytest.mark.parametrize(("code", "percent"), [(0, 100), (1, 27)])
def test_the_end_keeps_what_was_reported_last(code: int, percent: int) -> None:
    job = running_job(step=11, total_steps=40)
    for _ in range(8):
        for name in job.names("Pod"):
            job.end(name, code)
        job.settle()
        job.now += 400
        job.settle()
        job.run()
    status = job.settle()
    assert status["conditions"][0]["type"] == ("Failed" if code else "Complete")
    assert status["trainerStatus"]["progressPercentage"] == percent
    assert status["trainerStatus"]["estimatedRemainingSeconds"] == 0
    assert status["trainerStatus"]["metrics"] == [{"name": "step", "value": "11"}]


def test_what_another_client_has_written_stays() -> None:
    job = running_job()
    theirs: Any = {"progressPercentage": 5, "lastUpdatedTime": TEXT}
    job.job["status"]["trainerStatus"] = theirs
    assert job.settle()["trainerStatus"] == theirs


def test_the_state_in_one_word() -> None:
    job = simulate(TRAINJOB, trainjob())
    states = [job.settle()["trainyard"]["state"]]
    job.run()
    states.append(job.settle()["trainyard"]["state"])
    job.edit(suspend=True)
    states.append(job.settle()["trainyard"]["state"])
    job.edit(suspend=False)
    states.append(job.settle()["trainyard"]["state"])
    job.run()
    states.append(job.settle()["trainyard"]["state"])
    for name in job.names("Pod"):
        job.end(name, 0)
    states.append(job.settle()["trainyard"]["state"])
    assert states == ["Pending", "Running", "Suspended", "Pending", "Running", "Complete"]
