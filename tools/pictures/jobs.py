"""A local cluster of its own with the jobs that the pictures of the page show."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("train.py")
FOLDER = Path("/tmp/trainyard-demo")  # noqa: S108  (always the same, as its name is in the pictures)
STEPS = 5000  # more than a picture waits for
STEP_OF_PICTURES = 200  # the pictures of a running job are taken when its chief is here
SLOW_RANK = 6


def pytorch_job(name: str, workers: int, program: list[str], **pod_spec: Any) -> dict[str, Any]:
    """A PyTorchJob of a master and workers, which do not restart."""
    container = {"name": "pytorch", "image": "trainyard/local", "command": program}
    template = {"spec": {"containers": [container], **pod_spec}}

    def role(replicas: int) -> dict[str, Any]:
        return {"replicas": replicas, "restartPolicy": "Never", "template": template}

    spec = {"pytorchReplicaSpecs": {"Master": role(1), "Worker": role(workers)}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": spec}


def training(steps: int, delay: float, slow: int = -1) -> list[str]:
    """The command of a training."""
    return ["python", str(FOLDER / PROGRAM.name), f"--steps={steps}", f"--delay={delay}", f"--slow={slow}"]


MISSING = "import time\ntime.sleep(2)\nimport transformers"
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "imagenet"}}
ENDED = [pytorch_job("ablation-1", 1, training(200, 0.01)), pytorch_job("ablation-2", 1, training(300, 0.01))]
FAILED = pytorch_job("bert-finetune", 3, ["python", "-c", MISSING])
PENDING = pytorch_job("resnet-imagenet", 3, training(STEPS, 0.1), volumes=[CLAIM])
SUSPENDED = pytorch_job("sweep-lr", 3, training(STEPS, 0.1))
RUNNING = pytorch_job("digits", 11, training(STEPS, 0.1, SLOW_RANK))


def install(venv: Path) -> Path:
    """Create an environment with what the running Python has, under a path that may be in a picture. Returns the folder
    of its programs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    packages.joinpath("outer.pth").write_text(
        "".join(f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages())
    )
    command = venv / "bin" / "trainyard"
    command.write_text(f"#!{venv}/bin/python\nfrom trainyard.__main__ import start\n\nstart()\n")
    command.chmod(0o755)
    return command.parent


class Cluster:
    """A cluster of `trainyard up` whose state, and whose Python, are in a folder of its own. It is used by the commands
    that users have."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder
        programs = install(folder / "venv")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("TRAINYARD_")}
        self.environment |= {
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "HOME": str(folder),
            "TERM": "xterm-256color",
            "PATH": f"{programs}:{os.environ['PATH']}",
        }
        self.environment.pop("KUBECONFIG", None)
        shutil.copy(PROGRAM, folder)

    def run(self, *arguments: str) -> str:
        """What the command prints on stdout. Raises RuntimeError when it fails."""
        command = ["trainyard", *arguments]
        completed = subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False
        )
        if completed.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit code {completed.returncode}\n{completed.stderr}")
        return completed.stdout

    def submit(self, *jobs: dict[str, Any]) -> None:
        """Create the jobs, one after the other."""
        for job in jobs:
            self.run("submit", str(self.save(job)))

    def save(self, job: dict[str, Any]) -> Path:
        """Write NAME.yaml."""
        path = self.folder / f"{job['metadata']['name']}.yaml"
        path.write_text(json.dumps(job), encoding="utf-8")
        return path

    def wait(self, name: str, state: str, patience: float = 120) -> None:
        """Wait until the job is in that state: `Running`, `Failed`, ..."""
        self.until(lambda: state in self.run("get", name), f"{name} is not {state}", patience)

    def wait_for_step(self, name: str, step: int, patience: float = 300) -> None:
        """Wait until the first replica has got there."""

        def reached() -> bool:
            replicas = json.loads(self.run("top", name, "-o", "json"))["replicas"]
            return max((replica["step"] or 0 for replica in replicas), default=0) >= step

        self.until(reached, f"{name} is not at step {step}", patience)

    @staticmethod
    def until(condition: Any, failure: str, patience: float) -> None:
        deadline = time.monotonic() + patience
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(failure)
            time.sleep(0.2)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster that is not up yet; at the end it is gone, with its folder."""
    FOLDER.mkdir(mode=0o700)  # fails when another run has it
    try:
        running = Cluster()
        try:
            yield running
        finally:
            running.run("down")
    finally:
        shutil.rmtree(FOLDER)
