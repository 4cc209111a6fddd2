"""Where programs start whose container and image name no folder, and which files are said to go with a pod."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.node.node_cluster import NodeCluster
from tests.support.waiting import until_async
from trainyard.node.images import PreparedImage
from trainyard.node.kubelet.image_mounts import visible_below
from trainyard.node.kubelet.volumes.mount_points import MountPoints
from trainyard.node.kubelet.volumes.unsaved_files import (
    UnsavedFiles,
    replica_name,
    report_claims,
    size_text,
    working_directory,
)
from trainyard.node.kubelet.volumes.volumes import FatalStartError
from trainyard.node.sandbox.supervisor_client import Mount
from trainyard.node.supervisor import unsaved_count
from trainyard.objects import Json
from trainyard.objects.labels import INDEX, ROLE, WORKING_DIRECTORY
from trainyard.objects.resources import EVENT, POD

WHERE = "import os; print(os.getcwd()); open('made', 'w').write('kept')"
UNKNOWN = {"image": "unknown"}


def in_folder(folder: Path | str) -> Json:
    return {"annotations": {WORKING_DIRECTORY: str(folder)}}


async def test_an_unknown_image_runs_in_the_folder_that_the_pod_names(cluster: NodeCluster, tmp_path: Path) -> None:
    await cluster.pod("mine", WHERE, container=UNKNOWN, metadata=in_folder(tmp_path))
    assert await cluster.result("mine") == f"{tmp_path}\n"
    assert (tmp_path / "made").read_text() == "kept"


async def test_the_containers_own_folder_wins(cluster: NodeCluster, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    container = {**UNKNOWN, "workingDir": str(tmp_path / "own")}
    await cluster.pod("mine", WHERE, container=container, metadata=in_folder(tmp_path))
    assert await cluster.result("mine") == f"{tmp_path}/own\n"


async def test_a_working_directory_missing_on_this_machine_is_reported_and_replaced_by_the_root(
    cluster: NodeCluster, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        await cluster.pod(
            name, "import os; print(os.getcwd())", container=UNKNOWN, metadata=in_folder(tmp_path / "not-here")
        )
        assert await cluster.result(name) == "/\n"
    (line,) = [line for line in cluster.lines if "not-here" in line]
    assert line.startswith(f"node: there is no folder {tmp_path}/not-here on this machine") and "start in /" in line


async def test_a_volume_on_the_folder_is_where_the_program_starts(cluster: NodeCluster, tmp_path: Path) -> None:
    container = {**UNKNOWN, "volumeMounts": [{"name": "work", "mountPath": str(tmp_path)}]}
    volumes = [{"name": "work", "emptyDir": {}}]
    await cluster.pod("mine", WHERE, container=container, volumes=volumes, metadata=in_folder(tmp_path))
    await cluster.phase("mine", "Succeeded")
    assert os.listdir(tmp_path) == []


only_namespace = pytest.mark.parametrize("cluster", ["namespace"], indirect=True)


async def events_of(cluster: NodeCluster, pod: str) -> list[Json]:
    listed = await cluster.api.list(EVENT, "default")
    return [item for item in listed["items"] if item["involvedObject"]["name"] == pod]


async def termination_message(cluster: NodeCluster, name: str) -> str:
    """The line about a pod, once the node has forgotten it."""
    await cluster.api.delete(POD, "default", name)
    await until_async(lambda: not cluster.node._pods.workers, "the node has forgotten its pods", seconds=20)
    return "\n".join(line for line in cluster.lines if line.startswith(f"{name}: "))


@only_namespace
async def test_the_lost_files_of_a_killed_program_are_reported_in_an_event(cluster: NodeCluster) -> None:
    script = "import os; open('/lost.pt', 'w').write('x' * 1500); os.kill(os.getpid(), 9)"
    await cluster.pod("killed", script)
    await cluster.phase("killed", "Failed")
    message = "1 file, 1.5 kB, is gone with the pod: /lost.pt; mount a volume"
    assert (await termination_message(cluster, "killed")).startswith(f"killed: {message}")
    (event,) = [event for event in await events_of(cluster, "killed") if event["reason"] == "FilesLost"]
    assert (event["type"], event["reason"]) == ("Normal", "FilesLost") and event["message"].startswith(message)


@only_namespace
async def test_a_pod_that_is_stopped_by_force_has_its_files_named(cluster: NodeCluster) -> None:
    script = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open('/lost.pt', 'w').write('x' * 1500)
print('up', flush=True)
time.sleep(60)
"""
    await cluster.pod("stopped", script)
    await cluster.phase("stopped", "Running")
    first = await anext(cluster.api.logs("default", "stopped", "main", follow=True))
    assert first.startswith(b"up")  # unbuffered, print writes the line and its end one after the other
    await cluster.api.delete(POD, "default", "stopped", grace_period_seconds=1)
    await until_async(lambda: not cluster.node._pods.workers, "the node has forgotten its pods", seconds=20)
    assert any(line.startswith("stopped: 1 file, 1.5 kB, is gone with the pod: /lost.pt") for line in cluster.lines)


