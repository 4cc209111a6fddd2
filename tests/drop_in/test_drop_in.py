"""Our operator answers the recorded scenarios as Kubeflow's operators did: beside the embedded server, without Go, and
beside a real control plane (`make test-drop-in`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.drop_in.compare import Difference
from tests.drop_in.differences import ACCEPTED, AUTOSCALERS, unaccepted, unhit
from tests.drop_in.operators import Trainyard, install_pod_groups
from tests.drop_in.record import OPTIONS, collect_garbage
from tests.drop_in.recordings import paths
from tests.drop_in.replay import EMBEDDED_BATCH, embedded, folder_of, recordings, replay, served_kinds
from tests.drop_in.scenario import SCHEDULER_PLUGINS, VOLCANO
from tests.support.control_plane import ControlPlane

GANGS = ("", VOLCANO, SCHEDULER_PLUGINS)
FOLDERS = sorted({folder_of(gvk) for gvk in served_kinds()} & {path.parent.name for path in paths()})
COMPATIBILITY = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"


def check(compared: Mapping[str, list[Difference]]) -> None:
    """No difference but the accepted ones."""
    lines = [
        line
        for scenario, scenario_differences in compared.items()
        for line in unaccepted(scenario, scenario_differences)
    ]
    assert not lines, f"{len(lines)} differences from the recorded operator:\n" + "\n".join(lines)


@pytest.mark.slow
async def test_the_embedded_cluster_answers_as_the_recorded_operators() -> None:
    compared: dict[str, list[Difference]] = {}
    for gang in GANGS:
        chosen = [recording for folder in FOLDERS for recording in recordings(folder, gang)]
        async with embedded(gang) as api:
            compared |= await replay(api, chosen, 0.6, EMBEDDED_BATCH)
    check(compared)
    assert not unhit(compared, [entry for entry in ACCEPTED if entry not in AUTOSCALERS])


@pytest.mark.drop_in
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS)
def test_a_real_cluster_answers_as_the_recorded_operator(folder: str) -> None:
    ours, compared = Trainyard(), dict[str, list[Difference]]()
    with ControlPlane(OPTIONS) as plane:
        plane.stop("kube-scheduler")
        install_pod_groups(plane)
        ours.install(plane)
        for gang in GANGS:
            if chosen := recordings(folder, gang):
                with ours.running(plane, gang):

                    async def run() -> dict[str, list[Difference]]:
                        async with plane.api() as api:
                            if not gang:  # noqa: B023  (it is awaited in the same turn)
                                await collect_garbage(api, ours.job_kinds, chosen[0].manifest)
                            return await replay(api, chosen, 1.2)

                    compared |= asyncio.run(run())
    check(compared)
    assert not unhit(compared, [entry for entry in AUTOSCALERS if entry.scenario.startswith(f"{folder}/")])


def test_each_accepted_difference_is_a_line_of_the_compatibility_page() -> None:
    text = COMPATIBILITY.read_text()
    assert [entry.reason for entry in ACCEPTED if f"\n| {entry.reason} |" not in text] == []
