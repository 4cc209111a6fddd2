"""Logs that outlive their pod: `log_folder` is where they are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from tests.node.node_cluster import TOKEN, CurrentInterpreter, NodeCluster
from trainyard.client import ApiClient
from trainyard.node.kubelet.api.pod_logs import run_to_remove
from trainyard.node.kubelet.node import Node
from trainyard.objects import Json, name_of
from trainyard.objects.resources import POD
from trainyard.server import Server

pytestmark = pytest.mark.slow


@asynccontextmanager
async def keeping(state: Path, kept: Path, lines: list[str], log_size: int = 0) -> AsyncIterator[NodeCluster]:
    """A node that keeps logs in `kept`, but those of the pod "plain"."""

    def log_folder(pod: Json) -> Path | None:
        return None if name_of(pod) == "plain" else kept / name_of(pod)

    server = Server(token=TOKEN)
    await server.start()
    images = CurrentInterpreter(state)
    async with ApiClient(server.url, TOKEN) as api:
        options = {"network": "shared", "token": TOKEN, "print_message": lines.append, "log_size": log_size}
        node = Node(api, state, images, log_folder=log_folder, **options)  # type: ignore[arg-type]
        await node.start()
        try:
            yield NodeCluster(api, node, lines)
        finally:
            await node.stop(kill=True)
            await server.stop()


async def test_logs_are_written_to_the_configured_folder_and_served_from_it(state: Path, tmp_path: Path) -> None:
    async with keeping(state, tmp_path, []) as cluster:
        for name in ("kept", "plain"):
            await cluster.pod(name, "print('hello', end='')")
            assert await cluster.result(name) == "hello"
        uid = (await cluster.api.get(POD, "default", "plain"))["metadata"]["uid"]
        own = state / "pods" / f"default_plain_{uid}"
        assert (tmp_path / "kept" / "main" / "1.log").read_text() == "hello"
        assert (own / "logs" / "main" / "1.log").read_text() == "hello"
        for name in ("kept", "plain"):
            await cluster.api.delete(POD, "default", name)
            await cluster.gone(name)
        assert (tmp_path / "kept" / "main" / "1.log").read_text() == "hello"


async def test_the_log_of_a_program_that_runs_is_kept_small(state: Path, tmp_path: Path) -> None:
    script = "import time\nfor n in range(30_000): print(f'line {n:05d}')\ntime.sleep(600)"
    async with keeping(state, tmp_path, [], 1 << 16) as cluster:
        await cluster.pod("kept", script)
        await cluster.until("kept", lambda status: status.get("phase") == "Running")
        async with aclosing(cluster.api.logs("default", "kept", "main", follow=True)) as chunks:
            end = b""
            async for chunk in chunks:
                end = (end + chunk)[-20:]
                if end.endswith(b"line 29999\n"):
                    break
        assert (tmp_path / "kept" / "main" / "1.log").stat().st_blocks * 512 <= 2 << 16
        lines = (await cluster.logs("kept")).splitlines()
        assert lines[0] == "line 00000" and lines[-1] == "line 29999" and "were removed" in " ".join(lines)


async def test_a_log_folder_that_cannot_be_written_is_reported_and_the_pod_runs(state: Path, tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("a file, no folder")
    lines: list[str] = []
    async with keeping(state, tmp_path, lines) as cluster:
        await cluster.pod("broken", "print('hello')")
        assert await cluster.result("broken") == "hello\n"
        assert [line for line in lines if "from now on logs are stored with the pods" in line]
        assert (tmp_path / "broken").read_text() == "a file, no folder"


async def test_a_removed_log_is_not_reported_as_waiting(state: Path, tmp_path: Path) -> None:
    async with keeping(state, tmp_path, []) as cluster:
        await cluster.pod("kept", "print('hello')")
        assert await cluster.result("kept") == "hello\n"
        (tmp_path / "kept" / "main" / "1.log").unlink()
        (tmp_path / "kept" / "main").rmdir()
        (tmp_path / "kept").rmdir()
        with pytest.raises(Exception, match="was deleted"):
            await cluster.logs("kept")


@pytest.mark.parametrize(("kept", "logs"), [(3, [1, 2, 3, 10, 11, 12]), (0, [11, 12])])
def test_of_many_runs_the_logs_of_the_first_and_the_last_are_kept(kept: int, logs: list[int]) -> None:
    """Without a place of their own only those of the last two."""
    runs = range(1, 13)
    assert sorted({*runs} - {run_to_remove(run, kept) for run in runs}) == logs
