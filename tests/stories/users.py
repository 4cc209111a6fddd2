"""What a person types at a cluster that stays, and what it says: one of `trainyard up`, or a real control plane.

On the real one `up` starts `trainyard operator` and `trainyard node` as processes; there nothing of ours is in between.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.stories.runs import LONGEST, CommandOutput
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_fixtures import create_namespace
from tests.support.control_plane_process import LAUNCH
from tests.support.loop_stalls import environment_of_watched_daemons
from trainyard.objects import Json

END_SECONDS = 30.0
GPUS = "alpha.kubernetes.io/nvidia-gpu=3"  # what the README's MxJob asks a scheduler for
_numbers = itertools.count(1)


class UserCluster:
    """A cluster of `trainyard up`, and the commands of a user."""

    def __init__(self, home: Path) -> None:
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        self.env = {
            **environment_of_watched_daemons(os.environ),
            "HOME": str(home),
            "XDG_STATE_HOME": str(home),
            "XDG_CACHE_HOME": cache,
        }
        self.env.pop("KUBECONFIG", None)

    def up(self, network: str) -> None:
        self("up", "--network", network)

    def down(self) -> None:
        self("down")

    def __call__(self, *arguments: str) -> str:
        done = self.start(*arguments)
        out, err = done.communicate(timeout=LONGEST)
        assert done.returncode == 0, f"{arguments}: {out}{err}"
        return out

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "trainyard", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)

    def submit(self, *arguments: str) -> Watched:
        return Watched(self.start("submit", *arguments, "--wait", "--logs", "--timeout", str(LONGEST)))

    def job(self, kind: str, name: str) -> Json:
        record_fields: Any = json.loads(self("get", kind, name, "-o", "json"))
        job: Json = record_fields["items"][0] if "items" in record_fields else record_fields
        return job


class RealUserCluster(UserCluster):
    """A namespace of a real control plane, an operator and a node."""

    def __init__(self, home: Path, plane: ControlPlane) -> None:
        super().__init__(home)
        self._plane, self._home = plane, home
        self._programs: list[subprocess.Popen[bytes]] = []
        number = next(_numbers)
        self.namespace = self._node = f"user-cluster-{number}"

    def up(self, network: str) -> None:
        create_namespace(self._plane, self.namespace)
        config = self._home / "kubeconfig"
        shutil.copy(self._plane.kubeconfig, config)
        self.env["KUBECONFIG"] = str(config)
        arguments = ("config", "set-context", "--current", f"--namespace={self.namespace}")
        subprocess.run(
            [str(self._plane.programs["kubectl"]), *arguments], env=self.env, check=True, capture_output=True
        )
        self._begin("node", "--name", self._node, "--network", network, "--yes", "--capacity", GPUS)
        self._begin("operator", "--kinds", "all")
        self._plane.kubectl("wait", f"node/{self._node}", "--for=create", "--timeout=60s")
        self._plane.kubectl("wait", f"node/{self._node}", "--for=condition=Ready", "--timeout=60s")

    def _begin(self, command: str, *more: str) -> None:
        argv = [*LAUNCH, str(os.getpid()), sys.executable, "-m", "trainyard", command, *more]
        with (self._home / f"{command}.log").open("wb") as log:
            self._programs.append(
                subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def down(self) -> None:
        self._plane.kubectl("delete", "tfjobs,mxjobs,chainerjobs,elasticjobs", "--all", "-n", self.namespace)
        for program in reversed(self._programs):
            program.send_signal(signal.SIGTERM)
        ends = [program.wait(END_SECONDS) for program in self._programs]
        self._plane.ask("DELETE", f"/api/v1/namespaces/{self.namespace}")
        assert ends == [0] * len(ends), self.output()

    def output(self) -> str:
        """What the operator and the node have printed."""
        return "\n".join(path.read_text() for path in sorted(self._home.glob("*.log")))


class Watched(CommandOutput):
    """The merged logs of submitted jobs, read as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        super().__init__()
        self.process = process

    def read_until(self, pattern: str) -> re.Match[str]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if match := re.search(pattern, line):
                return match
        raise AssertionError(f"{pattern!r} was not said:\n" + "\n".join(self.lines))

    def end(self) -> int:
        out, err = self.process.communicate(timeout=LONGEST)
        self.lines += [*out.splitlines(), *err.splitlines()]
        return self.process.returncode
