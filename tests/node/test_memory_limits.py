"""`resources.limits.memory` in both networks. An ordinary user runs them too (test_leftovers.py): where they may make
no cgroup, limits are enforced by other means."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node.node_cluster import NodeCluster, terminated
from tests.node.sessions import execute
from trainyard.node.supervisor import memory
from trainyard.node.supervisor.memory import mechanism as memory_limits
from trainyard.objects import Json
from trainyard.objects.usage import peaks_of

LIMIT = {"resources": {"limits": {"memory": "128Mi"}}}
GROWS = "print('grows', flush=True); data = [b'x' * (8 << 20) for _ in range({})]; print('has grown', flush=True)"


def out_of_memory(status: Json) -> bool:
    end = terminated(status)
    return end is not None and (end["reason"], end["exitCode"]) == ("OOMKilled", 137)


async def test_a_container_past_its_limit_is_killed_and_its_output_is_kept(cluster: NodeCluster) -> None:
    await cluster.pod("big", GROWS.format(64) + "; import time; time.sleep(600)", container=LIMIT)
    pod = await cluster.phase("big", "Failed")
    assert out_of_memory(pod["status"]), pod["status"]
    assert (await cluster.logs("big")).startswith("grows\n")
    peak = peaks_of(pod["metadata"]["annotations"])["main/1"]
    assert 100 << 20 < peak < 640 << 20  # where memory is polled, the program may have grown to its end: 512 MiB


async def test_a_container_below_its_limit_and_one_without_any_run_to_their_end(cluster: NodeCluster) -> None:
    await cluster.pod("small", GROWS.format(6), container=LIMIT)
    await cluster.pod("free", GROWS.format(32), container={"resources": {"requests": {"memory": "16Mi"}}})
    for name in ("small", "free"):
        assert await cluster.result(name) == "grows\nhas grown\n"


async def test_the_processes_of_a_container_count_together_and_end_together(
    cluster: NodeCluster, tmp_path: Path
) -> None:
    """Each of the three is below the limit. The first of them would otherwise outlive the others."""
    child = GROWS.format(8) + "; import time; time.sleep(600)"
    script = f"""
import subprocess, sys, time
children = [subprocess.Popen([sys.executable, '-c', {child!r}]) for _ in range(3)]
time.sleep(600)
"""
    await cluster.pod("family", script, container=LIMIT)
    pod = await cluster.phase("family", "Failed")
    assert out_of_memory(pod["status"]), pod["status"]


async def test_a_program_that_is_started_by_exec_counts(cluster: NodeCluster) -> None:
    await cluster.pod("calm", "import time; time.sleep(600)", container=LIMIT)
    await cluster.phase("calm", "Running")
    script = GROWS.format(64) + "; import time; time.sleep(600)"
    await execute(cluster, "calm", "python", "-c", script)
    pod = await cluster.phase("calm", "Failed")
    assert out_of_memory(pod["status"]), pod["status"]


async def test_a_restarted_container_has_its_limit_again(cluster: NodeCluster) -> None:
    await cluster.pod(
        "again", GROWS.format(64) + "; import time; time.sleep(600)", container=LIMIT, restartPolicy="Always"
    )

    def killed_twice(status: Json) -> bool:
        (container,) = status.get("containerStatuses") or [{}]
        last = (container.get("lastState") or {}).get("terminated") or {}
        return container.get("restartCount", 0) >= 1 and last.get("reason") == "OOMKilled"

    await cluster.until("again", killed_twice)


def cgroups(watcher: int) -> list[str]:
    """The cgroups that the supervisor of that watcher has made."""
    folders = [folder for version in (memory.V2, memory.V1) for folder in memory._own_cgroups(version)]
    return [name for folder in folders for name in os.listdir(folder) if name.startswith(f"trainyard-{watcher}-")]


needs_cgroups = pytest.mark.skipif(memory_limits() not in (memory.V1, memory.V2), reason="may make no cgroups here")


@needs_cgroups
async def test_no_cgroup_outlives_its_container_or_its_node(cluster: NodeCluster) -> None:
    assert cluster.node._context and (watcher := cluster.node._context.sandbox.supervisor)
    await cluster.pod("short", "", container=LIMIT)
    await cluster.phase("short", "Succeeded")
    await cluster.pod("long", "import time; time.sleep(600)", container=LIMIT)
    await cluster.phase("long", "Running")
    assert len(cgroups(watcher.pid)) <= 2
    await cluster.node.stop(kill=True)
    assert cgroups(watcher.pid) == []


@needs_cgroups
def test_cgroups_of_a_node_that_was_killed_are_removed_by_the_next_one() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    folders = [folder for version in (memory.V2, memory.V1) for folder in memory._own_cgroups(version)]
    parent = next(folder for folder in folders if os.access(folder, os.W_OK))
    Path(parent, f"trainyard-{ended.pid}-1").mkdir()
    memory.remove_stale_cgroups()
    assert cgroups(ended.pid) == []


def test_a_mechanism_is_named() -> None:
    assert re.fullmatch("cgroup v1|cgroup v2|sampling|none", memory_limits())


async def test_memory_samples_include_the_programs_below_an_init() -> None:
    """What an ordinary user gets where no cgroup can be made: this test plays the init."""
    argv = [sys.executable, "-c", "import time; " + GROWS.format(8) + "; time.sleep(600)"]
    child = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    try:
        assert child.stdout and [await child.stdout.readline() for _ in range(2)] == [b"grows\n", b"has grown\n"]
        assert memory.Limit(32 << 20, None).exceeded()
        assert not memory.Limit(64 << 30, None).exceeded()
    finally:
        child.kill()
        await child.wait()
