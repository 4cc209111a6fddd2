"""A gang in one rack, by the real kube-scheduler: the annotation `trainyard.dev/topology-key` of a job.

Two racks: `west` of two nodes, `east` of one, each node with 1,000 CPUs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.control_plane.gangs import jax_job, running, state_of, submit, until_holds
from tests.control_plane.job_life import operated, path_of
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import create_namespace, install
from tests.support.control_plane_flags import Options
from tests.support.gang_gates import TOPOLOGY_GATES
from trainyard.kinds import JAXJOB
from trainyard.kinds.native_gang import NATIVE
from trainyard.objects import find_condition

pytestmark = pytest.mark.cluster
RACKS = {"west-1": "west", "west-2": "west", "east-1": "east"}


@pytest.fixture(scope="module")
def racks() -> Iterator[ControlPlane]:
    with ControlPlane(Options(more=TOPOLOGY_GATES)) as plane:
        install(plane)
        for name, rack in RACKS.items():
            plane.add_node(name, rack=rack)
        create_namespace(plane, "racks")
        yield plane


async def test_a_gang_is_placed_in_one_rack_or_says_that_none_has_room(racks: ControlPlane) -> None:
    looks = state_of(racks, "racks")
    for name, workers in (("fits", 4), ("large", 5)):
        job = jax_job(name, workers, cpu="450")
        job["metadata"]["annotations"] = {"trainyard.dev/topology-key": "rack"}
        submit(racks, JAXJOB, "racks", job)
        if name == "fits":
            async with operated(racks, NATIVE):
                await until_holds(lambda: len(running(racks, "racks", "fits")) == 4, "the gang runs", looks)
            nodes = {pod["spec"]["nodeName"] for pod in running(racks, "racks")}
            assert {RACKS[node] for node in nodes} == {"west"}
            for pod in running(racks, "racks"):
                racks.ask("DELETE", f"/api/v1/namespaces/racks/pods/{pod['metadata']['name']}")
            racks.ask("DELETE", path_of(JAXJOB, "racks", "fits"))

    def blocked() -> str:
        status = racks.ask("GET", path_of(JAXJOB, "racks", "large"))[1].get("status") or {}
        return str((find_condition(status.get("conditions"), "Blocked") or {}).get("message"))

    async with operated(racks, NATIVE):
        await until_holds(lambda: "placements are available" in blocked(), "no rack has room", looks)
    assert "minCount (5) cannot be satisfied" in blocked() and not running(racks, "racks", "large")
