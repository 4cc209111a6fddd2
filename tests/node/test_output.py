"""What a program prints is its log, however it opens its streams and however it ends; in both networks."""

from __future__ import annotations

import pytest

from tests.node.node_cluster import NodeCluster

pytestmark = pytest.mark.slow


async def test_a_program_that_opens_dev_stdout_loses_no_output(cluster: NodeCluster) -> None:
    script = "echo one; echo two > /dev/stderr; echo three | tee /dev/stderr; echo four > /proc/self/fd/1"
    await cluster.pod("names", container={"command": ["sh", "-c", script]})
    assert await cluster.result("names") == "one\ntwo\nthree\nthree\nfour\n"


async def test_a_long_output_arrives_completely_and_in_order(cluster: NodeCluster) -> None:
    await cluster.pod("long", "for n in range(300_000): print(n)")
    assert await cluster.result("long") == "".join(f"{n}\n" for n in range(300_000))


async def test_the_last_output_of_a_killed_program_is_kept(cluster: NodeCluster) -> None:
    script = "import os, signal; os.write(2, b'x' * 60_000); os.kill(os.getpid(), signal.SIGKILL)"
    await cluster.pod("last", script)
    assert await cluster.result("last", "Failed") == "x" * 60_000


async def test_a_program_that_closes_its_streams_runs_on(cluster: NodeCluster) -> None:
    script = "import os; print('one', flush=True); os.close(1); os.close(2); raise SystemExit(3)"
    await cluster.pod("closed", script)
    assert await cluster.result("closed", "Failed") == "one\n"


ENDS = {
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "SIGSEGV": "os.kill(os.getpid(), signal.SIGSEGV)",
    "_exit": "os._exit(9)",
}


@pytest.mark.parametrize("end", ENDS)
async def test_python_output_is_unbuffered(cluster: NodeCluster, end: str) -> None:
    """Nothing in the script flushes; the last line has no newline."""
    await cluster.pod("printing", f"import os, signal; print('one'); print('two', end=''); {ENDS[end]}")
    assert await cluster.result("printing", "Failed") == "one\ntwo"


@pytest.mark.parametrize("value", ["", "0"])
async def test_the_pod_decides_about_buffering(cluster: NodeCluster, value: str) -> None:
    """As Python reads the variable: empty or 0 means buffered."""
    env = [{"name": "PYTHONUNBUFFERED", "value": value}]
    command = ["python", "-c", "import os; print('one'); os._exit(9)"]
    await cluster.pod("printing", container={"command": command, "env": env})
    assert await cluster.result("printing", "Failed") == ""


async def test_torchrun_of_debian_starts_whatever_the_image(cluster: NodeCluster) -> None:
    """torchrun 1.13 stops on Python 3.11 when these two are not set. They redirect nothing, and the pod's own win."""
    script = "import os; print(os.environ['PET_REDIRECTS'], os.environ['PET_TEE'])"
    await cluster.pod("default", script)
    assert await cluster.result("default") == "9:0 9:0\n"
    await cluster.pod("own", script, container={"env": [{"name": "PET_TEE", "value": "3"}]})
    assert await cluster.result("own") == "9:0 3\n"
