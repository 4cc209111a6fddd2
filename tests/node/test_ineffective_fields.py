"""The node's notes about ineffective fields: of a user's own pod, not of a job's pods, which `run` has noted."""

from __future__ import annotations

import pytest

from tests.node.node_cluster import NodeCluster
from trainyard.objects.labels import OWNER

pytestmark = pytest.mark.slow

LINE = "node: containers.tty: no effect on one machine: a program has no terminal"


async def test_the_node_reports_ineffective_fields_of_a_users_pods_once(cluster: NodeCluster) -> None:
    for name in ("first", "second"):
        await cluster.pod(name, "print('done')", container={"tty": True})
        await cluster.phase(name, "Succeeded")
    assert [line for line in cluster.lines if "no effect" in line] == [LINE]


async def test_the_node_does_not_repeat_notes_about_a_job(cluster: NodeCluster) -> None:
    labels = {"metadata": {"labels": {OWNER: "a-job"}}}
    await cluster.pod("of-a-job", "print('done')", container={"tty": True}, **labels)
    await cluster.phase("of-a-job", "Succeeded")
    assert not [line for line in cluster.lines if "no effect" in line]
