"""StatefulSets, and what every namespace has, against our real server. The test plays the node."""

from __future__ import annotations

import pytest

from tests.support.waiting import until_async
from tests.workloads.workload_world import World, running, template
from trainyard.client import ApiClient, NotFound
from trainyard.objects import GVK, Json, controller_reference, labels_of, name_of, uid_of
from trainyard.objects.resources import (
    CONFIG_MAP,
    EVENT,
    NAMESPACE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
)
from trainyard.workloads import namespaces

ROOT_CA = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def a_set(replicas: int = 2, **spec: object) -> Json:
    pods = template(labels={"app": "w"})
    pods["spec"]["restartPolicy"] = "Always"
    fields = {"replicas": replicas, "serviceName": "w", "selector": {"matchLabels": {"app": "w"}}, "template": pods}
    return {"metadata": {"name": "w"}, "spec": {**fields, **spec}}


def names(pods: list[Json]) -> list[str]:
    return sorted(name_of(pod) for pod in pods)


async def gone(api: ApiClient, pod: Json) -> None:
    """What the node does when a pod that was asked to end has ended."""
    await api.delete(POD, "default", name_of(pod), uid_of(pod), grace_period_seconds=0)


async def there(world: World, gvk: GVK, namespace: str, name: str) -> Json:
    """The object, once it is there."""
    listed = await world.until(gvk, lambda all: any(name_of(obj) == name for obj in all), namespace)
    return next(obj for obj in listed if name_of(obj) == name)


async def test_an_ordered_set_grows_one_by_one_and_counts_its_pods(world: World) -> None:
    await world.make(STATEFUL_SET, a_set())
    first = await world.pod(lambda pod: name_of(pod) == "w-0")
    assert names((await world.api.list(POD, "default"))["items"]) == ["w-0"]
    await world.say(first, "Running")
    await world.say(await world.pod(lambda pod: name_of(pod) == "w-1"), "Running")
    (workload,) = await world.until(STATEFUL_SET, lambda sets: sets[0]["status"].get("readyReplicas") == 2)
    assert workload["status"]["currentReplicas"] == 2 and workload["status"]["observedGeneration"] == 1


async def test_a_lost_pod_is_created_again_under_its_name_and_an_edit_rolls_all(world: World) -> None:
    await world.make(STATEFUL_SET, a_set(podManagementPolicy="Parallel"))
    pods = await world.until(POD, lambda pods: names(pods) == ["w-0", "w-1"])
    await world.api.delete(POD, "default", "w-1", grace_period_seconds=0)
    pods = await world.until(POD, lambda now: names(now) == ["w-0", "w-1"] and now != pods)
    for pod in pods:
        await world.say(pod, "Running")
    edit = {"spec": {"template": {"metadata": {"labels": {"app": "w", "v": "2"}}}}}
    await world.api.patch(STATEFUL_SET, "default", "w", edit)
    for name in ("w-1", "w-0"):
        new = await world.pod(lambda pod, name=name: name_of(pod) == name and labels_of(pod).get("v") == "2")
        await world.say(new, "Running")
    await world.until(STATEFUL_SET, lambda sets: sets[0]["status"].get("updatedReplicas") == 2)


async def test_volume_claim_templates_are_created_and_outlive_the_set(world: World) -> None:
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await world.make(STATEFUL_SET, a_set(1, volumeClaimTemplates=[claim]))
    pod = await world.pod()
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == "data-w-0"
    await world.api.delete(STATEFUL_SET, "default", "w")
    await world.until(POD, lambda pods: not pods)
    assert (await world.api.get(PERSISTENT_VOLUME_CLAIM, "default", "data-w-0"))["spec"]["accessModes"] == [
        "ReadWriteOnce"
    ]


