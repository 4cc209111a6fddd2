"""Our operator's answers to the recorded scenarios, beside the embedded server or a real control plane."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import msgspec

from tests.drop_in.compare import Difference, differences
from tests.drop_in.compressed_time import compressed_time
from tests.drop_in.driver import Driver
from tests.drop_in.operators import GROUP, KUBECTL_DELIVERY_IMAGE, POD_GROUPS, documents, gvks_of, our_definitions
from tests.drop_in.record import batches
from tests.drop_in.recordings import FOLDER, Recording, load
from tests.drop_in.scenario import Scenario
from trainyard import kinds
from trainyard.app.config import shipped_config
from trainyard.client import ApiClient
from trainyard.kinds.kubeflow_v1.lifecycle import RESTART_SCOPE
from trainyard.objects import GVK, Json
from trainyard.objects.resources import CRD
from trainyard.operator import Operator
from trainyard.server import Server
from trainyard.workloads import ControllerManager

BATCH = 60  # scenarios at one time
EMBEDDED_BATCH = 200  # beside the embedded server: they wait more than they work


def served_kinds() -> list[GVK]:
    """The kinds of Kubeflow that our operator serves, in each version."""
    return [gvk for definition in our_definitions() for gvk in gvks_of(definition)]


def folder_of(gvk: GVK) -> str:
    """Where the recordings of a kind are."""
    return gvk.kind.lower() + (f"-{gvk.version}" if gvk.version != "v1" else "")


def recordings(folder: str, gang: str = "") -> list[Recording]:
    stored = [load(path) for path in sorted((FOLDER / folder).glob("*.json"))]
    return [recording for recording in stored if recording.gang == gang]


@asynccontextmanager
async def embedded(gang: str = "") -> AsyncIterator[ApiClient]:
    """The embedded server with its controllers and our operator, all in this process, with the definitions of both gang
    schedulers, as recorded. `gang`: the one that the operator uses. No node: pods run nowhere."""
    async with AsyncExitStack() as stack:
        stack.enter_context(compressed_time())
        token = secrets.token_urlsafe(16)
        checks = {(kind.gvk.group, kind.gvk.kind): kinds.rules_check(kind) for kind in kinds.ALL}
        server = Server(checks, token)
        await server.start()
        stack.push_async_callback(server.stop)

        api, manager_api, operator_api = (ApiClient(server.url, token) for _ in range(3))
        for client in (api, manager_api, operator_api):
            stack.push_async_callback(client.close)
        for definition in (*our_definitions(), *documents(POD_GROUPS)):
            await api.create(CRD, "", definition)
        manager = ControllerManager(manager_api, time.time, "a certificate authority")
        await manager.start()
        stack.push_async_callback(manager.stop)
        served = [kind for kind in kinds.ALL if kind.gvk.group == GROUP]
        options = {"gang_scheduler": gang, "kubectl_delivery_image": KUBECTL_DELIVERY_IMAGE}
        config = msgspec.structs.replace(shipped_config(), **options)
        operator = Operator(operator_api, served, config)
        await operator.start()
        stack.push_async_callback(operator.stop)
        yield api


def as_theirs(scenario: Scenario) -> Scenario:
    """With the annotation by which a failed replica restarts alone, as under the recorded operators."""
    metadata = scenario.manifest["metadata"]
    annotations = {**(metadata.get("annotations") or {}), RESTART_SCOPE: "replica"}
    return replace(scenario, manifest={**scenario.manifest, "metadata": {**metadata, "annotations": annotations}})


async def replay(
    api: ApiClient, chosen: Sequence[Recording], settle: float, batch_size: int = BATCH
) -> dict[str, list[Difference]]:
    """The differences of each scenario. What the server has no resource for is left out of the recorded answers."""
    async with Driver(api, served_kinds(), settle) as driver:
        compared: dict[str, list[Difference]] = {}
        by_path = {recording.scenario: recording for recording in chosen}
        for batch in batches([as_theirs(recording.as_scenario()) for recording in chosen], batch_size):
            for scenario, ours in zip(batch, await driver.run(batch), strict=True):
                recording = by_path[scenario.path]
                recorded = [_without(step, driver.absent) for step in recording.steps]
                compared[scenario.path] = differences(recorded, ours, recording.unstable)
    return compared


def _without(step: Json, sections: Set[str]) -> Json:
    if "snapshot" not in step:
        return step
    snapshot = {section: value for section, value in step["snapshot"].items() if section not in sections}
    return {**step, "snapshot": snapshot}
