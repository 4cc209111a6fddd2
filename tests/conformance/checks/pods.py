"""Pods as API objects: defaults, validation, allowed changes, binding and eviction."""

from __future__ import annotations

from typing import Any

from tests.conformance import Cluster, check
from tests.conformance.checks.core_types import causes_of, manifest
from tests.conformance.mutations import answers, drops, replaced, without
from trainyard.objects import Json

AREA = "pods"
MAIN_CONTAINER: Json = {"name": "main", "image": "busybox:1"}


def pod_manifest(name: str, /, **spec: Any) -> Json:
    return manifest("v1", "Pod", name, spec={"containers": [MAIN_CONTAINER], **spec})


async def rejected_fields(cluster: Cluster, **spec: Any) -> set[tuple[str, str]]:
    response = await cluster.request("POST", cluster.path("pods"), pod_manifest("a", **spec), dryRun="All")
    return causes_of(response.expect_error(422, "Invalid"))


@check(
    "A pod gets defaults (restartPolicy, dnsPolicy, scheduler, grace period, account) and is Pending.",
    area=AREA,
    mutation=without("spec.dnsPolicy"),
    needs=("pods",),
)
async def defaults(cluster: Cluster) -> None:
    created = (await cluster.request("POST", cluster.path("pods"), pod_manifest("a"))).expect(201)
    spec = created["spec"]
    assert spec["restartPolicy"] == "Always" and spec["dnsPolicy"] == "ClusterFirst"
    assert spec["schedulerName"] == "default-scheduler" and spec["terminationGracePeriodSeconds"] == 30
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "default" and spec["enableServiceLinks"] is True
    assert spec["securityContext"] == {} and spec["priority"] == 0
    assert spec["preemptionPolicy"] == "PreemptLowerPriority"
    assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    container = spec["containers"][0]
    assert container["resources"] == {} and container["terminationMessagePath"] == "/dev/termination-log"
    assert container["terminationMessagePolicy"] == "File"


@check(
    "Every pod tolerates a not-ready or unreachable node for 300 seconds.",
    area=AREA,
    mutation=without("spec.tolerations"),
    needs=("pods",),
)
async def tolerations(cluster: Cluster) -> None:
    created = (await cluster.request("POST", cluster.path("pods"), pod_manifest("a"), dryRun="All")).expect(201)
    tolerations = {
        (toleration["key"], toleration["effect"], toleration["tolerationSeconds"])
        for toleration in created["spec"]["tolerations"]
    }
    names = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    assert tolerations == {(name, "NoExecute", 300) for name in names}


@check(
    "imagePullPolicy defaults to Always for the tag latest or no tag, and to IfNotPresent otherwise.",
    area=AREA,
    mutation=replaced("api_types.pod_defaults:pull_policy", lambda image: "Always"),
    needs=("pods",),
)
async def pull_policy(cluster: Cluster) -> None:
    images = {"a:1": "IfNotPresent", "a": "Always", "h:5000/a": "Always", "a:latest": "Always"}
    containers = [{"name": f"c{index}", "image": image} for index, image in enumerate(images)]
    created = (
        await cluster.request("POST", cluster.path("pods"), pod_manifest("a", containers=containers), dryRun="All")
    ).expect(201)
    assert [container["imagePullPolicy"] for container in created["spec"]["containers"]] == list(images.values())


@check(
    "Resource requests default to the limits; the QoS class follows from both.",
    area=AREA,
    mutation=replaced("builtin.pods:qos_class", lambda spec: "BestEffort"),
    needs=("pods",),
)
async def qos_class(cluster: Cluster) -> None:
    for resources, qos_class in (
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({}, "BestEffort"),
    ):
        manifest = pod_manifest("a", containers=[{**MAIN_CONTAINER, "resources": resources}])
        created = (await cluster.request("POST", cluster.path("pods"), manifest, dryRun="All")).expect(201)
        assert created["status"]["qosClass"] == qos_class
        if limits := resources.get("limits"):
            assert created["spec"]["containers"][0]["resources"]["requests"] == limits


