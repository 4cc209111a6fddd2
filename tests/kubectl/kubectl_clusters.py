"""Clusters for kubectl, and a person with kubectl.

Rules:
- Both kinds of cluster live in a loop of their own, in a thread of their own: a person's commands are processes, and a
  test waits for them as a person does.
- One cluster for each process of pytest, a namespace for each test.
- On the real control plane no other node takes pods meanwhile.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.control_plane import ControlPlane
from tests.support.waiting import SLOW_PAUSE, until
from trainyard import kinds
from trainyard.app.config import shipped_files
from trainyard.app.kubeconfig import read_kubeconfig
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.app.node_agent import JoinedNode, JoinOptions
from trainyard.core import Config
from trainyard.operator import Operator

MANIFESTS = Path(__file__).with_name("manifests")
STAND_INS = Path(__file__).parents[1] / "stories" / "stand_ins" / "images.yaml"
START_SECONDS = 120.0
KUBECTL_SECONDS = 120.0
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class KubectlAnswer:
    """What became of a command."""

    arguments: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def output(self) -> str:
        return self.out + self.err


@dataclass(frozen=True, slots=True)
class Person:
    """A user with kubectl and a kubeconfig, in a namespace."""

    program: Path
    config: Path
    home: Path
    namespace: str
    node: str
    env: dict[str, str] = field(default_factory=dict)

    def argv(self, *arguments: str) -> list[str]:
        return [str(self.program), "--namespace", self.namespace, *arguments]

    def environment(self, **more: str) -> dict[str, str]:
        path = os.environ.get("PATH", os.defpath)
        return {"PATH": path, "HOME": str(self.home), "KUBECONFIG": str(self.config), **self.env, **more}

    def run(self, *arguments: str, stdin: str = "", **env: str) -> KubectlAnswer:
        done = subprocess.run(
            self.argv(*arguments),
            env=self.environment(**env),
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=KUBECTL_SECONDS,
            cwd=self.home,
        )
        return KubectlAnswer(arguments, done.returncode, done.stdout, done.stderr)

    def __call__(self, *arguments: str, stdin: str = "", **env: str) -> str:
        """What a command prints that must succeed."""
        answer = self.run(*arguments, stdin=stdin, **env)
        assert answer.code == 0, f"kubectl {' '.join(arguments)} ended with {answer.code}: {answer.output}"
        return answer.out

    def until(self, *arguments: str, says: str) -> KubectlAnswer:
        """Repeat the command until its output matches."""
        return until(
            lambda: self.run(*arguments),
            f"{says!r} in `kubectl {' '.join(arguments)}`",
            accept=lambda answer: re.search(says, answer.output),
            pause=SLOW_PAUSE,
        )

    def go(self) -> None:
        """What some programs in pods wait for. An `exec` may be killed by the end that it brings on."""
        Path(f"/tmp/{self.namespace}-go").touch()

    def refused(self, *arguments: str, **env: str) -> str:
        """What a command complains of that must fail."""
        answer = self.run(*arguments, **env)
        assert answer.code != 0, f"kubectl {' '.join(arguments)} succeeded: {answer.output}"
        return answer.output

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        argv, env = self.argv(*arguments), self.environment()
        return subprocess.Popen(argv, env=env, bufsize=0, cwd=self.home, **{**pipes, **more})

    def apply(self, *names: str) -> str:
        return self("apply", *(argument for name in names for argument in ("-f", str(MANIFESTS / f"{name}.yaml"))))


class Beside:
    """A loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cluster", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@dataclass(frozen=True, slots=True)
class KubectlCluster:
    """A cluster, whichever it is."""

    name: str
    program: Path
    config: Path
    node: str
    folder: Path

    @contextmanager
    def person(self) -> Iterator[Person]:
        """A user with a namespace of his own."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        namespace = f"kubectl-{os.getpid()}-{next(_numbers)}"  # pods of all share this machine, and its /tmp
        person = Person(self.program, self.config, home, namespace, self.node)
        person("create", "namespace", person.namespace)
        person("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
        person("wait", "--for=create", "configmap/kube-root-ca.crt", "--timeout=60s")
        try:
            yield person
        finally:
            person.run(
                "delete",
                "pods,jobs,deployments,statefulsets,tfjobs.tensorflow.org",
                "--all",
                "--grace-period=0",
                "--force",
            )
            person.run("delete", "namespace", person.namespace, "--wait=false")


@contextmanager
def embedded(program: Path) -> Iterator[KubectlCluster]:
    """The cluster of `trainyard up`."""
    with _folder() as folder, _beside() as beside:
        options = LocalClusterOptions(
            network="shared",
            images=(STAND_INS,),
            cache=folder / "cache",
            python=sys.executable,  # its programs need aiohttp
            say=_silent,
            parent=folder,
        )
        cluster = LocalCluster(options)
        try:
            beside.run(cluster.start())
            config = cluster.write_kubeconfig(folder / "kubeconfig")
            yield KubectlCluster("embedded", program, config, "local", folder)
        finally:
            beside.run(cluster.stop(kill=True))


@contextmanager
def real(plane: ControlPlane) -> Iterator[KubectlCluster]:
    """A real control plane, our operator and our node."""
    with _folder() as folder, _beside() as beside:
        name, api = f"kubectl-{next(_numbers)}", plane.api()
        settings: dict[str, Any] = {
            "python": sys.executable,
            "network": "shared",
            "images": (STAND_INS,),
            "cache": folder / "cache",
            "say": _silent,
        }
        options = JoinOptions(access=read_kubeconfig([plane.kubeconfig]), name=name, state=folder / "node", **settings)
        node, operator = JoinedNode(options), Operator(api, kinds.ALL, Config(program_files=shipped_files()))
        nodes = [node for node in plane.kubectl("get", "nodes", "-o", "name").split() if node]
        try:
            for other in nodes:
                plane.kubectl("cordon", other)
            beside.run(node.start())
            beside.run(operator.start())
            yield KubectlCluster("real", plane.programs["kubectl"], plane.kubeconfig, name, folder)
        finally:
            beside.run(operator.stop())
            beside.run(api.close())
            beside.run(node.stop(kill=True))
            for other in nodes:
                plane.kubectl("uncordon", other)


def _silent(text: str) -> None:
    """Messages of the node about images are dropped."""


@contextmanager
def _folder() -> Iterator[Path]:
    """A short path: sockets take no long ones."""
    folder = Path(tempfile.mkdtemp(prefix="kubectl-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _beside() -> Iterator[Beside]:
    beside = Beside()
    try:
        yield beside
    finally:
        beside.end()
