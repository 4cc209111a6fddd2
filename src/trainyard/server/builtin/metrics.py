"""metrics.k8s.io/v1beta1: the usage of pods and nodes for `kubectl top`, as served by metrics-server.

Rules for this file:
- Nothing is stored: the objects are computed at each request, from the last measurements of the node.
- As with metrics-server, a pod without a measurement is not in a list, and is 404 by its name.
- Beyond metrics-server's fields the annotations of objects/usage.py say the peak of the memory, how it is measured,
  and what the program has reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from trainyard.objects import Json, NamespacedName, format_time
from trainyard.objects.usage import (
    MEMORY_MEASURE,
    PEAK_DEVICE_MEMORY,
    STOPPED_PROCESS,
    WAITING_PROCESS,
    ContainerUsage,
    NodeUsage,
    PodUsage,
    UsageReport,
    devices_annotation,
    peak_annotation,
)
from trainyard.server.model import errors
from trainyard.server.model.context import RequestContext
from trainyard.server.model.errors import StatusError
from trainyard.server.model.resources import Column, ComputedObjects, Resource
from trainyard.server.model.store import Record
from trainyard.server.registry.tables import NAME

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
_API_VERSION = f"{GROUP}/{VERSION}"


def resources(report: Callable[[], UsageReport]) -> tuple[Resource, ...]:
    """The resources `nodes` and `pods` of the group. `report` returns the last measurements."""
    return (
        Resource(
            group=GROUP,
            version=VERSION,
            kind="NodeMetrics",
            plural="nodes",
            namespaced=False,
            computed=ComputedObjects(lambda context: _node_metrics(report().node, context), _node_not_found),
            columns=(NAME, *_usage_columns(lambda obj: [obj])),
        ),
        Resource(
            group=GROUP,
            version=VERSION,
            kind="PodMetrics",
            plural="pods",
            computed=ComputedObjects(
                lambda context: [obj for pod in report().pods for obj in _pod_metrics(pod, context)], _pod_not_found
            ),
            columns=(NAME, *_usage_columns(lambda obj: obj["containers"])),
        ),
    )


def cpu_quantity(cores: float) -> str:
    """Cores as a quantity in nanocores, the unit of kubelets and metrics-server."""
    return f"{round(cores * 1e9)}n" if cores > 0 else "0"


def memory_quantity(size: int) -> str:
    """Bytes as a quantity in KiB, rounded up."""
    return f"{math.ceil(size / 1024)}Ki"


def _window(seconds: float) -> str:
    """A duration as Go prints it, in milliseconds' precision: 2.003s, 1m30s, 2h0m0s."""
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    text = f"{rest // 1000}.{rest % 1000:03}".rstrip("0").rstrip(".") + "s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}" if minutes else text


def _pod_metrics(pod: PodUsage, context: RequestContext) -> list[Json]:
    """The PodMetrics in a list; empty when the pod has been deleted or does not run."""
    stored = context.log.get("pods", NamespacedName(pod.namespace, pod.name))
    if stored is None or stored.fields.get("status.phase") != "Running" or not _has_uid(stored, pod.uid):
        return []
    measure = "PSS" if all(container.is_proportional for container in pod.containers) else "RSS"
    runs = {f"{container.name}/{container.run}": container for container in pod.containers}
    peaks = peak_annotation({run: container.peak for run, container in runs.items()})
    peaks |= peak_annotation({run: container.device_peak for run, container in runs.items()}, PEAK_DEVICE_MEMORY)
    progress = pod.progress.annotation if pod.progress else {}
    annotations = {**peaks, MEMORY_MEASURE: measure, **progress, **devices_annotation(pod.devices)}
    if stopped_pids := [container.stopped_pid for container in pod.containers if container.stopped_pid]:
        annotations[STOPPED_PROCESS] = str(stopped_pids[0])
    if wait := max(pod.containers, key=lambda container: container.memory).wait:  # a sidecar may sleep all the time
        annotations[WAITING_PROCESS] = wait
    meta = {"name": pod.name, "namespace": pod.namespace, "annotations": annotations}
    containers = [{"name": container.name, "usage": _usage(container)} for container in pod.containers]
    return [{**_object("PodMetrics", meta, stored, pod, context), "containers": containers}]


def _node_metrics(node: NodeUsage | None, context: RequestContext) -> list[Json]:
    stored = context.log.get("nodes", NamespacedName("", node.name)) if node else None
    if node is None or stored is None:
        return []
    meta: Json = {"name": node.name}
    if annotations := devices_annotation(node.devices):
        meta["annotations"] = annotations
    return [{**_object("NodeMetrics", meta, stored, node, context), "usage": _usage(node)}]


def _has_uid(stored: Record, uid: str) -> bool:
    """Whether the stored object has that uid. It is not decoded: a list has thousands. No other object in it, such as
    an owner, has the uid of a pod."""
    return f'"uid":"{uid}"'.encode() in stored.body


def _object(kind: str, meta: Json, stored: Record, usage: PodUsage | NodeUsage, context: RequestContext) -> Json:
    labels = dict(stored.labels)
    return {
        "kind": kind,
        "apiVersion": _API_VERSION,
        "metadata": {**meta, "creationTimestamp": context.timestamp, **({"labels": labels} if labels else {})},
        "timestamp": format_time(usage.time),
        "window": _window(usage.window),
    }


def _usage(usage: ContainerUsage | NodeUsage) -> Json:
    return {"cpu": cpu_quantity(usage.cores), "memory": memory_quantity(usage.memory)}


def _pod_not_found(key: NamespacedName, context: RequestContext) -> StatusError:
    if context.get("pods", *key) is None:
        return errors.not_found("pods", "", key.name)
    return errors.not_found("podmetrics", GROUP, f"{key.namespace}/{key.name}")


def _node_not_found(key: NamespacedName, context: RequestContext) -> StatusError:
    if context.get("nodes", "", key.name) is None:
        return errors.not_found("nodes", "", key.name)
    return errors.not_found("nodemetrics", GROUP, key.name)


def _usage_columns(parts: Callable[[Json], list[Json]]) -> tuple[Column, ...]:
    """The columns of `kubectl get podmetrics`. `parts`: the parts of an object that have a `usage`."""

    def total(obj: Json, resource: str, suffix: str) -> str:
        texts = [str(part["usage"][resource]).removesuffix(suffix) for part in parts(obj)]
        return f"{sum(map(int, texts))}{suffix}"

    return (
        Column("cpu", lambda obj, now: total(obj, "cpu", "n"), format="quantity"),
        Column("memory", lambda obj, now: total(obj, "memory", "Ki"), format="quantity"),
        Column("Window", lambda obj, now: obj["window"], format="duration"),
    )
