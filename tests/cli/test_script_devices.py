"""How many GPUs the workers of a script get, and what is said about it: `run`, `init` and `lint` on machines with and
without GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.cli.script_values import NOTHING, program_job, script
from tests.support.fake_nvml import FakeNvml
from trainyard.cli.command import manifests
from trainyard.cli.init import init
from trainyard.cli.lint import lint
from trainyard.cli.plan import plan
from trainyard.cli.run import run
from trainyard.cli.scripts import job_maker, machine_devices
from trainyard.cli.scripts.worker_devices import worker_devices
from trainyard.kinds import PYTORCHJOB
from trainyard.node.devices import drivers
from trainyard.objects import Json, templates_of
from trainyard.objects.manifest import ManifestError

GPU = "nvidia.com/gpu"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    script(tmp_path, "import torch\n")
    return tmp_path


def fake_gpus(folder: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    for name, value in FakeNvml(folder, count).environ.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("machine", "workers", "gpus", "limits", "note"),
    [
        ({}, 1, None, {}, ""),
        ({}, 2, 1, {GPU: 1}, ""),
        ({GPU: 1}, 1, None, {GPU: 1}, "the worker gets the GPU of this machine"),
        ({GPU: 8}, 1, None, {GPU: 8}, "the worker gets all 8 GPUs of this machine"),
        ({GPU: 8}, 1, 0, {}, ""),
        ({GPU: 8}, 4, None, {GPU: 2}, "each of 4 workers gets 2 of the 8 GPUs of this machine ("),
        ({GPU: 8}, 3, None, {GPU: 2}, "each of 3 workers gets 2 of the 8 GPUs of this machine, and 2 are left ("),
        ({GPU: 1}, 2, None, {}, "this machine has 1 GPU, fewer than 2 workers: none gets one"),
        ({"amd.com/gpu": 2}, 2, 1, {"amd.com/gpu": 1}, ""),
        ({"nvidia.com/mig-1g.10gb": 4}, 2, None, {"nvidia.com/mig-1g.10gb": 2}, "each of 2 workers gets 2"),
        ({"nvidia.com/mig-1g.10gb": 4, GPU: 1}, 1, None, {GPU: 1}, "the worker gets the GPU"),
    ],
)
def test_the_devices_of_a_machine_are_divided(
    machine: dict[str, int], workers: int, gpus: int | None, limits: dict[str, int], note: str
) -> None:
    devices = worker_devices({"gpus": gpus}, workers, True, lambda: machine)
    assert devices.limits == limits and devices.note.startswith(note) and bool(devices.note) == bool(note)


def test_a_program_without_a_framework_gets_none_unless_it_asks() -> None:
    assert not worker_devices({"gpus": None}, 1, False, lambda: {GPU: 8}).limits
    assert worker_devices({"gpus": 2}, 1, False, lambda: {GPU: 8}).limits == {GPU: 2}


def limits_of(job: Json) -> list[Any]:
    return [
        container.get("resources", {}).get("limits")
        for _, template in templates_of(job["spec"], "spec")
        for container in template["spec"]["containers"]
    ]


@pytest.mark.parametrize(
    ("options", "limits"),
    [
        ({"framework": "torch", "workers": 2}, [{GPU: 1}, {GPU: 1}]),
        ({"framework": "tensorflow", "ps": 1}, [{GPU: 1}, None]),
        ({"framework": "mxnet", "ps": 1}, [None, None, {GPU: 1}]),
        ({"framework": "mpi4py"}, [{GPU: 1}]),
        ({"framework": "mpi4py", "workers": 2}, [None, {GPU: 1}]),
        ({"framework": "chainer", "workers": 2}, [{GPU: 1}, {GPU: 1}]),
        ({"framework": "plain"}, [{GPU: 1}]),
    ],
)
def test_what_computes_has_the_limits(options: dict[str, Any], limits: list[Any]) -> None:
    assert limits_of(program_job("train.py", gpus=1, **options).job) == limits


def test_nproc_gpu_is_the_number_of_devices_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_maker, "machine_devices", lambda: {GPU: 8})
    assert program_job("train.py", nproc="gpu", workers=2).job["spec"]["nprocPerNode"] == "4"
    assert program_job("train.py", nproc="gpu", gpus=3).job["spec"]["nprocPerNode"] == "3"
    monkeypatch.setattr(job_maker, "machine_devices", dict)
    with pytest.raises(ManifestError, match="--gpus N"):
        program_job("train.py", nproc="gpu")


def test_without_a_driver_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainyard.node.devices import discovery

    monkeypatch.setattr(discovery, "has_nvidia_driver", lambda environ: False)
    monkeypatch.setattr(discovery, "has_amd_driver", lambda: False)
    monkeypatch.setattr(discovery, "discover", None)
    assert machine_devices.machine_devices() == {}


def invoke(command: Any, *arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments))


def test_init_writes_the_share_of_each_worker(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gpus(folder, monkeypatch, 4)
    result = invoke(init, "--workers", "2", "train.py")
    assert "train.py: each of 2 workers gets 2 of the 4 GPUs of this machine (--gpus changes it)" in result.stderr
    text = (folder / "train.yaml").read_text()
    assert limits_of(yaml.safe_load(text)) == [{GPU: 2}, {GPU: 2}] and text.count("resources:") == 2


def test_the_variables_of_the_shell_bound_the_share(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gpus(folder, monkeypatch, 4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    assert machine_devices.machine_devices() == {GPU: 2}


def test_a_job_that_asks_for_more_than_there_is_does_not_start(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_gpus(folder, monkeypatch, 2)
    result = invoke(run, "--gpus", "2", "--workers", "2", "--save", "job.yaml", "train.py")
    text = "its pods ask for 4 nvidia.com/gpu together, and this machine has 2; lower the limits or the replicas"
    assert result.exit_code == 3 and f"cannot run here: PyTorchJob train: spec: {text}" in result.stderr
    planned = invoke(plan, "job.yaml")
    assert planned.exit_code == 0 and f"warning: PyTorchJob train: spec: {text}" in planned.stderr
    checked = invoke(lint, "job.yaml")
    assert checked.exit_code == 0 and "warning: spec: " in checked.stderr and text in checked.stderr
    assert set(NOTHING) >= {"gpus", "nproc"}


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 8),
        ({"elasticPolicy": {"minReplicas": 2, "maxReplicas": 4}}, 4),
        ({"elasticPolicy": {"maxReplicas": 4}}, 8),
        ({"runPolicy": {"schedulingPolicy": {"minAvailable": 3}}}, 6),
    ],
)
def test_the_devices_that_have_to_be_free_are_those_of_the_replicas_that_start_together(spec: Json, count: int) -> None:
    """As the PodGroup says that the job will have."""
    container = {"name": "pytorch", "image": "x", "resources": {"limits": {GPU: 2}}}
    worker = {"replicas": 4, "template": {"spec": {"containers": [container]}}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "train"}}
    job["spec"] = {"pytorchReplicaSpecs": {"Worker": worker}, **spec}
    assert machine_devices.device_requests(PYTORCHJOB, job) == {GPU: count}
    worker["template"] = {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}
    assert machine_devices.device_requests(PYTORCHJOB, job) == {}


def test_a_job_that_asks_for_none_is_told_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def notes(gpus: int, *loaded: str) -> list[str]:
        monkeypatch.setattr(drivers, "has_nvidia_driver", lambda environ: GPU in loaded)
        monkeypatch.setattr(drivers, "has_amd_driver", lambda: "amd.com/gpu" in loaded)
        job = program_job("train.py", gpus=gpus).job
        return [str(problem) for problem in manifests.local_notes(PYTORCHJOB, job) if "GPU" in str(problem)]

    text = (
        "spec: it asks for no GPU, so its programs see none of this machine's; add --gpus 1 to `run SCRIPT`, or write"
    )
    text += " into the pod template of a role"
    assert notes(0) == [] == notes(1, GPU)
    assert notes(0, GPU) == [f"{text}: resources: {{limits: {{nvidia.com/gpu: 1}}}}"]
    assert notes(0, "amd.com/gpu") == [f"{text}: resources: {{limits: {{amd.com/gpu: 1}}}}"]
