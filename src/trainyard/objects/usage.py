"""The usage of CPU and memory as values: measured by a node, served as metrics.k8s.io by the API server.

Units: CPU in cores, memory in bytes, `time` in Unix seconds, `window` in seconds before it, over which CPU is the mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from trainyard.objects.codec import decode, encode
from trainyard.objects.labels import PREFIX
from trainyard.objects.meta import Json
from trainyard.objects.numbers import json_numbers

PEAK_MEMORY = PREFIX + "peak-memory"
"""Annotation of a Pod and of its PodMetrics, JSON: `CONTAINER/RUN` -> the largest memory of that run in bytes. A Pod
has the runs that its status shows as terminated, its PodMetrics those that go on. Runs are counted from 1."""
PEAK_DEVICE_MEMORY = PREFIX + "peak-device-memory"
"""Annotation of a Pod and of its PodMetrics, as PEAK_MEMORY: the memory on GPUs."""
DEVICES = PREFIX + "devices"
"""Annotation of a PodMetrics and a NodeMetrics, JSON: the GPUs of the pod or node, a list of `DeviceUsage`."""
XID_ERROR = "XidError"
# Reasons of the events about what a pod of a job did with its grace period.
FILES_SAVED, KILLED_AFTER_GRACE_PERIOD = "FilesSaved", "KilledAfterGracePeriod"
"""Reason of an Event of a Pod: what NVIDIA's driver has written to the kernel log about a device of the pod."""
MEMORY_MEASURE = PREFIX + "memory-measure"
"""Annotation of a PodMetrics: PSS (pages that processes share are counted once) or RSS (once for each process)."""
STOPPED_PROCESS = PREFIX + "stopped-process"
"""Annotation of a PodMetrics: the pid, on its node, of a process of the pod that a signal has stopped."""
WAITING_PROCESS = PREFIX + "waiting-process"
"""Annotation of a PodMetrics: what the main process of the pod waits for, SLEEP or DISK, and its pid on its node."""
SLEEP, DISK = "sleep", "disk"


PROGRESS = PREFIX + "progress"
"""Annotation of a PodMetrics, and of a Pod with REPORT_PROGRESS, JSON: the progress that the program of the pod has
reported, see `Progress`."""
REPORT_PROGRESS = PREFIX + "report-progress"
"""Annotation of a Pod, "true": its node writes PROGRESS on it, at the first value, then where there are new ones every
REPORT_SECONDS, and with the status of its end. So a pod that reports nothing costs no write."""
REPORT_SECONDS = 10.0


METRICS = PREFIX + "metrics"
"""Annotation of a Pod, in the template of a job: "off" if lines of its output that are no JSON are not to be taken for
progress."""


TOTALS = {"step": "total_steps", "epoch": "total_epochs"}
"""The names of the totals that a step and an epoch are of."""


class Progress(msgspec.Struct, frozen=True):
    """The last values that a program has reported, such as {"step": 10.0, "loss": 0.4}. `steps_per_second`: None
    as long as it is not known. `source`: where they were read: file, output, or pattern (an output line that is not
    JSON). `not_finite_since`: of each last value that is not finite, the step since which none was; None without steps.
    `step_time`: when the last step was read, Unix seconds; `seconds_per_step`: between the steps before that, None
    as long as that is not known. `time`: when the last value was read, Unix seconds."""

    values: Mapping[str, float]
    steps_per_second: float | None
    source: str
    not_finite_since: Mapping[str, float | None] = {}
    step_time: float | None = None
    seconds_per_step: float | None = None
    time: float | None = None

    @property
    def annotation(self) -> dict[str, str]:
        """The annotation PROGRESS."""
        values = json_numbers(self.values)
        fields: Json = {"values": values, "stepsPerSecond": self.steps_per_second, "source": self.source}
        if self.not_finite_since:
            fields["notFiniteSince"] = dict(self.not_finite_since)
        if self.step_time is not None:
            fields |= {"stepTime": self.step_time, "secondsPerStep": self.seconds_per_step}
        if self.time is not None:
            fields["time"] = self.time
        return {PROGRESS: encode(fields).decode()}


