"""Gangs of the real kube-scheduler: groups that it holds, places, restarts and gives up, as each kind makes them.

The node has 1,000 CPUs: a worker that asks for 300 leaves room for two more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from tests.control_plane.job_life import end, operated, path_of, succeeds
from tests.control_plane.test_definitions_on_a_real_server import wire
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import create_namespace, install
from tests.support.samples import kubeflow_job, pods, sample
from tests.support.waiting import SLOW_PAUSE, until_async
from trainyard import kinds
from trainyard.core import Kind
from trainyard.kinds import JAXJOB
from trainyard.kinds.native_gang import NATIVE
from trainyard.objects import Json, find_condition, is_condition_true, name_of
from trainyard.objects.resources import NATIVE_POD_GROUP

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


def _submit(plane: ControlPlane, kind: Kind, namespace: str, job: Json) -> None:
    code, answer = plane.ask("POST", path_of(kind, namespace), job)
    assert code == 201, answer


def _jax_job(name: str, workers: int, cpu: str = "300", **policy: object) -> Json:
    template = pods("jax")
    template["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    worker = {"replicas": workers, "restartPolicy": "ExitCode", "template": template}
    return wire(JAXJOB, kubeflow_job("JAXJob", name=name, run_policy=dict(policy), Worker=worker))


def _groups(plane: ControlPlane, namespace: str) -> dict[str, Json]:
    path = f"/apis/{NATIVE_POD_GROUP.api_version}/namespaces/{namespace}/podgroups"
    return {name_of(group): group for group in plane.ask("GET", path)[1]["items"]}


def _pods(plane: ControlPlane, namespace: str, job: str = "") -> list[Json]:
    items: list[Json] = plane.ask("GET", f"/api/v1/namespaces/{namespace}/pods")[1]["items"]
    return [pod for pod in items if name_of(pod).startswith(job)]


def _running(plane: ControlPlane, namespace: str, job: str = "") -> list[Json]:
    return [
        pod
        for pod in _pods(plane, namespace, job)
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]


async def _until(condition: Callable[[], object], description: str, context: Callable[[], object]) -> None:
    await until_async(lambda: asyncio.to_thread(condition), description, context=context, pause=SLOW_PAUSE, seconds=90)


def _state(plane: ControlPlane, namespace: str) -> Callable[[], object]:
    def look() -> object:
        listed = {name_of(pod): pod["status"] for pod in _pods(plane, namespace)}
        return listed, {name: group.get("status") for name, group in _groups(plane, namespace).items()}

    return look


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: f"{kind.gvk.kind}.{kind.gvk.group}")
async def test_a_job_runs_as_one_gang_and_leaves_no_group(plane: ControlPlane, namespace: str, kind: Kind) -> None:
    job = wire(kind, sample(kind.gvk.kind))
    _submit(plane, kind, namespace, job)
    looks = _state(plane, namespace)
    async with operated(plane, NATIVE):
        group = f"{name_of(job)}-0"
        await _until(
            lambda: is_condition_true(
                (_groups(plane, namespace).get(group) or {}).get("status", {}).get("conditions"),
                "PodGroupInitiallyScheduled",
            ),
            "kube-scheduler has placed the gang",
            looks,
        )
        assert {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in _pods(plane, namespace)} == {group}
        await succeeds(plane, kind, namespace, name_of(job))
        for pod in _running(plane, namespace):  # such as parameter servers, which cleanPodPolicy leaves
            await asyncio.to_thread(plane.ask, "DELETE", f"/api/v1/namespaces/{namespace}/pods/{name_of(pod)}")
        await _until(lambda: not _groups(plane, namespace), "the group is gone", looks)


async def test_of_two_gangs_one_runs_whole_and_the_other_says_why_it_waits(plane: ControlPlane, namespace: str) -> None:
    for name in ("east", "west"):
        _submit(plane, JAXJOB, namespace, _jax_job(name, 2))
    looks = _state(plane, namespace)

    def blocked(name: str) -> Json:
        status = plane.ask("GET", path_of(JAXJOB, namespace, name))[1].get("status") or {}
        return find_condition(status.get("conditions"), "Blocked") or {}

    async with operated(plane, NATIVE):
        await _until(lambda: len(_running(plane, namespace)) == 2, "one gang runs", looks)
        first, second = ("east", "west") if len(_running(plane, namespace, "east")) == 2 else ("west", "east")
        assert len(_running(plane, namespace, first)) == 2
        await _until(lambda: blocked(second).get("reason") == "GangUnschedulable", "the other says why", looks)
        assert f"PodGroup {second}-0 waits: minCount (2) cannot be satisfied" in blocked(second)["message"]
        assert not _running(plane, namespace, second)
        for pod in _running(plane, namespace, first):
            end(plane, f"/api/v1/namespaces/{namespace}/pods/{name_of(pod)}", pod)
        await _until(lambda: len(_running(plane, namespace, second)) == 2, "the other runs", looks)
        await _until(lambda: blocked(second).get("status") == "False", "and is not blocked any more", looks)


async def test_a_gang_that_restarts_is_a_new_group_while_its_old_pods_end(plane: ControlPlane, namespace: str) -> None:
    _submit(plane, JAXJOB, namespace, _jax_job("again", 3))
    looks = _state(plane, namespace)
    async with operated(plane, NATIVE):
        path = path_of(JAXJOB, namespace, "again")
        # From then on a lost member restarts the others; before, it is created again alone.
        await _until(
            lambda: (plane.ask("GET", path)[1].get("status") or {}).get("gang"), "all have run together", looks
        )
        await asyncio.to_thread(plane.ask, "DELETE", f"/api/v1/namespaces/{namespace}/pods/again-worker-1")
        await _until(
            lambda: (
                {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in _running(plane, namespace)} == {"again-1"}
                and len(_running(plane, namespace)) == 3
            ),
            "the whole gang runs again as another group",
            looks,
        )
        await _until(lambda: list(_groups(plane, namespace)) == ["again-1"], "the old group is gone", looks)


async def test_a_member_that_ended_is_not_waited_for(plane: ControlPlane, namespace: str) -> None:
    """The scheduler counts no pod that has ended: with minCount 3 it would hold the replacement without a word."""
    job = _jax_job("ends", 3)
    job["metadata"]["annotations"] = {"trainyard.dev/restart-scope": "replica"}
    _submit(plane, JAXJOB, namespace, job)
    looks = _state(plane, namespace)
    where = f"/api/v1/namespaces/{namespace}/pods"
    async with operated(plane, NATIVE):
        await _until(lambda: len(_running(plane, namespace)) == 3, "the gang runs", looks)
        end(plane, f"{where}/ends-worker-2", plane.ask("GET", f"{where}/ends-worker-2")[1])
        await _until(
            lambda: _groups(plane, namespace)["ends-0"]["spec"]["schedulingPolicy"]["gang"]["minCount"] == 2,
            "the group has two members",
            looks,
        )
        old = plane.ask("GET", f"{where}/ends-worker-1")[1]["metadata"]["uid"]
        await asyncio.to_thread(plane.ask, "DELETE", f"{where}/ends-worker-1")
        await _until(
            lambda: any(
                pod["metadata"]["uid"] != old for pod in _running(plane, namespace) if name_of(pod) == "ends-worker-1"
            ),
            "the replacement runs",
            looks,
        )


async def test_a_suspended_gang_leaves_its_group_and_runs_again_as_another(plane: ControlPlane, namespace: str) -> None:
    _submit(plane, JAXJOB, namespace, _jax_job("pause", 2))
    looks = _state(plane, namespace)
    path = path_of(JAXJOB, namespace, "pause")
    async with operated(plane, NATIVE):
        await _until(lambda: len(_running(plane, namespace)) == 2, "the gang runs", looks)
        plane.ask("PATCH", path, {"spec": {"runPolicy": {"suspend": True}}})
        await _until(lambda: not _groups(plane, namespace) and not _pods(plane, namespace), "all is gone", looks)
        plane.ask("PATCH", path, {"spec": {"runPolicy": {"suspend": False}}})
        await _until(lambda: len(_running(plane, namespace)) == 2, "the gang runs again", looks)
        assert list(_groups(plane, namespace)) == ["pause-1"]
