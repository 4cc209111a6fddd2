"""Pods as objects: what is filled in, what is refused, what may change, how they are bound and evicted."""

from __future__ import annotations

from typing import Any

from trainyard.objects import Json
from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import answers, drops, replaced, without
from trainyard.testing.check_server.checks.small import fields_of, thing

AREA = "pods"
MAIN: Json = {"name": "main", "image": "busybox:1"}


def pod(name: str, /, **spec: Any) -> Json:
    return thing("v1", "Pod", name, spec={"containers": [MAIN], **spec})


async def bad(yard: Subject, **spec: Any) -> set[tuple[str, str]]:
    reply = await yard.ask("POST", yard.at("pods"), pod("a", **spec), dryRun="All")
    return fields_of(reply.refused(422, "Invalid"))


@check(
    "A pod is filled in: restartPolicy, dnsPolicy, scheduler, grace, account, and it is Pending.",
    area=AREA,
    breaks=without("spec.dnsPolicy"),
    needs=("pods",),
)
async def filled(yard: Subject) -> None:
    made = (await yard.ask("POST", yard.at("pods"), pod("a"))).must(201)
    spec = made["spec"]
    assert spec["restartPolicy"] == "Always" and spec["dnsPolicy"] == "ClusterFirst"
    assert spec["schedulerName"] == "default-scheduler" and spec["terminationGracePeriodSeconds"] == 30
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "default" and spec["enableServiceLinks"] is True
    assert spec["securityContext"] == {} and spec["priority"] == 0
    assert spec["preemptionPolicy"] == "PreemptLowerPriority"
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    container = spec["containers"][0]
    assert container["resources"] == {} and container["terminationMessagePath"] == "/dev/termination-log"
    assert container["terminationMessagePolicy"] == "File"


@check(
    "Every pod bears a node that is not ready or not reachable for 300 seconds.",
    area=AREA,
    breaks=without("spec.tolerations"),
    needs=("pods",),
)
async def tolerations(yard: Subject) -> None:
    made = (await yard.ask("POST", yard.at("pods"), pod("a"), dryRun="All")).must(201)
    found = {(one["key"], one["effect"], one["tolerationSeconds"]) for one in made["spec"]["tolerations"]}
    names = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    assert found == {(name, "NoExecute", 300) for name in names}


@check(
    "imagePullPolicy is Always for the tag latest, said or meant, and IfNotPresent for others.",
    area=AREA,
    breaks=replaced("builtin.templates:pull_policy", lambda image: "Always"),
    needs=("pods",),
)
async def pull_policy(yard: Subject) -> None:
    images = {"a:1": "IfNotPresent", "a": "Always", "h:5000/a": "Always", "a:latest": "Always"}
    containers = [{"name": f"c{index}", "image": image} for index, image in enumerate(images)]
    made = (await yard.ask("POST", yard.at("pods"), pod("a", containers=containers), dryRun="All")).must(201)
    assert [one["imagePullPolicy"] for one in made["spec"]["containers"]] == list(images.values())


@check(
    "Who limits a resource asks for as much; the class of service follows from both.",
    area=AREA,
    breaks=replaced("builtin.pods:_quality", lambda spec: "BestEffort"),
    needs=("pods",),
)
async def quality(yard: Subject) -> None:
    for resources, kind in (
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({}, "BestEffort"),
    ):
        sent = pod("a", containers=[{**MAIN, "resources": resources}])
        made = (await yard.ask("POST", yard.at("pods"), sent, dryRun="All")).must(201)
        assert made["status"]["qosClass"] == kind
        if limits := resources.get("limits"):
            assert made["spec"]["containers"][0]["resources"]["requests"] == limits


