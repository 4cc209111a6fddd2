"""A Node object that others have made, with a resource that a device plugin serves: the node leaves it alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainyard.client import AlreadyExists
from trainyard.node.devices import drivers
from trainyard.node.devices.device import Device, Inventory
from trainyard.node.devices.manager import DeviceManager
from trainyard.node.kubelet.api_client import NodeApiClient
from trainyard.node.kubelet.registration import CREATED_ANNOTATION
from trainyard.objects import Json

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
DEVICES = (Device(GPU, "GPU-0", 0), Device(MIG, "MIG-0", 1))


class Api:
    """An API server with one Node; it keeps what is written to its status."""

    def __init__(self, node: Json) -> None:
        self.node = node

    async def create(self, *_: Any) -> Json:
        raise AlreadyExists(409, "AlreadyExists", "it exists")

    async def get(self, *_: Any) -> Json:
        return self.node

    async def patch(self, gvk: object, namespace: str, name: str, body: Json, subresource: str) -> Json:
        for field in ("capacity", "allocatable"):
            merged = self.node["status"].setdefault(field, {}) | body["status"][field]
            self.node["status"][field] = {name: count for name, count in merged.items() if count is not None}
        return self.node

    def counts(self, field: str) -> Json:
        return {name: count for name, count in self.node["status"][field].items() if "/" in name}


async def started(api: Api, folder: Path, monkeypatch: pytest.MonkeyPatch) -> NodeApiClient:
    """A node with DEVICES, as far as it is registered."""
    monkeypatch.setattr(drivers, "has_nvidia_driver", lambda environ: True)
    monkeypatch.setattr(drivers, "has_amd_driver", lambda: False)
    client = NodeApiClient(api, "here", print)  # type: ignore[arg-type]
    client.devices = DeviceManager(folder, {})
    await client.register(10250, 0.0)
    client.devices._apply(Inventory(DEVICES))
    await client.set_ready(api.node, 1.0)
    return client


async def test_a_resource_of_a_device_plugin_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = {"capacity": {GPU: "8"}, "allocatable": {GPU: "7"}}
    api = Api({"metadata": {"name": "here"}, "status": plugin})
    client = await started(api, tmp_path, monkeypatch)
    assert (api.counts("capacity"), api.counts("allocatable")) == ({GPU: "8", MIG: "1"}, {GPU: "7", MIG: "1"})
    client.devices.set_lost({"GPU-0": "x", "MIG-0": "x"}, "samples")
    await client.set_ready(api.node, 2.0)
    assert (api.counts("capacity"), api.counts("allocatable")) == ({GPU: "8", MIG: "1"}, {GPU: "7", MIG: "0"})


async def test_what_an_earlier_process_of_the_node_has_written_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = {"capacity": {GPU: "8", "amd.com/gpu": "2"}, "allocatable": {GPU: "8", "amd.com/gpu": "2"}}
    api = Api({"metadata": {"name": "here", "annotations": {CREATED_ANNOTATION: "true"}}, "status": earlier})
    await started(api, tmp_path, monkeypatch)
    assert api.counts("capacity") == {GPU: "1", MIG: "1"}
