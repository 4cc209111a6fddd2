"""Who uses the GPUs of a machine, as `status`, `top` and a pod that has ended show it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from tests.app.daemon_values import at_home
from tests.devices.test_devices_of_jobs import Cluster, is_running
from tests.stories.runs import process_of
from tests.support.fake_nvml import GIB, FakeNvml, gpus, uuid
from tests.support.waiting import until
from trainyard.objects.metric_points import decode_points
from trainyard.objects.usage import PEAK_DEVICE_MEMORY, peaks_of

pytestmark = pytest.mark.slow


def test_a_pod_and_another_program_use_gpus(tmp_path: Path) -> None:
    machine = FakeNvml(tmp_path, 2)
    script = f"until [ -e {tmp_path}/end ]; do sleep 0.1; done; exit 1"
    resources = {"limits": {"nvidia.com/gpu": 1}}
    container = {"name": "tensorflow", "image": "x", "command": ["sh", "-c", script], "resources": resources}
    role = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "mnist"}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({**job, "spec": {"tfReplicaSpecs": {"Worker": role}}}))
    with at_home(tmp_path) as home:
        home.env |= machine.environ
        for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
            home.env.pop(name, None)
        assert home.up()[0] == 0
        assert home.say("submit", str(tmp_path / "job.yaml"))[0] == 0
        cluster = Cluster(home)
        cluster.until_pods("mnist", 1, is_running, "run")
        pid = process_of("mnist-worker-0", f"{tmp_path}/end")
        machine.set(
            [
                *(*gpus(2), "busy 0 97 40", f"used 0 {6 * GIB}", f"used 1 {20 * GIB}"),
                *(f"process 0 {pid} {6 * GIB}", f"process 1 {os.getpid()} {20 * GIB}"),
            ]
        )

        def use() -> object:
            rows = json.loads(home.say("top", "mnist", "-o", "json")[1])["replicas"]
            return [(row["deviceMemory"], row["deviceUtilization"]) for row in rows]

        until(use, "the use of the replica", accept=lambda row: row == [(6 * GIB, 97.0)], seconds=120)
        status = home.say("status")[1]
        assert "0 NVIDIA H100 80GB HBM3: 6.0 GiB of 80.0 GiB, 97 % busy; default/mnist-worker-0 6.0 GiB" in status
        assert f"device 1: 20.0 GiB used by another program, pid {os.getpid()} (" in status

        used = f'DCGM_FI_DEV_FB_USED{{gpu="0",UUID="{uuid(0)}",modelName="NVIDIA H100 80GB HBM3",Hostname="local"'
        assert f'{used},namespace="default",pod="mnist-worker-0"}} 6144\n' in cluster.text("/metrics")

        def recorded() -> set[tuple[str, float]]:
            files = home.folder.rglob("metrics.jsonl")  # there is none before the first pass
            return {(point.name, point.value) for file in files for point in decode_points(file.read_bytes())}

        expected = {("gpu_utilization", 97.0), ("gpu_memory", 6.0 * GIB)}
        until(recorded, "the use over time", accept=lambda values: expected <= values, seconds=60)
        (tmp_path / "end").touch()
        ended = cluster.until_pods("mnist", 1, lambda pod: pod["status"]["phase"] == "Failed", "fail")
        (pod,) = ended.values()
        assert peaks_of(pod["metadata"]["annotations"], PEAK_DEVICE_MEMORY) == {"tensorflow/1": 6 * GIB}
        replicas = home.say("describe", "mnist")[1].partition("Replicas:")[2].splitlines()
        assert replicas[1].split("  ")[-2].strip() == "GPU PEAK" and " 6.0 GiB " in replicas[2]
        until(lambda: home.say("history", "mnist")[1], "the peak in the history", accept=has_peak)


def has_peak(text: str) -> bool:
    head, _, rows = text.partition("Pods:")[2].strip().partition("\n")
    return head.endswith("GPU PEAK") and rows.splitlines()[0].endswith("6.0 GiB")