async def test_a_pod_name_held_by_another_object_is_reported_once_and_delays_no_other_pod(world: World) -> None:
    stranger = template(name="w-0", labels={"app": "w"})
    await world.make(POD, stranger)
    await world.make(STATEFUL_SET, a_set(podManagementPolicy="Parallel"))
    await world.until(POD, lambda pods: names(pods) == ["w-0", "w-1"])
    event = await world.event("FailedCreate", "w")
    assert event["type"] == "Warning" and "Pod w-0 exists already and has another owner" in event["message"]
    assert not (await world.api.get(POD, "default", "w-0"))["metadata"].get("ownerReferences")
    creates = world.server.verbs
    await until_async(
        lambda: creates["create", "pods"], "it is created again", accept=lambda count: count >= 5, seconds=10
    )
    await world.api.delete(POD, "default", "w-0", grace_period_seconds=0)
    await world.until(
        POD,
        lambda pods: any(
            name_of(pod) == "w-0" and bool(labels_of(pod).get("app")) and bool(pod["metadata"].get("ownerReferences"))
            for pod in pods
        ),
    )
    events = (await world.api.list(EVENT, "default"))["items"]
    assert [event["reason"] for event in events].count("FailedCreate") == 1


async def test_scaling_to_zero_takes_the_running_pods_away(world: World) -> None:
    await world.make(STATEFUL_SET, a_set(podManagementPolicy="Parallel"))
    pods = await world.until(POD, lambda pods: len(pods) == 2)
    await world.api.patch(STATEFUL_SET, "default", "w", {"spec": {"replicas": 0}})
    for pod in await world.until(POD, lambda pods: all(pod["metadata"].get("deletionTimestamp") for pod in pods)):
        await gone(world.api, pod)
    await world.until(STATEFUL_SET, lambda sets: sets[0]["status"]["replicas"] == 0)
    assert len(pods) == 2


async def test_every_namespace_has_its_default_service_account_and_root_ca_and_gets_them_back(world: World) -> None:
    await world.api.create(NAMESPACE, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    async with running(world.api, world.clock, ROOT_CA):
        for where in ("default", "team"):
            await there(world, SERVICE_ACCOUNT, where, "default")
            assert (await there(world, CONFIG_MAP, where, "kube-root-ca.crt"))["data"] == {"ca.crt": ROOT_CA}
        await world.api.delete(SERVICE_ACCOUNT, "team", "default")
        await world.api.delete(CONFIG_MAP, "team", "kube-root-ca.crt")
        await there(world, SERVICE_ACCOUNT, "team", "default")
        await there(world, CONFIG_MAP, "team", "kube-root-ca.crt")
        wrong = {"data": {"ca.crt": "mine", "more": "x"}}
        await world.api.patch(CONFIG_MAP, "team", "kube-root-ca.crt", wrong)
        await world.until(CONFIG_MAP, lambda all: any(obj.get("data") == {"ca.crt": ROOT_CA} for obj in all), "team")
        await world.api.delete(NAMESPACE, "", "team")
        await world.until(NAMESPACE, lambda all: not any(name_of(obj) == "team" for obj in all), "")


def test_a_terminating_namespace_gets_no_objects() -> None:
    meta = {"name": "team", "deletionTimestamp": "2024-01-01T00:00:00Z"}
    assert namespaces.decide({"metadata": meta}, None, None, ROOT_CA).writes == ()


async def test_a_cluster_without_a_ca_has_accounts_only(world: World) -> None:
    await there(world, SERVICE_ACCOUNT, "default", "default")
    with pytest.raises(NotFound):
        await world.api.get(CONFIG_MAP, "default", "kube-root-ca.crt")


OWNED = [
    ("apps/v1", "StatefulSet", a_set(0)),
    ("v1", "ServiceAccount", {}),
    ("v1", "ConfigMap", {}),
    ("rbac.authorization.k8s.io/v1", "Role", {"rules": []}),
    (
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "child"}, "subjects": []},
    ),
]


@pytest.mark.parametrize(("version", "kind", "spec"), OWNED, ids=[kind for _, kind, _ in OWNED])
async def test_the_objects_that_a_job_owns_are_deleted_with_it(
    world: World, version: str, kind: str, spec: Json
) -> None:
    owner = await world.make(CONFIG_MAP, {"metadata": {"name": "owner"}})
    ref = controller_reference("v1", "ConfigMap", "owner", uid_of(owner))
    group, _, number = version.rpartition("/")
    gvk = GVK(group, number, kind, f"{kind.lower()}s")
    await world.make(gvk, {**spec, "metadata": {"name": "child", "ownerReferences": [ref]}})
    await world.api.delete(CONFIG_MAP, "default", "owner")
    await world.until(gvk, lambda all: not any(name_of(obj) == "child" for obj in all))
