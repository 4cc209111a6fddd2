"""Real ChainerMN over real Open MPI: mpiexec in the master starts its ranks in the workers through the API's exec."""

from __future__ import annotations

import os
import re
import signal

import pytest

from tests.stories.runs import EXAMPLES, CommandOutput, Run, process_of, run_to_end
from tests.support.matrix import trains
from trainyard.objects import Json

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]


NAIVE = "Warning: using naive communicator because only naive supports CPU-only execution"


def table(lines: list[str]) -> list[list[float]]:
    """The rows of the README's table: epoch, losses, accuracies, seconds."""
    rows = [line.split() for line in lines if re.fullmatch(r"\d+( +[0-9.e+-]+){5} *", line)]
    return [[float(cell) for cell in row] for row in rows]


@trains("chainer", "ChainerJob", network="namespace")
def test_the_readmes_job_trains_over_master_and_two_workers() -> None:
    run = run_to_end(str(EXAMPLES / "chainerjob-mn.yaml"), "--network", "namespace")
    assert run.code == 0, run.text
    (job,) = run.jobs
    assert_trained_by_three(run)
    assert_complete(job)


def assert_trained_by_three(run: CommandOutput) -> None:
    lines = run.of("master-0")
    assert lines.count(NAIVE) == 3, run.text
    assert "Num process (COMM_WORLD): 3" in lines and "Using hierarchical communicator" in lines, run.text
    for rank, host in ((1, "example-job-mn-workerset-ws0-0"), (2, "example-job-mn-workerset-ws0-1")):
        at = next(at for at, line in enumerate(lines) if f"Data for node: {host}" in line)
        assert f"Process rank: {rank}" in lines[at + 1], run.text
    rows = table(lines)
    assert [row[0] for row in rows] == [1, 2] and rows[1][1] < rows[0][1] and rows[1][4] > rows[0][4], run.text


def assert_complete(job: Json) -> None:
    status = job["status"]
    assert (status["succeeded"], "active" in status, "failed" in status) == (1, False, False)
    (complete,) = [condition for condition in status["conditions"] if condition["type"] == "Complete"]
    assert complete["status"] == "True" and complete["lastProbeTime"] == complete["lastTransitionTime"]


def test_a_job_without_workers_trains() -> None:
    run = run_to_end(str(EXAMPLES / "chainerjob.yaml"))
    assert run.code == 0, run.text
    rows = table(run.of("master-0"))
    assert len(rows) == 2 and rows[1][1] < rows[0][1], run.text


@trains("chainer", "ChainerJob", network="shared")
def test_a_rank_that_is_killed_fails_the_master_and_its_job_tries_again() -> None:
    """Open MPI ends the whole run when a rank is lost; the master's batch Job starts it once more, as documented."""
    run = Run(str(EXAMPLES / "chainerjob-mn.yaml"), "--network", "shared")
    run.read_until(r"master-0 +\| 1 +[0-9.]+")
    os.kill(process_of("example-job-mn-workerset-ws0-1", "mnist.py\0-e"), signal.SIGKILL)
    run.end()
    assert run.code == 0, run.text
    (job,) = run.jobs
    assert (job["status"]["failed"], job["status"]["succeeded"]) == (1, 1)
    assert len([line for line in run.of("master-0") if line.startswith("Num process")]) == 2
