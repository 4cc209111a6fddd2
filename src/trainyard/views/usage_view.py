"""The usage of replicas and jobs: what `trainyard top` shows, from pods and their PodMetrics.

Order: the replicas that lag behind the others of their role come first, then those that use most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from statistics import mean, median
from typing import Any

import msgspec

from trainyard.objects import Json, as_dict, name_of, namespace_of
from trainyard.objects.numbers import json_numbers
from trainyard.objects.quantities import exact
from trainyard.objects.usage import (
    MEMORY_MEASURE,
    PEAK_DEVICE_MEMORY,
    STOPPED_PROCESS,
    WAITING_PROCESS,
    Progress,
    devices_of,
    peaks_of,
    progress_of,
)
from trainyard.views.job_row import JobRow
from trainyard.views.job_view import natural_sort_key
from trainyard.views.replica_view import ReplicaView


class ReplicaUsage(msgspec.Struct, frozen=True, rename="camel"):
    """The usage of one replica. Its JSON has the fields below in camelCase, null for what is unknown. `cpu` in cores,
    memory in bytes."""

    replica: str
    role: str
    state: str
    pod: str
    node: str
    step: float | None = None
    steps_per_second: float | None = None
    cpu: float | None = None
    memory: int | None = None
    peak_memory: int | None = None
    device_memory: int | None = None  # of its processes on GPUs; None for a replica without one
    device_utilization: float | None = None  # percent of the time in which its GPUs ran kernels, the mean of them
    peak_device_memory: int | None = None
    memory_measure: str = ""  # PSS, RSS; "" where another program than a Trainyard node measures
    metrics: dict[str, float] = {}  # the last values that the program has reported
    metrics_source: str = ""  # file, output, pattern
    not_finite_since: dict[str, float | None] = {}  # this and the next two: see Progress
    step_time: float | None = None
    seconds_per_step: float | None = None
    lag: float = 0.0  # steps behind the median of its role
    stopped_pid: int = 0  # of a process that a signal has stopped, on its node
    waits_for: str = ""  # what its main process waits for: sleep, disk; "" if that is not known
    waiting_pid: int = 0  # that process, on its node

    def place_of(self, value: str) -> str:
        """Where a value was read, as a finding names it."""
        place = f"metrics.k8s.io, pod {self.pod}" if self.memory_measure else f"log of pod {self.pod}"
        return f"{place}: {value}, from {self.metrics_source or 'no source'}"

    def to_json(self) -> Json:
        """The fields as JSON, which has no number that is not finite: such a value in `metrics` is a string."""
        return {**msgspec.to_builtins(self), "metrics": json_numbers(self.metrics)}


class JobUsage(msgspec.Struct, frozen=True, rename="camel"):
    """The usage of one job: sums of CPU and memory, the largest peak of a replica, the median step of those that have
    one. Its JSON is as that of ReplicaUsage."""

    namespace: str
    kind: str
    name: str
    state: str
    running: int
    replicas: int
    step: float | None = None
    steps_per_second: float | None = None
    cpu: float | None = None
    memory: int | None = None
    peak_memory: int | None = None
    device_memory: int | None = None
    device_utilization: float | None = None


class Spread(msgspec.Struct, frozen=True, rename="camel"):
    """The least, the median and the greatest of some values."""

    minimum: float
    median: float
    maximum: float


Metrics = Mapping[tuple[str, str], Json]  # PodMetrics by namespace and name of the pod


def by_pod(pod_metrics: Iterable[Json]) -> Metrics:
    """The PodMetrics by namespace and name of their pod."""
    return {(namespace_of(item), name_of(item)): item for item in pod_metrics}


def replica_usages(namespace: str, slots: Iterable[ReplicaView], metrics: Metrics) -> list[ReplicaUsage]:
    """The usage of the replicas of a job, in the order above."""
    return _compared([_replica_usage(slot, metrics.get((namespace, slot.pod), {})) for slot in slots])


def with_progress(usages: Iterable[ReplicaUsage], progress: Mapping[str, Progress]) -> list[ReplicaUsage]:
    """The usages with the progress of pods, by name, that no Trainyard node measures."""
    return _compared(
        [
            usage
            if usage.memory_measure
            else msgspec.structs.replace(usage, **_progress_fields(progress.get(usage.pod)))
            for usage in usages
        ]
    )


def _compared(usages: list[ReplicaUsage]) -> list[ReplicaUsage]:
    """The usages with their lag, in the order above."""
    steps: dict[str, list[float]] = {}
    for usage in usages:
        if usage.step is not None:
            steps.setdefault(usage.role, []).append(usage.step)
    medians = {role: median(values) for role, values in steps.items()}
    usages = [msgspec.structs.replace(usage, lag=_lag(usage, medians.get(usage.role))) for usage in usages]
    return sorted(
        usages,
        key=lambda usage: (-usage.lag, -(usage.cpu or 0.0), -(usage.memory or 0), natural_sort_key(usage.replica)),
    )


def _replica_usage(slot: ReplicaView, pod_metrics: Json) -> ReplicaUsage:
    annotations = as_dict(as_dict(pod_metrics.get("metadata")).get("annotations"))
    containers = [as_dict(as_dict(entry).get("usage")) for entry in pod_metrics.get("containers") or ()]
    peak = sum(peaks_of(annotations).values()) or slot.peak_memory
    waits_for, _, waiting_pid = str(annotations.get(WAITING_PROCESS) or "").partition(" ")
    devices = devices_of(annotations)
    utilizations = [device.utilization for device in devices if device.utilization is not None]
    return ReplicaUsage(
        replica=slot.name,
        role=slot.role,
        state=slot.state,
        pod=slot.pod,
        node=slot.node,
        cpu=_total(containers, "cpu"),
        memory=None if (memory := _total(containers, "memory")) is None else int(memory),
        peak_memory=peak or None,
        device_memory=sum(process.memory for device in devices for process in device.processes) if devices else None,
        device_utilization=mean(utilizations) if utilizations else None,
        peak_device_memory=sum(peaks_of(annotations, PEAK_DEVICE_MEMORY).values()) or slot.peak_device_memory or None,
        memory_measure=str(annotations.get(MEMORY_MEASURE) or ""),
        stopped_pid=_pid(annotations.get(STOPPED_PROCESS)),
        waits_for=waits_for,
        waiting_pid=_pid(waiting_pid),
        **_progress_fields(progress_of(annotations)),
    )


def _progress_fields(progress: Progress | None) -> dict[str, Any]:
    if progress is None:
        return {}
    return {
        "step": progress.values.get("step"),
        "steps_per_second": progress.steps_per_second,
        "metrics": dict(progress.values),
        "metrics_source": progress.source,
        "not_finite_since": dict(progress.not_finite_since),
        "step_time": progress.step_time,
        "seconds_per_step": progress.seconds_per_step,
    }


def _pid(text: object) -> int:
    return int(str(text)) if str(text).isdecimal() else 0


def _total(usages: Sequence[Json], resource: str) -> float | None:
    values = [exact(str(usage[resource])) or Fraction(0) for usage in usages if resource in usage]
    return float(sum(values[1:], values[0])) if values else None


def _lag(usage: ReplicaUsage, median_step: float | None) -> float:
    """A replica without a step lags behind those of its role that have one, whose median is `median_step`: it has not
    begun. Not one that no Trainyard node measures: its log need not have been read."""
    is_unknown = usage.step is None and not usage.memory_measure
    if median_step is None or is_unknown or usage.state == "Succeeded":
        return 0.0
    return max(0.0, median_step - (usage.step or 0.0))


def job_usage(row: JobRow, usages: Sequence[ReplicaUsage]) -> JobUsage:
    """The usage of a job from that of its replicas."""

    def known(field: str) -> list[float]:
        return [value for usage in usages if (value := getattr(usage, field)) is not None]

    memory, peaks = known("memory"), known("peak_memory")
    return JobUsage(
        namespace=row.namespace,
        kind=row.kind,
        name=row.name,
        state=row.state,
        running=row.running,
        replicas=row.replicas,
        step=median_step(usages),
        steps_per_second=median(rates) if (rates := known("steps_per_second")) else None,
        cpu=sum(cpu) if (cpu := known("cpu")) else None,
        memory=int(sum(memory)) if memory else None,
        peak_memory=int(max(peaks)) if peaks else None,
        device_memory=int(sum(device_memory)) if (device_memory := known("device_memory")) else None,
        device_utilization=mean(utilizations) if (utilizations := known("device_utilization")) else None,
    )


def is_loss(name: str) -> bool:
    """Whether a value of that name is a loss: loss, train_loss, val/Loss."""
    return name.lower().endswith("loss")


def median_step(usages: Iterable[ReplicaUsage]) -> float | None:
    """The median step of the replicas that have one; None if none has."""
    steps = [usage.step for usage in usages if usage.step is not None]
    return median(steps) if steps else None


def spreads(usages: Iterable[ReplicaUsage]) -> dict[str, Spread]:
    """The spread of step, cpu and memory, by the name of the field; without those that no replica has."""
    usages, spread_of = list(usages), dict[str, Spread]()
    for field in ("step", "cpu", "memory"):
        if values := [value for usage in usages if (value := getattr(usage, field)) is not None]:
            spread_of[field] = Spread(min(values), median(values), max(values))
    return spread_of
