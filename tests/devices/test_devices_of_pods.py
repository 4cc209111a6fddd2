"""A node on a machine with GPUs: what its Node object says, and what programs see."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.node.conftest import state as state
from tests.node.node_cluster import TOKEN, NodeCluster, running_node, waiting
from tests.support.fake_nvml import GIB, FakeNvml, gpus, uuid
from tests.support.waiting import until_async
from tests.support.watched_objects import until_object
from trainyard.client import ApiClient
from trainyard.node.devices import discovery, manager
from trainyard.objects import Json
from trainyard.objects.resources import NODE, POD

pytestmark = pytest.mark.slow

GPU = "nvidia.com/gpu"
SECONDS = 60  # for a pod: a process asks NVML before the first one that requests devices
SEEN = """
import json, os
print(json.dumps({name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
      "CUDA_DEVICE_ORDER", "ACCELERATE_USE_CPU")}))
"""


def asking(count: int, **container: Any) -> Json:
    return {"resources": {"limits": {GPU: count}}, **container}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    nvml = FakeNvml(tmp_path, 4)
    for name, value in nvml.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("NVIDIA_VISIBLE_DEVICES", raising=False)
    return nvml


@pytest.fixture(params=["namespace", "shared"])
async def cluster(request: pytest.FixtureRequest, state: Path, machine: FakeNvml) -> AsyncIterator[NodeCluster]:
    async with running_node(state, request.param) as cluster:
        yield cluster


@pytest.fixture
async def shared(state: Path, machine: FakeNvml) -> AsyncIterator[NodeCluster]:
    async with running_node(state, "shared") as cluster:
        yield cluster


async def until_node(cluster: NodeCluster, true: Callable[[Json], object]) -> Json:
    def accept(node: Json) -> object:
        return true(node.get("status") or {})

    return await until_object(cluster.api, NODE, "", "local", accept, "the status of the Node", seconds=60)


def has(count: str, allocatable: str) -> Callable[[Json], bool]:
    def true(status: Json) -> bool:
        capacity, left = status.get("capacity") or {}, status.get("allocatable") or {}
        return bool(capacity.get(GPU) == count and left.get(GPU) == allocatable)

    return true


async def variables_seen(cluster: NodeCluster, name: str) -> dict[str, str]:
    await cluster.phase(name, "Succeeded", SECONDS)
    return json.loads((await cluster.logs(name)).splitlines()[-1])


async def test_pods_see_their_own_devices_and_no_others(cluster: NodeCluster) -> None:
    await until_node(cluster, has("4", "4"))
    await cluster.pod("two", SEEN + "import time; time.sleep(600)", container=asking(2))
    await cluster.phase("two", "Running", SECONDS)
    await cluster.pod("one", SEEN, container=asking(1))
    await cluster.pod("none", SEEN)
    assert await variables_seen(cluster, "one") == {
        "CUDA_VISIBLE_DEVICES": uuid(2),
        "NVIDIA_VISIBLE_DEVICES": uuid(2),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "ACCELERATE_USE_CPU": None,
    }
    assert await variables_seen(cluster, "none") == {
        "CUDA_VISIBLE_DEVICES": "",
        "NVIDIA_VISIBLE_DEVICES": "",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "ACCELERATE_USE_CPU": "1",
    }
    assert json.loads(await cluster.logs("two"))["CUDA_VISIBLE_DEVICES"] == f"{uuid(0)},{uuid(1)}"


async def test_the_spec_of_a_pod_selects_among_its_own_devices(shared: NodeCluster) -> None:
    await shared.pod("first", "import time; time.sleep(600)", container=asking(1))
    await shared.phase("first", "Running", SECONDS)
    index = [{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}]
    await shared.pod("second", SEEN, container=asking(2, env=index))
    variables = await variables_seen(shared, "second")
    assert variables["CUDA_VISIBLE_DEVICES"] == uuid(1)
    assert variables["NVIDIA_VISIBLE_DEVICES"] == f"{uuid(1)},{uuid(2)}"
    await shared.pod("none", SEEN, container={"env": index})
    assert (await variables_seen(shared, "none"))["CUDA_VISIBLE_DEVICES"] == ""


async def test_devices_are_given_back_whatever_ends_the_pod(shared: NodeCluster) -> None:
    ends: dict[str, tuple[str, dict[str, Any]]] = {
        "success": ("pass", {}),
        "failure": ("raise SystemExit(3)", {}),
        "killed": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", {}),
        "deadline": ("import time; time.sleep(600)", {"activeDeadlineSeconds": 1}),
    }
    for name, (script, spec) in ends.items():
        await shared.pod(name, script, container=asking(4), **spec)
        await shared.until(name, lambda status: status.get("phase") in ("Succeeded", "Failed"), SECONDS)
    await shared.pod("deleted", "import time; time.sleep(600)", container=asking(4))
    await shared.phase("deleted", "Running", SECONDS)
    await shared.pod("next", SEEN, container=asking(4))
    await shared.until("next", lambda status: waiting(status).get("reason") == "DevicesInUse", SECONDS)
    await shared.api.delete(POD, "default", "deleted", grace_period_seconds=0)
    assert (await variables_seen(shared, "next"))["CUDA_VISIBLE_DEVICES"] == ",".join(map(uuid, range(4)))


async def test_a_pod_that_asks_for_more_than_there_is_fails_as_in_a_kubelet(shared: NodeCluster) -> None:
    await shared.pod("five", SEEN, container=asking(5))
    status = (await shared.phase("five", "Failed", SECONDS))["status"]
    assert status["reason"] == "UnexpectedAdmissionError" and "Requested: 5, Available: 4" in status["message"]


async def test_a_device_that_vanishes_is_not_allocatable(
    state: Path, machine: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "RECHECK_SECONDS", 0.2)
    async with running_node(state, "shared") as cluster:
        await until_node(cluster, has("4", "4"))
        machine.set([*gpus(4), "lost 1"])
        await until_node(cluster, has("4", "3"))
        machine.set(gpus(4))
        await until_node(cluster, has("4", "4"))


@pytest.mark.parametrize("fact", ["hang nvmlInitWithFlags", "fail nvmlInitWithFlags 18"])
async def test_nvml_that_does_not_work_stops_nothing(
    state: Path, machine: FakeNvml, monkeypatch: pytest.MonkeyPatch, fact: str
) -> None:
    monkeypatch.setattr(discovery, "LIMIT", 2.0)
    machine.set([fact])
    async with running_node(state, "shared") as cluster:
        await cluster.pod("none", SEEN)
        await cluster.pod("asks", SEEN, container=asking(1))
        await variables_seen(cluster, "none")  # NVML still hangs
        await variables_seen(cluster, "asks")
        await until_node(cluster, lambda status: GPU not in status["capacity"])
        assert len([line for line in cluster.lines if line.startswith("devices: ")]) == 1


async def test_init_containers_and_sidecars_have_devices_of_the_pod(shared: NodeCluster) -> None:
    def container(name: str, count: int, **fields: object) -> Json:
        script = SEEN + ("import time; time.sleep(600)" if fields else "")
        return {"name": name, "image": "any", "command": ["python", "-c", script], **asking(count), **fields}

    inits = [container("sidecar", 1, restartPolicy="Always"), container("init", 3)]
    await shared.pod("p", initContainers=inits, containers=[container("main", 2)])
    await shared.phase("p", "Succeeded", SECONDS)
    visible = {
        name: json.loads((await shared.logs("p", name)).splitlines()[0])["CUDA_VISIBLE_DEVICES"]
        for name in ("sidecar", "init", "main")
    }
    assert visible == {
        "sidecar": uuid(0),
        "init": ",".join(map(uuid, (1, 2, 3))),
        "main": ",".join(map(uuid, (1, 2))),
    }


async def test_without_a_driver_no_task_looks_for_devices(state: Path) -> None:
    async with running_node(state, "shared") as cluster:
        status = (await cluster.api.get(NODE, "", "local"))["status"]
        assert not [name for name in status["capacity"] if "/" in name]
        assert not [task for task in asyncio.all_tasks() if "find devices" in task.get_name()]


async def test_the_node_serves_the_metrics_of_its_devices(shared: NodeCluster) -> None:
    await until_node(shared, has("4", "4"))
    port = (await shared.api.get(NODE, "", "local"))["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    async with ApiClient(f"http://127.0.0.1:{port}", TOKEN) as scraper:

        async def read() -> str:
            return (await scraper.request("GET", "/metrics")).decode()

        text = await until_async(read, "the first sample", accept=bool, seconds=SECONDS)
    assert f'DCGM_FI_DEV_FB_FREE{{gpu="3",UUID="{uuid(3)}"' in text


async def test_the_node_object_describes_its_devices(state: Path, machine: FakeNvml) -> None:
    machine.set([*gpus(2), "busy 0 97 40", f"used 0 {6 * GIB}"])
    used = "0 NVIDIA H100 80GB HBM3: 6.0 GiB of 80.0 GiB, 97 % busy\n1 NVIDIA H100 80GB HBM3: 0 B of 80.0 GiB, 0 % busy"

    def describes(node: Json) -> bool:
        return node["metadata"].get("annotations", {}).get("trainyard.dev/gpus") == used

    async with running_node(state, "shared") as cluster:
        node = await until_object(cluster.api, NODE, "", "local", describes, "the use of the GPUs", seconds=SECONDS)
    assert {name: value for name, value in node["metadata"]["labels"].items() if name.startswith(GPU)} == {
        f"{GPU}.count": "2",
        f"{GPU}.product": "NVIDIA-H100-80GB-HBM3",
        f"{GPU}.memory": "81920",
    }


async def test_a_container_does_not_restart_on_a_lost_device(shared: NodeCluster, tmp_path: Path) -> None:
    """A device of which the kernel log alone says that it is lost: its program may go on."""
    script = (
        f"import os, time\nwhile not os.path.exists({str(tmp_path / 'end')!r}): time.sleep(0.1)\nraise SystemExit(1)"
    )
    await shared.pod("p", script, container=asking(1), restartPolicy="OnFailure")
    await shared.phase("p", "Running", SECONDS)
    devices = shared.node._context.devices  # type: ignore[union-attr]
    devices.set_lost({uuid(0): "Xid 79 in the kernel log"}, "kernel log")
    await until_node(shared, has("4", "3"))
    assert (await shared.api.get(POD, "default", "p"))["status"]["phase"] == "Running"
    (tmp_path / "end").touch()
    status = (await shared.phase("p", "Failed", SECONDS))["status"]
    lost = f"GPU 0 ({uuid(0)}) is lost: Xid 79 in the kernel log"
    assert (status["reason"], status["message"]) == ("DeviceLost", lost)
    (disruption,) = (condition for condition in status["conditions"] if condition["type"] == "DisruptionTarget")
    assert (disruption["status"], disruption["message"]) == ("True", lost)


NCCL = """
import json, os
shared = os.statvfs("/dev/shm")
print(json.dumps({"variable": os.environ.get("NCCL_SOCKET_IFNAME"), "interfaces": os.listdir("/sys/class/net"),
      "shared memory": [shared.f_blocks * shared.f_frsize, os.stat("/dev/shm").st_dev]}))
"""


async def test_nccl_finds_its_interface_and_shared_memory_in_both_networks(cluster: NodeCluster) -> None:
    variable = [{"name": "NCCL_SOCKET_IFNAME", "value": "eth0"}]
    await cluster.pod("p", NCCL, container=asking(2, env=variable))
    await cluster.phase("p", "Succeeded", SECONDS)
    printed = json.loads((await cluster.logs("p")).splitlines()[-1])
    machine = os.statvfs("/dev/shm")
    size, device = printed["shared memory"]
    is_left_out = [line for line in cluster.lines if line.startswith("node: NCCL_SOCKET_IFNAME=eth0 is left out")]
    if cluster.node.network == "namespace":
        assert printed["variable"] == "eth0" in printed["interfaces"] and not is_left_out
        assert device != os.stat("/dev/shm").st_dev and size >= min(1 << 30, machine.f_blocks * machine.f_frsize)
    else:
        assert printed["variable"] is None and len(is_left_out) == 1
        assert device == os.stat("/dev/shm").st_dev
