"""The failures that a user meets: for each a job that really fails so, and what `why` is waited for to say.

The whole answer to each is in testdata/failures, which `pytest tests/cli/test_why_failures.py --update` writes anew;
docs/failures.md is made of both.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.cli.commands import elastic
from tests.support.samples import kubeflow_job
from trainyard.objects import Json

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(600)"
TRAIN = """\
import os

settings = dict(epochs=3)


def train():
    print("learning rate", settings["rate"])


if __name__ == "__main__":
    print("starting")
    train()
"""
STEPS = """\
import threading
import time

for step in range(1, 31):
    print(f"step {step} loss {1 / step:.2f}", flush=True)
    time.sleep(0.2)
"""
GOES_ON = """\
import threading
import time

settings = dict(epochs=3)
threading.Thread(target=time.sleep, args=[600], name="loader").start()
print("learning rate", settings["rate"])
"""


class Failure(NamedTuple):
    """`objects` makes the manifest; files that it needs are written into the folder that it is given."""

    title: str
    objects: Callable[[Path], list[Json]]
    until: tuple[str, ...] = (" failed ",)
    networks: tuple[str, ...] = ("shared",)
    catalogue: str = ""  # an image catalogue, for --images

    @property
    def slug(self) -> str:
        return "-".join("".join(char if char.isalnum() else " " for char in self.title.lower()).split())


def job(container: Json, workers: int = 0, restart: str = "OnFailure", **spec: Any) -> Json:
    """A TfJob whose MASTER is that container; the workers wait for it."""
    workers_set = [_role("WORKER", python(SLEEP), workers, restart)] if workers else []
    body = {"replicaSpecs": [_role("MASTER", container, 1, restart, **spec), *workers_set]}
    return {"apiVersion": "tensorflow.org/v1alpha1", "kind": "TfJob", "metadata": {"name": "mnist"}, "spec": body}


def _role(role: str, container: Json, count: int, restart: str, **spec: Any) -> Json:
    template = {"spec": {"containers": [container], "restartPolicy": restart, **spec}}
    return {"tfReplicaType": role, "replicas": count, "template": template}


def python(code: str, **more: Any) -> Json:
    return program([sys.executable, "-uc", code], **more)


def program(command: list[str], **more: Any) -> Json:
    return {"name": "tensorflow", "image": "example.invalid/mnist", "command": command, **more}


def script(folder: Path, text: str, **more: Any) -> Json:
    """`python train.py`, in its folder."""
    (folder / "train.py").write_text(text)
    return program([sys.executable, "-u", "train.py"], workingDir=str(folder), **more)


def _in_tmp(folder: Path) -> list[Json]:
    """The folder of a test is below /tmp, or wherever this machine has its temporary files."""
    return [job(script(folder, "print('trained')\n"))]


def _over_its_limit(folder: Path) -> list[Json]:
    code = "data = []\nwhile True:\n    data.append(bytearray(1 << 22))\n"
    return [job(script(folder, code, resources={"limits": {"memory": "64Mi"}}))]


def _workers(folder: Path) -> list[Json]:
    body = job(python(SLEEP), workers=3)
    body["spec"]["replicaSpecs"][1]["template"]["spec"]["containers"] = [script(folder, TRAIN)]
    return [body]


def _hangs(folder: Path) -> list[Json]:
    """The worker sleeps, and the master waits for it. The step that the master tells last is the earlier one."""
    body = job(script(folder, f"{STEPS}threading.Event().wait()\n"), workers=1)
    sleeper = python(f"import time\ntime.sleep(1.5)\n{STEPS}time.sleep(600)")
    body["spec"]["replicaSpecs"][1]["template"]["spec"]["containers"] = [sleeper]
    return [body]


def volume(source: Json, **more: Any) -> Json:
    """A job that mounts that volume at /data."""
    container = python(SLEEP, volumeMounts=[{"name": "data", "mountPath": "/data"}])
    return job(container, volumes=[{"name": "data", **source}], **more)


def _not_executable(folder: Path) -> list[Json]:
    (folder / "train.sh").write_text("#!/bin/sh\necho training\n")
    return [job(program([str(folder / "train.sh")]))]


def _file_as_directory(folder: Path) -> list[Json]:
    (folder / "data").write_text("")
    return [volume({"hostPath": {"path": str(folder / "data"), "type": "Directory"}})]


def _deadline(folder: Path) -> list[Json]:
    """Its only worker fails, runs again, and is stopped at the deadline."""
    mark = folder / "seen"
    code = f"from pathlib import Path\nif not Path({str(mark)!r}).exists():\n"
    code += f"    Path({str(mark)!r}).touch()\n    raise SystemExit('no data')\n{SLEEP}"
    body = elastic(code, name="imagenet", replicas=1, minReplicas=1, activeDeadlineSeconds=3)
    body["spec"]["replicaSpecs"]["Worker"]["restartPolicy"] = "OnFailure"
    return [{**body, "spec": {**body["spec"], "rdzvEndpoint": "127.0.0.1:2379"}}]


def _without_command(**more: Any) -> Json:
    return {"name": "tensorflow", "image": "example.invalid/mnist", **more}


def _init_container(folder: Path) -> list[Json]:
    silent = {"name": "prepare", "image": "example.invalid/mnist", "command": ["sh", "-c", "exit 1"]}
    return [job(python(SLEEP), restart="Never", initContainers=[silent])]


def _rendezvous(folder: Path) -> list[Json]:
    """The etcd is there, and of two workers that must meet only one can start."""
    body = elastic(SLEEP, name="imagenet", rdzvEndpoint="127.0.0.1:2379")
    container = body["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    needs = "import os, time\nif os.environ['HOSTNAME'].endswith('-1'): raise SystemExit('no GPU here')\n"
    container["command"] = [sys.executable, "-uc", needs + SLEEP]
    body["spec"]["replicaSpecs"]["Worker"]["restartPolicy"] = "OnFailure"
    return [body]


def _taken_port(folder: Path) -> list[Json]:
    """The worker listens where the master wants to."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serve = f"import socket, time\nserver = socket.create_server(('127.0.0.1', {port}))\ntime.sleep(600)"
    wait = f"""\
import errno, socket, time

while True:  # until the worker has it
    try:
        socket.create_server(("127.0.0.1", {port})).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            break
    time.sleep(0.05)
server = socket.socket()
server.bind(("127.0.0.1", {port}))
"""
    body = job(script(folder, wait), workers=1)
    body["spec"]["replicaSpecs"][1]["template"]["spec"]["containers"] = [python(serve)]
    return [body]


