"""Gangs where a part of the cluster does not know them: what happens, and that `why` says it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from tests.control_plane.gangs import groups, jax_job, listed_pods, running, state_of, submit, until_holds
from tests.control_plane.job_life import operated, path_of, succeeds
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import create_namespace, install
from tests.support.control_plane_flags import Options
from tests.support.gang_gates import GATE, GATES, SERVED
from tests.views.why_values import everything
from trainyard.app.install.gang_schedulers import serves_native_gangs
from trainyard.core import gangs
from trainyard.kinds import JAXJOB
from trainyard.kinds.native_gang import NATIVE
from trainyard.objects import Json, find_condition
from trainyard.views.diagnosis import Facts, why

pytestmark = pytest.mark.cluster
GROUP = "scheduling.k8s.io/v1beta1"
SERVER_ALONE = {"kube-apiserver": GATES["kube-apiserver"]}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """The scheduler and the controller manager lack the gate."""
    with started(SERVER_ALONE) as plane:
        yield plane


def answer(plane: ControlPlane) -> str:
    """What `why` says of the job."""
    job: Json = plane.ask("GET", path_of(JAXJOB, "gates", "job"))[1]
    listed = groups(plane, "gates").values()
    children = tuple({"apiVersion": GROUP, "kind": "PodGroup", **group} for group in listed)
    return everything(why(Facts(JAXJOB, job, time.time(), tuple(listed_pods(plane, "gates")), children=children)))


def ignored(plane: ControlPlane) -> Json:
    """The condition of the job that says that its pods are scheduled one by one."""
    status: Json = plane.ask("GET", path_of(JAXJOB, "gates", "job"))[1].get("status") or {}
    return find_condition(status.get("conditions"), "GangIgnored") or {}


@contextmanager
def started(more: Mapping[str, Sequence[str]]) -> Iterator[ControlPlane]:
    with ControlPlane(Options(more=more)) as plane:
        install(plane)
        plane.add_node("played")
        create_namespace(plane, "gates")
        yield plane


async def test_by_default_a_cluster_serves_no_gangs(control_plane: ControlPlane) -> None:
    async with control_plane.api() as api:
        assert not await serves_native_gangs(api)


async def test_a_scheduler_without_the_gate_places_pods_one_by_one(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gangs, "SILENT_SECONDS", 1.0)
    submit(plane, JAXJOB, "gates", jax_job("job", 2))
    looks = state_of(plane, "gates")

    async with operated(plane, NATIVE):
        await until_holds(lambda: len(running(plane, "gates")) == 2, "the pods run", looks)
        assert "status" not in groups(plane, "gates")["job-0"] or not groups(plane, "gates")["job-0"]["status"]
        assert "kube-scheduler does not serve gangs: it has placed the pods one by one" in answer(plane)
        await until_holds(lambda: ignored(plane).get("reason") == "SchedulerWithoutGangs", "the job says so", looks)
        await succeeds(plane, JAXJOB, "gates", "job")
        await until_holds(
            lambda: "deletionTimestamp" in groups(plane, "gates")["job-0"]["metadata"], "the group is deleted", looks
        )
    assert groups(plane, "gates")["job-0"]["metadata"]["finalizers"], "nobody removes the finalizer"


@pytest.mark.parametrize("flag", [GATE, SERVED])
async def test_an_api_server_with_half_of_its_flags_serves_no_gangs_and_pods_run_one_by_one(flag: str) -> None:
    """`--feature-gates` without `--runtime-config`, and the reverse."""
    with started({"kube-apiserver": [flag]}) as plane:
        async with plane.api() as api:
            assert not await serves_native_gangs(api)
        submit(plane, JAXJOB, "gates", jax_job("job", 2))
        async with operated(plane):
            await until_holds(lambda: len(running(plane, "gates")) == 2, "the pods run", state_of(plane, "gates"))


async def test_a_scheduler_with_the_gate_alone_places_no_pod_at_all() -> None:
    """It waits for ever for the list of PodGroups, which the API server does not serve."""
    with started({"kube-scheduler": GATES["kube-scheduler"]}) as plane:
        async with plane.api() as api:
            assert not await serves_native_gangs(api)
        submit(plane, JAXJOB, "gates", jax_job("job", 2))
        async with operated(plane):
            looks = state_of(plane, "gates")
            await until_holds(lambda: len(listed_pods(plane, "gates")) == 2, "the pods exist", looks)
            log = (plane.folder / "logs" / "kube-scheduler.log").read_text
            await until_holds(lambda: "v1beta1.PodGroup" in log(), "the scheduler misses the API", log)
            assert not running(plane, "gates")


async def test_a_controller_manager_without_the_gate_keeps_the_groups_that_are_deleted() -> None:
    without = {name: flags for name, flags in GATES.items() if name != "kube-controller-manager"}
    with started(without) as plane:
        submit(plane, JAXJOB, "gates", jax_job("job", 2))
        looks = state_of(plane, "gates")
        async with operated(plane, NATIVE):
            await until_holds(lambda: len(running(plane, "gates")) == 2, "the gang runs", looks)
            await until_holds(
                lambda: groups(plane, "gates")["job-0"].get("status", {}).get("conditions"), "it was placed", looks
            )
            path = path_of(JAXJOB, "gates", "job")
            plane.ask("PATCH", path, {"spec": {"runPolicy": {"suspend": True}}})
            await until_holds(lambda: not listed_pods(plane, "gates"), "the job is suspended", looks)
            plane.ask("PATCH", path, {"spec": {"runPolicy": {"suspend": False}}})
            await until_holds(lambda: len(running(plane, "gates")) == 2, "the gang runs again", looks)
            left = groups(plane, "gates")
            assert left.keys() == {"job-0", "job-1"} and left["job-0"]["metadata"]["finalizers"]
