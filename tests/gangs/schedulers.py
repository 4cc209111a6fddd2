"""Gang schedulers of others, as a second scheduler beside a control plane of tests.

scheduler-plugins is built once from its Go module (tests/drop_in/operators_build.py). Volcano is on no module proxy:
`TRAINYARD_VOLCANO` names a folder with `vc-scheduler`, `vc-controller-manager` and, of its chart, the definitions as
`crds/*.yaml` and `volcano-scheduler.conf`. Without the variable the tests of Volcano are skipped. Its scheduler does
nothing without a configuration, and its controllers open no queue where the definitions of jobflow are missing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from tests.drop_in.operators import create, documents, process, report_build
from tests.drop_in.operators_build import SCHEDULER_PLUGINS_MODULE, operators
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_process import free_ports
from trainyard.objects import Json, encode

VOLCANO_VARIABLE = "TRAINYARD_VOLCANO"
LIMITS = {"qps": 1000, "burst": 2000}  # requests per second: the defaults of 50 and 100 are slow


class GangScheduler(Protocol):
    """`name`: the value of --gang-scheduler-name. `version`: the one that this was written for."""

    name: str
    version: str

    def install(self, plane: ControlPlane) -> None:
        """Put its definitions into a control plane that has none of them."""
        ...

    def running(self, plane: ControlPlane) -> contextlib.AbstractContextManager[None]:
        """It schedules within the block."""
        ...


class Coscheduling:
    """kube-scheduler with the plugin Coscheduling of scheduler-plugins, for pods that name it."""

    name = "scheduler-plugins-scheduler"
    version = SCHEDULER_PLUGINS_MODULE.version

    def __init__(self) -> None:
        self._built = operators(report_build, (SCHEDULER_PLUGINS_MODULE,))

    def install(self, plane: ControlPlane) -> None:
        create(plane, *documents(self._built / "scheduler-plugins" / "manifests" / "coscheduling" / "crd.yaml"))

    @contextlib.contextmanager
    def running(self, plane: ControlPlane) -> Iterator[None]:
        (port,) = free_ports(1)
        place = plane.folder / "coscheduling.json"
        place.write_bytes(encode(self._configuration(plane)))
        program = self._built / "bin" / "scheduler-plugins"
        command = [str(program), f"--config={place}", "--bind-address=127.0.0.1", f"--secure-port={port}"]
        with process(plane, command, f"https://127.0.0.1:{port}/healthz"):
            yield

    def _configuration(self, plane: ControlPlane) -> Json:
        """That of the plugin's manifests, for a second scheduler."""
        plugin = [{"name": "Coscheduling"}]
        profile = {
            "schedulerName": self.name,
            "plugins": {
                "multiPoint": {"enabled": plugin},
                "queueSort": {"enabled": plugin, "disabled": [{"name": "*"}]},
            },
            "pluginConfig": [{"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 10}}],
        }
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(plane.kubeconfig), **LIMITS},
            "profiles": [profile],
        }


class Volcano:
    """Volcano's scheduler and controllers, without its webhooks."""

    name = "volcano"
    version = "v1.15.1"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def install(self, plane: ControlPlane) -> None:
        create(plane, *(item for path in sorted((self._folder / "crds").glob("*.yaml")) for item in documents(path)))
        create(plane, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "volcano-system"}})

    @contextlib.contextmanager
    def running(self, plane: ControlPlane) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for program in ("vc-controller-manager", "vc-scheduler"):
                (port,) = free_ports(1)
                address = f"127.0.0.1:{port}"
                command = [str(self._folder / program), f"--kubeconfig={plane.kubeconfig}", "--leader-elect=false"]
                command += ["--enable-healthz=true", f"--healthz-address={address}", "--kube-api-qps=1000"]
                command += ["--kube-api-burst=2000"]
                if program == "vc-scheduler":
                    command.append(f"--scheduler-conf={self._folder / 'volcano-scheduler.conf'}")
                stack.enter_context(process(plane, command, f"http://{address}/healthz"))
            plane.wait_for("/apis/scheduling.volcano.sh/v1beta1/queues/default")  # the scheduler makes it
            yield


def volcano_folder() -> Path | None:
    """The folder of VOLCANO_VARIABLE, None when it is unset."""
    named = os.environ.get(VOLCANO_VARIABLE, "")
    return Path(named).absolute() if named else None
