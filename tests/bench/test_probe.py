"""The measurements of our own operators, small, on a real control plane."""

from __future__ import annotations

import argparse

import pytest

from bench.measurements import Probe
from bench.peers import OURS, ROWS, Contender, contenders, measure, table
from tests.support.control_plane import ControlPlane

pytestmark = [pytest.mark.cluster]
OPTIONS = argparse.Namespace(replicas=9, jobs=3)


@pytest.mark.parametrize(
    "contender",
    [contender for contender in contenders() if contender.subject.name == OURS],
    ids=lambda contender: contender.subject.gvk.kind,
)
async def test_every_row_of_ours_is_measured(contender: Contender) -> None:
    with ControlPlane() as plane:
        operator = contender.operator()
        operator.install(plane)
        with operator.running(plane) as process:
            async with Probe(plane, contender.subject, process) as probe:
                samples = await measure(probe, contender.rows & frozenset(ROWS), OPTIONS)
    curve = "tfjob" if "tfjob" in contender.rows else "replicas"
    assert 0 < samples[f"{curve}.9.first"][0] <= samples[f"{curve}.9.replicas"][0] <= samples[f"{curve}.9.seconds"][0]
    assert 0 < samples[f"{curve}.9.ceiling.replicas"][0] <= samples[f"{curve}.9.ceiling.seconds"][0]
    assert samples[f"{curve}.9.requests"][0] >= 9 + 1
    assert {name.split(".")[1] for name in samples if name.startswith(curve)} == {"1", "3", "9"}
    if curve == "replicas":
        assert len(samples["idle.pod"]) == len(samples["idle.bare"]) == len(samples["idle.by hand"]) == 30
        assert samples["jobs.3.requests"][0] >= 3 * (2 * 4 + 1)
        assert samples["jobs.3.reads"] == [0]
        assert samples["jobs.3.floor"][0] > 0
        assert samples["jobs.3.CPU.least"][0] > 0
    assert all(row.ours for row in table({OURS: samples}, 9, 3))