@only_namespace
async def test_files_of_an_exec_count_and_files_of_image_and_node_do_not(
    cluster: NodeCluster,
) -> None:
    script = "import subprocess; subprocess.run(['sh', '-c', 'echo hello > /by-a-child'])"
    facts = {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}
    mounts = [{"name": "facts", "mountPath": "/facts/deep"}, {"name": "memory", "mountPath": "/memory"}]
    volumes = [{"name": "facts", "downwardAPI": facts}, {"name": "memory", "emptyDir": {"medium": "Memory"}}]
    await cluster.pod("child", script, container={"volumeMounts": mounts}, volumes=volumes)
    await cluster.phase("child", "Succeeded")
    assert "1 file, 6 bytes, is gone with the pod: /by-a-child;" in await termination_message(cluster, "child")


async def test_files_of_an_init_container_count_only_if_they_were_changed(cluster: NodeCluster) -> None:
    mounts = {"image": "any", "volumeMounts": [{"name": "work", "mountPath": "/work"}]}
    init = {"name": "init", "command": ["sh", "-c", "echo a > /work/input; echo b > /work/changed"], **mounts}
    main = {"name": "main", "command": ["sh", "-c", "echo c >> /work/changed; echo d > /work/made"], **mounts}
    await cluster.pod("work", initContainers=[init], containers=[main], volumes=[{"name": "work", "emptyDir": {}}])
    await cluster.phase("work", "Succeeded")
    assert "2 files, 6 bytes, are gone with the pod: /work/changed, /work/made;" in await termination_message(
        cluster, "work"
    )


def mounted_at(path: object, **mount: Any) -> Json:
    return {**UNKNOWN, "volumeMounts": [{"name": "data", "mountPath": str(path), **mount}]}


EMPTY = [{"name": "data", "emptyDir": {}}]
BESIDE = """
import os
open('model.pt', 'w').write('m')
os.mkdir('sub')
open('sub/model.pt', 'w').write('m')
"""


