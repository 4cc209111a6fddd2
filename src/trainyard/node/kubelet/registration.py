"""The Node object of this node, with the facts of this machine.

Rules:
- The node is no kubelet, which its version fields show.
- Its only address is loopback, as InternalIP: an API server would prefer an address of type Hostname, and only an API
  server on this machine can read logs anyway.
- Conditions of other writers (a cloud provider, the node problem detector) are kept.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from trainyard import __version__
from trainyard.node.devices.device import Device
from trainyard.node.devices.labels import device_labels, stale_labels
from trainyard.node.kubelet.api.authentication import ClientAuthenticator, TokenAuthenticator
from trainyard.node.network.pod_network import ClusterNetwork
from trainyard.objects import Json, format_time, is_condition_true, labels_of, name_of, set_condition
from trainyard.objects.extended_resources import gpu_vendor, is_device_resource

CREATED_ANNOTATION, CORDONED_ANNOTATION = "trainyard.dev/made-by-node", "trainyard.dev/cordoned-by-node"
"""Annotations: this node created the Node object and deletes it when it is withdrawn; this node cordoned it at its
stop."""
DEVICES_ANNOTATION = "trainyard.dev/device-resources"
"""Annotation: the device resources that this node has written to the status, separated by commas."""
DEVICE_USE_ANNOTATION = "trainyard.dev/gpus"
"""Annotation: memory and use of each GPU, a line for each, as last written (devices/use_report.py)."""

FEATURES = ("ExtendWebSocketsToKubelet", "RestartAllContainersOnContainerExits")
"""Read by Kubernetes 1.36 and newer. Without the first one an API server translates exec to SPDY, which this node does
not support; without the second a scheduler does not bind a pod with a rule RestartAllContainers."""

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PRESSURES = {
    "MemoryPressure": "KubeletHasSufficientMemory",
    "DiskPressure": "KubeletHasNoDiskPressure",
    "PIDPressure": "KubeletHasSufficientPID",
}


def has_annotation(node: Json, annotation: str) -> bool:
    """Whether the Node has the annotation with a value that is not empty."""
    return bool(((node.get("metadata") or {}).get("annotations") or {}).get(annotation))


class NodeConfig(msgspec.Struct, frozen=True):
    """How the node belongs to its cluster. `authenticator`: authentication of the kubelet API; `extra_resources`:
    resources of the node's capacity, added to or replacing those of the machine; `taints`: of a Node object that it
    creates; `joined`: the cluster exists without the node, so the node writes heartbeats and its end to the Node
    object."""

    authenticator: ClientAuthenticator = msgspec.field(default_factory=lambda: TokenAuthenticator(""))
    cluster_network: ClusterNetwork = msgspec.field(default_factory=ClusterNetwork)
    extra_resources: Mapping[str, str] = msgspec.field(default_factory=dict)
    taints: Sequence[Json] = ()
    joined: bool = False


def capacity() -> dict[str, str]:
    """The resources of this machine as in a Node's `status.capacity`."""
    memory = 0
    with contextlib.suppress(ValueError, OSError):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024
    return {
        "cpu": str(os.cpu_count() or 1),
        "memory": f"{memory}Ki",
        "ephemeral-storage": "0",
        "pods": "1000",
    }


def ephemeral_storage(folder: Path) -> dict[str, str]:
    """The free disk space of `folder` as the resource ephemeral-storage; empty when it cannot be read."""
    try:
        return {"ephemeral-storage": f"{shutil.disk_usage(folder).free // 1024}Ki"}
    except OSError:
        return {}