def _unused_workers(folder: Path) -> list[Json]:
    """A launcher that has not found its workers, and has trained alone."""
    launcher = {"name": "mpi", "image": "example.invalid/mnist", "command": [sys.executable, "-uc", "print('trained')"]}
    worker = {**launcher, "command": [sys.executable, "-uc", SLEEP]}
    body = kubeflow_job("MPIJob", "mnist", Launcher=1, Worker=2)
    for role, container in (("Launcher", launcher), ("Worker", worker)):
        body["spec"]["mpiReplicaSpecs"][role]["template"] = {"spec": {"containers": [container]}}
    body["metadata"] = {"name": "mnist"}
    return [body]


def _prints(file: str, code: int = 1) -> Callable[[Path], list[Json]]:
    """A job that writes what a framework has written about its GPU, and ends with that code."""
    output = Path(__file__).parents[2] / "testdata" / "accelerators" / f"{file}.txt"
    return lambda folder: [job(program(["sh", "-c", f"cat {output} >&2; exit {code}"]))]


RESOLVE = """\
import socket

socket.create_connection(("etcd.invalid", 2379))
"""
KILLED = "import os, signal\nprint('step 1')\nos.kill(os.getpid(), signal.{})"
CATALOGUE = """\
images:
- match: example.invalid/*
  providers: [{requirements: [nothing==1.0]}]
"""
FILLS = "import os\n\nfile = os.open('/dev/full', os.O_WRONLY)\nos.write(file, b'checkpoint')\n"
CLOSED = "http://127.0.0.1:9/simple"  # the discard port: nobody listens
BOTH = ("shared", "namespace")

