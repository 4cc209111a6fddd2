"""Gangs of the real kube-scheduler: groups that it holds, places, restarts and gives up, as each kind makes them.

The node has 1,000 CPUs: a worker that asks for 300 leaves room for two more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.control_plane.gangs import groups, jax_job, listed_pods, running, state_of, submit, until_holds
from tests.control_plane.job_life import end, operated, path_of, succeeds
from tests.control_plane.test_definitions_on_a_real_server import wire
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import create_namespace, install
from tests.support.samples import KINDS_WITH_TEMPLATES, sample
from trainyard.core import Kind
from trainyard.kinds import JAXJOB, PYTORCHJOB
from trainyard.kinds.native_gang import NATIVE
from trainyard.objects import Json, find_condition, is_condition_true, name_of

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def plane(gang_plane: ControlPlane) -> ControlPlane:
    install(gang_plane)
    gang_plane.add_node("played")
    return gang_plane


@pytest.fixture
def namespace(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"gang-{abs(hash(request.node.name)) % 10**8}"
    create_namespace(plane, name)
    yield name
    plane.ask("DELETE", f"/api/v1/namespaces/{name}")


@pytest.mark.parametrize("kind", KINDS_WITH_TEMPLATES, ids=lambda kind: f"{kind.gvk.kind}.{kind.gvk.group}")
async def test_a_job_runs_as_one_gang_and_leaves_no_group(plane: ControlPlane, namespace: str, kind: Kind) -> None:
    job = wire(kind, sample(kind.gvk.kind))
    submit(plane, kind, namespace, job)
    looks = state_of(plane, namespace)
    async with operated(plane, NATIVE):
        group = f"{name_of(job)}-0"
        await until_holds(
            lambda: is_condition_true(
                (groups(plane, namespace).get(group) or {}).get("status", {}).get("conditions"),
                "PodGroupInitiallyScheduled",
            ),
            "kube-scheduler has placed the gang",
            looks,
        )
        assert {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in listed_pods(plane, namespace)} == {group}
        await succeeds(plane, kind, namespace, name_of(job))
        for pod in running(plane, namespace):  # such as parameter servers, which cleanPodPolicy leaves
            await asyncio.to_thread(plane.ask, "DELETE", f"/api/v1/namespaces/{namespace}/pods/{name_of(pod)}")
        await until_holds(lambda: not groups(plane, namespace), "the group is gone", looks)


async def test_of_two_gangs_one_runs_whole_and_the_other_says_why_it_waits(plane: ControlPlane, namespace: str) -> None:
    for name in ("east", "west"):
        submit(plane, JAXJOB, namespace, jax_job(name, 2))
    looks = state_of(plane, namespace)

    def blocked(name: str) -> Json:
        status = plane.ask("GET", path_of(JAXJOB, namespace, name))[1].get("status") or {}
        return find_condition(status.get("conditions"), "Blocked") or {}

    async with operated(plane, NATIVE):
        await until_holds(lambda: len(running(plane, namespace)) == 2, "one gang runs", looks)
        first, second = ("east", "west") if len(running(plane, namespace, "east")) == 2 else ("west", "east")
        assert len(running(plane, namespace, first)) == 2
        await until_holds(lambda: blocked(second).get("reason") == "GangUnschedulable", "the other says why", looks)
        assert f"PodGroup {second}-0 waits: minCount (2) cannot be satisfied" in blocked(second)["message"]
        assert not running(plane, namespace, second)
        for pod in running(plane, namespace, first):
            end(plane, f"/api/v1/namespaces/{namespace}/pods/{name_of(pod)}", pod)
        await until_holds(lambda: len(running(plane, namespace, second)) == 2, "the other runs", looks)
        await until_holds(lambda: blocked(second).get("status") == "False", "and is not blocked any more", looks)


async def test_a_gang_that_restarts_is_a_new_group_while_its_old_pods_end(plane: ControlPlane, namespace: str) -> None:
    submit(plane, JAXJOB, namespace, jax_job("again", 3))
    looks = state_of(plane, namespace)
    async with operated(plane, NATIVE):
        path = path_of(JAXJOB, namespace, "again")
        # From then on a lost member restarts the others; before, it is created again alone.
        await until_holds(
            lambda: (plane.ask("GET", path)[1].get("status") or {}).get("gang"), "all have run together", looks
        )
        await asyncio.to_thread(plane.ask, "DELETE", f"/api/v1/namespaces/{namespace}/pods/again-worker-1")
        await until_holds(
            lambda: (
                {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in running(plane, namespace)} == {"again-1"}
                and len(running(plane, namespace)) == 3
            ),
            "the whole gang runs again as another group",
            looks,
        )
        await until_holds(lambda: list(groups(plane, namespace)) == ["again-1"], "the old group is gone", looks)


async def test_a_member_that_ended_is_not_waited_for(plane: ControlPlane, namespace: str) -> None:
    """The scheduler counts no pod that has ended: with minCount 3 it would hold the replacement without a word."""
    job = jax_job("ends", 3)
    job["metadata"]["annotations"] = {"trainyard.dev/restart-scope": "replica"}
    submit(plane, JAXJOB, namespace, job)
    looks = state_of(plane, namespace)
    where = f"/api/v1/namespaces/{namespace}/pods"
    async with operated(plane, NATIVE):
        await until_holds(lambda: len(running(plane, namespace)) == 3, "the gang runs", looks)
        end(plane, f"{where}/ends-worker-2", plane.ask("GET", f"{where}/ends-worker-2")[1])
        await until_holds(
            lambda: groups(plane, namespace)["ends-0"]["spec"]["schedulingPolicy"]["gang"]["minCount"] == 2,
            "the group has two members",
            looks,
        )
        old = plane.ask("GET", f"{where}/ends-worker-1")[1]["metadata"]["uid"]
        await asyncio.to_thread(plane.ask, "DELETE", f"{where}/ends-worker-1")
        await until_holds(
            lambda: any(
                pod["metadata"]["uid"] != old for pod in running(plane, namespace) if name_of(pod) == "ends-worker-1"
            ),
            "the replacement runs",
            looks,
        )


async def test_a_suspended_gang_leaves_its_group_and_runs_again_as_another(plane: ControlPlane, namespace: str) -> None:
    submit(plane, JAXJOB, namespace, jax_job("pause", 2))
    looks = state_of(plane, namespace)
    path = path_of(JAXJOB, namespace, "pause")
    async with operated(plane, NATIVE):
        await until_holds(lambda: len(running(plane, namespace)) == 2, "the gang runs", looks)
        plane.ask("PATCH", path, {"spec": {"runPolicy": {"suspend": True}}})
        await until_holds(
            lambda: not groups(plane, namespace) and not listed_pods(plane, namespace), "all is gone", looks
        )
        plane.ask("PATCH", path, {"spec": {"runPolicy": {"suspend": False}}})
        await until_holds(lambda: len(running(plane, namespace)) == 2, "the gang runs again", looks)
        assert list(groups(plane, namespace)) == ["pause-1"]


async def test_a_preemption_takes_the_whole_gang_which_runs_whole_again(plane: ControlPlane, namespace: str) -> None:
    name = f"high-{namespace}"
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 9}
    assert plane.ask("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority)[0] == 201
    submit(plane, JAXJOB, namespace, jax_job("low", 3))
    looks = state_of(plane, namespace)
    async with operated(plane, NATIVE):
        await until_holds(
            lambda: (plane.ask("GET", path_of(JAXJOB, namespace, "low"))[1].get("status") or {}).get("gang"),
            "the low gang runs",
            looks,
        )
        submit(plane, JAXJOB, namespace, jax_job("high", 1, schedulingPolicy={"priorityClass": name}))
        await until_holds(lambda: len(running(plane, namespace, "high")) == 1, "the high one runs", looks)
        assert not running(plane, namespace, "low"), "a part of the gang is left"
        await asyncio.to_thread(plane.ask, "DELETE", path_of(JAXJOB, namespace, "high"))
        await until_holds(lambda: len(running(plane, namespace, "low")) == 3, "the low gang runs again", looks)
        assert list(groups(plane, namespace)) == ["low-1"]
    plane.ask("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")


async def test_a_gang_that_waits_runs_after_a_restart_of_the_scheduler(plane: ControlPlane, namespace: str) -> None:
    submit(plane, JAXJOB, namespace, jax_job("first", 2))
    looks = state_of(plane, namespace)
    async with operated(plane, NATIVE):
        await until_holds(lambda: len(running(plane, namespace, "first")) == 2, "the first gang runs", looks)
        submit(plane, JAXJOB, namespace, jax_job("second", 3))
        await until_holds(
            lambda: (groups(plane, namespace).get("second-0") or {}).get("status", {}).get("conditions"),
            "the second waits",
            looks,
        )
        plane.restart("kube-scheduler")  # in this thread: the program ends with the one that has started it
        for pod in running(plane, namespace, "first"):
            end(plane, f"/api/v1/namespaces/{namespace}/pods/{name_of(pod)}", pod)
        await until_holds(lambda: len(running(plane, namespace, "second")) == 3, "the second runs", looks)


async def test_an_elastic_job_grows_into_the_room_that_there_is(plane: ControlPlane, namespace: str) -> None:
    job = jax_job("grows", 2)
    worker = job["spec"]["jaxReplicaSpecs"]["Worker"]
    worker["template"]["spec"]["containers"][0]["name"] = "pytorch"
    elastic = {"minReplicas": 1, "maxReplicas": 4}
    spec = {"pytorchReplicaSpecs": {"Worker": worker}, "elasticPolicy": elastic}
    submit(plane, PYTORCHJOB, namespace, {**job, "kind": "PyTorchJob", "spec": spec})
    looks = state_of(plane, namespace)
    async with operated(plane, NATIVE):
        await until_holds(lambda: len(running(plane, namespace)) == 2, "two workers run", looks)
        patch = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 4}}}}
        assert plane.ask("PATCH", path_of(PYTORCHJOB, namespace, "grows"), patch)[0] == 200
        await until_holds(
            lambda: (len(running(plane, namespace)), len(listed_pods(plane, namespace))) == (3, 4),
            "the third has room, the fourth waits",
            looks,
        )
        assert groups(plane, namespace)["grows-0"]["spec"]["schedulingPolicy"]["gang"]["minCount"] == 1
