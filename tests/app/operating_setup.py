"""What the tests of the operator's process share beside the server: its options, and what it thinks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.app.operating_values import Site
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


async def eventually(true: Callable[[], bool]) -> None:
    """Wait for a state of the process itself, of which no watch event tells."""
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not come true")


def metric(process: OperatorProcess, name: str) -> float | None:
    for line in process.metrics.render().decode().splitlines():
        if line.startswith((f"{name} ", f"{name}{{")) and not line.startswith("#"):
            return float(line.rsplit(" ", 1)[1])
    return None
