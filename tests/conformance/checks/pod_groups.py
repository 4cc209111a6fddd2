"""PodGroups of scheduling.k8s.io: policies, defaults, what may change, and who holds one that is deleted."""

from __future__ import annotations

from typing import Any

from tests.conformance import Cluster, check
from tests.conformance.checks.core_types import causes_of, create, manifest, rejected_fields
from tests.conformance.mutations import answers, drops, replaced, swaps, without
from trainyard.objects import Json

AREA = "pod groups"
GANG: Json = {"gang": {"minCount": 2}}
SCHEDULED: Json = {
    "type": "PodGroupInitiallyScheduled",
    "status": "True",
    "reason": "Scheduled",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
FINALIZER = "scheduling.k8s.io/podgroup-protection"
NEEDS = ("gangs",)


def group(name: str, /, **spec: Any) -> Json:
    return manifest("scheduling.k8s.io/v1beta1", "PodGroup", name, spec={"schedulingPolicy": GANG, **spec})


@check(
    "A PodGroup gets disruptionMode single, priority 0, an empty status and a finalizer.",
    area=AREA,
    mutation=without("spec.disruptionMode"),
    needs=NEEDS,
)
async def defaults(cluster: Cluster) -> None:
    created = await create(cluster, "podgroups", {**group("a"), "status": {"conditions": [SCHEDULED]}})
    assert created["spec"] == {"schedulingPolicy": GANG, "disruptionMode": {"single": {}}, "priority": 0}
    assert created["status"] == {} and created["metadata"]["finalizers"] == [FINALIZER]
    assert "generation" not in created["metadata"]
    stated = await create(cluster, "podgroups", group("b", disruptionMode={"all": {}}))
    assert stated["spec"]["disruptionMode"] == {"all": {}}


@check(
    "A PodGroup has one scheduling policy, one disruption mode and a minCount of at least 1.",
    area=AREA,
    mutation=answers(422, 201),
    needs=NEEDS,
)
async def policies(cluster: Cluster) -> None:
    count = "spec.schedulingPolicy.gang.minCount"
    for spec, expected in (
        ({"schedulingPolicy": {}}, ("spec.schedulingPolicy", "Invalid")),
        ({"schedulingPolicy": None}, ("spec.schedulingPolicy", "Invalid")),
        ({"schedulingPolicy": {**GANG, "basic": {}}}, ("spec.schedulingPolicy", "Invalid")),
        ({"schedulingPolicy": {"gang": {}}}, (count, "Required")),
        ({"schedulingPolicy": {"gang": {"minCount": 0}}}, (count, "Required")),
        ({"schedulingPolicy": {"gang": {"minCount": -1}}}, (count, "Invalid")),
        ({"disruptionMode": {}}, ("spec.disruptionMode", "Invalid")),
        ({"disruptionMode": {"single": {}, "all": {}}}, ("spec.disruptionMode", "Invalid")),
    ):
        assert await rejected_fields(cluster, "podgroups", group("a", **spec)) == {expected}, spec


@check(
    "A PodGroup has at most one topology constraint, by the key of a label.",
    area=AREA,
    mutation=drops("spec.schedulingConstraints"),
    needs=NEEDS,
)
async def topology(cluster: Cluster) -> None:
    path = "spec.schedulingConstraints.topology"
    for keys, expected in (
        (["rack", "zone"], (path, "TooMany")),
        (["no good"], (f"{path}[0].key", "Invalid")),
        ([""], (f"{path}[0].key", "Required")),
    ):
        constraints = {"topology": [{"key": key} for key in keys]}
        fields = await rejected_fields(cluster, "podgroups", group("a", schedulingConstraints=constraints))
        assert fields == {expected}, keys
    constraints = {"topology": [{"key": "rack"}]}
    created = await create(cluster, "podgroups", group("a", schedulingConstraints=constraints))
    assert created["spec"]["schedulingConstraints"] == constraints


@check(
    "Fields of a PodGroup whose feature gates are off are dropped.",
    area=AREA,
    mutation=replaced("builtin.pod_groups:_OFF", ()),
    needs=NEEDS,
)
async def gates(cluster: Cluster) -> None:
    claims = [{"name": "a", "resourceClaimName": "b"}]
    sent = group("a", preemptionPolicy="Never", parentCompositePodGroupName="x", resourceClaims=claims)
    created = await create(cluster, "podgroups", sent)
    assert not {"preemptionPolicy", "parentCompositePodGroupName", "resourceClaims"} & created["spec"].keys()


@check(
    "A workloadRef of a PodGroup has both names; the Workload need not exist.",
    area=AREA,
    mutation=answers(422, 201),
    needs=NEEDS,
)
async def workload(cluster: Cluster) -> None:
    path = "spec.workloadRef"
    names = (f"{path}.workloadName", f"{path}.templateName")
    required = {(name, "Required") for name in names}
    assert await rejected_fields(cluster, "podgroups", group("a", workloadRef={})) == required
    invalid = {"workloadName": "W_", "templateName": "T_"}
    assert await rejected_fields(cluster, "podgroups", group("a", workloadRef=invalid)) == {
        (name, "Invalid") for name in names
    }
    reference = {"workloadName": "w", "templateName": "t"}
    assert (await create(cluster, "podgroups", group("a", workloadRef=reference)))["spec"]["workloadRef"] == reference


@check(
    "A priority of a PodGroup that is not that of its class is forbidden.",
    area=AREA,
    mutation=answers(403, 201),
    needs=NEEDS,
)
async def priority(cluster: Cluster) -> None:
    error = (await cluster.request("POST", cluster.path("podgroups"), group("a", priority=5))).expect_error(
        403, "Forbidden"
    )
    assert "priority set in the pod group (5) must match the priority computed (0)" in error["message"]


@check(
    "minCount is the only field of a PodGroup's spec that can change.",
    area=AREA,
    mutation=replaced("builtin.pod_groups:_changes", lambda spec, old: iter(()), "accepts every change"),
    needs=NEEDS,
)
async def changes(cluster: Cluster) -> None:
    await create(cluster, "podgroups", group("a"))
    await create(cluster, "podgroups", group("b", schedulingPolicy={"basic": {}}))
    path = cluster.path("podgroups", "a")
    policy, basic, gang = (f"spec.schedulingPolicy{name}" for name in ("", ".basic", ".gang"))
    for name, spec, fields in (
        ("a", {"schedulingPolicy": {"gang": None, "basic": {}}}, {basic, gang}),
        ("b", {"schedulingPolicy": {"gang": {"minCount": 1}}}, {policy, gang}),
        ("a", {"disruptionMode": {"single": None, "all": {}}}, {"spec.disruptionMode"}),
        ("a", {"priority": 3}, {"spec.priority"}),
        ("a", {"priorityClassName": "nope"}, {"spec.priorityClassName"}),
        ("a", {"workloadRef": {"workloadName": "w", "templateName": "t"}}, {"spec.workloadRef"}),
        ("a", {"schedulingConstraints": {"topology": [{"key": "rack"}]}}, {"spec.schedulingConstraints"}),
    ):
        answer = await cluster.request("PATCH", cluster.path("podgroups", name), {"spec": spec})
        assert {field for field, _ in causes_of(answer.expect_error(422, "Invalid"))} == fields, spec
    patch = {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}
    changed = (await cluster.request("PATCH", path, patch)).expect(200)
    assert changed["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
    (await cluster.request("PATCH", path, {"spec": {"disruptionMode": None}})).expect(200)  # the default again


@check(
    "A condition of a PodGroup has type, status, reason and time.",
    area=AREA,
    mutation=answers(422, 200),
    needs=NEEDS,
)
async def conditions(cluster: Cluster) -> None:
    await create(cluster, "podgroups", group("a"))
    path = cluster.path("podgroups", "a", "status")
    invalid = {"status": {"conditions": [{"type": "bad type", "status": "Maybe"}]}}
    error = (await cluster.request("PATCH", path, invalid)).expect_error(422, "Invalid")
    assert causes_of(error) == {
        ("status.conditions[0].type", "Invalid"),
        ("status.conditions[0].status", "NotSupported"),
        ("status.conditions[0].lastTransitionTime", "Required"),
        ("status.conditions[0].reason", "Required"),
    }
    stored = (await cluster.request("PATCH", path, {"status": {"conditions": [SCHEDULED]}})).expect(200)
    assert stored["status"] == {"conditions": [SCHEDULED]}


@check(
    "A deleted PodGroup stays until no pod that has not ended names it; until then its minCount can change.",
    area=AREA,
    mutation=replaced("builtin.pod_groups:PROTECTION", "example.org/nobody"),
    needs=(*NEEDS, "controllers", "pods"),
)
async def protection(cluster: Cluster) -> None:
    for name in ("held", "free"):
        await create(cluster, "podgroups", group(name))
    await cluster.create_pod("member", schedulingGroup={"podGroupName": "held"})
    for name in ("held", "free"):
        (await cluster.request("DELETE", cluster.path("podgroups", name))).expect(200)
    await cluster.wait_gone(cluster.path("podgroups", "free"))
    path = cluster.path("podgroups", "held")
    held = (await cluster.request("GET", path)).expect(200)
    assert held["metadata"]["deletionTimestamp"] and held["metadata"]["finalizers"] == [FINALIZER]
    (await cluster.request("POST", cluster.path("podgroups"), group("held"))).expect_error(409, "AlreadyExists")
    patch = {"spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}}
    (await cluster.request("PATCH", path, patch)).expect(200)
    await cluster.request("DELETE", cluster.path("pods", "member"), {"gracePeriodSeconds": 0})
    await cluster.wait_gone(path)


@check(
    "The schedulingGroup of a pod names a PodGroup, which need not exist, and cannot change.",
    area=AREA,
    mutation=answers(422, 201),
    needs=(*NEEDS, "pods"),
)
async def members(cluster: Cluster) -> None:
    created = await cluster.create_pod("a", schedulingGroup={"podGroupName": "b"}, schedulingGates=[{"name": "x.y/z"}])
    assert created["spec"]["schedulingGroup"] == {"podGroupName": "b"}
    path = "spec.schedulingGroup.podGroupName"
    for scheduling_group in ({"podGroupName": "B_"}, {}):
        spec = {"containers": [{"name": "main", "image": "busybox:1"}], "schedulingGroup": scheduling_group}
        assert await rejected_fields(cluster, "pods", manifest("v1", "Pod", "c", spec=spec)) == {(path, "Invalid")}
    patch = {"spec": {"schedulingGroup": {"podGroupName": "other"}}}
    (await cluster.request("PATCH", cluster.path("pods", "a"), patch)).expect_error(422, "Invalid")


@check(
    "kubectl get podgroups shows policy, workload, and whether the group was placed.",
    area=AREA,
    mutation=swaps(b'"Unschedulable"', b'"Waiting"'),
    needs=NEEDS,
)
async def columns(cluster: Cluster) -> None:
    for name, status, reason in (("a", "True", "Scheduled"), ("b", "False", "SchedulerError"), ("c", "", "")):
        await create(cluster, "podgroups", group(name))
        if status:
            condition = {**SCHEDULED, "status": status, "reason": reason}
            path = cluster.path("podgroups", name, "status")
            (await cluster.request("PATCH", path, {"status": {"conditions": [condition]}})).expect(200)
    reference = {"workloadName": "w", "templateName": "t"}
    await create(cluster, "podgroups", group("d", schedulingPolicy={"basic": {}}, workloadRef=reference))
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = (await cluster.request("GET", cluster.path("podgroups"), headers=accept)).expect(200)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Policy", "Workload", "Status", "Age"]
    assert [row["cells"][:4] for row in table["rows"]] == [
        ["a", "Gang", "<none>", "Scheduled"],
        ["b", "Gang", "<none>", "Unschedulable"],
        ["c", "Gang", "<none>", "Pending"],
        ["d", "Basic", "w", "Pending"],
    ]


CHIP = "example.com/chip"


@check(
    "A gang without room is bound not at all, and says why; with a lower minCount those are bound that fit.",
    area=AREA,
    mutation=drops("spec.schedulingGroup"),
    needs=(*NEEDS, "controllers", "pods"),
)
async def scheduling(cluster: Cluster) -> None:
    node, capacity = cluster.unique_name("node"), {CHIP: "4", "cpu": "8", "memory": "8Gi", "pods": "10"}
    ready = {"type": "Ready", "status": "True"}
    status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
    cluster.delete_at_end(cluster.path("nodes", node))
    await create(cluster, "nodes", manifest("v1", "Node", node, status=status))
    await create(cluster, "podgroups", group("a", schedulingPolicy={"gang": {"minCount": 3}}))
    containers = [{"name": "main", "image": "busybox:1", "resources": {"limits": {CHIP: "2"}}}]
    for name in ("p", "q", "r"):
        await cluster.create_pod(name, schedulingGroup={"podGroupName": "a"}, containers=containers)

    async def condition(expected: str) -> Json | None:
        stored = (await cluster.request("GET", cluster.path("podgroups", "a"))).expect(200)
        conditions: list[Json] = stored["status"].get("conditions") or []
        return next((condition for condition in conditions if condition["status"] == expected), None)

    async def pods() -> list[Json]:
        return list((await cluster.request("GET", cluster.path("pods"))).expect(200)["items"])

    async def messages() -> list[str]:
        conditions_of_pods = [pod["status"].get("conditions") or [{}] for pod in await pods()]
        return sorted(conditions[0].get("message", "") for conditions in conditions_of_pods)

    waiting = await cluster.wait_until(lambda: condition("False"), "the group waits")
    reason = "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining"
    text = f"{reason}, pod group preemption: No preemption victims found for incoming preemptor"
    assert (waiting["type"], waiting["reason"], waiting["message"]) == (SCHEDULED["type"], "Unschedulable", text)
    own = "0/1 nodes are available: 1 Insufficient example.com/chip."

    async def all_tell() -> bool:
        return await messages() == [own, *[f"pod group is unschedulable, {text}"] * 2]

    await cluster.wait_until(all_tell)
    assert not [pod for pod in await pods() if "nodeName" in pod["spec"]]
    patch = {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    (await cluster.request("PATCH", cluster.path("podgroups", "a"), patch)).expect(200)
    placed = await cluster.wait_until(lambda: condition("True"), "the group is placed")
    assert placed["reason"] == "Scheduled"

    async def two_are_bound() -> bool:
        return [pod["spec"].get("nodeName") for pod in await pods()].count(node) == 2

    await cluster.wait_until(two_are_bound)
