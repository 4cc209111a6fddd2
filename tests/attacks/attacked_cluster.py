"""A cluster with history and page in a process of its own, which is attacked, and the time in which it answers nobody.

python -m tests.attacks.attacked_cluster --serve FOLDER
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path

import aiohttp

from bench.served_cluster import served_cluster
from tests.page.browsing import Browser
from trainyard import kinds
from trainyard.app.history.record_index import HistoryOptions
from trainyard.app.history.records import history_folder
from trainyard.app.kubeconfig import read_kubeconfig
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.client import ApiClient
from trainyard.node.network import shared
from trainyard.objects import Json
from trainyard.objects.resources import NAMESPACE, NODE
from trainyard.page.listener import PageServer
from trainyard.page.options import PageOptions

TFJOB = kinds.TFJOB.gvk
STANDSTILL = 0.25  # seconds of CPU that the loop's thread may use between a question to the API and its answer
ANSWER_SECONDS = 60.0  # after which the loop waits for something: of the clock, whatever the machine does else
PORTS = range(17_000, 18_000)  # of its network: an attack holds all of them, and no other test is to lack any
PAUSE = 0.02  # seconds between two questions
STRANGER = Path(__file__).with_name("stranger.py")
MODULE = "tests.attacks.attacked_cluster"


async def serve(folder: Path) -> None:
    """A cluster and its page server; prints how to reach them, and ends with its standard input."""
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    shared._PORT_RANGE = PORTS
    history = HistoryOptions(history_folder(), "attacked")
    options = LocalClusterOptions(
        network="shared", cache=folder / "cache", parent=folder, say=lambda text: None, history=history
    )
    async with LocalCluster(options) as cluster:
        page_server = PageServer(cluster.api, PageOptions("attacked", history=history_folder()))
        await page_server.start()
        facts = {
            "kubeconfig": str(cluster.write_kubeconfig()),
            "page": page_server.url,
            "key": page_server.sessions.key,
            "token": cluster.token,
            "kubelet_token": cluster.server.kubelet_token,
            "api": cluster.server.tls_url,
            "history": str(history_folder()),
        }
        print(json.dumps(facts), flush=True)
        await asyncio.to_thread(sys.stdin.read)
        await page_server.stop()


class AttackedCluster:
    """What its owner knows of it. `process`: the id of the process, whose main thread has the event loop."""

    def __init__(self, facts: Json, process: int, api: ApiClient, browser: Browser, log: Path) -> None:
        self.facts, self.process, self.api, self.browser, self.log = facts, process, api, browser, log
        self.longest_standstill = 0.0

    @property
    def secrets(self) -> list[str]:
        """What nobody else may see."""
        return [*(str(self.facts[name]) for name in ("key", "token", "kubelet_token")), self.browser.session]

    async def node_port(self) -> int:
        """The port of the node's own server."""
        [node] = (await self.api.list(NODE))["items"]
        return int(node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"])

    def loop_cpu(self) -> float:
        """The seconds of CPU of the thread of the event loop."""
        return int(Path(f"/proc/{self.process}/schedstat").read_text().split()[0]) / 1e9

    async def measure(self) -> None:
        """Ask the API again and again, and keep the longest time without an answer, in CPU of the loop's thread.
        Raises TimeoutError when it does not answer at all."""
        while True:
            begin = self.loop_cpu()
            async with asyncio.timeout(ANSWER_SECONDS):
                await self.api.get(NAMESPACE, "", "default")
            self.longest_standstill = max(self.longest_standstill, self.loop_cpu() - begin)
            await asyncio.sleep(PAUSE)

    @contextlib.asynccontextmanager
    async def measured(self) -> AsyncIterator[None]:
        """Fails if the API answered nobody for too long meanwhile, or if the process has written a traceback."""
        written, self.longest_standstill = self.log.stat().st_size, 0.0
        async with asyncio.TaskGroup() as tasks:
            measuring = tasks.create_task(self.measure())
            yield
            await asyncio.sleep(2 * PAUSE)
            measuring.cancel()
        log = self.log.read_bytes()[written:].decode(errors="replace")
        assert "Traceback" not in log and log.count("\n") < 20, log[:4000]
        assert self.longest_standstill < STANDSTILL, f"no answer for {self.longest_standstill:.3f} s of CPU"

    async def page(self, path: str) -> tuple[int, bytes]:
        """What the page server answers to the page of its owner. It must come to an end."""
        async with asyncio.timeout(ANSWER_SECONDS):
            url = f"{self.browser.url}v1/{path}"
            async with self.browser.http.get(url, headers=self.browser.headers) as response:
                return response.status, await response.read()


@contextlib.asynccontextmanager
async def attacked_cluster() -> AsyncIterator[AttackedCluster]:
    """A cluster of that kind, with a page that may read."""
    with tempfile.NamedTemporaryFile() as log, served_cluster(MODULE, log.file) as (facts, server):
        async with read_kubeconfig([Path(facts["kubeconfig"])]).api() as api, aiohttp.ClientSession() as http:
            browser = Browser(facts["page"], http)
            headers = {"Authorization": f"Bearer {facts['key']}"}
            async with http.post(f"{facts['page']}v1/invitations", headers=headers) as response:
                assert await browser.log_in((await response.json())["link"]) == 200
            yield AttackedCluster(facts, server.pid, api, browser, Path(log.name))


@cache
def stranger_command() -> tuple[list[str], Json]:
    """How a Python that sees nothing of ours is started, and the options of Popen by which it is another user: if we
    are root, and that user can run the interpreter."""
    command = [os.path.realpath(sys.executable), "-I", "-c"]
    user: Json = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}
    tried = subprocess.run([*command, ""], cwd="/", check=False, stderr=subprocess.DEVNULL, **user)
    return command, user if tried.returncode == 0 else {}


async def attack_port(parameters: Json) -> Json:
    """What stranger.py prints with these parameters."""
    command, user = stranger_command()
    source = STRANGER.read_text()
    process = await asyncio.create_subprocess_exec(
        *command, source, json.dumps(parameters), cwd="/", stdout=subprocess.PIPE, **user
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    answer: Json = json.loads(output)
    assert not user or answer["uid"] == user["user"]
    return answer


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", type=Path, required=True)
    asyncio.run(serve(parser.parse_args().serve))