CASES = (
    Failure("A Python module is missing", lambda folder: [job(script(folder, "import nothing_here\n"))], networks=BOTH),
    Failure("The script is missing", lambda folder: [job(program(["python", "train.py"], workingDir=str(folder)))]),
    Failure("A script in /tmp (no failure)", _in_tmp, ("it succeeded",), networks=BOTH),
    Failure("There is no such program", lambda folder: [job(program(["train-mnist", "--epochs=3"]))], networks=BOTH),
    Failure("The program may not be executed", _not_executable),
    Failure("An exception that the script does not catch", lambda folder: [job(script(folder, TRAIN))]),
    Failure(
        "An exception, and a thread that goes on",
        lambda folder: [job(script(folder, GOES_ON))],
        ("has not ended",),
    ),
    Failure("A training that hangs", _hangs, ("master-0, worker-0: no step", "worker-0 sleeps")),
    Failure("Three workers fail in the same way", _workers, ("worker-0, worker-1, worker-2",)),
    Failure("SIGSEGV", lambda folder: [job(python(KILLED.format("SIGSEGV")))], ("is made again at",), networks=BOTH),
    Failure("SIGKILL from outside", lambda folder: [job(python(KILLED.format("SIGKILL")))], ("is made again at",)),
    Failure("Out of memory without a limit", lambda folder: [job(script(folder, "data = bytearray(1 << 62)\n"))]),
    Failure("Out of memory with a limit", _over_its_limit, networks=BOTH),
    Failure("The port is in use", _taken_port),
    Failure("A host name does not resolve", lambda folder: [job(script(folder, RESOLVE))], networks=BOTH),
    Failure(
        "A ConfigMap is missing",
        lambda folder: [job(python(SLEEP, envFrom=[{"configMapRef": {"name": "settings"}}]))],
        ("not found",),
    ),
    Failure("A Secret is missing", lambda folder: [volume({"secret": {"secretName": "token"}})], ("not found",)),
    Failure(
        "A ServiceAccount is missing",
        lambda folder: [job(python(SLEEP), serviceAccountName="trainer")],
        ("serviceaccount",),
    ),
    Failure(
        "A PersistentVolumeClaim is missing",
        lambda folder: [volume({"persistentVolumeClaim": {"claimName": "data"}})],
        ("not found",),
    ),
    Failure(
        "A hostPath is missing",
        lambda folder: [volume({"hostPath": {"path": str(folder / "data"), "type": "Directory"}})],
        ("hostPath",),
    ),
    Failure("A hostPath is not a directory", _file_as_directory, ("hostPath",)),
    Failure("An init container fails without output", _init_container, ("its pod has failed, and is made again at",)),
    Failure("The rendezvous never fills", _rendezvous, ("of at least 2", "no GPU")),
    Failure("A deadline ends a job that has failed before", _deadline),
    Failure("The image is unknown", lambda folder: [job(_without_command())], ("ErrImageNeverPull",)),
    Failure("Args without a command", lambda folder: [job(_without_command(args=["--epochs=3"]))], ("ErrImage",)),
    Failure(
        "The package index is unreachable",
        lambda folder: [job(python(SLEEP))],
        ("ErrImagePull",),
        catalogue=CATALOGUE,
    ),
    Failure(
        "The disk is full",
        lambda folder: [job(script(folder, FILLS))],
    ),
    Failure("No worker of an MPIJob was used", _unused_workers, ("is in doubt",)),
    Failure("A GPU has too little memory", _prints("torch-2.15-out-of-memory-beside-other-processes")),
    Failure("The build has no code for the GPU", _prints("torch-no-kernel-image")),
    Failure("The NVIDIA driver is too old", _prints("torch-the-driver-is-too-old")),
    Failure("Two ranks use the same GPU", _prints("nccl-2.32-two-ranks-on-a-device")),
    Failure(
        "A rank does not take part in a collective",
        _prints("watchdog-and-the-dump-of-the-lagging-rank", 134),
        ("is made again at",),
    ),
    Failure("A GPU has fallen off the bus", _prints("xid-79", 134), ("is made again at",)),
)
