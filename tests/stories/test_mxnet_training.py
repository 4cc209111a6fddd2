"""Real MXNet: a scheduler, two servers and three workers, synchronous; and the gang after one of them was killed."""

from __future__ import annotations

import os
import re
import signal

import pytest

from tests.stories.runs import EXAMPLES, CommandOutput, Run, process_of, run_to_end
from tests.support.matrix import trains

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

WORKERS = ("worker-0", "worker-1", "worker-2")


def losses(lines: list[str]) -> list[float]:
    return [float(match[1]) for line in lines if (match := re.search(r"Train-cross-entropy=([0-9.]+)", line))]


def last_accuracy(lines: list[str]) -> float:
    return [float(match[1]) for line in lines if (match := re.search(r"Validation-accuracy=([0-9.]+)", line))][-1]


@trains("mxnet", "MxJob", network="namespace")
def test_a_distributed_training_succeeds_with_equal_weights_on_all_workers() -> None:
    run = run_to_end(str(EXAMPLES / "mx_job_dist.yaml"), "--network", "namespace")
    assert run.code == 0, run.text
    (job,) = run.jobs
    assert (job["status"]["phase"], job["status"]["state"]) == ("Done", "Succeeded")
    assert not job["status"]["restarts"]
    assert_all_learned_the_same(run)
    done = [line for worker in WORKERS for line in run.of(worker) if "done: worker" in line]
    assert sorted(done) == [f"INFO:root:done: worker {rank} of 3" for rank in range(3)]
    assert any("serving until training is over" in line for line in run.of("server-1")), run.text


def assert_all_learned_the_same(run: CommandOutput) -> None:
    for worker in WORKERS:
        loss_values = losses(run.of(worker))
        assert len(loss_values) == 10 and loss_values[-1] < 0.5 < 1.5 < loss_values[0], (worker, loss_values)
    accuracies = {last_accuracy(run.of(worker)) for worker in WORKERS}
    assert len(accuracies) == 1 and accuracies.pop() > 0.8  # synchronous: one model


def test_a_local_training_succeeds_and_has_learnt() -> None:
    run = run_to_end(str(EXAMPLES / "mx_job_local.yaml"))
    assert run.code == 0, run.text
    loss_values = losses(run.of("worker-0"))
    assert len(loss_values) == 10 and loss_values[-1] < loss_values[0] / 2, loss_values


@trains("mxnet", "MxJob", network="shared")
def test_a_worker_that_is_killed_takes_the_gang_along_and_the_next_attempt_trains_to_the_end() -> None:
    run = Run(str(EXAMPLES / "mx_job_dist.yaml"), "--network", "shared")
    run.read_until(r"worker-1 +\| .*Epoch\[1\] Train-accuracy")
    os.kill(process_of(r"example-dist-job-worker-\w+-1", "train_cifar10.py"), signal.SIGKILL)
    run.end()
    assert run.code == 0, run.text
    (job,) = run.jobs
    assert job["status"]["restarts"] == 1
    assert {role["attempt"] for role in job["status"]["roles"].values()} == {1}
    for worker in WORKERS:  # each began again, whoever was killed
        assert len([line for line in run.of(worker) if "Epoch[0] Train-accuracy" in line]) == 2, run.text
        assert losses(run.of(worker))[-1] < 0.5
