"""The device manager of a node: which devices there are, and which pod has which.

Rules:
- A device belongs to at most one pod, from the start of the pod's first container until no process of the pod is left.
- A pod whose devices are still those of a pod that ends waits for them. More than the node has is an error: the
  scheduler has counted devices that are lost by now.
- A pod with a lost device keeps it until it ends.
- A resource that this node does not have, or of a vendor whose devices others serve (a device plugin), is not given
  out: such a pod runs without it, and sees no device.
- Until the devices are known, capacity and allocatable have 0 of the resources of the drivers, and pods that request
  devices wait; all others see none. Without a driver the devices are known from the beginning.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from trainyard.node.devices import checkpoint, discovery, drivers
from trainyard.node.devices.allocation import allocate
from trainyard.node.devices.device import Device, Inventory
from trainyard.node.devices.environment import device_environment
from trainyard.node.devices.visibility import visible
from trainyard.objects import Json, name_of, uid_of
from trainyard.objects.extended_resources import (
    AMD_GPU,
    NVIDIA_GPU,
    container_shares,
    gpu_vendor,
    is_device_resource,
    pod_requests,
)

log = logging.getLogger(__name__)

RECHECK_SECONDS = 60.0  # between two looks at the devices of a machine that has some


class DevicesUnavailable(Exception):
    """The pod requests more devices than the node can give out. The message is the kubelet's."""