@only_namespace
@pytest.mark.parametrize("mount_path", ["data", "data/deep", "link/data"])
async def test_files_beside_a_mount_point_that_was_missing_stay(
    cluster: NodeCluster, tmp_path: Path, mount_path: str
) -> None:
    """The mount point is created in the real folder, and removed when the pod has ended."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    container = mounted_at(tmp_path / mount_path)
    await cluster.pod("beside", BESIDE, container=container, volumes=EMPTY, metadata=in_folder(tmp_path))
    await cluster.phase("beside", "Succeeded")
    assert await termination_message(cluster, "beside") == ""
    assert sorted(os.listdir(tmp_path)) == ["link", "model.pt", "real", "sub"]
    assert (tmp_path / "sub/model.pt").read_text() == "m" and os.listdir(tmp_path / "real") == []


@only_namespace
async def test_the_mount_point_of_a_file_that_was_missing_is_an_empty_file_until_the_end(
    cluster: NodeCluster, tmp_path: Path
) -> None:
    items = {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}
    container = mounted_at(tmp_path / "name.txt", subPath="name")
    volumes = [{"name": "data", "downwardAPI": items}]
    script = f"{BESIDE}\nprint(open('name.txt').read())"
    await cluster.pod("beside", script, container=container, volumes=volumes, metadata=in_folder(tmp_path))
    assert await cluster.result("beside") == "beside\n"
    assert await termination_message(cluster, "beside") == "" and sorted(os.listdir(tmp_path)) == ["model.pt", "sub"]


@only_namespace
async def test_a_mount_point_below_another_mount_is_created_in_the_mounted_folder(
    cluster: NodeCluster, tmp_path: Path
) -> None:
    mounts = [{"name": "host", "mountPath": "/of-host"}, {"name": "data", "mountPath": "/of-host/data"}]
    volumes = [*EMPTY, {"name": "host", "hostPath": {"path": str(tmp_path)}}]
    script = "open('/of-host/model.pt', 'w').write('m'); open('/of-host/data/x', 'w')"
    await cluster.pod("nested", script, container={"volumeMounts": mounts}, volumes=volumes)
    await cluster.phase("nested", "Succeeded")
    assert await termination_message(cluster, "nested") == "" and os.listdir(tmp_path) == ["model.pt"]


@only_namespace
async def test_a_mount_point_stays_while_another_pod_uses_it_or_it_has_files(
    cluster: NodeCluster, tmp_path: Path
) -> None:
    more: dict[str, Any] = {
        "container": mounted_at(tmp_path / "data"),
        "volumes": EMPTY,
        "metadata": in_folder(tmp_path),
    }
    wait = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\nopen('data/x', 'w').write('x')"
    await cluster.pod("first", "pass", **more)
    await cluster.pod("second", wait, **{**more, "metadata": {**more["metadata"], "name": "second"}})
    await cluster.phase("first", "Succeeded")
    await cluster.phase("second", "Running")
    await cluster.pod("third", "pass", **{**more, "metadata": {**more["metadata"], "name": "third"}})
    await cluster.phase("third", "Succeeded")
    assert (tmp_path / "data").is_dir()
    (tmp_path / "data/of-the-user").touch()
    (tmp_path / "go").touch()
    await cluster.phase("second", "Succeeded")
    for name in ("first", "second", "third"):
        await cluster.api.delete(POD, "default", name)
    await until_async(lambda: not cluster.node._pods.workers, "the node has forgotten its pods", seconds=20)
    assert os.listdir(tmp_path / "data") == ["of-the-user"]


def test_a_mount_point_that_another_node_uses_is_not_removed(tmp_path: Path) -> None:
    """Its mount would be detached."""
    mount = Mount("/", f"{tmp_path}/data")
    ours, theirs = MountPoints(), MountPoints()
    ours.create("a", [mount], "/", "")
    theirs.create("b", [mount], "/", "")
    ours.release("a")
    assert (tmp_path / "data").is_dir()
    theirs.release("b")
    assert (tmp_path / "data").is_dir(), "it was created by the other node"


def test_the_mount_point_of_a_file_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "source").touch()
    mounts = [
        Mount(f"{tmp_path}/source", f"{tmp_path}/file"),
        Mount(str(tmp_path), f"{tmp_path}/sub", subpath="source"),
    ]
    MountPoints().create("a", mounts, "/", "")
    assert (tmp_path / "file").is_file() and (tmp_path / "sub").is_file()


def test_a_mount_point_that_cannot_be_created_in_the_project_is_an_error_with_the_fix() -> None:
    """Elsewhere the container gets a copy of the folder."""
    mount = Mount("/", "/proc/data")
    MountPoints().create("a", [mount], "/", "/tmp")
    with pytest.raises(FatalStartError, match=r"the mount point /proc/data does not exist .*`mkdir -p /proc/data`"):
        MountPoints().create("a", [mount], "/", "/proc")


async def test_a_pod_without_lost_files_is_not_reported(cluster: NodeCluster, tmp_path: Path) -> None:
    script = "import tempfile; open(tempfile.mktemp(), 'w').write('temporary')"
    await cluster.pod("tidy", script, metadata=in_folder(tmp_path))
    await cluster.phase("tidy", "Succeeded")
    reasons = [event["reason"] for event in await events_of(cluster, "tidy")]
    assert await termination_message(cluster, "tidy") == "" and "FilesLost" not in reasons


# The parts.


def count_of(*files: tuple[str, int], number: int = 0, complete: bool = True) -> Json:
    size = sum(size for _, size in files)
    return {"files": number or len(files), "bytes": size, "complete": complete, "largest": [list(f) for f in files]}


@pytest.mark.parametrize(
    ("count", "start"),
    [
        (count_of(("/a", 3)), "1 file, 3 bytes, is gone with the pod: /a; "),
        (count_of(("/b", 13_900_000), ("/a", 12)), "2 files, 14 MB, are gone with the pod: /b, /a; "),
        (count_of(("/b", 9_999_999_999), number=12), "12 files, 10 GB, are gone with the pod: /b and 11 more; "),
        (count_of(("/b", 1), number=9, complete=False), "at least 9 files, 1 byte, are gone with the pod: /b and 8"),
        (count_of(("/\x1b[2J\n", 1)), "1 file, 1 byte, is gone with the pod: /?[2J?; "),
        (count_of((f"/{'x' * 200}", 1)), f"1 file, 1 byte, is gone with the pod: ...{'x' * 77}; "),
        ({}, ""),
    ],
)
def test_the_messages_about_lost_files(count: Json, start: str) -> None:
    files = UnsavedFiles("")
    files.add("main", count)
    assert files.message(whole_pod=True).startswith(start) and bool(files.message(True)) == bool(start)


def test_the_largest_files_of_all_containers_come_first(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/middle").write_bytes(b"x" * 50)
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "mount-point").touch()
    files = UnsavedFiles(str(tmp_path))
    files.add("one", count_of(("/large", 100)))
    files.add("two", count_of(("/small", 1)))
    files.watch(str(tmp_path), "/data")
    files.watch(f"{tmp_path}/sub", "/data/again")
    message = files.message(whole_pod=True)
    assert message.startswith("3 files, 151 bytes, are gone with the pod: /large, /data/sub/middle, /small; ")
    assert f"write below {tmp_path} or mount a volume" in message
    assert files.message(whole_pod=False).startswith("2 files, 101 bytes, ")


def test_the_container_run_with_most_lost_files_is_reported() -> None:
    files = UnsavedFiles("")
    for count in (count_of(("/a", 1)), count_of(("/b", 1), ("/c", 1)), count_of(("/d", 1))):
        files.add("main", count)
    assert files.message(True).startswith("2 files, 2 bytes, are gone with the pod: /b, /c; ")


def test_a_claim_that_is_deleted_with_the_cluster_is_reported(tmp_path: Path) -> None:
    (tmp_path / "default/results").mkdir(parents=True)
    (tmp_path / "default/empty").mkdir()
    (tmp_path / "default/results/model.pt").write_bytes(b"x" * 10)
    lines: list[str] = []
    report_claims(tmp_path, "cluster", lines.append)
    start = "claim default/results: 1 file, 10 bytes, is gone with the cluster: model.pt; use --mount results=DIR"
    assert [line.startswith(start) for line in lines] == [True]
    report_claims(tmp_path / "none", "cluster", lines.append)


def test_counting_a_large_tree_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (tmp_path / str(number)).write_text("x")
    monkeypatch.setattr(unsaved_count, "MAX_ENTRIES", 10)
    count = unsaved_count.FileCount()
    count.add(str(tmp_path), "/")
    message = count.message()
    assert (message["files"], message["complete"], len(message["largest"])) == (10, False, unsaved_count.MAX_NAMED)


def test_sizes() -> None:
    sizes = [0, 999, 1000, 9949, 14_200_000, 1_400_000_000]
    assert [size_text(size) for size in sizes] == ["0 bytes", "999 bytes", "1.0 kB", "9.9 kB", "14 MB", "1.4 GB"]


def test_the_name_and_the_folder_of_a_pod() -> None:
    pod = {"metadata": {"name": "own-1x2y-worker-3", "labels": {ROLE: "WORKER", INDEX: "3"}, **in_folder("/data")}}
    assert replica_name(pod) == "worker-3" and working_directory(pod, Path("/other")) == "/data"
    plain: Json = {"metadata": {"name": "plain"}}
    assert replica_name(plain) == "plain" and working_directory(plain, Path("/other")) == "/other"
    assert working_directory({"metadata": in_folder("relative")}, None) == ""


def test_the_interpreter_stays_visible_below_a_volume_and_nothing_else_is_added(tmp_path: Path) -> None:
    prepared = PreparedImage([f"{tmp_path}/env/bin"], files={"/train.py": f"{tmp_path}/code/train.py"})
    volume = Mount("/somewhere", str(tmp_path), pod_owned=True)
    shown = {mount.target for mount in visible_below(prepared, [volume])}
    assert {f"{tmp_path}/env", f"{tmp_path}/code"} <= shown
    assert visible_below(PreparedImage([]), [Mount("/somewhere", "/not/around/anything", pod_owned=True)]) == []
    assert visible_below(prepared, [Mount("/folder/of/the/user", str(tmp_path))]) == []
    around = Mount("/somewhere", os.path.dirname(os.path.realpath(sys.prefix)), pod_owned=True)
    assert os.path.realpath(sys.prefix) in {mount.target for mount in visible_below(prepared, [around])}
