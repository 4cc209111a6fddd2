"""The GPUs of `trainyard node` on a real control plane, over a stand-in for NVML: its scheduler binds pods to them,
unless a kubelet on the same machine serves them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.control_plane.joined_commands import Joined, joined
from tests.support.control_plane import ControlPlane
from tests.support.fake_nvml import FakeNvml, uuid
from tests.support.waiting import until_async
from tests.support.watched_objects import until_object
from trainyard.client import ApiClient
from trainyard.node.kubelet.registration import node_info
from trainyard.objects import Json, format_time
from trainyard.objects.resources import NODE

pytestmark = pytest.mark.cluster
GPU = "nvidia.com/gpu"
SECONDS = 60  # for the process that asks NVML


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    nvml = FakeNvml(tmp_path, 2)
    for name, value in nvml.environ.items():
        monkeypatch.setenv(name, value)
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    return nvml


def gpus(node: Json) -> list[str | None]:
    return [node["status"][field].get(GPU) for field in ("capacity", "allocatable")]


async def test_the_scheduler_binds_pods_to_gpus(control_plane: ControlPlane, namespace: str) -> None:
    async with joined(control_plane, namespace) as here:

        def describes(node: Json) -> bool:
            return gpus(node) == ["2", "2"] and "trainyard.dev/gpus" in node["metadata"]["annotations"]

        node = await until_object(here.api, NODE, "", here.name, describes, "its GPUs", seconds=SECONDS)
        assert node["metadata"]["labels"][f"{GPU}.product"] == "NVIDIA-H100-80GB-HBM3"
        container = {"resources": {"limits": {GPU: "2"}}}
        await here.pod("trains", 'echo "$CUDA_VISIBLE_DEVICES"', container=container)
        assert await here.result("trains") == f"{uuid(0)},{uuid(1)}\n"
        described = await here.kubectl("describe", "node", here.name)
        assert "  0 NVIDIA H100 80GB HBM3: 0 B of 80.0 GiB, 0 % busy\n" in described


@asynccontextmanager
async def kubelet_with_plugin(api: ApiClient, name: str) -> AsyncIterator[None]:
    """The Node of a kubelet on this machine whose device plugin serves two GPUs."""
    await api.create(NODE, "", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    try:
        stamp = format_time(time.time())
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": stamp}
        info = {**node_info(), "kubeletVersion": "v1.37.1"}
        status = {"capacity": {GPU: "2"}, "allocatable": {GPU: "2"}, "conditions": [ready], "nodeInfo": info}
        await api.patch(NODE, "", name, {"status": status}, "status")
        yield
    finally:
        await api.delete(NODE, "", name)


async def test_gpus_that_a_kubelet_of_this_machine_serves_are_left_alone(
    control_plane: ControlPlane, namespace: str
) -> None:
    beside = f"beside-{namespace}"
    async with (
        control_plane.api() as api,
        kubelet_with_plugin(api, beside),
        joined(control_plane, namespace) as here,
    ):

        async def messages_about_gpus(here: Joined = here) -> list[str]:
            return [line for line in here.messages if GPU in line]

        lines = await until_async(messages_about_gpus, "the line about the GPUs", accept=bool, seconds=SECONDS)
        assert f"devices: this node gives out no {GPU}, because node {beside} of this machine does" in lines[0]
        assert gpus(await api.get(NODE, "", here.name)) == [None, None]
