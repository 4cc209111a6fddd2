"""The termination messages of containers, in both networks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.node.node_cluster import NodeCluster, terminated
from trainyard.node.kubelet import termination_message

WRITES = "open('/dev/termination-log', 'w').write('rendezvous closed'); raise SystemExit({})"
FALLBACK = {"terminationMessagePolicy": "FallbackToLogsOnError"}


async def message_of(cluster: NodeCluster, name: str, phase: str = "Failed") -> str | None:
    ended = terminated((await cluster.phase(name, phase))["status"])
    assert ended is not None
    return ended.get("message")


@pytest.mark.parametrize(("code", "phase"), [(3, "Failed"), (0, "Succeeded")])
async def test_the_content_of_the_termination_message_path_is_the_message(
    cluster: NodeCluster, code: int, phase: str
) -> None:
    await cluster.pod("says", WRITES.format(code))
    assert await message_of(cluster, "says", phase) == "rendezvous closed"


async def test_the_file_may_be_elsewhere_even_in_a_volume(cluster: NodeCluster) -> None:
    mounts = {"volumeMounts": [{"name": "made", "mountPath": "/made"}], "terminationMessagePath": "/made/deep/why"}
    script = "open('/made/deep/why', 'w').write('x' * 5000 + 'end')"
    await cluster.pod("says", script, container=mounts, volumes=[{"name": "made", "emptyDir": {}}])
    assert await message_of(cluster, "says", "Succeeded") == "x" * 4093 + "end"


async def test_with_fallback_to_logs_on_error_the_end_of_the_log_is_the_message(cluster: NodeCluster) -> None:
    script = "for n in range(100): print('line', n)\nraise SystemExit('no rendezvous')"
    await cluster.pod("asks", "import sys; sys.stdout = sys.stderr\n" + script, container=FALLBACK)
    message = await message_of(cluster, "asks")
    assert message is not None and message.startswith("line 21\n") and message.endswith("line 99\nno rendezvous\n")
    await cluster.pod("asks-not", script)
    assert await message_of(cluster, "asks-not") is None
    await cluster.pod("succeeds", "print('fine')", container=FALLBACK)
    assert await message_of(cluster, "succeeds", "Succeeded") is None
    await cluster.pod("writes", "print('log')\n" + WRITES.format(1), container=FALLBACK)
    assert await message_of(cluster, "writes") == "rendezvous closed"


async def test_each_run_has_a_message_of_its_own(cluster: NodeCluster, state: Path) -> None:
    mark = state / "ran"
    script = f"""
import os, time
if os.path.exists({str(mark)!r}):
    print(repr(open('/dev/termination-log').read()), flush=True)
    time.sleep(600)
open({str(mark)!r}, 'w').close()
{WRITES.format(1)}
"""
    await cluster.pod("again", script, restartPolicy="Always")

    def runs_again(status: dict) -> bool:
        container_status = (status.get("containerStatuses") or [{}])[0]
        return container_status.get("restartCount") == 1 and "running" in container_status["state"]

    pod = await cluster.until("again", runs_again)
    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["message"] == "rendezvous closed"
    assert "''\n".startswith(await cluster.logs("again"))  # perhaps not all of it yet


@pytest.mark.parametrize("cluster", ["namespace"], indirect=True)
async def test_the_message_file_is_not_created_on_the_machine_and_devices_work(cluster: NodeCluster) -> None:
    script = """
import os
open('/dev/null', 'w').write('x' * 100)
print(os.path.getsize('/dev/null'), len(open('/dev/urandom', 'rb').read(8)), open('/dev/zero', 'rb').read(1))
os.closerange(0, 1)
print(os.path.exists('/dev/fd/1'), len(os.openpty()))
"""
    await cluster.pod("devices", script)
    assert await cluster.result("devices") == "0 8 b'\\x00'\nTrue 2\n"
    assert not there("/dev/termination-log"), sys.platform


def there(path: str) -> bool:
    return Path(path).exists()


def test_a_termination_message_is_limited_in_bytes_and_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"y" * 3000 + b"\nlast\xff\n")
    assert termination_message.read(FALLBACK, tmp_path / "none", log, 1) == "y" * (2048 - 7) + "\nlast\ufffd\n"
    log.write_bytes(b"\n" * 100)
    assert termination_message.read(FALLBACK, tmp_path / "none", log, 1) == "\n" * 80
