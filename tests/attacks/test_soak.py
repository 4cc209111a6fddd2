"""The resources of a job are released with it: a small soak. `make prove-soak` runs 5,000 jobs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.soak import AT_ONCE, grown, run_jobs, until_given_back
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.node.network.shared import PortAllocator
from trainyard.objects import NamespacedName

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("network", ["namespace", "shared"])
async def test_jobs_leave_no_port_address_socket_file_thread_or_task(network: str, tmp_path: Path) -> None:
    options: Any = {"network": network, "cache": tmp_path / "cache", "parent": tmp_path, "say": lambda text: None}
    async with LocalCluster(LocalClusterOptions(**options)) as cluster:
        assert any(thread.name == "watchdog" for thread in threading.enumerate())
        await run_jobs(cluster, [f"warm-{number}" for number in range(AT_ONCE)])
        before = await until_given_back(cluster)
        await run_jobs(cluster, [f"job-{number}" for number in range(2 * AT_ONCE)])
        assert grown(before, await until_given_back(cluster, before)) == {}


def test_a_port_is_free_once_its_last_holder_has_released_it() -> None:
    ports, service = PortAllocator(), NamespacedName("default", "web")
    port = ports.allocate("default", "web", 80, service)
    assert port == ports.allocate("default", "web", 80, "uid-1") == ports.allocate("default", "web", 80, "uid-2")
    ports.allocate("default", "other", 80, "uid-1")
    for holder in (service, "uid-1", "uid-1", "unknown"):
        ports.release(holder)
        assert ports.known("default", "web", 80) == port
    ports.release("uid-2")
    assert ports.known("default", "web", 80) is None and len(ports) == 0


def test_ports_do_not_run_out_when_each_is_released() -> None:
    ports = PortAllocator()
    for number in range(200):
        ports.allocate("default", f"service-{number}", 80, f"uid-{number}")
        ports.release(f"uid-{number}")
    assert not ports._marks and not ports._held and not ports._holders and len(ports) == 0
