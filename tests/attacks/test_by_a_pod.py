"""Attacks by a pod, in both networks: whatever it is and does, other pods run and the node's files stay its own.

docs/security.md lists each of them with what makes it impossible."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.node_cluster import NodeCluster, running_node, terminated
from trainyard.client import ApiError
from trainyard.node.kubelet import lifecycle, pod_state
from trainyard.node.kubelet.api.pod_logs import PodLogs
from trainyard.node.kubelet.pod_worker import UNEXPECTED_ADMISSION_ERROR, folder_name
from trainyard.node.kubelet.spec.pod_spec import EnvContext
from trainyard.node.kubelet.volumes.volumes import FatalStartError, VolumeContext, build
from trainyard.node.supervisor import safe_paths
from trainyard.objects import Json, name_of
from trainyard.objects.resources import POD

SECRET = "the administrator's token"
WAITS = "import time; time.sleep(600)"


@pytest.fixture
def state() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="attack-"))
    (folder / "secret").write_text(SECRET)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["namespace", "shared"])
async def cluster(request: pytest.FixtureRequest, state: Path) -> AsyncIterator[NodeCluster]:
    async with running_node(state, request.param) as cluster:
        yield cluster


async def goes_on(cluster: NodeCluster, name: str = "neighbour") -> None:
    """Another pod starts and ends, so the watch of pods and the event loop still work."""
    await cluster.pod(name, "print('fine')")
    assert await cluster.result(name) == "fine\n"
    await cluster.api.delete(POD, "default", name, grace_period_seconds=0)
    await cluster.gone(name)


# Errors in what the node does for a pod.


async def test_a_pod_name_of_253_letters_runs_beside_others(cluster: NodeCluster) -> None:
    name = "x" * 253
    await cluster.pod(name, "print('long')")
    assert await cluster.result(name) == "long\n"
    await goes_on(cluster)
    await cluster.api.delete(POD, "default", name, grace_period_seconds=0)
    await cluster.gone(name)


@pytest.mark.parametrize("name", ["x" * 253, "x"])
def test_a_folder_of_a_pod_fits_into_a_file_name_and_ends_with_the_uid(name: str) -> None:
    folder = folder_name("n" * 63, name, "u" * 36)
    assert len(folder) <= 255 and folder.rpartition("_")[2] == "u" * 36


async def test_a_pod_without_an_address_fails_and_can_be_deleted(
    cluster: NodeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = cluster.node._context.network  # type: ignore[union-attr]
    allot = network.allocate_ip

    def none_for_unlucky(pod: Json) -> str:
        if name_of(pod) == "unlucky":
            raise OSError("no free address for a pod in 10.244.0.0/16")
        return allot(pod)

    monkeypatch.setattr(network, "allocate_ip", none_for_unlucky)
    await cluster.pod("unlucky", WAITS)
    status = (await cluster.phase("unlucky", "Failed"))["status"]
    assert (status["reason"], status["message"]) == (
        UNEXPECTED_ADMISSION_ERROR,
        "no free address for a pod in 10.244.0.0/16",
    )
    await cluster.api.delete(POD, "default", "unlucky")
    await cluster.gone("unlucky")
    await goes_on(cluster)


async def test_a_pod_that_the_node_cannot_parse_fails(cluster: NodeCluster) -> None:
    def broken(pod: Json) -> Path | None:
        if name_of(pod) == "unlucky":
            raise ValueError("a folder that cannot be named")
        return None

    cluster.node._context.log_folder = broken  # type: ignore[union-attr]
    await cluster.pod("unlucky", WAITS)
    status = (await cluster.phase("unlucky", "Failed"))["status"]
    assert (status["reason"], status["message"]) == (
        UNEXPECTED_ADMISSION_ERROR,
        "ValueError: a folder that cannot be named",
    )
    await goes_on(cluster)


async def test_a_pod_whose_lifecycle_raises_is_killed_and_fails(
    cluster: NodeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = lifecycle.step

    def broken(pod: pod_state.Pod, event: pod_state.Event) -> Any:
        if pod.name.startswith("unlucky") and pod.containers[0].state is pod_state.ContainerState.RUNNING:
            raise KeyError("no such move")
        return step(pod, event)

    await cluster.pod("unlucky", WAITS)
    await cluster.phase("unlucky", "Running")
    monkeypatch.setattr(lifecycle, "step", broken)
    cluster.node.resync()
    status = (await cluster.phase("unlucky", "Failed"))["status"]
    assert status["reason"] == UNEXPECTED_ADMISSION_ERROR and "no such move" in status["message"]
    await cluster.api.delete(POD, "default", "unlucky")
    await cluster.gone("unlucky")
    await goes_on(cluster)


def test_files_beside_the_logs_are_no_runs(tmp_path: Path) -> None:
    (tmp_path / "main").mkdir()
    for name in ("2.log", "3-saved.log", "-4.log", "0x5.log", "\u0666.log", f"{'9' * 5000}"[:200] + ".log"):
        (tmp_path / "main" / name).touch()
    assert PodLogs(tmp_path, None).newest_runs() == {"main": 2}


async def test_a_service_that_cannot_be_served_leaves_the_others(
    cluster: NodeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = cluster.node._context.network  # type: ignore[union-attr]
    listen, served = network._listen, asyncio.Event()  # type: ignore[union-attr]

    async def broken(key: Any, *place: Any) -> None:
        if key.name == "a-broken-one":
            raise ValueError("an address that is none")
        await listen(key, *place)
        if key.name == "b-good-one":
            served.set()

    monkeypatch.setattr(network, "_listen", broken)
    for name in ("a-broken-one", "b-good-one"):
        await cluster.service(name, selector={"app": "x"}, ports=[{"port": 80}])
    async with asyncio.timeout(10):
        await served.wait()
    assert any("a-broken-one" in line for line in cluster.lines)


# Files that a pod can replace.

REPLACE = """
import glob, os, sys
kind, state = sys.argv[1:]
def replace(path):
    os.path.lexists(path) and os.unlink(path)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "symlink":
        os.symlink(state + "/secret", path)
    elif kind == "directory":
        os.mkdir(path)
