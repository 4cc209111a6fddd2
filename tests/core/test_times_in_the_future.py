"""Times that are null or later than now."""

from __future__ import annotations

from tests.core.decision_values import blocked_elastic_job
from tests.model.simulated_job import simulate
from tests.support.builders import NOW, batch_job, look, started, tfjob
from tests.support.samples import elasticjob
from trainyard.core import Refusal
from trainyard.kinds import ELASTICJOB
from trainyard.objects import Ref, format_time


def test_a_refusal_dated_in_the_future_does_not_delay_the_retry() -> None:
    """A clock that was a day ahead must not stop the job for a day."""
    simulated = blocked_elastic_job(Refusal(403, "Forbidden", "exceeded quota", NOW + 86400))
    assert Ref("Pod", "example-worker-1") in {create.ref for create in simulated.look().creates}


def test_a_failed_job_without_pods_dated_in_the_future_counts_as_failed() -> None:
    job = batch_job("MASTER", failed="BackoffLimitExceeded")
    (condition,) = (condition for condition in job["status"]["conditions"])
    condition["lastTransitionTime"] = format_time(NOW + 86400)
    assert [delete.name for delete in look(started(), job, batch_job("WORKER")).deletes] == ["master-76no-0"]


def test_a_start_time_in_the_future_does_not_delay_a_worker_without_limit() -> None:
    simulated = simulate(ELASTICJOB, elasticjob(2))
    simulated.run()
    simulated.settle()
    simulated.end("example-worker-0", 137)
    simulated.get("Pod", "example-worker-0")["status"]["startTime"] = "2200-01-01T00:00:00Z"
    assert [delete.name for delete in simulated.step().deletes] == ["example-worker-0"]


def test_a_deletion_time_of_null_is_none() -> None:
    job = tfjob()
    job["metadata"]["deletionTimestamp"] = None
    assert look(job).creates
