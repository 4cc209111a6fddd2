"""Foreign objects with the name of a child or the uid of a job."""

from __future__ import annotations

import time

from tests.operator.operator_cluster import running_yard, tf_job
from tests.support.waiting import until_async
from trainyard import kinds
from trainyard.objects import Json, NamespacedName, find_condition
from trainyard.objects.resources import JOB, NAMESPACE, POD, SERVICE
from trainyard.operator.reconcile import JobState


async def test_a_terminating_object_with_a_childs_name_is_waited_for_without_a_request_to_delete_it() -> None:
    meta = {"name": "tfjob-mnis", "finalizers": ["somebody.example/waits"]}
    body: Json = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": [{"port": 1}]}}
    async with running_yard(time.time) as cluster:
        await cluster.api.create(SERVICE, "default", body)
        await cluster.api.delete(SERVICE, "default", "tfjob-mnis")
        async with cluster.operator():
            await cluster.submit(tf_job())
            job = await cluster.condition("NameConflict")
            message = (find_condition(job["status"]["conditions"], "NameConflict") or {})["message"]
            assert "it is being deleted, and the operator waits for that" in message
            assert "delete or rename" not in message


async def test_an_object_with_the_jobs_uid_in_another_namespace_is_no_child() -> None:
    """Another tenant knows the uid, from an event or a log, and creates a pod with the status of a failed MASTER."""
    async with running_yard(time.time) as cluster, cluster.operator() as operator:
        await cluster.submit(tf_job())
        job = await cluster.condition("Running")
        await cluster.api.create(NAMESPACE, "", {"metadata": {"name": "evil"}})
        batch = (await cluster.api.get(JOB, "default", "master-mnis-0"))["metadata"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": batch["name"], "uid": batch["uid"]}
        labels = {**batch["labels"], "tensorflow.org": ""}
        spec = {
            "containers": [{"name": "tensorflow", "image": "i"}],
            "schedulingGates": [{"name": "evil.example/stays"}],
        }
        # Its owner does not exist in this namespace: without a finalizer the garbage collector would delete the pod.
        finalizers = {"finalizers": ["evil.example/stays"]}
        meta = {"name": "forged", "labels": labels, "ownerReferences": [{**owner, "controller": True}], **finalizers}
        await cluster.api.create(POD, "evil", {"metadata": meta, "spec": spec})
        state = {"name": "tensorflow", "state": {"terminated": {"exitCode": 1}}}
        status = {"phase": "Failed", "containerStatuses": [state]}
        await cluster.api.patch(POD, "evil", "forged", {"status": status}, "status")
        store = operator._children[POD]
        await until_async(
            lambda: store.get(NamespacedName("evil", "forged")),
            "the operator has the status of the forged pod",
            accept=lambda pod: pod.phase == "Failed",
        )
        observed = operator._observed(kinds.TFJOB.gvk, job, JobState())  # the input of the next plan
        assert {child.namespace for child in observed.children} == {"default"}
