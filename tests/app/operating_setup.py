"""What the tests of the operator's process share beside the server: its options, and what it thinks."""

from __future__ import annotations

from typing import Any

from tests.app.operating_values import Site
from tests.support.waiting import until_async
from trainyard.app.config import shipped_files
from trainyard.app.operating import OperatorOptions, OperatorProcess, find_cluster, parse_kinds
from trainyard.controller_runtime.lease import LeaseTimings
from trainyard.core import Config

QUICK = LeaseTimings(duration=2, deadline=1.5, retry=0.1, renew=0.5)
LEASE_NAME = "trainyard-tfjob"


def options(site: Site, **more: Any) -> OperatorOptions:
    access = find_cluster(site.env, folder=site.folder)
    words: dict[str, Any] = {"kinds": parse_kinds("tfjob"), "config": Config(program_files=shipped_files()), **more}
    return OperatorOptions(access, **words)


async def until_ready(process: OperatorProcess) -> None:
    """Wait until /readyz would answer that nothing is missing."""
    await until_async(process.ready, "the operator is ready", accept=lambda missing: missing == "")


async def until_metric(process: OperatorProcess, name: str, value: float) -> None:
    await until_async(lambda: metric(process, name), f"{name} is {value:g}", accept=lambda number: number == value)


def metric(process: OperatorProcess, name: str) -> float | None:
    for line in process.metrics.render().decode().splitlines():
        if line.startswith((f"{name} ", f"{name}{{")) and not line.startswith("#"):
            return float(line.rsplit(" ", 1)[1])
    return None
