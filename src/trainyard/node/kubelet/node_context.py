"""The services and settings that all pods of a node share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from trainyard.node.devices.manager import DeviceManager
from trainyard.node.devices.sampler import DeviceSampler
from trainyard.node.images import Images
from trainyard.node.kubelet.api_client import NodeApiClient
from trainyard.node.kubelet.start_limiter import StartLimiter
from trainyard.node.kubelet.usage.usage import UsageSampler
from trainyard.node.kubelet.volumes.mount_points import MountPoints
from trainyard.node.network.pod_network import Network
from trainyard.node.sandbox.supervisor_client import Sandbox
from trainyard.objects import Json


class NodeContext(msgspec.Struct):
    """`sandbox` and `network` are replaced when the supervisor is started again: read them at each use. `state`:
    the node's state folder; `mounts`: claim -> folder of the user."""

    cluster: NodeApiClient
    sandbox: Sandbox
    network: Network
    images: Images
    state: Path
    mounts: Mapping[str, Path]
    say: Callable[[str], object]
    now: Callable[[], float] = time.time
    printed: set[str] = msgspec.field(default_factory=set)  # messages of `print_once`
    mount_points: MountPoints = msgspec.field(default_factory=MountPoints)
    start_limiter: StartLimiter = msgspec.field(default_factory=StartLimiter)
    usage: UsageSampler = msgspec.field(default_factory=UsageSampler)
    devices: DeviceManager = msgspec.field(default_factory=DeviceManager)
    device_sampler: DeviceSampler | None = None  # None without a driver
    closing: bool = False  # the node stops: no more requests to the API server
    working_directory: Path | None = None  # of pods without the annotation
    has_scheduler: bool = False  # a real cluster's scheduler placed the pods and has handled the fields for scheduling
    # The folder in which a pod's logs are kept; None: in the pod's folder.
    log_folder: Callable[[Json], Path | None] = lambda pod: None
    log_size: int = 0  # maximum size in bytes of the log of one run, 0 for no limit

    def print_once(self, text: str) -> None:
        """Print a message to the user unless this node has printed the same before."""
        if text not in self.printed:
            self.printed.add(text)
            self.say(text)
