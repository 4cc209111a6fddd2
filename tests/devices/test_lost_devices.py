"""A GPU that is lost while a job trains on it (tests/support/fake_nvml.py): the job restarts on others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.devices.test_devices_of_jobs import cluster_with_gpus, devices, is_running, manifest
from tests.support.fake_nvml import gpus, uuid
from tests.support.waiting import until
from trainyard.objects.resources import EVENT

pytestmark = pytest.mark.slow


def test_a_job_whose_device_is_lost_restarts_on_others(tmp_path: Path) -> None:
    with cluster_with_gpus(tmp_path, 3) as (machine, home, cluster):
        assert home.say("submit", str(manifest(tmp_path, "train", 2)))[0] == 0
        cluster.until_pods("train", 2, is_running, "run")
        given = devices(home, "train", 2)
        assert sorted(uuids[-1] for uuids in given.values()) == [uuid(0), uuid(1)]
        machine.set([*gpus(3), "lost 1"])

        def last_devices() -> list[str]:
            return sorted(uuids[-1] for uuids in devices(home, "train", 2).values())

        until(last_devices, "the job continues", accept=lambda last: last == [uuid(0), uuid(2)], seconds=120)

        def restarts() -> list[str]:
            return [event["message"] for event in cluster.list(EVENT) if event["reason"] == "PyTorchJobRestarting"]

        (restart,) = until(restarts, "the restart is told")
        lost = f"DeviceLost: GPU 1 ({uuid(1)}) is lost: the driver cannot reach it; disrupted, tried again"
        assert lost in restart
        assert "1 NVIDIA H100 80GB HBM3: lost: the driver cannot reach it; no pod gets it" in home.say("status")[1]
        (tmp_path / "train").touch()
