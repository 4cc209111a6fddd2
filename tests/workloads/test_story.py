"""The controllers against our real server. The test plays the node: it makes one, and says how pods are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from workload_world import (
    CONFIG_MAP,
    CRD,
    DEPLOYMENT,
    JOB,
    POD,
    SERVICE,
    TOY,
    World,
    ready_node,
    running,
    template,
)

from trainyard.client import NotFound
from trainyard.objects import Json, condition, is_true, name_of, owner_reference, uid_of


def a_job(**spec: object) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": template(), **spec},
    }


def ended_as(end: str) -> Callable[[list[Json]], bool]:
    return lambda jobs: any(is_true((job.get("status") or {}).get("conditions"), end) for job in jobs)


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


async def test_a_pod_waits_for_a_node_and_says_so(world: World) -> None:
    await world.make(JOB, a_job())
    pod = await world.pod(lambda pod: condition(pod["status"].get("conditions"), "PodScheduled") is not None)
    said = condition(pod["status"]["conditions"], "PodScheduled")
    assert said and (said["status"], said["reason"]) == ("False", "Unschedulable")
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
    assert condition(job["status"]["conditions"], "Failed")["reason"] == "BackoffLimitExceeded"  # type: ignore[index]  # None would fail the test as well
    assert len((await world.api.list(POD, "default"))["items"]) == 2


async def test_a_deleted_job_takes_its_pods_along(world: World) -> None:
    job = await world.make(JOB, a_job())
    await world.pod()
    await world.api.delete(JOB, "default", "j", uid_of(job))
    await world.until(POD, lambda pods: not pods)


async def test_orphans_stay_and_lose_their_owner(world: World) -> None:
    await world.make(JOB, a_job())
    await world.pod()
    await world.api.delete(JOB, "default", "j", propagation="Orphan")
    await world.until(JOB, lambda jobs: not jobs)
    pod = await world.pod(lambda pod: not pod["metadata"].get("ownerReferences"))
    assert not pod["metadata"].get("deletionTimestamp")


async def test_a_foreground_deletion_waits_for_the_dependents(world: World) -> None:
    owner = await world.make(CONFIG_MAP, {"metadata": {"name": "owner"}})
    ref = owner_reference("v1", "ConfigMap", "owner", uid_of(owner))
    held = {"name": "child", "ownerReferences": [ref], "finalizers": ["example.com/held"]}
    await world.make(SERVICE, {"metadata": held, "spec": {"ports": [{"port": 80}]}})
    await world.api.delete(CONFIG_MAP, "default", "owner", propagation="Foreground")
    await world.until(SERVICE, lambda all: any(one["metadata"].get("deletionTimestamp") for one in all))
    assert (await world.api.get(CONFIG_MAP, "default", "owner"))["metadata"]["finalizers"] == ["foregroundDeletion"]
    await world.api.patch(SERVICE, "default", "child", {"metadata": {"finalizers": None}})
    await world.until(CONFIG_MAP, lambda all: not any(name_of(one) == "owner" for one in all))


async def test_a_child_of_a_namesake_of_the_owner_goes(world: World) -> None:
    owner = await world.make(CONFIG_MAP, {"metadata": {"name": "owner"}})
    for name, uid in (("mine", uid_of(owner)), ("of-the-old-one", "00000000-0000-4000-8000-000000000000")):
        ref = owner_reference("v1", "ConfigMap", "owner", uid)
        await world.make(CONFIG_MAP, {"metadata": {"name": name, "ownerReferences": [ref]}})
    await world.until(CONFIG_MAP, lambda all: not any(name_of(one) == "of-the-old-one" for one in all))
    assert await world.api.get(CONFIG_MAP, "default", "mine")


async def test_custom_resources_that_come_later_are_collected_as_well(world: World) -> None:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    names = {"kind": "Toy", "plural": "toys", "singular": "toy", "listKind": "ToyList"}
    spec = {"group": "example.com", "names": names, "scope": "Namespaced", "versions": [version]}
    await world.make(CRD, {"metadata": {"name": "toys.example.com"}, "spec": spec}, "")
    toy = await world.make(TOY, {"metadata": {"name": "box"}})
    ref = owner_reference("example.com/v1", "Toy", "box", uid_of(toy))
    await world.make(TOY, {"metadata": {"name": "car", "ownerReferences": [ref]}})
    await world.make(CONFIG_MAP, {"metadata": {"name": "wheel", "ownerReferences": [ref]}})
    await world.api.delete(TOY, "default", "box")
    await world.until(TOY, lambda toys: not toys)
    await world.until(CONFIG_MAP, lambda all: not any(name_of(one) == "wheel" for one in all))


async def test_a_deployment_becomes_available_and_goes_with_its_owner(world: World) -> None:
    await ready_node(world.api)
    spec = {"selector": {"matchLabels": {"app": "t"}}, "template": template(labels={"app": "t"})}
    spec["template"]["spec"]["restartPolicy"] = "Always"
    await world.make(DEPLOYMENT, {"metadata": {"name": "tb"}, "spec": spec})
    pod = await world.pod(lambda pod: bool(pod["spec"].get("nodeName")))
    await world.say(pod, "Running")
    (seen,) = await world.until(DEPLOYMENT, ended_as("Available"))
    assert seen["status"]["availableReplicas"] == 1
    await world.api.delete(DEPLOYMENT, "default", "tb")
    # The pod runs on the node, so it is asked to end; the node would take it away then.
    await world.pod(lambda pod: bool(pod["metadata"].get("deletionTimestamp")))


async def test_a_job_that_lives_its_time_is_taken_away(world: World) -> None:
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
