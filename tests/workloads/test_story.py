"""The controllers against our real server. The test plays the node: it makes one, and says how pods are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest

from tests.workloads.workload_world import TOY, Clock, World, ready_node, running, template
from trainyard.client import ApiClient, ApiRequest, NotFound
from trainyard.objects import GVK, Json, controller_reference, find_condition, is_condition_true, name_of, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import (
    CONFIG_MAP,
    CRD,
    DEPLOYMENT,
    EVENT,
    JOB,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    REPLICA_SET,
    SERVICE,
)
from trainyard.server import Server

CLAIM_VOLUME = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}


def a_job(**spec: object) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": template(), **spec},
    }


def ended_as(end: str) -> Callable[[list[Json]], bool]:
    return lambda jobs: any(is_condition_true((job.get("status") or {}).get("conditions"), end) for job in jobs)


class LaggingApi(ApiClient):
    """Its watches of pods say nothing before `go_on` is set."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.go_on = asyncio.Event()

    async def stream(self, request: ApiRequest, *more: Any) -> AsyncGenerator[bytes, None]:
        async for chunk in super().stream(request, *more):
            if request.path.endswith("/pods"):
                await self.go_on.wait()
            yield chunk


@pytest.fixture
async def bare() -> AsyncIterator[World]:
    """A server without controllers."""
    server = Server()
    await server.start()
    async with ApiClient(server.url) as api:
        yield World(api, Clock(), server)
    await server.stop()


@pytest.fixture
async def lagging(bare: World) -> AsyncIterator[LaggingApi]:
    async with LaggingApi(bare.server.url) as api:
        yield api


async def test_a_job_runs_its_pod_on_the_node_to_the_end(world: World) -> None:
    await ready_node(world.api)
    await world.make(JOB, a_job())
    pod = await world.pod(lambda pod: bool(pod["spec"].get("nodeName")))
    assert pod["spec"]["nodeName"] == "local"
    await world.say(pod, "Running")
    await world.until(JOB, lambda jobs: jobs[0]["status"].get("ready") == 1)
    await world.say(pod, "Succeeded", world.clock.now)
    (job,) = await world.until(JOB, ended_as("Complete"))
    assert job["status"]["succeeded"] == 1 and "active" not in job["status"]


