"""Our operator's answers to the recorded scenarios, beside the embedded server or a real control plane."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager

from tests.drop_in.compare import Difference, differences
from tests.drop_in.driver import AbsentPods, Driver
from tests.drop_in.recordings import FOLDER, Recording, load
from trainyard import kinds
from trainyard.app.config import shipped_files
from trainyard.client import ApiClient, NotFound
from trainyard.core import Config
from trainyard.kinds.kubeflow_v1.lifecycle import RESTART_SCOPE
from trainyard.objects import GVK, Json
from trainyard.objects.resources import CRD
from trainyard.operator import Operator
from trainyard.server import Server
from trainyard.workloads import ControllerManager

GROUP = "kubeflow.org"
WIDTH = 12  # scenarios at one time


def served_kinds() -> list[GVK]:
    """The kinds of Kubeflow that our operator serves."""
    return [kind.gvk for kind in kinds.ALL if kind.gvk.group == GROUP]


def folder_of(gvk: GVK) -> str:
    """Where the recordings of a kind are."""
    return gvk.kind.lower() + (f"-{gvk.version}" if gvk.version != "v1" else "")


def recordings(folder: str, gang: str = "") -> list[Recording]:
    found = [load(path) for path in sorted((FOLDER / folder).glob("*.json"))]
    return [recording for recording in found if recording.gang == gang]


@asynccontextmanager
async def embedded() -> AsyncIterator[ApiClient]:
    """The embedded server with its controllers and our operator, all in this process. No node: pods run nowhere."""
    async with AsyncExitStack() as stack:
        token = secrets.token_urlsafe(16)
        server = Server(token=token)
        await server.start()
        stack.push_async_callback(server.stop)

        api, manager_api, operator_api = (ApiClient(server.url, token) for _ in range(3))
        for client in (api, manager_api, operator_api):
            stack.push_async_callback(client.close)
        served = [kind for kind in kinds.ALL if kind.gvk.group == GROUP]
        for kind in served:
            await api.create(CRD, "", kinds.crd(kind))
        manager = ControllerManager(manager_api, time.time, "a certificate authority")
        await manager.start()
        stack.push_async_callback(manager.stop)
        operator = Operator(operator_api, served, Config(program_files=shipped_files()))
        await operator.start()
        stack.push_async_callback(operator.stop)
        yield api


def as_theirs(manifest: Json) -> Json:
    """The job with the annotation by which a failed replica restarts alone, as under the recorded operators."""
    metadata = manifest["metadata"]
    annotations = {**(metadata.get("annotations") or {}), RESTART_SCOPE: "replica"}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


async def replay(api: ApiClient, chosen: Sequence[Recording], settle: float) -> dict[str, list[Difference]]:
    """The differences of each scenario. A scenario in which our operator has not made a pod that a step names has the
    one difference that says so. What the server has no resource for is left out of the recorded answers."""
    gate = asyncio.Semaphore(WIDTH)
    async with Driver(api, served_kinds(), settle) as driver:

        async def compare(recording: Recording) -> list[Difference]:
            async with gate:
                try:
                    ours = await driver.run(as_theirs(recording.manifest), recording.acts, recording.objects)
                except (AbsentPods, NotFound) as error:
                    return [Difference(0, "steps", f"{len(recording.steps)} steps", f"{error}")]
            recorded = [_without(step, driver.absent) for step in recording.steps]
            return differences(recorded, ours, recording.unstable)

        found = await asyncio.gather(*map(compare, chosen))
    return {recording.scenario: each for recording, each in zip(chosen, found, strict=True)}


def _without(step: Json, sections: Set[str]) -> Json:
    if "snapshot" not in step:
        return step
    snapshot = {section: value for section, value in step["snapshot"].items() if section not in sections}
    return {**step, "snapshot": snapshot}
