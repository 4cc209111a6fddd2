"""GPUs as Prometheus metrics, under the names of dcgm-exporter and of AMD's device-metrics-exporter."""

from __future__ import annotations

from trainyard.objects.usage import DeviceUsage, NodeUsage, PodUsage, UsageReport
from trainyard.views.device_metrics import device_metrics

GIB = 1 << 30


def report(*devices: DeviceUsage, pods: tuple[PodUsage, ...] = ()) -> UsageReport:
    return UsageReport(pods, NodeUsage("ann", 0.0, 1.0, 0.0, 0, devices))


def test_gpus_have_the_names_labels_and_units_of_the_exporters_of_clusters() -> None:
    first = DeviceUsage(0, "GPU-a", "NVIDIA H100", 80 * GIB, 6 * GIB, 97, resource="nvidia.com/gpu")
    mig = DeviceUsage(1, "MIG-b", 'a "b"', 10 * GIB, 0, None, resource="nvidia.com/mig-1g.10gb")
    amd = DeviceUsage(0, "GPU-c", "gfx942", 192 * GIB, 192 * GIB, 5, resource="amd.com/gpu")
    lost = DeviceUsage(2, "GPU-d", lost="x", resource="nvidia.com/gpu")
    pod = PodUsage("default", "mnist-worker-0", "u", 0.0, 1.0, (), devices=(first,))
    of_first = 'gpu="0",UUID="GPU-a",modelName="NVIDIA H100",Hostname="ann",namespace="default",pod="mnist-worker-0"'
    of_mig = 'gpu="1",UUID="MIG-b",modelName="a \\"b\\"",Hostname="ann"'
    of_amd = 'gpu_id="0",gpu_uuid="GPU-c",card_model="gfx942",hostname="ann"'
    lines = device_metrics(report(first, mig, amd, lost, pods=(pod,))).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        f"DCGM_FI_DEV_GPU_UTIL{{{of_first}}} 97",
        f"DCGM_FI_DEV_FB_USED{{{of_first}}} 6144",
        f"DCGM_FI_DEV_FB_USED{{{of_mig}}} 0",
        f"DCGM_FI_DEV_FB_FREE{{{of_first}}} 75776",
        f"DCGM_FI_DEV_FB_FREE{{{of_mig}}} 10240",
        f"gpu_gfx_activity{{{of_amd}}} 5",
        f"gpu_used_vram{{{of_amd}}} 196608",
        f"gpu_free_vram{{{of_amd}}} 0",
    ]
    assert lines[:2] == [
        "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).",
        "# TYPE DCGM_FI_DEV_GPU_UTIL gauge",
    ]


def test_without_a_gpu_there_are_none() -> None:
    assert device_metrics(UsageReport()) == device_metrics(report()) == ""
