"""What a node says of itself: its Node object, and the facts of this machine in it.

Rules:
- It is no kubelet, and its versions say so.
- The address is loopback and there is no other: an API server would try a Hostname first, and only one on this machine
  can ask for logs anyway.
- Conditions that others have written (a cloud's, a problem detector's) stay.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from trainyard import __version__
from trainyard.node.doors import Door, TokenDoor
from trainyard.node.network import Outside
from trainyard.objects import Json, format_time, with_condition

MADE, CORDONED = "trainyard.dev/made-by-node", "trainyard.dev/cordoned-by-node"
"""Annotations: the node made this Node and deletes it when it goes; it made it unschedulable when it went."""

FEATURES = ("ExtendWebSocketsToKubelet",)
"""Without it an API server translates exec to SPDY, which is not spoken here (Kubernetes 1.36 and newer read this)."""

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PRESSURES = {
    "MemoryPressure": "KubeletHasSufficientMemory",
    "DiskPressure": "KubeletHasNoDiskPressure",
    "PIDPressure": "KubeletHasSufficientPID",
}


def marked(node: Json, annotation: str) -> bool:
    return bool(((node.get("metadata") or {}).get("annotations") or {}).get(annotation))


class Member(msgspec.Struct, frozen=True):
    """How the node belongs to its cluster. `more` are resources it says it has beside or instead of the machine's;
    `taints` are given to a Node that it makes; `comes_and_goes`: the cluster lives without it, and hears of its end."""

    door: Door = msgspec.field(default_factory=lambda: TokenDoor(""))
    outside: Outside = msgspec.field(default_factory=Outside)
    more: Mapping[str, str] = msgspec.field(default_factory=dict)
    taints: Sequence[Json] = ()
    comes_and_goes: bool = False


def capacity() -> dict[str, str]:
    """What this machine has, as a Node object says it."""
    memory = 0
    with contextlib.suppress(ValueError, OSError):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024
    return {
        "cpu": str(os.cpu_count() or 1),
        "memory": f"{memory}Ki",
        "ephemeral-storage": "0",
        "pods": "1000",
    }


def room_for_pods(folder: Path) -> dict[str, str]:
    """The disk that pods write to, as a scheduler counts it."""
    try:
        return {"ephemeral-storage": f"{shutil.disk_usage(folder).free // 1024}Ki"}
    except OSError:
        return {}


def node_object(name: str, member: Member) -> Json:
    """A new Node, without a status."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": platform.system().lower(),
        "kubernetes.io/arch": _ARCHITECTURES.get(platform.machine(), platform.machine()),
    }
    spec: Json = {"taints": list(member.taints)} if member.taints else {}
    meta = {"name": name, "labels": labels, "annotations": {MADE: "true"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec}


def node_status(
    port: int, member: Member, known: Sequence[Json], now: float, stopping: bool = False, problem: str = ""
) -> Json:
    """The status of a Node whose conditions were `known`. `problem`: why it is not ready, "" when it is."""
    found = list(known)
    for kind, reason in _PRESSURES.items():
        found = with_condition(found, kind, False, reason, "this node does not measure it", now)
    why = ("KubeletNotReady", problem) if problem else ("KubeletReady", "pods are processes of this machine")
    if stopping:
        why = ("NodeStopped", "the node was stopped")
    found = with_condition(found, "Ready", not (stopping or problem), *why, now)
    ours, stamp = {"Ready", *_PRESSURES}, format_time(now)
    return {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "capacity": (size := {**capacity(), **member.more}),
        "allocatable": size,
        "conditions": [{**one, "lastHeartbeatTime": stamp} if one.get("type") in ours else one for one in found],
        "declaredFeatures": list(FEATURES),
        "nodeInfo": machine(),
    }


def machine() -> Json:
    version = f"trainyard-v{__version__}"
    return {
        "machineID": _line("/etc/machine-id"),
        "systemUUID": _line("/etc/machine-id"),
        "bootID": _line("/proc/sys/kernel/random/boot_id"),
        "kernelVersion": platform.release(),
        "osImage": _system(),
        "containerRuntimeVersion": f"processes://{__version__}",
        "kubeletVersion": version,
        "kubeProxyVersion": "",
        "operatingSystem": platform.system().lower(),
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
    }


def _line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return f"{platform.system()} {platform.release()}"