async def test_a_pod_without_a_node_is_pending_with_a_reason(world: World) -> None:
    await world.make(JOB, a_job())
    pod = await world.pod(lambda pod: find_condition(pod["status"].get("conditions"), "PodScheduled") is not None)
    condition = find_condition(pod["status"]["conditions"], "PodScheduled")
    assert condition and (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    await ready_node(world.api)
    await world.pod(lambda pod: pod["spec"].get("nodeName") == "local")


async def test_a_failed_pod_is_counted_and_replaced_after_the_pause_also_across_a_restart(world: World) -> None:
    await ready_node(world.api)
    await world.make(JOB, a_job(backoffLimit=1))
    first = await world.pod()
    await world.say(first, "Failed", world.clock.now)
    await world.until(JOB, lambda jobs: jobs[0]["status"].get("failed") == 1)
    world.clock.now += 11
    async with running(world.api, world.clock):  # a second one beside it: neither counts twice nor makes two
        second = await world.pod(lambda pod: name_of(pod) != name_of(first))
        await world.say(second, "Failed", world.clock.now)
        (job,) = await world.until(JOB, ended_as("Failed"))
    assert job["status"]["failed"] == 2
    assert find_condition(job["status"]["conditions"], "Failed")["reason"] == "BackoffLimitExceeded"  # type: ignore[index]  # None would fail the test as well
    assert len((await world.api.list(POD, "default"))["items"]) == 2


async def test_a_deleted_job_takes_its_pods_along(world: World) -> None:
    job = await world.make(JOB, a_job())
    await world.pod()
    await world.api.delete(JOB, "default", "j", uid_of(job))
    await world.until(POD, lambda pods: not pods)


async def test_orphans_stay_and_lose_their_owner(world: World) -> None:
    await world.make(JOB, a_job())
    await world.pod()
    await world.api.delete(JOB, "default", "j", propagation_policy="Orphan")
    await world.until(JOB, lambda jobs: not jobs)
    pod = await world.pod(lambda pod: not pod["metadata"].get("ownerReferences"))
    assert not pod["metadata"].get("deletionTimestamp")


async def test_a_foreground_deletion_waits_for_the_dependents(world: World) -> None:
    owner = await world.make(CONFIG_MAP, {"metadata": {"name": "owner"}})
    ref = controller_reference("v1", "ConfigMap", "owner", uid_of(owner))
    held = {"name": "child", "ownerReferences": [ref], "finalizers": ["example.com/held"]}
    await world.make(SERVICE, {"metadata": held, "spec": {"ports": [{"port": 80}]}})
    await world.api.delete(CONFIG_MAP, "default", "owner", propagation_policy="Foreground")
    await world.until(SERVICE, lambda all: any(obj["metadata"].get("deletionTimestamp") for obj in all))
    assert (await world.api.get(CONFIG_MAP, "default", "owner"))["metadata"]["finalizers"] == ["foregroundDeletion"]
    await world.api.patch(SERVICE, "default", "child", {"metadata": {"finalizers": None}})
    await world.until(CONFIG_MAP, lambda all: not any(name_of(obj) == "owner" for obj in all))


async def test_a_dependent_of_an_earlier_owner_of_the_same_name_is_deleted(world: World) -> None:
    owner = await world.make(CONFIG_MAP, {"metadata": {"name": "owner"}})
    for name, uid in (("mine", uid_of(owner)), ("of-the-old-one", "00000000-0000-4000-8000-000000000000")):
        ref = controller_reference("v1", "ConfigMap", "owner", uid)
        await world.make(CONFIG_MAP, {"metadata": {"name": name, "ownerReferences": [ref]}})
    await world.until(CONFIG_MAP, lambda all: not any(name_of(obj) == "of-the-old-one" for obj in all))
    assert await world.api.get(CONFIG_MAP, "default", "mine")


async def test_an_owner_deleted_before_its_pod_is_observed_takes_the_pod_along(
    bare: World, lagging: LaggingApi
) -> None:
    """The watch of pods is behind: the ReplicaSet is collected when its pod has arrived, whatever the clock says."""
    async with running(lagging, bare.clock) as workloads:
        await workloads.synced
        owner = await bare.make(CONFIG_MAP, {"metadata": {"name": "owner"}})
        ref = controller_reference("v1", "ConfigMap", "owner", uid_of(owner))
        labels = {"app": "a"}
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
        spec = {"selector": {"matchLabels": labels}, "template": pod}
        await bare.make(REPLICA_SET, {"metadata": {"name": "owned", "ownerReferences": [ref]}, "spec": spec})
        await bare.make(CONFIG_MAP, {"metadata": {"name": "owned", "ownerReferences": [ref]}})
        await bare.pod()
        await bare.api.delete(CONFIG_MAP, "default", "owner")
        await bare.until(CONFIG_MAP, lambda left: "owned" not in map(name_of, left))  # the ReplicaSet's turn has come
        assert await bare.until(REPLICA_SET, bool)
        lagging.go_on.set()
        await bare.until(REPLICA_SET, lambda left: not left)
        await bare.until(POD, lambda left: not left)


def toy_crd() -> Json:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    names = {"kind": "Toy", "plural": "toys", "singular": "toy", "listKind": "ToyList"}
    spec = {"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]}
    return {"metadata": {"name": "toys.example.com"}, "spec": spec}


async def test_custom_resources_whose_crd_is_added_later_are_garbage_collected_too(world: World) -> None:
    await world.make(CRD, toy_crd(), "")
    toy = await world.make(TOY, {"metadata": {"name": "box"}})
    ref = controller_reference("example.com/v1", "Toy", "box", uid_of(toy))
    await world.make(TOY, {"metadata": {"name": "car", "ownerReferences": [ref]}})
    await world.make(CONFIG_MAP, {"metadata": {"name": "wheel", "ownerReferences": [ref]}})
    await world.api.delete(TOY, "default", "box")
    await world.until(TOY, lambda toys: not toys)
    await world.until(CONFIG_MAP, lambda all: not any(name_of(obj) == "wheel" for obj in all))


async def test_owners_are_deleted_after_a_custom_resource_is_no_longer_served(world: World) -> None:
    """Found by reading: the garbage collector raised KeyError for the removed resource, and the owner stayed for
    ever."""
    await world.make(CRD, toy_crd(), "")
    toy = await world.make(TOY, {"metadata": {"name": "box"}})
    ref = controller_reference("example.com/v1", "Toy", "box", uid_of(toy))
    await world.make(TOY, {"metadata": {"name": "car", "ownerReferences": [ref]}})
    await world.api.delete(TOY, "default", "box")
    await world.until(TOY, lambda toys: not toys)  # so the garbage collector watches toys
    await world.api.delete(CRD, "", "toys.example.com")
    await world.until(CRD, lambda crds: not any(name_of(crd) == "toys.example.com" for crd in crds), "")
    await world.make(CONFIG_MAP, {"metadata": {"name": "owner"}})
    await world.api.delete(CONFIG_MAP, "default", "owner", propagation_policy="Orphan")
    await world.until(CONFIG_MAP, lambda all: not any(name_of(obj) == "owner" for obj in all))


async def test_a_deployment_becomes_available_and_is_deleted_with_its_owner(world: World) -> None:
    await ready_node(world.api)
    spec = {"selector": {"matchLabels": {"app": "t"}}, "template": template(labels={"app": "t"})}
    spec["template"]["spec"]["restartPolicy"] = "Always"
    await world.make(DEPLOYMENT, {"metadata": {"name": "tb"}, "spec": spec})
    pod = await world.pod(lambda pod: bool(pod["spec"].get("nodeName")))
    await world.say(pod, "Running")
    (deployment,) = await world.until(DEPLOYMENT, ended_as("Available"))
    assert deployment["status"]["availableReplicas"] == 1
    (replica_set,) = await world.until(REPLICA_SET, lambda sets: bool(sets))
    assert [reference["uid"] for reference in pod["metadata"]["ownerReferences"]] == [uid_of(replica_set)]
    assert [reference["uid"] for reference in replica_set["metadata"]["ownerReferences"]] == [uid_of(deployment)]
    await world.api.delete(DEPLOYMENT, "default", "tb")
    # The pod runs on the node, so it is asked to end; the node would take it away then.
    await world.pod(lambda pod: bool(pod["metadata"].get("deletionTimestamp")))


async def test_a_deployment_rolls_back_to_its_earlier_replica_set(world: World) -> None:
    spec = {"selector": {"matchLabels": {"app": "t"}}, "template": template(labels={"app": "t"})}
    spec["template"]["spec"]["restartPolicy"] = "Always"
    await world.make(DEPLOYMENT, {"metadata": {"name": "tb"}, "spec": spec})
    first = await world.pod()
    old = spec["template"]
    new = {**old, "spec": {**old["spec"], "containers": [{"name": "c", "image": "y"}]}}
    await world.api.patch(DEPLOYMENT, "default", "tb", {"spec": {"template": new}})
    await world.pod(lambda pod: uid_of(pod) != uid_of(first) and pod["spec"]["containers"][0]["image"] == "y")
    await world.api.patch(DEPLOYMENT, "default", "tb", {"spec": {"template": old}})
    await world.pod(lambda pod: uid_of(pod) != uid_of(first) and pod["spec"]["containers"][0]["image"] == "x")
    revision = "deployment.kubernetes.io/revision"
    await world.until(DEPLOYMENT, lambda all: all[0]["metadata"]["annotations"].get(revision) == "3")
    sets = await world.until(REPLICA_SET, lambda sets: len(sets) == 2)
    assert {
        (worker_set["metadata"]["annotations"][revision], worker_set["spec"]["replicas"]) for worker_set in sets
    } == {("2", 0), ("3", 1)}


async def test_a_deployment_its_replica_set_and_its_pod_get_the_events_that_kubernetes_writes(world: World) -> None:
    await ready_node(world.api)
    spec = {"selector": {"matchLabels": {"app": "t"}}, "template": template(labels={"app": "t"})}
    spec["template"]["spec"]["restartPolicy"] = "Always"
    await world.make(DEPLOYMENT, {"metadata": {"name": "tb"}, "spec": spec})
    pod = await world.pod(lambda pod: bool(pod["spec"].get("nodeName")))
    replica_set = pod["metadata"]["ownerReferences"][0]["name"]
    scaling = await world.event("ScalingReplicaSet", "tb")
    assert scaling["message"] == f"Scaled up replica set {replica_set} from 0 to 1"
    assert scaling["source"]["component"] == "deployment-controller"
    created = await world.event("SuccessfulCreate", replica_set)
    assert created["message"] == f"Created pod: {name_of(pod)}"
    scheduled = await world.event("Scheduled", name_of(pod))
    assert scheduled["message"] == f"Successfully assigned default/{name_of(pod)} to local"
    assert scheduled["source"]["component"] == "default-scheduler"


async def test_objects_of_a_training_job_get_only_events_about_problems(world: World) -> None:
    new_job = a_job(template=template(labels={OWNER: "u-1"}))
    new_job["metadata"]["labels"] = {OWNER: "u-1"}
    new_job["spec"]["template"]["spec"]["volumes"] = [CLAIM_VOLUME]
    await world.make(JOB, new_job)
    await ready_node(world.api)
    event = await world.event("FailedScheduling")
    assert 'persistentvolumeclaim "data" not found' in event["message"]
    await world.make(PERSISTENT_VOLUME_CLAIM, a_claim("data"))
    pod = await world.pod(lambda pod: bool(pod["spec"].get("nodeName")))
    await world.say(pod, "Succeeded", world.clock.now)
    await world.until(JOB, ended_as("Complete"))
    events = (await world.api.list(EVENT, "default"))["items"]
    assert {event["reason"] for event in events} == {"FailedScheduling"}


def a_claim(name: str) -> Json:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name}, "spec": spec}