for path in glob.glob(state + "/pods/*/messages/main/1") + glob.glob(state + "/pods/*/logs/main/1.log"):
    try:
        replace(path)
    except OSError as error:  # where the folder is hidden from pods there is nothing to attack
        print(error)
sys.exit(3)
"""


@pytest.mark.parametrize("kind", ["fifo", "symlink", "directory"])
async def test_a_replaced_termination_message_or_log_file_blocks_nothing_and_leaks_nothing(
    cluster: NodeCluster, state: Path, kind: str
) -> None:
    more = {"command": ["python", "-c", REPLACE, kind, str(state)], "terminationMessagePolicy": "FallbackToLogsOnError"}
    await cluster.pod("attacker", container=more)
    last = (terminated((await cluster.phase("attacker", "Failed"))["status"]) or {}).get("message", "")
    async with asyncio.timeout(10):
        try:
            shown = await cluster.logs("attacker")
        except ApiError as error:
            shown = str(error)
    assert SECRET not in last + shown
    await goes_on(cluster)


async def test_the_message_of_the_next_run_cannot_be_aimed_at_a_file(cluster: NodeCluster, state: Path) -> None:
    script = (
        "import glob, os, sys\n"
        f"state = {str(state)!r}\n"
        "for path in glob.glob(state + '/pods/*/messages/main/1') + glob.glob(state + '/pods/*/logs/main/1.log'):\n"
        "    folder, name = os.path.split(path)\n"
        "    os.path.lexists(next := folder + '/' + name.replace('1', '2')) or os.symlink(state + '/secret', next)\n"
        "sys.exit(1)\n"
    )
    await cluster.pod("attacker", restartPolicy="OnFailure", container={"command": ["python", "-c", script]})
    await cluster.until(
        "attacker",
        lambda status: any(
            container_status["restartCount"] for container_status in status.get("containerStatuses") or []
        ),
    )
    assert (state / "secret").read_text() == SECRET
    await goes_on(cluster)


# Texts and paths of a pod's spec.


async def test_variables_of_exponential_size_are_refused_during_expansion(cluster: NodeCluster) -> None:
    env = [{"name": "A0", "value": "x" * 64}]
    env += [{"name": f"A{number}", "value": f"$(A{number - 1})$(A{number - 1})"} for number in range(1, 40)]
    await cluster.pod("attacker", WAITS, container={"command": ["sleep", "600"], "env": env})
    last = terminated((await cluster.phase("attacker", "Failed"))["status"]) or {}
    assert last["reason"] == "StartError" and "longer than 131072 bytes" in last["message"]
    await goes_on(cluster)


async def test_many_long_arguments_are_refused(cluster: NodeCluster) -> None:
    env = [{"name": "A", "value": "x" * 100_000}]
    await cluster.pod("attacker", container={"command": ["sleep", *["$(A)"] * 1000], "env": env})
    last = terminated((await cluster.phase("attacker", "Failed"))["status"]) or {}
    assert last["reason"] == "StartError" and "longer than 2097152 bytes together" in last["message"]


@pytest.mark.parametrize("claim", ["../../keys", "/etc", "..", "", "a/b", "a\0b"])
def test_a_claim_is_a_name(claim: str, tmp_path: Path) -> None:
    env_context = EnvContext({"metadata": {"namespace": "default"}}, {}, {})
    room = VolumeContext(env_context, tmp_path / "volumes", tmp_path / "claims", {}, str, print)
    with pytest.raises(FatalStartError, match="claimName"):
        build({"name": "data", "persistentVolumeClaim": {"claimName": claim}}, room)


@pytest.mark.parametrize("volume", ["../x", "/x", "..", "a/b"])
def test_a_volume_is_a_name(volume: str, tmp_path: Path) -> None:
    room = VolumeContext(EnvContext({}, {}, {}), tmp_path / "volumes", tmp_path / "claims", {}, str, print)
    with pytest.raises(FatalStartError, match="volumes"):
        build({"name": volume, "emptyDir": {}}, room)


@pytest.mark.parametrize("link", ["/", "../../../..", "loop"])
async def test_a_sub_path_through_a_link_of_an_init_container_stays_in_the_volume(
    cluster: NodeCluster, link: str
) -> None:
    mounts = [{"name": "data", "mountPath": "/data"}]
    prepare = {
        "name": "prepare",
        "image": "any",
        "command": ["python", "-c", "import os, sys; os.symlink(sys.argv[1], sys.argv[2])", link, "/data/loop"],
        "volumeMounts": mounts,
    }
    mounted = [{"name": "data", "mountPath": "/there", "subPath": "loop"}]
    reads = {"command": ["python", "-c", "import os; print(os.listdir('/there'))"], "volumeMounts": mounted}
    await cluster.pod("attacker", container=reads, initContainers=[prepare], volumes=[{"name": "data", "emptyDir": {}}])
    status = (await cluster.phase("attacker", "Failed"))["status"]
    last = terminated(status) or {}
    assert "subPath" in last["message"], last
    await goes_on(cluster)


async def test_a_sub_path_through_a_link_within_the_volume_is_followed(cluster: NodeCluster) -> None:
    mounts = [{"name": "data", "mountPath": "/data"}]
    script = "import os; os.mkdir('/data/run-3'); os.symlink('run-3', '/data/latest'); open('/data/run-3/model', 'w')"
    prepare = {"name": "prepare", "image": "any", "command": ["python", "-c", script], "volumeMounts": mounts}
    mounted = [{"name": "data", "mountPath": "/there", "subPath": "latest"}]
    reads = {"command": ["python", "-c", "import os; print(os.listdir('/there'))"], "volumeMounts": mounted}
    await cluster.pod("reader", container=reads, initContainers=[prepare], volumes=[{"name": "data", "emptyDir": {}}])
    assert await cluster.result("reader") == "['model']\n"


@pytest.mark.parametrize("path", ["out", "up/../../x", "/etc", "a/../out/x"])
def test_a_path_that_leaves_a_volume_is_not_resolved(path: str, tmp_path: Path) -> None:
    root = tmp_path / "volume"
    (root / "a").mkdir(parents=True)
    (root / "out").symlink_to("../secret")
    (tmp_path / "secret").mkdir()
    with pytest.raises(OSError, match=r"leads out of the volume|must be relative"):
        os.close(safe_paths.resolve(str(root), path))