INVALID_PODS: tuple[tuple[Json, str, str], ...] = (
    ({"containers": []}, "spec.containers", "Required"),
    ({"containers": [{"name": "a"}]}, "spec.containers[0].image", "Required"),
    ({"containers": [{"image": "a"}]}, "spec.containers[0].name", "Required"),
    ({"containers": [{"name": "A", "image": "a"}]}, "spec.containers[0].name", "Invalid"),
    ({"containers": [MAIN_CONTAINER, MAIN_CONTAINER]}, "spec.containers[1].name", "Duplicate"),
    ({"restartPolicy": "Odd"}, "spec.restartPolicy", "NotSupported"),
    ({"hostname": "A_b"}, "spec.hostname", "Invalid"),
    ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds", "Invalid"),
    (
        {"containers": [{**MAIN_CONTAINER, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
        "spec.containers[0].volumeMounts[0].name",
        "NotFound",
    ),
    (
        {
            "containers": [
                {
                    **MAIN_CONTAINER,
                    "env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                }
            ]
        },
        "spec.containers[0].env[0].valueFrom",
        "Invalid",
    ),
    (
        {"containers": [{**MAIN_CONTAINER, "ports": [{"containerPort": 0}]}]},
        "spec.containers[0].ports[0].containerPort",
        "Required",
    ),
    (
        {"containers": [{**MAIN_CONTAINER, "imagePullPolicy": "Odd"}]},
        "spec.containers[0].imagePullPolicy",
        "NotSupported",
    ),
)


@check(
    "An invalid pod is rejected with the field and reason of each problem.",
    area=AREA,
    mutation=answers(422, 201),
    needs=("pods",),
)
async def invalid_pods(cluster: Cluster) -> None:
    for spec, field, reason in INVALID_PODS:
        assert (field, reason) in await rejected_fields(cluster, **spec), (spec, await rejected_fields(cluster, **spec))


@check("A pod field of the wrong type is rejected with 400.", area=AREA, mutation=answers(400, 422), needs=("pods",))
async def unreadable(cluster: Cluster) -> None:
    manifest = pod_manifest("a", terminationGracePeriodSeconds="x")
    (await cluster.request("POST", cluster.path("pods"), manifest)).expect_error(
        400, "BadRequest", "cannot be handled as a Pod"
    )


@check(
    "Only images, activeDeadlineSeconds, tolerations and the like can change in the spec of a pod.",
    area=AREA,
    mutation=replaced("builtin.pods:_fixed", lambda spec: {}),
    needs=("pods",),
)
async def immutable_spec(cluster: Cluster) -> None:
    await cluster.create_pod("a")
    patch = [{"op": "replace", "path": "/spec/containers/0/image", "value": "other:2"}]
    headers = {"Content-Type": "application/json-patch+json"}
    patched = (await cluster.request("PATCH", cluster.path("pods", "a"), patch, headers=headers)).expect(200)
    assert patched["spec"]["containers"][0]["image"] == "other:2"
    for spec in ({"hostname": "x"}, {"restartPolicy": "Never"}, {"containers": [{**MAIN_CONTAINER, "args": ["x"]}]}):
        error = (await cluster.request("PATCH", cluster.path("pods", "a"), {"spec": spec})).expect_error(422, "Invalid")
        assert ("spec", "Forbidden") in causes_of(error)
        assert "pod updates may not change fields other than" in error["message"]


def binding_manifest(name: str, node: str) -> Json:
    return manifest("v1", "Binding", name, target={"apiVersion": "v1", "kind": "Node", "name": node})


@check(
    "A binding sets the node of a pod and PodScheduled; a second binding is a conflict.",
    area=AREA,
    mutation=answers(409, 201),
    needs=("pods",),
)
async def binding(cluster: Cluster) -> None:
    await cluster.create_pod("a", schedulerName="nobody")  # keeps the real scheduler from writing the status
    node = cluster.unique_name("nowhere")
    status = (await cluster.request("POST", cluster.path("pods", "a", "binding"), binding_manifest("a", node))).expect(
        201
    )
    assert status["status"] == "Success"
    pod = (await cluster.request("GET", cluster.path("pods", "a"))).expect(200)
    assert pod["spec"]["nodeName"] == node
    by_type = {condition["type"]: condition["status"] for condition in pod["status"]["conditions"]}
    assert by_type["PodScheduled"] == "True"
    (await cluster.request("POST", cluster.path("pods", "a", "binding"), binding_manifest("a", node))).expect_error(
        409, "Conflict"
    )


@check(
    "A write to the /status of a pod changes only the status; a write to the pod does not.",
    area=AREA,
    mutation=drops("status"),
    needs=("pods",),
)
async def status(cluster: Cluster) -> None:
    await cluster.create_pod("a")
    patch = {"status": {"phase": "Running", "podIP": "10.1.2.3"}, "spec": {"hostname": "x"}}
    patched = (await cluster.request("PATCH", cluster.path("pods", "a", "status"), patch)).expect(200)
    assert patched["status"]["phase"] == "Running" and "hostname" not in patched["spec"]
    updated = (await cluster.request("PATCH", cluster.path("pods", "a"), {"status": {"phase": "Failed"}})).expect(200)
    assert updated["status"]["phase"] == "Running"
    object_list = (
        await cluster.request("GET", cluster.path("pods"), fieldSelector="status.phase=Running,status.podIP=10.1.2.3")
    ).expect()
    assert [item["metadata"]["name"] for item in object_list["items"]] == ["a"]


@check(
    "A pod with a missing service account is rejected with 403.",
    area=AREA,
    mutation=drops("spec.serviceAccountName"),
    needs=("pods",),
)
async def no_account(cluster: Cluster) -> None:
    response = await cluster.request("POST", cluster.path("pods"), pod_manifest("a", serviceAccountName="nobody"))
    response.expect_error(403, "Forbidden", 'serviceaccount "nobody" not found')


@check("An eviction deletes the pod with its grace period.", area=AREA, mutation=answers(201, 404), needs=("pods",))
async def evicted(cluster: Cluster) -> None:
    await cluster.create_pod("a")
    (
        await cluster.request(
            "POST", cluster.path("pods", "a", "binding"), binding_manifest("a", cluster.unique_name("nowhere"))
        )
    ).expect(201)
    obj = manifest("policy/v1", "Eviction", "a")
    assert (await cluster.request("POST", cluster.path("pods", "a", "eviction"), obj)).expect(201)[
        "status"
    ] == "Success"
    pod = (await cluster.request("GET", cluster.path("pods", "a"))).expect(200)
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30


@check(
    "Logs of an unknown container are rejected with 400.",
    area=AREA,
    mutation=answers(400, 200),
    needs=("pods",),
)
async def no_logs(cluster: Cluster) -> None:
    await cluster.create_pod("a")
    response = await cluster.request("GET", cluster.path("pods", "a", "log"), container="other")
    response.expect_error(400, "BadRequest", "container other is not valid for pod a")
