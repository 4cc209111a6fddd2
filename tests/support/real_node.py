"""A real Kubernetes node for tests: control plane, kubelet, containerd, kube-proxy and CoreDNS, in namespaces.

    with RealNode() as node:                    or `async with`
        node.import_image(archive)              an OCI archive, as tools/oci writes them
        node.kubectl("get", "pods")
        node.inside("ctr", "version")           a program on the node

It is a ControlPlane whose programs run on the node. Its kubeconfig is valid outside: a relay carries connections from
the same port of this machine's loopback to the API server. `python -m tests.support.real_node` keeps one running.

Rules:
- Nothing of the machine is changed. Processes end with the pid namespace, mounts with the mount namespace; a reaper
  removes the folder and the cgroups, and the next start those of a reaper that was killed.
- It is up when its node is ready and has no taint, Services are routed, and the DNS answers.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

from tests.support import control_plane_reaper as reaper
from tests.support import real_node_enter, real_node_relay, real_node_sandbox
from tests.support import real_node_flags as flags
from tests.support.control_plane import ControlPlane
from tests.support.control_plane_build import exit_code
from tests.support.control_plane_pki import ALL_RIGHTS, TOKENS
from tests.support.control_plane_process import ControlPlaneError, ControlPlaneProcess
from tests.support.real_node_build import PATH, PAUSE_IMAGE, PYTHON_IMAGE, archive_of, built, missing
from trainyard.objects import encode, is_condition_true

CGROUP = "trainyard-node-"
COMMAND_SECONDS, END_SECONDS = 120.0, 30.0


class RealNode(ControlPlane):
    """One node with its control plane. Nothing runs before `up`."""

    users: Mapping[str, tuple[str, ...]] = {
        **TOKENS,
        flags.KUBELET: ("system:nodes",),
        flags.PROXY: (),
        flags.COREDNS: (ALL_RIGHTS,),
    }

    def __init__(self, parent: Path | None = None) -> None:
        super().__init__(flags.OPTIONS, parent)
        self._sandbox: ControlPlaneProcess | None = None
        self._relay: ControlPlaneProcess | None = None

    def _find(self) -> None:
        super()._find()
        self.build = built(lambda text: print(f"real node: {text}", file=sys.stderr, flush=True))
        programs = {path.name: path for path in (self.build / "bin").iterdir()}
        self.programs = {**self.programs, **programs}

    def _rise(self) -> Iterator[Callable[[], object]]:
        yield from super()._rise()
        try:
            containerd = self._part("containerd")
            containerd.start()
            listens = Path(f"/proc/{self._init()}/root{flags.SOCKET}").exists
            yield lambda: containerd.wait_until(listens, "it listens")
            yield lambda: self.import_own_image(PAUSE_IMAGE)
            for name in ("kubelet", "kube-proxy", "coredns"):
                self._part(name).start()
            yield self._create_objects
            yield lambda: self.import_own_image(PYTHON_IMAGE)
            yield self._until_ready
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """End everything, and remove the folder and the cgroups."""
        if self._sandbox is not None:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                init = os.pidfd_open(self._init())
                self._sandbox.end()
                select.select([init], [], [], END_SECONDS)  # it ends after every process of its namespace
                os.close(init)
            self._sandbox.end()
            self._sandbox = None
        if self._relay is not None:
            self._relay.end()
            self._relay = None
        super().down()

    # --- the namespaces

    def _start_reaper(self) -> subprocess.Popen[bytes]:
        return reaper.start(self.folder, *(path / self._cgroup for path in real_node_enter.hierarchies()))

    @property
    def _cgroup(self) -> str:
        return f"{CGROUP}{self.folder.name}"

    def _place(self) -> None:
        if self._sandbox is None:
            self._start_sandbox()
        super()._place()
        for name, arguments in flags.commands(self.places, self.build / "bin").items():
            self._parts[name] = self._process(name, arguments)
        self._start_relay()

    def _start_sandbox(self) -> None:
        remove_abandoned_cgroups()
        visible = {str(file.parent) for path in self.programs.values() for file in (path, path.resolve())}
        namespaces = ["--mount", "--net", "--uts", "--ipc", "--cgroup", "--pid"]
        script = [sys.executable, "-I", real_node_sandbox.__file__]
        arguments = [str(self.folder), str(self.build), flags.NAME, flags.ADDRESS, *sorted(visible)]
        command = [*self._enter(), "unshare", *namespaces, "--fork", "--kill-child", *script, *arguments]
        log = self.folder / "logs" / "sandbox.log"
        self._sandbox = ControlPlaneProcess("sandbox", command, log, {"PATH": PATH})
        self._sandbox.start()
        self._sandbox.wait_until((self.folder / "sandbox").exists, "the namespaces were ready")

    def _enter(self) -> list[str]:
        return [sys.executable, "-I", "-S", real_node_enter.__file__, self._cgroup]

    def _init(self) -> int:
        """The process id of the first process of the namespaces. Raises FileNotFoundError before there is one."""
        return int((self.folder / "sandbox").read_text())

    def _inside(self) -> list[str]:
        """What a command begins with that is to run on the node."""
        namespaces = ["--mount", "--net", "--uts", "--ipc", "--cgroup", "--pid"]
        return [*self._enter(), "nsenter", f"--target={self._init()}", *namespaces, "--"]

    def _process(self, name: str, arguments: list[str], log: str = "") -> ControlPlaneProcess:
        process = super()._process(name, arguments, log)
        if name == "kwok":  # the kubelet of `add_node`, which needs nothing of the node
            return process
        process.command[:0] = self._inside()
        process.env["PATH"] = f"{self.build / 'bin'}:{PATH}"
        return process

    def _start_relay(self) -> None:
        """Connections to the API server's port of this machine's loopback arrive at that of the node."""
        if self._relay is not None:
            self._relay.end()
        with socket.create_server(("127.0.0.1", self.places.api), backlog=1024) as listener:
            script = [sys.executable, "-I", "-S", real_node_relay.__file__]
            command = ["nsenter", f"--net=/proc/{self._init()}/ns/net", "--", *script]
            command += [str(listener.fileno()), str(self.places.api)]
            log = self.folder / "logs" / "relay.log"
            self._relay = ControlPlaneProcess("relay", command, log, {"PATH": PATH}, (listener.fileno(),))
            self._relay.start()

    # --- waiting

    def _create_objects(self) -> None:
        document = {"apiVersion": "v1", "kind": "List", "items": flags.objects()}
        self.kubectl("apply", "-f", "-", stdin=encode(document).decode())

    def _until_ready(self) -> None:
        node = f"/api/v1/nodes/{flags.NAME}"
        proxied = f"/api/v1/nodes/http:{flags.NAME}"
        self._part("kubelet").wait_until(self._has_ready_node, f"{node} was ready", 120)
        for name, port, path in (
            ("kube-proxy", flags.PROXY_HEALTH, "healthz"),
            ("coredns", flags.DNS_HEALTH, "ready"),
        ):
            answer = f"{proxied}:{port}/proxy/{path}"
            self._part(name).wait_until(lambda answer=answer: self._answers(answer), "it was ready")

    def _has_ready_node(self) -> bool:
        code, node = self.ask("GET", f"/api/v1/nodes/{flags.NAME}")
        if code != 200 or node["spec"].get("taints"):
            return False
        return is_condition_true(node["status"].get("conditions"), "Ready")

    # --- on the node

    def inside(self, *command: str, stdin: IO[bytes] | None = None) -> str:
        """Run a program on the node, and return what it prints. Raises ControlPlaneError when it fails."""
        env = {"PATH": f"{self.build / 'bin'}:{PATH}"}
        completed = subprocess.run(
            [*self._inside(), *command], env=env, stdin=stdin, capture_output=True, timeout=COMMAND_SECONDS
        )
        if completed.returncode:
            text = completed.stdout + completed.stderr
            raise ControlPlaneError(f"{' '.join(command)} ended with {completed.returncode}:\n{text.decode()}")
        return completed.stdout.decode()

    def import_own_image(self, name: str) -> None:
        """Let the pods use an image of the build, by its name in real_node_build.py."""
        self.import_image(self.build / archive_of(name))

    def import_image(self, archive: Path) -> None:
        """Let the pods of the node use the images of an OCI archive."""
        with archive.open("rb") as file:
            self.inside("ctr", "--namespace=k8s.io", "images", "import", "-", stdin=file)

    def tag_image(self, name: str, other: str) -> None:
        """Let the pods use an image of Docker Hub by another name, too. Both as a manifest has them."""
        names = [docker_reference(name), docker_reference(other)]
        self.inside("ctr", "--namespace=k8s.io", "images", "tag", "--force", *names)


def docker_reference(name: str) -> str:
    """The image's full name, by the rules of Docker: the first part is a registry if it has a dot."""
    return name if "." in name.partition("/")[0] else f"docker.io/{name}"


def remove_abandoned_cgroups() -> None:
    """Remove the cgroups of nodes that are gone: a node has a process in its cgroup from the start to its end."""
    for hierarchy in real_node_enter.hierarchies():
        for cgroup in hierarchy.glob(f"{CGROUP}*"):
            with contextlib.suppress(OSError):
                if not (cgroup / "cgroup.procs").read_text():
                    reaper.remove_cgroup(cgroup)


def main() -> int:
    """Up until a signal comes. A machine that cannot run one is told what it lacks."""
    if text := missing():
        print(f"make: skipped: {text}", file=sys.stderr)
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    with RealNode() as node:
        print(f"The node {flags.NAME} is ready, and has the image {PYTHON_IMAGE}. In another shell:")
        print(f"  export KUBECONFIG={node.kubeconfig} PATH={node.programs['kubectl'].parent}:$PATH")
        print(f"  kubectl get nodes\nIts logs are in {node.folder / 'logs'}; Ctrl-C ends it.", flush=True)
        while True:
            signal.pause()


if __name__ == "__main__":
    sys.exit(exit_code(lambda _: main()))
