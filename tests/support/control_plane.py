"""A real control plane for tests: etcd, kube-apiserver, kube-controller-manager and kube-scheduler on loopback.

    with ControlPlane() as plane:             or `async with`, or up() and down()
        plane.kubectl("get", "pods")
        async with plane.api() as api: ...

`python -m tests.support.control_plane` keeps one up until it is interrupted, for a person with kubectl.

Rules:
- It is up when a pod can be made: /readyz, and the `default` ServiceAccount.
- The state is a folder, thrown away at the end. Killed, the programs die with us and a reaper removes the folder; what
  a killed reaper leaves, the next start of anything of ours removes.
- A Python thread that starts programs must live as long as they do; `async with` starts them in the loop's own.
- The garbage collector of the controllers learns new kinds every 30 seconds: install definitions once, delete in the
  background.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support import control_plane_reaper as reaper
from tests.support.control_plane_audit import Audit
from tests.support.control_plane_build import programs
from tests.support.control_plane_flags import Options, Places, flags, node_flags, write_policy
from tests.support.control_plane_pki import ADMIN, CERTIFIED, TOKENS, Identities
from tests.support.control_plane_process import ControlPlaneError, ControlPlaneProcess, free_ports
from trainyard.app.background.folder import PrivateFolder
from trainyard.client import ApiClient
from trainyard.objects import Json, decode, encode
from trainyard.server.auth.certificates import write_private_file

SERVER = "kube-apiserver"
TRIES = 3  # a port may be taken between the look and the start
ANSWER_SECONDS = 30.0
KUBECTL_SECONDS = 120.0


class ControlPlane:
    """One control plane. Nothing runs before `up`."""

    users: Mapping[str, tuple[str, ...]] = TOKENS  # with a token, and their groups

    def __init__(self, options: Options | None = None, parent: Path | None = None) -> None:
        self.options = options or Options()
        self.programs: Mapping[str, Path] = {}
        self.nodes: dict[str, ControlPlaneProcess] = {}
        self._parent = parent
        self._folder: PrivateFolder | None = None
        self._reaper: subprocess.Popen[bytes] | None = None
        self._parts: dict[str, ControlPlaneProcess] = {}

    # --- up and down

    def up(self) -> Self:
        """Start what does not run, and return when it is ready. Raises BuildError, ControlPlaneError."""
        for wait in self._rise():
            wait()
        return self

    def down(self) -> None:
        """End everything and remove the folder."""
        for process in (*self.nodes.values(), *reversed(self._parts.values())):
            process.end()
        self.nodes, self._parts = {}, {}
        if self._folder is not None:
            self._folder.close()
            self._folder = None
        if self._reaper is not None:
            self._reaper.wait()
            self._reaper = None

    def __enter__(self) -> Self:
        return self.up()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    async def __aenter__(self) -> Self:
        for wait in self._rise():
            await asyncio.to_thread(wait)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.down)

    def _rise(self) -> Iterator[Callable[[], object]]:
        """Each step starts programs and gives what to wait for."""
        if not self.programs:
            yield self._find
        try:
            if self._folder is None:
                self._settle()
            for _ in range(TRIES):
                self._part("etcd").start()
                self._part(SERVER).start()
                yield self._served
                if self._ready():
                    break
                self._elsewhere()
            for name in ("kube-controller-manager", "kube-scheduler"):
                self._part(name).start()
            yield self._peopled
        except BaseException:
            self.down()
            raise

    def _find(self) -> None:
        self.programs = programs(lambda text: print(f"control plane: {text}", file=sys.stderr, flush=True))

    def _settle(self) -> None:
        """The folder, the users' credentials, and the commands."""
        self._folder = PrivateFolder(self._parent)
        self._reaper = self._start_reaper()
        (self.folder / "logs").mkdir(mode=0o700)
        self.identities = Identities.new(self.folder / "pki", self.users)
        self._place()

    def _start_reaper(self) -> subprocess.Popen[bytes]:
        return reaper.start(self.folder)

    def _place(self) -> None:
        """Ports, and everything that names them."""
        self.places = Places(self.folder, *free_ports(3))
        write_policy(self.places)
        for user in (*self.users, CERTIFIED):
            write_private_file(self.places.kubeconfig(user), self.identities.kubeconfig(self.url, user))
        for name, arguments in flags(self.places, self.options).items():
            self._parts[name] = self._process(name, arguments)
        self.audit = Audit(self.places.audit, partial(self.ask, "GET"), self._part(SERVER).wait_until)

    def _elsewhere(self) -> None:
        """Other ports, after one of them was taken. Any other end is no reason to try again."""
        taken = [part for part in self._parts.values() if "address already in use" in part.output()]
        if not taken:
            dead = next((part for part in self._parts.values() if not part.alive), self._part(SERVER))
            raise dead.complain("ended before the API server was ready")
        for process in self._parts.values():
            process.end()
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)
        shutil.rmtree(self.folder / "logs")
        (self.folder / "logs").mkdir(mode=0o700)
        self._place()

    def _process(self, name: str, arguments: list[str], log: str = "") -> ControlPlaneProcess:
        own_folder = {"HOME": str(self.folder), "TMPDIR": str(self.folder)}
        env = {"PATH": os.defpath, "GOGC": str(self.options.go_gc_percent), **own_folder}
        return ControlPlaneProcess(
            name, [str(self.programs[name]), *arguments], self.folder / "logs" / f"{log or name}.log", env
        )

    # --- waiting

    def _served(self) -> None:
        """Until the API server is ready, or it or etcd is gone."""
        server, etcd = self._part(SERVER), self._part("etcd")
        with contextlib.suppress(ControlPlaneError):
            server.wait_until(lambda: self._ready() or not etcd.alive, "it was ready", 120)

    def _ready(self) -> bool:
        """Our own, and not one that took the port."""
        return self._part(SERVER).alive and self._part("etcd").alive and self._answers("/readyz")

    def _peopled(self) -> None:
        self.wait_for("/api/v1/namespaces/default/serviceaccounts/default")

    def wait_for(self, path: str, seconds: float = 60.0) -> None:
        """Until the object is there that the controllers are to make."""
        self.wait_until(lambda: self._answers(path), f"there was {path}", seconds)

    def wait_until(self, true: Callable[[], bool], description: str, seconds: float = 60.0) -> None:
        """Until it is so. Raises ControlPlaneError when the controllers end before that, or after `seconds`."""
        self._part("kube-controller-manager").wait_until(true, description, seconds)

    def _answers(self, path: str) -> bool:
        try:
            return self.ask("GET", path)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    # --- asking

    @property
    def folder(self) -> Path:
        assert self._folder is not None, "the control plane is not up"
        return self._folder.path

    @property
    def url(self) -> str:
        return self.places.url

    @property
    def kubeconfig(self) -> Path:
        """With the administrator as the current user, and a context for each other one."""
        return self.places.kubeconfig(ADMIN)

    def token(self, user: str = ADMIN) -> str:
        return self.identities.tokens[user]

    def api(self, user: str = ADMIN, token: str = "") -> ApiClient:
        """Our client, as one of the identities, or with a token of your own."""
        bearer = token or self.identities.tokens.get(user, "")
        return ApiClient(self.url, bearer, self.identities.secure("" if token else user), user_agent=f"test-{user}")

    def ask(self, method: str, path: str, body: Json | None = None, user: str = ADMIN) -> tuple[int, Json]:
        """One request, without a client of ours: the code and the object of the answer."""
        headers = {"Authorization": f"Bearer {self.token(user)}"} if user in self.identities.tokens else {}
        if body is not None:
            headers["Content-Type"] = "application/merge-patch+json" if method == "PATCH" else "application/json"
        secure = self.identities.secure(user)
        connection = http.client.HTTPSConnection("127.0.0.1", self.places.api, timeout=ANSWER_SECONDS, context=secure)
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else encode(body), headers)
            answer = connection.getresponse()
            response = answer.read()
        return answer.status, decode(response) if response[:1] == b"{" else {
            "message": response.decode(errors="replace")
        }

    def kubectl(self, *arguments: str, user: str = ADMIN, stdin: str = "") -> str:
        """What kubectl prints, warnings after it. Raises ControlPlaneError with its words when it fails."""
        completed = self.run("kubectl", *arguments, user=user, stdin=stdin)
        if completed.returncode:
            raise ControlPlaneError(
                f"kubectl {' '.join(arguments)} ended with {completed.returncode}:\n"
                f"{completed.stdout}{completed.stderr}"
            )
        return completed.stdout + completed.stderr

    def run(self, name: str, *arguments: str, user: str = ADMIN, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """One of the programs (kubectl, helm) to its end, with this cluster as its cluster."""
        config = self.places.kubeconfig(user)
        home = self.folder / "home"
        env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "KUBECONFIG": str(config)}
        command = [str(self.programs[name]), *arguments]
        return subprocess.run(command, env=env, input=stdin, capture_output=True, text=True, timeout=KUBECTL_SECONDS)

    # --- faults

    def _part(self, name: str) -> ControlPlaneProcess:
        return self._parts[name]

    @property
    def processes(self) -> list[ControlPlaneProcess]:
        return [*self._parts.values(), *self.nodes.values()]

    def stop(self, name: str = SERVER, number: signal.Signals = signal.SIGKILL) -> None:
        """End one program. Its state stays."""
        self._part(name).end(number)

    def start(self, name: str = SERVER) -> None:
        """Start it again, and return when the API server is ready."""
        self.begin(name)()

    def begin(self, name: str = SERVER) -> Callable[[], None]:
        """Start it again, in this thread; what is given waits until the API server is ready, in any thread."""
        self._part(name).start()
        stored = "/api/v1/namespaces/default"  # what is ready remembers for a while that etcd was there
        ready = "the API server was ready"
        return lambda: self._part(name).wait_until(lambda: self._ready() and self._answers(stored), ready)

    def restart(self, name: str = SERVER) -> None:
        self.stop(name)
        self.start(name)

    def pause(self, name: str = SERVER) -> None:
        """It holds still: connections stay open and nothing is answered. `resume` lets it go on."""
        self._part(name).send(signal.SIGSTOP)

    def resume(self, name: str = SERVER) -> None:
        self._part(name).send(signal.SIGCONT)

    # --- nodes

    def add_node(self, name: str, **labels: str) -> None:
        """A node whose kubelet is KWOK: pods that the scheduler puts there are Running at once. Once is enough."""
        if name in self.nodes:
            return
        node: Json = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels},
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
        }
        self.kubectl("create", "-f", "-", stdin=encode(node).decode())
        self.nodes[name] = self._process("kwok", node_flags(self.places, name), f"kwok-{name}")
        self.nodes[name].start()
        self.kubectl("wait", f"node/{name}", "--for=condition=Ready", "--timeout=60s")

    def lose_node(self, name: str) -> None:
        """Stop its simulated kubelet. Only with `Options.node_loss` controllers react to that."""
        self.nodes.pop(name).end()


def main() -> None:
    """Up until a signal comes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(0))
    options = Options(emulated=sys.argv[1]) if len(sys.argv) > 1 else None
    with ControlPlane(options) as plane:
        print(f"export KUBECONFIG={plane.kubeconfig} PATH={plane.programs['kubectl'].parent}:$PATH", flush=True)
        while True:
            signal.pause()


if __name__ == "__main__":
    main()
