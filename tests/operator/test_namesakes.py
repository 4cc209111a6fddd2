"""Who still has the name of a child, but is on the way out."""

from __future__ import annotations

import asyncio
import time

from operator_cluster import running_yard, tf_job

from trainyard.objects import Json, Key, condition
from trainyard.objects.resources import JOB, NAMESPACE, POD, SERVICE
from trainyard.operator.plan_executor import JobState


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


async def test_what_bears_the_jobs_uid_in_another_namespace_is_nothing_of_the_jobs() -> None:
    """Another tenant knows the uid, from an event or a log. His pod says that the MASTER has failed for good."""
    async with running_yard(time.time) as yard, yard.operator() as operator:
        await yard.submit(tf_job())
        job = await yard.condition("Running")
        await yard.api.create(NAMESPACE, "", {"metadata": {"name": "evil"}})
        batch = (await yard.api.get(JOB, "default", "master-mnis-0"))["metadata"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": batch["name"], "uid": batch["uid"]}
        labels = {**batch["labels"], "tensorflow.org": ""}
        spec = {"containers": [{"name": "tensorflow", "image": "i"}], "schedulerName": "nobody"}
        # The garbage collector deletes it, for its owner is not there; a finalizer keeps it all the same.
        keeps = {"finalizers": ["evil.example/stays"]}
        meta = {"name": "forged", "labels": labels, "ownerReferences": [{**owner, "controller": True}], **keeps}
        await yard.api.create(POD, "evil", {"metadata": meta, "spec": spec})
        state = {"name": "tensorflow", "state": {"terminated": {"exitCode": 1}}}
        status = {"phase": "Failed", "containerStatuses": [state]}
        await yard.api.patch(POD, "evil", "forged", {"status": status}, "status")
        store = operator._children[POD]
        async with asyncio.timeout(20):
            while (there := store.get(Key("evil", "forged"))) is None or there.phase != "Failed":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        seen = operator._observed(job, JobState())  # what the next plan is made from
        assert {one.namespace for one in seen.children} == {"default"}