class DeviceProcess(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process that uses a device. `memory`: in bytes, 0 if the driver does not tell. `pod`: NAMESPACE/NAME, "" for
    another program of the machine, whose command line then is `command`."""

    pid: int
    memory: int = 0
    pod: str = ""
    command: str = ""


class DeviceUsage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The use of a GPU or MIG device at one time. `memory`: all of it, `used`: by all processes, in bytes.
    `utilization`: percent of the time in which a kernel ran, None if unknown. `lost`: why the driver cannot reach it,
    "" if it can. `resource`: as in the node's capacity, "" if unknown. `pod`: NAMESPACE/NAME of the pod that has it, ""
    for none."""

    index: int
    uuid: str = ""
    name: str = ""
    memory: int = 0
    used: int = 0
    utilization: int | None = None
    processes: tuple[DeviceProcess, ...] = ()
    lost: str = ""
    resource: str = ""
    pod: str = ""


class ContainerUsage(msgspec.Struct, frozen=True):
    """The usage of one run of a container. `peak`: the largest memory since its start. `is_proportional`: PSS.
    `device_memory` and `device_peak`: of its processes on GPUs. `stopped_pid`: a process that a signal has stopped, 0
    for none. `wait`: the annotation WAITING_PROCESS, "" if its main process waits for nothing of that."""

    name: str
    run: int
    cores: float
    memory: int
    peak: int
    is_proportional: bool
    stopped_pid: int = 0
    wait: str = ""
    device_memory: int = 0
    device_peak: int = 0


class PodUsage(msgspec.Struct, frozen=True):
    """The usage of a pod whose running containers have all been measured."""

    namespace: str
    name: str
    uid: str
    time: float
    window: float
    containers: tuple[ContainerUsage, ...]
    progress: Progress | None = None
    devices: tuple[DeviceUsage, ...] = ()


class NodeUsage(msgspec.Struct, frozen=True):
    """The usage of a node's machine by all programs."""

    name: str
    time: float
    window: float
    cores: float
    memory: int
    devices: tuple[DeviceUsage, ...] = ()


class UsageReport(msgspec.Struct, frozen=True):
    """The usage that a node has measured. `node` is None before its first measurement."""

    pods: tuple[PodUsage, ...] = ()
    node: NodeUsage | None = None


def peak_annotation(peaks: Mapping[str, int], name: str = PEAK_MEMORY) -> dict[str, str]:
    """The annotation PEAK_MEMORY (or `name`) with these peaks, {} without any."""
    known = {run: peak for run, peak in peaks.items() if peak}
    return {name: encode(known).decode()} if known else {}


def devices_annotation(devices: Sequence[DeviceUsage]) -> dict[str, str]:
    """The annotation DEVICES, {} without any."""
    return {DEVICES: encode(msgspec.to_builtins(devices)).decode()} if devices else {}


def devices_of(annotations: Mapping[str, object]) -> tuple[DeviceUsage, ...]:
    """The devices in the annotations of a PodMetrics or NodeMetrics; () when there are none or they cannot be
    parsed."""
    try:
        return msgspec.json.decode(str(annotations.get(DEVICES) or "[]"), type=tuple[DeviceUsage, ...])
    except msgspec.MsgspecError:
        return ()


def progress_of(annotations: Mapping[str, object]) -> Progress | None:
    """The progress in the annotations of a PodMetrics; None when there is none or it cannot be parsed."""
    try:
        fields = decode(str(annotations.get(PROGRESS) or "null"))
        values = {str(name): float(value) for name, value in fields["values"].items()}
        since = {str(name): _optional(step) for name, step in (fields.get("notFiniteSince") or {}).items()}
        rate, *times = (
            _optional(fields.get(name)) for name in ("stepsPerSecond", "stepTime", "secondsPerStep", "time")
        )
        return Progress(values, rate, str(fields.get("source") or ""), since, *times)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _optional(number: Any) -> float | None:
    return None if number is None else float(number)


def peaks_of(annotations: Mapping[str, object], name: str = PEAK_MEMORY) -> dict[str, int]:
    """`CONTAINER/RUN` -> peak of the memory in bytes, from the annotation `name` of a Pod or PodMetrics; {} when there
    are none or they cannot be parsed."""
    try:
        peaks = decode(str(annotations.get(name) or "{}"))
    except ValueError:
        return {}
    if not isinstance(peaks, dict):
        return {}
    return {run: peak for run, peak in peaks.items() if isinstance(peak, int) and not isinstance(peak, bool)}
