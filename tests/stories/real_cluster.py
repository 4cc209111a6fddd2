"""The real back end: etcd, kube-apiserver, kube-controller-manager and kube-scheduler, our node and our operator.

Rules:
- One control plane and one node for each network in a process of pytest; one namespace for each story. Stories follow
  each other, so the node that is not meant, and anybody else's, is cordoned while one is told.
- The nodes live in a loop of their own, in a thread of its own, like another program: a story's loop ends with it.
- `later` moves the clock of our operator and our nodes. The control plane goes by the real one.
- A story leaves no job behind: the next one's operator serves all namespaces. Its namespace goes while others are told.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.stories.controlled_pods import PATIENCE
from tests.stories.harness import Clock
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import create_namespace
from tests.support.control_plane_pki import ADMIN
from trainyard import kinds
from trainyard.app.config import shipped_config
from trainyard.app.kubeconfig import read_kubeconfig
from trainyard.app.local import LocalClusterOptions
from trainyard.app.node_agent import JoinedNode, JoinOptions
from trainyard.client import ApiClient
from trainyard.objects import Json, name_of
from trainyard.operator import Operator

START_SECONDS = 60.0
_numbers = itertools.count(1)


class Nodes:
    """The nodes of this process, made when a story first wants them. Use as a context."""

    def __init__(self, plane: ControlPlane, clock: Clock) -> None:
        self.plane, self.clock = plane, clock
        self.messages: list[str] = []
        self._folder = Path(tempfile.mkdtemp(prefix="nodes-"))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="nodes", daemon=True)
        self._joined: dict[str, JoinedNode] = {}
        self._cordoned: list[str] = []

    def __enter__(self) -> Nodes:
        for kind in kinds.ALL:
            self.plane.wait_for(f"/apis/{kind.gvk.api_version}/{kind.gvk.plural}")  # 429 just after its definition
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self._joined.values():
            self._run(node.stop(kill=True))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS)

    def choose(self, options: LocalClusterOptions) -> None:
        """From now on pods are placed on the node with this network and these images, and nowhere else."""
        name = f"{options.network}-{'shipped' if options.cache is None else 'stand-ins'}"
        if name not in self._joined:
            self._joined[name] = joined = JoinedNode(self._options(name, options))
            self._run(joined.start())
        for node in self._nodes():
            if not node["spec"].get("unschedulable") and name_of(node) not in self._joined:
                self._cordoned.append(name_of(node))
        for node in self._nodes():
            self._cordon(node, name_of(node) != name)

    def leave(self) -> None:
        """Nothing more is placed on any of ours, and anybody else's nodes are as they were."""
        for node in self._nodes():
            self._cordon(node, name_of(node) not in self._cordoned)
        self._cordoned = []

    def resync(self) -> None:
        for node in self._joined.values():
            self._loop.call_soon_threadsafe(node.resync)

    def _options(self, name: str, options: LocalClusterOptions) -> JoinOptions:
        return JoinOptions(
            access=read_kubeconfig([self.plane.kubeconfig]),
            name=name,
            network=options.network,
            images=options.images,
            cache=None if options.cache is None else self._folder / "cache",
            mounts=options.mounts,
            state=self._folder / name,
            say=self.messages.append,
            now=self.clock,
        )

    def _nodes(self) -> list[Json]:
        code, listed = self.plane.ask("GET", "/api/v1/nodes")
        assert code == 200, listed
        nodes: list[Json] = listed["items"]
        return nodes

    def _cordon(self, node: Json, closed: bool) -> None:
        if bool(node["spec"].get("unschedulable")) != closed:
            code, answer = self.plane.ask(
                "PATCH", f"/api/v1/nodes/{name_of(node)}", {"spec": {"unschedulable": closed or None}}
            )
            assert code == 200, answer


class RealCluster:
    """One story's view of the cluster. Start with `await start()`, end with `await stop()`."""

    patience = 3 * PATIENCE  # a batch Job's own back-off is ten seconds

    def __init__(self, nodes: Nodes, options: LocalClusterOptions) -> None:
        self._nodes, self._options, self._plane = nodes, options, nodes.plane
        self._operator: Operator | None = None
        self._namespaces: list[str] = []
        self._mark = 0
        self.home = f"harness-{next(_numbers)}"
        self.url, self.token = self._plane.url, self._plane.token()
        self.secure, self.in_process = self._plane.identities.secure(ADMIN), None
        self.api = ApiClient(self.url, self.token, self.secure, user_agent="story")

    async def start(self) -> None:
        self._nodes.clock.shift = 0.0
        await asyncio.to_thread(self._nodes.choose, self._options)
        await self._create(self.home)
        self._mark = await asyncio.to_thread(self._plane.audit.mark)
        await self.start_operator()

    async def stop(self) -> None:
        """No job and no pod is left when this returns; the rest of the namespaces goes when it may."""
        await self.stop_operator()
        for namespace in self._namespaces:
            await self._end_jobs(namespace)
            for path in (f"/api/v1/namespaces/{namespace}", f"/api/v1/namespaces/{namespace}/pods"):
                await self.api.request("DELETE", path, (("gracePeriodSeconds", "0"),))
        await asyncio.to_thread(self._nodes.leave)
        await self.api.close()

    async def _create(self, namespace: str) -> None:
        self._namespaces.append(namespace)
        await asyncio.to_thread(create_namespace, self._plane, namespace)

    async def _end_jobs(self, namespace: str) -> None:
        for kind in kinds.ALL:
            for job in (await self.api.list(kind.gvk, namespace))["items"]:
                if job["metadata"].get("finalizers"):
                    await self.api.patch(kind.gvk, namespace, name_of(job), {"metadata": {"finalizers": None}})
                else:
                    await self.api.delete(kind.gvk, namespace, name_of(job))

    async def another(self, namespace: str) -> str:
        name = f"{self.home}-{namespace}"
        await self._create(name)
        return name

    def requests(self) -> Counter[tuple[str, str]]:
        sent = self._plane.audit.since(self._mark)
        return Counter(
            (request.verb, request.resource)
            for request in sent
            if (request.user, request.namespace) == (ADMIN, self.home)
        )

    async def start_operator(self, api: ApiClient | None = None) -> Operator:
        await self.stop_operator()
        config = shipped_config()
        self._operator = Operator(api or self.api, kinds.ALL, config, now=self._nodes.clock)
        await self._operator.start()
        return self._operator

    async def stop_operator(self) -> None:
        operator, self._operator = self._operator, None
        if operator is not None:
            await operator.stop()

    def resync(self) -> None:
        self._nodes.resync()
        if self._operator is not None:
            self._operator.resync()

    def write_kubeconfig(self) -> Path:
        return self._plane.kubeconfig