class DeviceManager:
    """`folder`: of the checkpoint; `environ`: the variables of the shell; `on_change`: capacity or allocatable have
    changed. `known` is set when `devices` has the devices that the node may give out; `inventory` has all of the
    machine."""

    def __init__(
        self,
        folder: Path | None = None,
        environ: Mapping[str, str] | None = None,
        say: Callable[[str], object] = print,
        on_change: Callable[[], object] = lambda: None,
        discover: Callable[[Mapping[str, str]], Awaitable[Inventory]] = discovery.discover,
    ) -> None:
        self._folder, self._environ, self._say = folder, environ or {}, say
        self._on_change, self._discover = on_change, discover
        self.inventory = Inventory()
        self.devices: tuple[Device, ...] = ()
        self.known = asyncio.Event()
        self._lost: dict[str, dict[str, str]] = {}  # who has seen it -> uuid -> reason
        self._withheld: frozenset[str] = frozenset()  # vendors whose devices others serve
        self._released = asyncio.Event()
        self._said: set[str] = set()
        loaded = {NVIDIA_GPU: drivers.has_nvidia_driver(self._environ), AMD_GPU: drivers.has_amd_driver()}
        self._drivers = [resource for resource, is_loaded in loaded.items() if is_loaded and folder is not None]
        self.has_driver = bool(self._drivers)
        if not self.has_driver:
            self.known.set()
        # uid of a pod -> uuids. Those of an earlier process of this node are read at once: the list of pods may come
        # before the devices are known.
        self.assignments = checkpoint.load(folder, say) if folder is not None and self.has_driver else {}

    async def run(self) -> None:
        """Find the devices, and look again for as long as there are some: a driver that does not answer is not asked
        again. Never returns."""
        while self.has_driver:
            inventory = await self._discover(self._environ)
            self._apply(inventory)
            if not inventory.devices:
                break
            await asyncio.sleep(RECHECK_SECONDS)
        await asyncio.Event().wait()

    def _apply(self, inventory: Inventory) -> None:
        allowed, problems = visible(inventory.devices, self._environ)
        for problem in (*inventory.problems, *problems):
            self._say_once(f"devices: {problem}")
        present = {device.uuid for device in allowed}
        if not self.known.is_set():
            self.inventory, self.devices = inventory, allowed
            # A pod with a device that this node does not have any more gets others.
            self.assignments = {uid: uuids for uid, uuids in self.assignments.items() if present.issuperset(uuids)}
            self.known.set()
            self._on_change()
        elif inventory.devices:  # else the driver does not answer, and what runs may still run
            gone = [device for device in self.devices if device.uuid not in present]
            self.set_lost({device.uuid: "the driver does not list it any more" for device in gone}, "driver")

    @property
    def lost(self) -> dict[str, str]:
        """The devices that no pod gets: uuid -> reason."""
        return {uuid: reason for by_uuid in self._lost.values() for uuid, reason in by_uuid.items()}

    def set_lost(self, lost: Mapping[str, str], source: str) -> None:
        """Replace the devices of which `source` says that they are lost: uuid -> reason. They stay in the capacity."""
        before, before_of_source = self.lost, self._lost.get(source, {})
        self._lost[source] = dict(lost)
        if lost.keys() == before_of_source.keys():
            return
        for device in self.devices:
            if device.uuid not in before and (reason := lost.get(device.uuid)):
                self._say(f"devices: GPU {device.index} ({device.uuid}) is lost: {reason}; no pod gets it")
        self._wake()
        self._on_change()

    def lost_of_pod(self, uid: str, source: str = "") -> str:
        """Which of its devices a pod has lost, and why: a sentence, "" for none. `source`: only those of which this one
        says so."""
        lost = self._lost.get(source, {}) if source else self.lost
        parts = [
            f"GPU {device.index} ({device.uuid}) is lost: {lost[device.uuid]}"
            for device in self.of_pod(uid)
            if device.uuid in lost
        ]
        return "; ".join(parts)

    def withhold(self, reasons: Mapping[str, str]) -> None:
        """Give out no more devices of these vendors, and those of all others: vendor -> why. A pod that has some keeps
        them."""
        for resource in sorted({device.resource for device in self.devices}):
            if reason := reasons.get(gpu_vendor(resource)):
                text = f"this node gives out no {resource}, because {reason}"
                self._say_once(f"devices: {text}; --capacity {resource}=N gives them out all the same")
        if reasons.keys() != self._withheld:
            self._withheld = frozenset(reasons)
            self._wake()

    def capacity(self) -> dict[str, str]:
        """Resource -> number of devices, of those that this node gives out."""
        if self.known.is_set():
            counts = dict(Counter(device.resource for device in self.devices))
        else:
            counts = dict.fromkeys(self._drivers, 0)
        return {name: str(count) for name, count in counts.items() if gpu_vendor(name) not in self._withheld}

    def allocatable(self) -> dict[str, str]:
        """As `capacity`, without the lost devices."""
        lost = Counter(device.resource for device in self.devices if device.uuid in self.lost)
        return {resource: str(int(count) - lost[resource]) for resource, count in self.capacity().items()}

    def of_pod(self, uid: str) -> tuple[Device, ...]:
        """The devices that a pod has."""
        uuids = self.assignments.get(uid, ())
        return tuple(device for device in self.devices if device.uuid in uuids)

    @property
    def gives_out(self) -> bool:
        """Whether programs see the devices that this node gives them, rather than all of the machine."""
        return bool(self.devices) or not self.known.is_set()

    def environment(self, pod: Json, container: Json, stated: Mapping[str, str]) -> dict[str, str]:
        """The variables of `device_environment` for a container of a pod."""
        node = self.devices if self.known.is_set() else [Device(resource, "", 0) for resource in self._drivers]
        return device_environment(self.of_container(pod, container), node, stated)

    def of_container(self, pod: Json, container: Json) -> tuple[Device, ...]:
        """The devices that a container of a pod has."""
        by_resource: dict[str, list[Device]] = {}
        for device in self.of_pod(uid_of(pod)):
            by_resource.setdefault(device.resource, []).append(device)
        share = container_shares(pod, by_resource).get(str(container.get("name")), {})
        return tuple(device for devices in share.values() for device in devices)

    async def assign(self, pod: Json, blocked: Callable[[str, str], None]) -> None:
        """Give the pod its devices, unless it has them. Waits until the devices are known and enough are free;
        `blocked` gets the reason and message. Raises DevicesUnavailable, OSError."""
        requests = {name: count for name, count in pod_requests(pod).items() if is_device_resource(name)}
        if not requests:
            return
        await self.known.wait()
        uid = uid_of(pod)
        while uid not in self.assignments:
            owned = {resource: requests[resource] for resource in self.capacity() if resource in requests}
            if not owned:
                return
            _refuse_more_than_there_are(owned, self.allocatable())
            taken = {uuid for uuids in self.assignments.values() for uuid in uuids}
            devices = allocate(self.devices, taken | self.lost.keys(), owned)
            if devices is not None:
                self.assignments[uid] = tuple(device.uuid for device in devices)
                try:
                    checkpoint.save(self._folder, self.assignments)  # before the first process of the pod starts
                except BaseException:
                    del self.assignments[uid]
                    raise
                return
            blocked("DevicesInUse", f"pod {name_of(pod)} waits for devices of a pod that ends")
            await self._released.wait()

    def release(self, uid: str) -> None:
        """The pod is over, and none of its processes is left."""
        if self.assignments.pop(uid, None) is None:
            return
        try:
            checkpoint.save(self._folder, self.assignments)
        except OSError as error:  # the next process of this node finds that the pod is gone
            log.warning("the checkpoint of the devices cannot be written error=%s", error)
        self._wake()

    def keep(self, uids: Iterable[str]) -> None:
        """Only these pods are on this node: release the devices of all others."""
        for uid in self.assignments.keys() - set(uids):
            self.release(uid)

    def _wake(self) -> None:
        self._released.set()
        self._released = asyncio.Event()

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)


def _refuse_more_than_there_are(requests: Mapping[str, int], allocatable: Mapping[str, str]) -> None:
    """The kubelet's error for a pod that it cannot admit."""
    for resource, count in requests.items():
        if count > (available := int(allocatable[resource])):
            text = f"Allocate failed due to requested number of devices unavailable for {resource}"
            raise DevicesUnavailable(f"{text}. Requested: {count}, Available: {available}, which is unexpected")
