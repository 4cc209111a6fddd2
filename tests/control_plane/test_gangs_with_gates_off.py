"""Gangs where a part of the cluster does not know them: what happens, and that `why` says it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.control_plane.gangs import groups, jax_job, listed_pods, running, state_of, submit, until_holds
from tests.control_plane.job_life import operated, path_of, succeeds
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import create_namespace, install
from tests.support.control_plane_flags import Options
from tests.support.gang_gates import GATES
from tests.views.why_values import everything
from trainyard.app.install.gang_schedulers import serves_native_gangs
from trainyard.kinds import JAXJOB
from trainyard.kinds.native_gang import NATIVE
from trainyard.objects import Json
from trainyard.views.diagnosis import Facts, why

pytestmark = pytest.mark.cluster
GROUP = "scheduling.k8s.io/v1beta1"
SERVER_ALONE = {"kube-apiserver": GATES["kube-apiserver"]}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """The scheduler and the controller manager lack the gate."""
    with ControlPlane(Options(more=SERVER_ALONE)) as plane:
        install(plane)
        plane.add_node("played")
        create_namespace(plane, "gates")
        yield plane


async def test_by_default_a_cluster_serves_no_gangs(control_plane: ControlPlane) -> None:
    async with control_plane.api() as api:
        assert not await serves_native_gangs(api)


async def test_a_scheduler_without_the_gate_places_pods_one_by_one(plane: ControlPlane) -> None:
    submit(plane, JAXJOB, "gates", jax_job("job", 2))
    looks = state_of(plane, "gates")

    def answer() -> str:
        job: Json = plane.ask("GET", path_of(JAXJOB, "gates", "job"))[1]
        pods, listed = tuple(listed_pods(plane, "gates")), groups(plane, "gates").values()
        children = tuple({"apiVersion": GROUP, "kind": "PodGroup", **group} for group in listed)
        return everything(why(Facts(JAXJOB, job, time.time(), pods, children=children)))

    async with operated(plane, NATIVE):
        await until_holds(lambda: len(running(plane, "gates")) == 2, "the pods run", looks)
        assert "status" not in groups(plane, "gates")["job-0"] or not groups(plane, "gates")["job-0"]["status"]
        assert "kube-scheduler does not serve gangs: it has placed the pods one by one" in answer()
        await succeeds(plane, JAXJOB, "gates", "job")
        await until_holds(
            lambda: "deletionTimestamp" in groups(plane, "gates")["job-0"]["metadata"], "the group is deleted", looks
        )
    assert groups(plane, "gates")["job-0"]["metadata"]["finalizers"], "nobody removes the finalizer"
