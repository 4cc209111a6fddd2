"""What the schema cannot default is stored as a courtesy: a server that does not allow it holds no job up."""

from __future__ import annotations

import time

from yard import Troubled, running_yard, tf_job

from trainyard.client import Forbidden, Request
from trainyard.core import runtime_id_of


async def test_a_job_whose_spec_may_not_be_patched_runs_all_the_same() -> None:
    """An admission policy says that nobody but the user writes specs: the job must not wait for it in silence."""

    def refuse(request: Request) -> None:
        if request.method == "PATCH" and request.path.endswith("/tfjobs/mnist"):
            raise Forbidden(403, "Forbidden", "policy user-owns-spec denies it")

    job = tf_job()
    del job["spec"]["RuntimeId"]
    async with running_yard(time.time) as yard:
        api = Troubled(yard.server.url)
        api.before = refuse
        async with yard.operator(api):
            await yard.submit(job)
            running = await yard.condition("Running")
            assert "RuntimeId" not in running["spec"] and len(runtime_id_of(running)) == 4
