"""How long a job waits when the operator that leads is killed with -9, on a real control plane, with every default.

    make bench-failover           # needs the control plane: make control-plane
    python -m bench.failover --kills 20

Two processes of `trainyard operator --leader-elect`, with the rights that the README installs. For each kill: seconds
until the lease names the other one, and until that one has written the status of a job that was made at the kill. The
ceiling is what the timings of the lease allow: `duration` + `retry` (controller_runtime/lease.py). What is above it is
the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.builders import replicas, tfjob
from tests.support.control_plane import ControlPlane
from trainyard import kinds
from trainyard.app.installation import Install, access
from trainyard.client import ApiClient
from trainyard.controller_runtime.lease import LeaseTimings
from trainyard.objects import GVK, Json, encode, name_of
from trainyard.objects.resources import LEASE


class Operators:
    """Two operator processes of one ServiceAccount."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lives = 0
        install = Install(namespace="default", kinds=kinds.KINDS)
        items = [*(kinds.crd(kind) for kind in kinds.ALL), *access(install)]
        listed = encode({"apiVersion": "v1", "kind": "List", "items": items}).decode()
        plane.kubectl("apply", "--server-side", "-f", "-", stdin=listed)
        path = f"/api/v1/namespaces/default/serviceaccounts/{install.names.operator}/token"
        code, answer = plane.ask("POST", path, {"spec": {"expirationSeconds": 7200}})
        if code != 201:
            raise SystemExit(f"no token for the operator: {answer}")
        config = json.loads(plane.kubectl("config", "view", "--raw", "--flatten", "--minify", "-o", "json"))
        config["users"][0]["user"] = {"token": answer["status"]["token"]}
        self._kubeconfig = folder / "kubeconfig"
        self._kubeconfig.touch(0o600)
        self._kubeconfig.write_bytes(encode(config))

    def start(self) -> None:
        self._lives += 1
        name = f"operator-{self._lives}"
        argv = [sys.executable, "-m", "trainyard", "operator", "--kubeconfig", str(self._kubeconfig), "--leader-elect"]
        with (self._folder / f"{name}.log").open("wb") as log:
            env = {**os.environ, "MY_POD_NAME": name}
            argv += ["--metrics-bind-address", "127.0.0.1:0"]
            self._processes[name] = subprocess.Popen(argv, env=env, stdout=log, stderr=log)

    def kill(self, holder: str) -> None:
        """The one whose lease identity this is."""
        name = next(name for name in self._processes if holder.startswith(name))
        self._processes.pop(name).send_signal(signal.SIGKILL)

    def waiting(self) -> bool:
        """Whether both run and one of them has said that it stands by."""
        logs = [(self._folder / f"{name}.log").read_text() for name in self._processes]
        return len(logs) == 2 and any("standing by" in log and "leading lease" not in log for log in logs)

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()


async def until(api: ApiClient, gvk: GVK, true: Callable[[Json], object]) -> Json:
    """The first object of the namespace `default` of which that holds, as soon as there is one."""
    while True:
        listed = await api.list(gvk, "default")
        for obj in listed["items"]:
            if true(obj):
                return dict(obj)
        async for line in api.watch(gvk, "default", listed["metadata"]["resourceVersion"]):
            event = json.loads(line)
            if event["type"] != "ERROR" and true(event["object"]):
                return dict(event["object"])


def holder(lease: Json) -> str:
    return str(lease["spec"].get("holderIdentity") or "")


async def measure(plane: ControlPlane, kills: int) -> None:
    gvk = kinds.TFJOB.gvk
    taken, written = [], []
    with tempfile.TemporaryDirectory() as folder:
        operators = Operators(plane, Path(folder))
        try:
            operators.start()
            async with plane.api() as api:
                lease = name_of(
                    await until(api, LEASE, lambda obj: name_of(obj).startswith("trainyard-") and holder(obj))
                )
                for number in range(kills):
                    operators.start()
                    while not operators.waiting():  # noqa: ASYNC110  (what another process writes into a file)
                        await asyncio.sleep(0.1)
                    before = holder(await until(api, LEASE, lambda obj: name_of(obj) == lease and holder(obj)))
                    job = tfjob(replicas("MASTER"), RuntimeId=f"k{number}") | {"metadata": {"name": f"kill-{number}"}}
                    began = time.monotonic()
                    operators.kill(before)
                    await api.create(gvk, "default", job)
                    await until(
                        api, LEASE, lambda obj, old=before: name_of(obj) == lease and holder(obj) not in ("", old)
                    )
                    taken.append(time.monotonic() - began)
                    await until(api, gvk, lambda obj, at=number: name_of(obj) == f"kill-{at}" and obj.get("status"))
                    written.append(time.monotonic() - began)
                    print(f"kill {number + 1}: lease after {taken[-1]:.1f} s, first status after {written[-1]:.1f} s")
        finally:
            operators.end()
    ceiling = LeaseTimings().duration + LeaseTimings().retry
    for what, seconds in (("lease", taken), ("first status", written)):
        worst, median = max(seconds), sorted(seconds)[len(seconds) // 2]
        ratio = f"{worst / ceiling:.2f} of {ceiling:g} s"
        print(f"{what}: median {median:.1f} s, worst {worst:.1f} s of {len(seconds)}, which is {ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    words = parser.parse_args()
    with ControlPlane() as plane:
        asyncio.run(measure(plane, words.kills))


if __name__ == "__main__":
    main()
