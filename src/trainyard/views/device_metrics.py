"""The use of GPUs as Prometheus metrics, under the names, labels and units of the exporters that clusters have, so that
their dashboards and alerts work: NVIDIA's dcgm-exporter and AMD's device-metrics-exporter. Pure.

Rules:
- Memory is in MiB, as those exporters have it.
- `namespace` and `pod`: of the pod that the device is given to; without these labels it is given to none.
- A device that is lost has no values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trainyard.objects.extended_resources import AMD_GPU
from trainyard.objects.usage import DeviceUsage, UsageReport

CONTENT_TYPE = "text/plain; version=0.0.4"
_MIB = 1 << 20


class _Gauge(NamedTuple):
    name: str
    help: str


_NVIDIA = (
    _Gauge("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %)."),
    _Gauge("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB)."),
    _Gauge("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB)."),
)
_AMD = (
    _Gauge("gpu_gfx_activity", "Graphics engine usage (in %)."),
    _Gauge("gpu_used_vram", "VRAM used (in MiB)."),
    _Gauge("gpu_free_vram", "VRAM free (in MiB)."),
)


def device_metrics(report: UsageReport) -> str:
    """The text of the exposition format; "" without a device."""
    devices = report.node.devices if report.node else ()
    pods = {device.uuid: (pod.namespace, pod.name) for pod in report.pods for device in pod.devices}
    lines: list[str] = []
    for gauges, is_amd in ((_NVIDIA, False), (_AMD, True)):
        present = [device for device in devices if (device.resource == AMD_GPU) == is_amd and not device.lost]
        for gauge, read in zip(gauges, (_utilization, _used, _free), strict=True):
            values = [(device, value) for device in present if (value := read(device)) is not None]
            if values:
                lines += [f"# HELP {gauge.name} {gauge.help}", f"# TYPE {gauge.name} gauge"]
            for device, value in values:
                labels = _labels(device, report.node.name if report.node else "", pods.get(device.uuid), is_amd)
                lines.append(f"{gauge.name}{{{labels}}} {value}")
    return "".join(f"{line}\n" for line in lines)


def _utilization(device: DeviceUsage) -> int | None:
    return device.utilization


def _used(device: DeviceUsage) -> int | None:
    return device.used // _MIB if device.memory else None


def _free(device: DeviceUsage) -> int | None:
    return (device.memory - device.used) // _MIB if device.memory else None


def _labels(device: DeviceUsage, node: str, pod: tuple[str, str] | None, is_amd: bool) -> str:
    labels: Mapping[str, str] = (
        {"gpu_id": str(device.index), "gpu_uuid": device.uuid, "card_model": device.name, "hostname": node}
        if is_amd
        else {"gpu": str(device.index), "UUID": device.uuid, "modelName": device.name, "Hostname": node}
    )
    if pod:
        labels = {**labels, "namespace": pod[0], "pod": pod[1]}
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
