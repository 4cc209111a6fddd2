"""Writes that the API server rejects or fails at do not delay other writes and are reported in the job's status."""

from __future__ import annotations

import time

from tests.operator.operator_cluster import TFJOB, Troubled, running_yard, tf_job
from trainyard.client import ApiRequest, Forbidden, Unavailable
from trainyard.core import runtime_id_of
from trainyard.objects import is_condition_true
from trainyard.objects.resources import JOB


async def test_a_job_whose_spec_patch_is_forbidden_still_runs() -> None:
    """An admission policy lets only the user write specs: the job runs without stored defaults."""

    def refuse(request: ApiRequest) -> None:
        if request.method == "PATCH" and request.path.endswith("/tfjobs/mnist"):
            raise Forbidden(403, "Forbidden", "policy user-owns-spec denies it")

    job = tf_job()
    del job["spec"]["RuntimeId"]
    async with running_yard(time.time) as cluster:
        api = Troubled(cluster.server.url)
        api.before = refuse
        async with cluster.operator(api):
            await cluster.submit(job)
            running = await cluster.condition("Running")
            assert "RuntimeId" not in running["spec"] and len(runtime_id_of(running)) == 4


async def test_repeated_server_errors_for_one_child_are_reported() -> None:
    """A webhook is down, so each create of the WORKER's Job is answered with 500: the job has the condition Blocked."""
    error = 'failed calling webhook "policy.example.com": connection refused'
    down = True

    def fail(request: ApiRequest) -> None:
        if (
            down
            and request.method == "POST"
            and request.path.endswith("/jobs")
            and b'"name":"worker-' in (request.body or b"")
        ):
            raise Unavailable(500, "InternalError", error)

    job = tf_job()
    async with running_yard(time.time) as cluster:
        api = Troubled(cluster.server.url)
        api.before = fail
        async with cluster.operator(api):
            await cluster.submit(job)
            job = await cluster.condition("Blocked")
            (blocked,) = [condition for condition in job["status"]["conditions"] if condition["type"] == "Blocked"]
            assert error in blocked["message"] and blocked["reason"] == "InternalError"
            down = False
            edit = {"spec": {"backoffLimit": 7}}  # after an edit a refused write is retried at once
            await cluster.api.patch(TFJOB, "default", "mnist", edit)
            await cluster.until(
                lambda now: (
                    now["status"]["state"] == "Running"
                    and not is_condition_true(now["status"]["conditions"], "Blocked")
                )
            )
            assert (await cluster.api.get(JOB, "default", "worker-mnis-0"))["status"]["active"] == 1
