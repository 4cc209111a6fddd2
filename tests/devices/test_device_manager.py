"""Which pod has which devices, in every small world: devices x pods x ends x restarts of the node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

import pytest

from trainyard.node.devices import drivers
from trainyard.node.devices.checkpoint import FILE
from trainyard.node.devices.device import Device, Inventory
from trainyard.node.devices.manager import DeviceManager, DevicesUnavailable
from trainyard.objects import Json

GPU = "nvidia.com/gpu"
THREE = tuple(Device(GPU, f"GPU-{index}", index) for index in range(3))


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "has_nvidia_driver", lambda environ: True)
    monkeypatch.setattr(drivers, "has_amd_driver", lambda: False)


def pod(uid: str, count: int = 0, resource: str = GPU) -> Json:
    limits = {"limits": {resource: count}} if count else {}
    container = {"name": "main", "resources": limits}
    return {"metadata": {"name": uid, "uid": uid}, "spec": {"containers": [container]}}


class World:
    """A node with `devices`; it can be killed and started again."""

    def __init__(self, folder: Path, devices: tuple[Device, ...] = THREE, environ: Mapping[str, str] | None = None):
        self.folder, self.inventory, self.environ = folder, Inventory(devices), environ or {}
        self.lines: list[str] = []
        self.changes = 0
        self.waiting: dict[str, asyncio.Task[None]] = {}
        self.alive: set[str] = set()

    async def start(self) -> None:
        """A process of the node: it finds the devices, and the pods that it was sent."""

        async def discover(environ: Mapping[str, str]) -> Inventory:
            return self.inventory

        self.manager = DeviceManager(self.folder, self.environ, self.lines.append, self._changed, discover)
        self.run = asyncio.create_task(self.manager.run())
        self.manager.keep(self.alive)
        await self.settle()

    def _changed(self) -> None:
        self.changes += 1

    async def settle(self) -> None:
        """Until every task waits."""
        for _ in range(4):
            await asyncio.sleep(0)

    def assign(self, uid: str, count: int, resource: str = GPU) -> None:
        self.alive.add(uid)
        self.waiting[uid] = asyncio.create_task(self.manager.assign(pod(uid, count, resource), lambda *_: None))

    async def end(self, uid: str) -> None:
        self.alive.discard(uid)
        await self._stop(self.waiting.pop(uid, None))
        self.manager.release(uid)

    async def kill(self) -> None:
        await self._stop(self.run, *self.waiting.values())
        self.waiting = {}

    @staticmethod
    async def _stop(*tasks: asyncio.Task[None] | None) -> None:
        running = [task for task in tasks if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def of(self, uid: str) -> list[str]:
        return [device.uuid for device in self.manager.of_pod(uid)]


COUNTS = {"a": 2, "b": 1, "c": 2}
ACTIONS = [*(f"start {uid}" for uid in COUNTS), *(f"end {uid}" for uid in COUNTS), "kill"]


def histories(length: int) -> Iterator[tuple[str, ...]]:
    """Every order of actions in which a pod ends after its start, and starts once."""
    for history in product(ACTIONS, repeat=length):
        starts = [action for action in history if action.startswith("start")]
        ends = [action for action in history if action.startswith("end")]
        follow = all(
            f"start {end[-1]}" in history and history.index(f"start {end[-1]}") < history.index(end) for end in ends
        )
        if follow and len(set(starts)) == len(starts) and len(set(ends)) == len(ends):
            yield history


async def check(world: World, before: Mapping[str, list[str]]) -> None:
    given = {uid: world.of(uid) for uid in COUNTS}
    used = [uuid for uuids in given.values() for uuid in uuids]
    assert len(set(used)) == len(used), "a device was given twice"
    for uid, uuids in given.items():
        assert len(uuids) in (0, COUNTS[uid])
        assert uid in world.alive or not uuids, "a device of a pod that ended is lost"
        if before.get(uid) and uid in world.alive:
            assert uuids == before[uid], "a pod has other devices than before"
    free = 3 - len(used)
    for uid, task in world.waiting.items():
        assert task.done() == bool(given[uid])
        assert task.done() or COUNTS[uid] > free, "a pod waits although its devices are free"


async def test_no_device_is_given_twice_and_none_is_lost(tmp_path: Path) -> None:
    count = 0
    for history in histories(6):
        count += 1
        world = World(tmp_path)
        await world.start()
        given: dict[str, list[str]] = {}
        for action in history:
            verb, _, uid = action.partition(" ")
            if verb == "start":
                world.assign(uid, COUNTS[uid])
            elif verb == "end":
                await world.end(uid)
            else:
                await world.kill()
                await world.start()
                for uid in sorted(world.alive):
                    world.assign(uid, COUNTS[uid])
            await world.settle()
            await check(world, given)
            given = {uid: world.of(uid) for uid in world.alive}
        for uid in sorted(world.alive):
            await world.end(uid)
        assert world.manager.assignments == {}
        await world.kill()
        (tmp_path / FILE).unlink(missing_ok=True)
    assert count > 2_000


async def test_a_pod_that_ended_while_the_node_was_stopped_gives_its_devices_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.start()
    world.assign("a", 3)
    await world.settle()
    await world.kill()
    world.alive.clear()
    await world.start()
    world.assign("b", 3)
    await world.settle()
    assert world.of("b") == ["GPU-0", "GPU-1", "GPU-2"]
    await world.kill()


async def test_a_lost_device_is_in_the_capacity_and_no_pod_gets_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.start()
    world.assign("a", 1)
    await world.settle()
    world.manager.set_lost({"GPU-0": "Xid 79", "GPU-1": "Xid 79"}, "samples")
    assert (world.manager.capacity(), world.manager.allocatable()) == ({GPU: "3"}, {GPU: "1"})
    assert world.of("a") == ["GPU-0"]
    world.assign("b", 1)
    await world.settle()
    assert world.of("b") == ["GPU-2"]
    assert [line for line in world.lines if "lost" in line] == [
        f"devices: GPU {index} (GPU-{index}) is lost: Xid 79; no pod gets it" for index in (0, 1)
    ]
    await world.end("a")
    changes = world.changes
    world.manager.set_lost({}, "samples")
    assert (world.manager.allocatable(), world.changes) == ({GPU: "3"}, changes + 1)
    await world.kill()


async def test_what_two_observers_say_of_lost_devices_adds_up(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.start()
    world.manager.set_lost({"GPU-0": "Xid 79"}, "samples")
    world.manager.set_lost({"GPU-1": "gone"}, "driver")
    assert world.manager.allocatable() == {GPU: "1"}
    world.manager.set_lost({}, "driver")
    assert world.manager.lost == {"GPU-0": "Xid 79"}
    await world.kill()


async def test_more_devices_than_are_left_is_the_error_of_the_kubelet(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.start()
    with pytest.raises(
        DevicesUnavailable, match=r"for nvidia.com/gpu. Requested: 4, Available: 3, which is unexpected"
    ):
        await world.manager.assign(pod("a", 4), lambda *_: None)
    await world.kill()


async def test_a_pod_that_waits_for_a_pod_that_ends_says_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.start()
    world.assign("a", 3)
    await world.settle()
    reasons: list[str] = []
    waiting = asyncio.create_task(world.manager.assign(pod("b", 1), lambda reason, _: reasons.append(reason)))
    await world.settle()
    assert reasons == ["DevicesInUse"]
    await world.end("a")
    await waiting
    assert world.of("b") == ["GPU-0"]
    await world.kill()


async def test_a_resource_that_the_machine_does_not_have_is_not_given_out(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.start()
    await world.manager.assign(pod("a", 1, "amd.com/gpu"), lambda *_: None)
    assert world.of("a") == []
    await world.kill()


async def test_the_shell_bounds_what_the_node_has(tmp_path: Path) -> None:
    world = World(tmp_path, environ={"CUDA_VISIBLE_DEVICES": "2,9"})
    await world.start()
    assert world.manager.capacity() == {GPU: "1"}
    assert [device.uuid for device in world.manager.inventory.devices] == ["GPU-0", "GPU-1", "GPU-2"]
    assert world.lines == [
        "devices: CUDA_VISIBLE_DEVICES=2,9: there is no device 9; it and what follows it are ignored"
    ]
    await world.kill()


async def test_after_a_restart_with_other_bounds_a_pod_gets_devices_within_them(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.start()
    world.assign("a", 1)
    await world.settle()
    await world.kill()
    world.environ = {"CUDA_VISIBLE_DEVICES": "2"}
    await world.start()
    world.assign("a", 1)
    await world.settle()
    assert world.of("a") == ["GPU-2"]
    await world.kill()


async def test_until_the_devices_are_known_pods_that_ask_wait_and_others_see_none(tmp_path: Path) -> None:
    known = asyncio.Event()

    async def discover(environ: Mapping[str, str]) -> Inventory:
        await known.wait()
        return Inventory(THREE)

    manager = DeviceManager(tmp_path, {}, print, lambda: None, discover)
    running = asyncio.create_task(manager.run())
    asking = asyncio.create_task(manager.assign(pod("a", 1), lambda *_: None))
    await manager.assign(pod("b"), lambda *_: None)
    assert manager.capacity() == manager.allocatable() == {GPU: "0"} and not asking.done()
    obj = pod("b")
    hidden = manager.environment(obj, obj["spec"]["containers"][0], {})
    assert (hidden["CUDA_VISIBLE_DEVICES"], hidden["NVIDIA_VISIBLE_DEVICES"]) == ("", "")
    known.set()
    await asking
    assert manager.capacity() == {GPU: "3"}
    running.cancel()


async def test_a_driver_that_does_not_work_leaves_the_machine_as_without_devices(tmp_path: Path) -> None:
    lines: list[str] = []

    async def discover(environ: Mapping[str, str]) -> Inventory:
        return Inventory(problems=("NVML did not answer within 20 s",))

    manager = DeviceManager(tmp_path, {}, lines.append, lambda: None, discover)
    running = asyncio.create_task(manager.run())
    await manager.assign(pod("a", 1), lambda *_: None)
    assert (manager.capacity(), manager.gives_out, lines) == ({}, False, ["devices: NVML did not answer within 20 s"])
    running.cancel()


async def test_a_checkpoint_that_cannot_be_read_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    world = World(tmp_path)
    await world.start()
    assert len(world.lines) == 1 and world.manager.assignments == {}
    world.assign("a", 1)
    await world.settle()
    assert world.of("a") == ["GPU-0"]
    await world.kill()


async def test_a_pod_whose_devices_cannot_be_saved_does_not_get_them(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.start()
    (tmp_path / f"{FILE}.new").mkdir()
    with pytest.raises(OSError):
        await world.manager.assign(pod("a", 1), lambda *_: None)
    assert world.manager.assignments == {}
    (tmp_path / f"{FILE}.new").rmdir()
    await world.manager.assign(pod("a", 1), lambda *_: None)
    (tmp_path / f"{FILE}.new").mkdir()
    world.manager.release("a")  # the next process of the node finds that the pod is gone
    assert world.manager.assignments == {}
    await world.kill()
