"""Our operator answers the recorded scenarios as Kubeflow's operators did: beside the embedded server, without Go, and
beside a real control plane (`make test-drop-in`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.drop_in.compare import Difference
from tests.drop_in.differences import ACCEPTED, unaccepted
from tests.drop_in.operators import Trainyard, install_pod_groups
from tests.drop_in.record import OPTIONS, collect_garbage
from tests.drop_in.replay import embedded, folder_of, recordings, replay, served_kinds
from tests.drop_in.scenario import SCHEDULER_PLUGINS, VOLCANO
from tests.support.control_plane import ControlPlane

FOLDERS = sorted({folder_of(gvk) for gvk in served_kinds()})
COMPATIBILITY = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"


def check(folder: str, found: Mapping[str, list[Difference]]) -> None:
    """No difference but the accepted ones, and each of those."""
    lines = [line for scenario, each in found.items() for line in unaccepted(scenario, each)]
    assert not lines, f"{len(lines)} differences from the recorded operator:\n" + "\n".join(lines)
    unhit = [
        entry
        for entry in ACCEPTED
        if entry.is_checked_by(folder)
        and not any(entry.matches(scenario, difference) for scenario, listed in found.items() for difference in listed)
    ]
    assert not unhit, f"accepted differences that are not there: {unhit}"


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
async def test_the_embedded_cluster_answers_as_the_recorded_operator(folder: str) -> None:
    async with embedded() as api:
        check(folder, await replay(api, recordings(folder), 0.6))


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_real_cluster_answers_as_the_recorded_operator(folder: str) -> None:
    ours, found = Trainyard(), dict[str, list[Difference]]()
    with ControlPlane(OPTIONS) as plane:
        plane.stop("kube-scheduler")
        install_pod_groups(plane)
        ours.install(plane)
        for gang in ("", VOLCANO, SCHEDULER_PLUGINS):
            if chosen := recordings(folder, gang):
                with ours.running(plane, gang):

                    async def run() -> dict[str, list[Difference]]:
                        async with plane.api() as api:
                            if not gang:  # noqa: B023  (it is awaited in the same turn)
                                await collect_garbage(api, ours.job_kinds, chosen[0].manifest)
                            return await replay(api, chosen, 1.2)

                    found |= asyncio.run(run())
    check(folder, found)


def test_each_accepted_difference_is_a_line_of_the_compatibility_page() -> None:
    lines = COMPATIBILITY.read_text()
    assert [entry.reason for entry in ACCEPTED if entry.reason not in lines] == []