def node_object(name: str, member: NodeConfig) -> Json:
    """A new Node, without a status."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": platform.system().lower(),
        "kubernetes.io/arch": _ARCHITECTURES.get(platform.machine(), platform.machine()),
    }
    spec: Json = {"taints": list(member.taints)} if member.taints else {}
    meta = {"name": name, "labels": labels, "annotations": {CREATED_ANNOTATION: "true"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec}


def node_status(
    port: int, member: NodeConfig, conditions: Sequence[Json], now: float, stopping: bool = False, problem: str = ""
) -> Json:
    """The status of a Node whose conditions are `conditions`. `port`: of the kubelet API; `now`: Unix time in seconds;
    `problem`: why the node is not ready, "" when it is."""
    conditions = list(conditions)
    for pressure, reason in _PRESSURES.items():
        conditions = set_condition(conditions, pressure, False, reason, "this node does not measure it", now)
    ready_reason = ("KubeletNotReady", problem) if problem else ("KubeletReady", "pods are processes of this machine")
    if stopping:
        ready_reason = ("NodeStopped", "the node was stopped")
    conditions = set_condition(conditions, "Ready", not (stopping or problem), *ready_reason, now)
    own_types, stamp = {"Ready", *_PRESSURES}, format_time(now)
    return {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "capacity": (resources := {**capacity(), **member.extra_resources}),
        "allocatable": resources,
        "conditions": [
            {**condition, "lastHeartbeatTime": stamp} if condition.get("type") in own_types else condition
            for condition in conditions
        ],
        "declaredFeatures": list(FEATURES),
        "nodeInfo": node_info(),
    }


def reported_devices(node: Json) -> frozenset[str]:
    """The device resources in the capacity of a stored Node."""
    return frozenset(filter(is_device_resource, _capacity(node)))


def device_metadata(node: Json, devices: Sequence[Device], use: str) -> Json:
    """The metadata to patch of a Node that gives out these devices; `use`: DEVICE_USE_ANNOTATION. Labels that the node
    has written of devices that are gone are removed."""
    resources = {device.resource for device in devices}
    earlier = reported_devices(node) if has_annotation(node, CREATED_ANNOTATION) else _written_resources(node)
    stale = stale_labels(labels_of(node), {*earlier, *resources})
    annotations = {DEVICES_ANNOTATION: ",".join(sorted(resources)) or None, DEVICE_USE_ANNOTATION: use or None}
    return {"labels": {**stale, **device_labels(devices)}, "annotations": annotations}


def _written_resources(node: Json) -> list[str]:
    return str(((node.get("metadata") or {}).get("annotations") or {}).get(DEVICES_ANNOTATION) or "").split(",")


def vendors_of_others(node: Json) -> frozenset[str]:
    """The vendors of GPUs in the capacity of a stored Node that no earlier process of this node has written: a kubelet
    that had this name has, or a person, by a patch of the status."""
    if has_annotation(node, CREATED_ANNOTATION):
        return frozenset()
    written = _written_resources(node)
    return _gpu_vendors(name for name in _capacity(node) if name not in written)


def vendors_of_other_nodes(nodes: Iterable[Json], own: Json) -> dict[str, str]:
    """Vendor of GPUs -> another Node of this machine that has some and is Ready: that of a kubelet whose device plugin
    serves the same devices, or an older one of Trainyard. Nodes of a machine have the same bootID, also in containers.
    What a kubelet stores about its plugins could be read by root alone, and not from another container."""
    served: dict[str, str] = {}
    boot_id = node_info()["bootID"]
    for node in nodes:
        status = node.get("status") or {}
        info = status.get("nodeInfo") or {}
        is_here = name_of(node) != name_of(own) and info.get("bootID") == boot_id != ""
        comes_first = not str(info.get("kubeletVersion")).startswith("trainyard-") or _age(node) < _age(own)
        if is_here and comes_first and is_condition_true(status.get("conditions"), "Ready"):
            names = (name for name, count in _capacity(node).items() if str(count) != "0")
            served |= dict.fromkeys(_gpu_vendors(names), name_of(node))
    return served


def _capacity(node: Json) -> Json:
    return (node.get("status") or {}).get("capacity") or {}


def _gpu_vendors(resources: Iterable[str]) -> frozenset[str]:
    return frozenset(filter(None, map(gpu_vendor, resources)))


def _age(node: Json) -> tuple[str, str]:
    return str((node.get("metadata") or {}).get("creationTimestamp")), name_of(node)


def with_devices(status: Json, field: str, counts: Mapping[str, str], stored: Collection[str]) -> Json:
    """The field `capacity` or `allocatable` of a Node's status, with the numbers of devices. None removes a resource
    that the stored Node has and this machine does not have any more. What the user has stated (--capacity) stays."""
    return {**dict.fromkeys(stored), **counts, **status[field]}


def node_info() -> Json:
    """`status.nodeInfo`, of this machine; "" for what it does not tell."""
    version = f"trainyard-v{__version__}"
    return {
        "machineID": _read_line("/etc/machine-id"),
        "systemUUID": _read_line("/etc/machine-id"),
        "bootID": _read_line("/proc/sys/kernel/random/boot_id"),
        "kernelVersion": platform.release(),
        "osImage": _os_name(),
        "containerRuntimeVersion": f"processes://{__version__}",
        "kubeletVersion": version,
        "kubeProxyVersion": "",
        "operatingSystem": platform.system().lower(),
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
    }


def _read_line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return f"{platform.system()} {platform.release()}"
