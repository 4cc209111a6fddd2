from __future__ import annotations

import pytest

from tests.views.why_values import RUNNING, diagnose, tfjob, unplaced
from trainyard.objects import Json

GPU = "nvidia.com/gpu"


def pending(count: int) -> Json:
    pod = unplaced("MASTER-0", f"0/1 nodes are available: 1 Insufficient {GPU}. no new claims to deallocate.")
    pod["spec"]["containers"][0]["resources"] = {"limits": {GPU: str(count)}}
    return pod


def node(**allocatable: str) -> Json:
    return {"metadata": {"name": "here"}, "status": {"allocatable": allocatable}}


@pytest.mark.parametrize(
    ("count", "nodes", "summary", "fix"),
    [
        (4, (node(**{GPU: "2"}),), "it asks for 4 nvidia.com/gpu, and no node has more than 2", "at most 2"),
        (1, (node(**{GPU: "0"}),), "it asks for 1 nvidia.com/gpu, and no node has one that can be", "doctor"),
        (1, (node(),), "it asks for 1 nvidia.com/gpu, and no node has one that can be", "doctor"),
        (2, (node(), node(**{GPU: "2"})), "it waits for 2 nvidia.com/gpu: other pods have too many of the 2", "wait"),
        (2, None, "it waits for 2 nvidia.com/gpu: other pods have too many of them", "wait"),
    ],
)
def test_a_pod_that_asks_for_devices_which_are_not_free(
    count: int, nodes: tuple[Json, ...] | None, summary: str, fix: str
) -> None:
    first = diagnose(tfjob(RUNNING), pending(count), nodes=nodes)[0]
    assert summary in first.summary and fix in first.fix
