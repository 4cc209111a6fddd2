"""Devices that others serve, as a device plugin does: the node gives out none of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainyard.client import AlreadyExists, Forbidden
from trainyard.node.devices import drivers
from trainyard.node.devices.device import Device, Inventory
from trainyard.node.devices.manager import DeviceManager
from trainyard.node.kubelet.api_client import NodeApiClient
from trainyard.node.kubelet.registration import CREATED_ANNOTATION, NodeConfig, node_info, vendors_of_other_nodes
from trainyard.objects import Json

GPU, AMD = "nvidia.com/gpu", "amd.com/gpu"
DEVICES = (Device(GPU, "GPU-0", 0), Device(AMD, "GPU-a", 0))


class Api:
    """An API server with the Node of this node, and `others`; it keeps what is written to the status of the first."""

    def __init__(self, node: Json, *others: Json) -> None:
        self.node, self.others = node, others

    async def create(self, *_: Any) -> Json:
        raise AlreadyExists(409, "AlreadyExists", "it exists")

    async def get(self, *_: Any) -> Json:
        return self.node

    async def list(self, *_: Any) -> Json:
        return {"items": [self.node, *self.others]}

    async def patch(self, gvk: object, namespace: str, name: str, body: Json, subresource: str) -> Json:
        annotations = self.node["metadata"].setdefault("annotations", {})
        annotations |= (body.get("metadata") or {}).get("annotations") or {}
        for field in ("capacity", "allocatable"):
            merged = self.node["status"].setdefault(field, {}) | body["status"][field]
            self.node["status"][field] = {name: count for name, count in merged.items() if count is not None}
        return self.node

    def counts(self, field: str) -> Json:
        return {name: count for name, count in self.node["status"][field].items() if "/" in name}


def pod(uid: str, resource: str) -> Json:
    container = {"name": "main", "resources": {"limits": {resource: 1}}}
    return {"metadata": {"name": uid, "uid": uid}, "spec": {"containers": [container]}}


async def given(client: NodeApiClient) -> list[str]:
    """The devices that pods of each resource get."""
    for uid, resource in (("a", GPU), ("b", AMD)):
        await client.devices.assign(pod(uid, resource), lambda *_: None)
    return [device.uuid for uid in ("a", "b") for device in client.devices.of_pod(uid)]


async def started(
    api: Api, folder: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str] | None = None, **config: Any
) -> NodeApiClient:
    """A node with DEVICES, as far as it is registered; `lines`: what it tells the user."""
    monkeypatch.setattr(drivers, "has_nvidia_driver", lambda environ: True)
    monkeypatch.setattr(drivers, "has_amd_driver", lambda: True)
    say = print if lines is None else lines.append
    client = NodeApiClient(api, "here", say, NodeConfig(joined=True, **config))  # type: ignore[arg-type]
    client.devices = DeviceManager(folder, {}, say)
    await client.register(10250, 0.0)
    client.devices._apply(Inventory(DEVICES))
    await client.set_ready(api.node, 1.0)
    return client


async def test_a_resource_that_others_have_written_to_the_node_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = {"capacity": {GPU: "8"}, "allocatable": {GPU: "7"}}
    api = Api({"metadata": {"name": "here"}, "status": written})
    lines: list[str] = []
    client = await started(api, tmp_path, monkeypatch, lines)
    assert (api.counts("capacity"), api.counts("allocatable")) == ({GPU: "8", AMD: "1"}, {GPU: "7", AMD: "1"})
    assert await given(client) == ["GPU-a"]
    client.devices.set_lost({"GPU-0": "x", "GPU-a": "x"}, "samples")
    await client.set_ready(api.node, 2.0)
    assert (api.counts("capacity"), api.counts("allocatable")) == ({GPU: "8", AMD: "1"}, {GPU: "7", AMD: "0"})
    assert [line for line in lines if GPU in line] == [
        "devices: this node gives out no nvidia.com/gpu, because its Node object had some before, which others "
        "count; --capacity nvidia.com/gpu=N gives them out all the same"
    ]


async def test_what_an_earlier_process_of_the_node_has_written_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mig = "nvidia.com/mig-1g.10gb"
    earlier = {"capacity": {GPU: "8", mig: "2"}, "allocatable": {GPU: "8", mig: "2"}}
    api = Api({"metadata": {"name": "here", "annotations": {CREATED_ANNOTATION: "true"}}, "status": earlier})
    await started(api, tmp_path, monkeypatch)
    assert api.counts("capacity") == {GPU: "1", AMD: "1"}


async def test_in_a_node_of_others_it_knows_again_what_it_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api({"metadata": {"name": "here"}, "status": {}})
    await started(api, tmp_path, monkeypatch)
    assert api.counts("capacity") == {GPU: "1", AMD: "1"}
    again = await started(api, tmp_path, monkeypatch)  # after `kill -9`
    assert await given(again) == ["GPU-0", "GPU-a"]


async def test_an_api_server_that_refuses_the_use_of_the_gpus_stops_nothing() -> None:
    class Refusing(Api):
        async def patch(self, *_: Any) -> Json:
            raise Forbidden(403, "Forbidden", "no")

    await NodeApiClient(Refusing({}), "here", print).write_device_use("0 H100")  # type: ignore[arg-type]


async def test_what_the_user_states_is_given_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = {"capacity": {GPU: "8"}, "allocatable": {GPU: "8"}}
    api = Api({"metadata": {"name": "here"}, "status": written}, kubelet("beside"))
    client = await started(api, tmp_path, monkeypatch, extra_resources={GPU: "1"})
    assert api.counts("allocatable")[GPU] == "1" and await given(client) == ["GPU-0", "GPU-a"]


def kubelet(name: str, boot_id: str = "", ready: str = "True", **info: str) -> Json:
    """The Node of a kubelet on this machine whose device plugin serves GPUs."""
    facts = {"bootID": boot_id or node_info()["bootID"], "kubeletVersion": "v1.37.1", **info}
    conditions = [{"type": "Ready", "status": ready}]
    meta = {"name": name, "creationTimestamp": "2026-01-02T00:00:00Z"}
    return {"metadata": meta, "status": {"capacity": {GPU: "4"}, "conditions": conditions, "nodeInfo": facts}}


async def test_a_kubelet_on_this_machine_serves_its_own_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api({"metadata": {"name": "here"}, "status": {}})
    lines: list[str] = []
    client = await started(api, tmp_path, monkeypatch, lines)
    assert api.counts("capacity") == {GPU: "1", AMD: "1"}
    api.others = (kubelet("beside"),)  # its device plugin starts after this node
    await client.register(10250, 1.0)
    assert api.counts("capacity") == {AMD: "1"} and await given(client) == ["GPU-a"]
    assert [line for line in lines if GPU in line] == [
        "devices: this node gives out no nvidia.com/gpu, because node beside of this machine does; "
        "--capacity nvidia.com/gpu=N gives them out all the same"
    ]
    api.others = ()
    await client.register(10250, 2.0)
    assert api.counts("capacity") == {GPU: "1", AMD: "1"}


@pytest.mark.parametrize(
    ("other", "serves"),
    [
        (kubelet("beside"), True),
        (kubelet("beside", ready="Unknown"), False),
        (kubelet("elsewhere", boot_id="another machine"), False),
        # Of two nodes of Trainyard the older one gives them out.
        (kubelet("a", kubeletVersion="trainyard-v1"), True),
        (kubelet("z", kubeletVersion="trainyard-v1"), False),
    ],
)
def test_which_nodes_serve_the_devices_of_this_machine(other: Json, serves: bool) -> None:
    own = kubelet("here")
    assert vendors_of_other_nodes([own, other], own) == ({"nvidia.com": other["metadata"]["name"]} if serves else {})
