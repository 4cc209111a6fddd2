"""One of the two operators of a history, as a real process behind a proxy."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.faults.operators import Zygote
from tests.faults.proxy import Proxy


@dataclass(slots=True)
class Process:
    """One of the two operators of a history: killed, stopped, partitioned and started again.

    Each start has a proxy and a name of its own, so that a request is known to be that life's.
    """

    name: str
    folder: Path
    argv: list[str]
    connect: Callable[[str], Proxy]
    zygote: Zygote
    mutant: str
    shift: float
    pid: int = 0
    lives: list[Proxy] = field(default_factory=list)

    @property
    def operator(self) -> str:
        """The name of this life, with which its lease identity begins; "" before the first."""
        return self.lives[-1].operator if self.lives else ""

    async def start(self) -> None:
        name = f"{self.name}-{len(self.lives) + 1}"
        proxy = self.connect(name)
        await proxy.start()
        self.lives.append(proxy)
        kubeconfig = self.folder / f"{name}.kubeconfig"
        kubeconfig.touch(0o600)
        kubeconfig.write_text(_kubeconfig(proxy.url))
        env = {"MY_POD_NAME": name, "MY_POD_NAMESPACE": "default"}
        argv = ["--kubeconfig", str(kubeconfig), *self.argv]
        self.pid = self.zygote.start(argv, env, self.folder / f"{self.name}.log", self.mutant, self.shift)

    def signal(self, number: int) -> None:
        if not self.pid:  # not started yet: 0 would be our own process group
            return
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def partition(self) -> None:
        if self.lives:
            self.lives[-1].partition()

    def heal(self) -> None:
        for proxy in self.lives:
            proxy.partitioned = proxy.refuses_writes = False


def _kubeconfig(url: str) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            "users": [{"name": "c", "user": {}}],
        }
    )