WRONG: tuple[tuple[Json, str, str], ...] = (
    ({"containers": []}, "spec.containers", "Required"),
    ({"containers": [{"name": "a"}]}, "spec.containers[0].image", "Required"),
    ({"containers": [{"image": "a"}]}, "spec.containers[0].name", "Required"),
    ({"containers": [{"name": "A", "image": "a"}]}, "spec.containers[0].name", "Invalid"),
    ({"containers": [MAIN, MAIN]}, "spec.containers[1].name", "Duplicate"),
    ({"restartPolicy": "Odd"}, "spec.restartPolicy", "NotSupported"),
    ({"hostname": "A_b"}, "spec.hostname", "Invalid"),
    ({"activeDeadlineSeconds": 0}, "spec.activeDeadlineSeconds", "Invalid"),
    (
        {"containers": [{**MAIN, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]},
        "spec.containers[0].volumeMounts[0].name",
        "NotFound",
    ),
    (
        {
            "containers": [
                {
                    **MAIN,
                    "env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                }
            ]
        },
        "spec.containers[0].env[0].valueFrom",
        "Invalid",
    ),
    (
        {"containers": [{**MAIN, "ports": [{"containerPort": 0}]}]},
        "spec.containers[0].ports[0].containerPort",
        "Required",
    ),
    ({"containers": [{**MAIN, "imagePullPolicy": "Odd"}]}, "spec.containers[0].imagePullPolicy", "NotSupported"),
)


@check(
    "A wrong pod is refused with the place and the kind of each problem.",
    area=AREA,
    breaks=answers(422, 201),
    needs=("pods",),
)
async def wrong(yard: Subject) -> None:
    for spec, place, reason in WRONG:
        assert (place, reason) in await bad(yard, **spec), (spec, await bad(yard, **spec))


@check("A value of the wrong type cannot be read: 400.", area=AREA, breaks=answers(400, 422), needs=("pods",))
async def unreadable(yard: Subject) -> None:
    sent = pod("a", terminationGracePeriodSeconds="x")
    (await yard.ask("POST", yard.at("pods"), sent)).refused(400, "BadRequest", "cannot be handled as a Pod")


@check(
    "Of a pod's spec only images, the deadline, tolerations and the like may change.",
    area=AREA,
    breaks=replaced("builtin.pods:_fixed", lambda spec: {}),
    needs=("pods",),
)
async def fixed(yard: Subject) -> None:
    await yard.pod("a")
    patch = [{"op": "replace", "path": "/spec/containers/0/image", "value": "other:2"}]
    headers = {"Content-Type": "application/json-patch+json"}
    said = (await yard.ask("PATCH", yard.at("pods", "a"), patch, headers=headers)).must(200)
    assert said["spec"]["containers"][0]["image"] == "other:2"
    for spec in ({"hostname": "x"}, {"restartPolicy": "Never"}, {"containers": [{**MAIN, "args": ["x"]}]}):
        said = (await yard.ask("PATCH", yard.at("pods", "a"), {"spec": spec})).refused(422, "Invalid")
        assert ("spec", "Forbidden") in fields_of(said)
        assert "pod updates may not change fields other than" in said["message"]


def binding(name: str, node: str) -> Json:
    return thing("v1", "Binding", name, target={"apiVersion": "v1", "kind": "Node", "name": node})


@check(
    "A binding puts a pod on a node once and says PodScheduled; a second one is a conflict.",
    area=AREA,
    breaks=answers(409, 201),
    needs=("pods",),
)
async def bound(yard: Subject) -> None:
    await yard.pod("a", schedulerName="nobody")  # or the real scheduler writes the status in between
    node = yard.name("nowhere")
    said = (await yard.ask("POST", yard.at("pods", "a", "binding"), binding("a", node))).must(201)
    assert said["status"] == "Success"
    seen = (await yard.ask("GET", yard.at("pods", "a"))).must(200)
    assert seen["spec"]["nodeName"] == node
    found = {one["type"]: one["status"] for one in seen["status"]["conditions"]}
    assert found["PodScheduled"] == "True"
    (await yard.ask("POST", yard.at("pods", "a", "binding"), binding("a", node))).refused(409, "Conflict")


@check(
    "/status changes the status and nothing else of a pod, and may keep labels.",
    area=AREA,
    breaks=drops("status"),
    needs=("pods",),
)
async def status(yard: Subject) -> None:
    await yard.pod("a")
    patch = {"status": {"phase": "Running", "podIP": "10.1.2.3"}, "spec": {"hostname": "x"}}
    said = (await yard.ask("PATCH", yard.at("pods", "a", "status"), patch)).must(200)
    assert said["status"]["phase"] == "Running" and "hostname" not in said["spec"]
    main = (await yard.ask("PATCH", yard.at("pods", "a"), {"status": {"phase": "Failed"}})).must(200)
    assert main["status"]["phase"] == "Running"
    found = (await yard.ask("GET", yard.at("pods"), fieldSelector="status.phase=Running,status.podIP=10.1.2.3")).must()
    assert [one["metadata"]["name"] for one in found["items"]] == ["a"]


@check(
    "A pod of an account that is not there is refused with 403.",
    area=AREA,
    breaks=drops("spec.serviceAccountName"),
    needs=("pods",),
)
async def no_account(yard: Subject) -> None:
    said = await yard.ask("POST", yard.at("pods"), pod("a", serviceAccountName="nobody"))
    said.refused(403, "Forbidden", 'serviceaccount "nobody" not found')


@check("An eviction deletes the pod with its grace.", area=AREA, breaks=answers(201, 404), needs=("pods",))
async def evicted(yard: Subject) -> None:
    await yard.pod("a")
    (await yard.ask("POST", yard.at("pods", "a", "binding"), binding("a", yard.name("nowhere")))).must(201)
    obj = thing("policy/v1", "Eviction", "a")
    assert (await yard.ask("POST", yard.at("pods", "a", "eviction"), obj)).must(201)["status"] == "Success"
    seen = (await yard.ask("GET", yard.at("pods", "a"))).must(200)
    assert seen["metadata"]["deletionGracePeriodSeconds"] == 30


@check(
    "Logs of a pod without a node are refused, and so is a container that it does not have.",
    area=AREA,
    breaks=answers(400, 200),
    needs=("pods",),
)
async def no_logs(yard: Subject) -> None:
    await yard.pod("a")
    said = await yard.ask("GET", yard.at("pods", "a", "log"), container="other")
    said.refused(400, "BadRequest", "container other is not valid for pod a")
