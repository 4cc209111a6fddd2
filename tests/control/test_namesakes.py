"""Who still has the name of a child, but is on the way out."""

from __future__ import annotations

import time

from yard import SERVICE, running_yard, tf_job

from trainyard.objects import Json, condition


async def test_a_namesake_that_is_being_deleted_is_waited_for_and_nobody_is_told_to_delete_it() -> None:
    meta = {"name": "tfjob-mnis", "finalizers": ["somebody.example/waits"]}
    body: Json = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"port": 1}]}}
    async with running_yard(time.time) as yard:
        await yard.api.create(SERVICE, "default", body)
        await yard.api.delete(SERVICE, "default", "tfjob-mnis")
        async with yard.operator():
            await yard.submit(tf_job())
            job = await yard.condition("NameConflict")
            said = (condition(job["status"]["conditions"], "NameConflict") or {})["message"]
            assert "it is being deleted: it is waited for" in said
            assert "delete or rename" not in said