async def test_a_pod_waits_for_its_claim_and_is_placed_when_the_claim_appears(world: World) -> None:
    await ready_node(world.api)
    await world.make(POD, {"metadata": {"name": "first"}, "spec": template()["spec"]})
    await world.pod(lambda pod: pod["spec"].get("nodeName") == "local")  # the node is known from now on
    await world.api.delete(POD, "default", "first", grace_period_seconds=0)
    pod_template = template()
    pod_template["spec"]["volumes"] = [CLAIM_VOLUME]
    await world.make(POD, {"metadata": {"name": "p"}, "spec": pod_template["spec"]})
    pod = await world.pod(lambda pod: find_condition(pod["status"].get("conditions"), "PodScheduled") is not None)
    scheduled = find_condition(pod["status"]["conditions"], "PodScheduled")
    assert scheduled and (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
    assert scheduled["message"].startswith('0/1 nodes are available: persistentvolumeclaim "data" not found.')
    assert (await world.event("FailedScheduling", "p"))["message"] == scheduled["message"]
    await world.make(PERSISTENT_VOLUME_CLAIM, a_claim("data"))
    await world.pod(lambda pod: pod["spec"].get("nodeName") == "local")


async def test_while_the_first_node_starts_a_pod_waits_without_an_event(bare: World) -> None:
    async with running(bare.api, bare.clock, awaits_node=True):
        await bare.make(POD, {"metadata": {"name": "first"}, "spec": template()["spec"]})
        await ready_node(bare.api)
        await bare.event("Scheduled", "first")
        spec = template()["spec"] | {"volumes": [CLAIM_VOLUME]}
        await bare.make(POD, {"metadata": {"name": "second"}, "spec": spec})
        await bare.event("FailedScheduling", "second")
        events = (await bare.api.list(EVENT, "default"))["items"]
        assert [event["reason"] for event in events if event["involvedObject"]["name"] == "first"] == ["Scheduled"]


async def test_pods_that_came_before_the_first_node_are_scheduled_first(bare: World) -> None:
    spec = template()["spec"]
    names = [f"worker-{number:02}" for number in range(40)]
    async with running(bare.api, bare.clock, awaits_node=True):
        for name in names[:4]:
            await bare.make(POD, {"metadata": {"name": name}, "spec": spec})
        others = [bare.make(POD, {"metadata": {"name": name}, "spec": spec}) for name in names[4:]]
        await asyncio.gather(*others[:18], ready_node(bare.api), *others[18:])
        for name in names:
            await bare.event("Scheduled", name)
        pods = (await bare.api.list(POD, "default"))["items"]
    pods.sort(key=lambda pod: int(pod["metadata"]["resourceVersion"]))
    # Four are bound at one time, in any order among them.
    bound = [names.index(pod["metadata"]["name"]) for pod in pods]
    assert max(abs(place - number) for place, number in enumerate(bound)) < 4


async def test_a_claim_that_is_a_folder_of_this_machine_needs_no_object(world: World) -> None:
    await ready_node(world.api)
    pod_template = template()
    pod_template["spec"]["volumes"] = [CLAIM_VOLUME]
    await world.make(POD, {"metadata": {"name": "p"}, "spec": pod_template["spec"]})
    await world.event("FailedScheduling", "p")
    async with running(world.api, world.clock, mounted={"data"}):
        await world.pod(lambda pod: pod["spec"].get("nodeName") == "local")


async def test_a_missing_service_account_is_an_event_of_the_batch_job(world: World) -> None:
    new_job = a_job()
    new_job["spec"]["template"]["spec"]["serviceAccountName"] = "robot"
    await world.make(JOB, new_job)
    event = await world.event("FailedCreate", "j")
    text = 'error looking up service account default/robot: serviceaccount "robot" not found'
    assert event["message"].startswith("Error creating: pods") and event["message"].endswith(text)
    await world.make(GVK("", "v1", "ServiceAccount", "serviceaccounts"), {"metadata": {"name": "robot"}})
    await world.pod()


async def test_a_job_is_deleted_when_its_ttl_expires(world: World) -> None:
    await world.make(JOB, a_job(ttlSecondsAfterFinished=0))
    await world.say(await world.pod(), "Succeeded", world.clock.now)
    await world.until(JOB, lambda jobs: not jobs)
    await world.until(POD, lambda pods: not pods)
    with pytest.raises(NotFound):
        await world.api.get(JOB, "default", "j")


async def test_a_quiet_cluster_costs_no_requests(world: World) -> None:
    await ready_node(world.api)
    await world.make(JOB, a_job())
    pod = await world.pod(lambda pod: bool(pod["spec"].get("nodeName")))
    await world.say(pod, "Succeeded", world.clock.now)
    await world.until(JOB, ended_as("Complete"))
    writes = {verb: count for verb, count in world.server.verbs.items() if verb[0] not in ("list", "watch", "get")}
    # The node, the Job and its pod are made, the pod is bound; the Job says: started, ended. The rest is this test.
    assert writes[("update", "jobs/status")] <= 4
    assert writes[("create", "pods")] == 1 and writes[("create", "pods/binding")] == 1
    assert ("delete", "pods") not in writes
