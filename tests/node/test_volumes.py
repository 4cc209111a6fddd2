"""Volumes: what each type puts where, and what pods see of them."""

from __future__ import annotations

import inspect
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.node.node_cluster import NodeCluster, waiting
from trainyard.node.kubelet.spec.pod_spec import EnvContext, Missing, TokenRequest
from trainyard.node.kubelet.volumes.volumes import FatalStartError, VolumeContext, build
from trainyard.objects import Json

POD: Json = {
    "metadata": {"name": "pod", "namespace": "here", "labels": {"app": "x"}},
    "spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "1Gi"}}}]},
}
LATER = Missing('failed to fetch token: serviceaccounts "default" not found', None, retry_after=0.5)
REFS = {
    ("configmap", "map"): {"data": {"a": "1", "b": "ps-0"}, "binaryData": {"raw": "AP8="}},
    ("secret", "secret"): {"data": {"key": "dmFsdWU="}},
    ("configmap", "gone"): None,
}


@pytest.fixture
def room(tmp_path: Path) -> VolumeContext:
    tokens: dict[TokenRequest, str | Missing] = {TokenRequest("", 3607): "a token", TokenRequest("vault", 600): LATER}
    env_context = EnvContext(POD, REFS, {"cpu": "2", "memory": "4Gi"}, tokens)
    messages: list[str] = []
    folder = tmp_path / "claimed"
    folder.mkdir()
    claimed = {"mine": folder, "lost": tmp_path / "lost"}
    return VolumeContext(
        env_context,
        tmp_path / "v",
        tmp_path / "claims",
        claimed,
        lambda text: text.replace("ps-0", "X"),
        messages.append,
    )


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_bytes().decode("latin-1")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("source", "files"),
    [
        ({"emptyDir": {}}, {}),
        ({"configMap": {"name": "map"}}, {"a": "1", "b": "X", "raw": "\x00\xff"}),
        ({"configMap": {"name": "map", "items": [{"key": "a", "path": "deep/er"}]}}, {"deep/er": "1"}),
        ({"configMap": {"name": "gone", "optional": True}}, {}),
        ({"configMap": {"name": "map", "optional": True, "items": [{"key": "no", "path": "x"}]}}, {}),
        ({"secret": {"secretName": "secret"}}, {"key": "value"}),
        ({"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}}, {"n": "pod"}),
        (
            {
                "projected": {
                    "sources": [
                        {"configMap": {"name": "map", "items": [{"key": "a", "path": "a"}]}},
                        {"secret": {"name": "secret"}},
                        {
                            "downwardAPI": {
                                "items": [
                                    {
                                        "path": "mem",
                                        "resourceFieldRef": {
                                            "containerName": "main",
                                            "resource": "limits.memory",
                                            "divisor": "1Mi",
                                        },
                                    }
                                ]
                            }
                        },
                        {"serviceAccountToken": {"path": "deep/token", "expirationSeconds": 3607}},
                    ]
                }
            },
            {"a": "1", "key": "value", "mem": "1024", "deep/token": "a token"},
        ),
        ({"persistentVolumeClaim": {"claimName": "new"}}, {}),
        ({"persistentVolumeClaim": {"claimName": "mine"}}, {}),
    ],
)
def test_the_files_of_each_volume_type(source: Json, files: dict[str, str], room: VolumeContext) -> None:
    assert tree(build({"name": "vol", **source}, room).path) == files


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"configMap": {"name": "gone"}}, 'configmap "gone" not found'),
        ({"secret": {"secretName": "none"}}, 'secret "none" not found'),
        (
            {"configMap": {"name": "map", "items": [{"key": "no", "path": "x"}]}},
            "references non-existent config key: no",
        ),
    ],
)
def test_a_missing_volume_source_is_waited_for_with_the_kubelets_message(
    source: Json, message: str, room: VolumeContext
) -> None:
    with pytest.raises(Missing) as missing:
        build({"name": "vol", **source}, room)
    assert missing.value.message == f'MountVolume.SetUp failed for volume "vol" : {message}'
    assert missing.value.reason == "ContainerCreating" and missing.value.ref


def test_a_refused_token_is_requested_again(room: VolumeContext) -> None:
    source = {"serviceAccountToken": {"path": "token", "audience": "vault", "expirationSeconds": 600}}
    with pytest.raises(Missing) as missing:
        build({"name": "vol", "projected": {"sources": [source]}}, room)
    expected = 'MountVolume.SetUp failed for volume "vol" : failed to fetch token: serviceaccounts "default" not found'
    assert (missing.value.message, missing.value.retry_after, missing.value.ref) == (expected, 0.5, None)


def test_the_files_of_a_projected_volume_may_be_missing_have_modes_and_other_names(room: VolumeContext) -> None:
    sources = [
        {"configMap": {"name": "map", "items": [{"key": "a", "path": "deep/a", "mode": 0o600}]}},
        {"configMap": {"name": "gone", "optional": True}},
        {"secret": {"name": "none", "optional": True}},
        {"downwardAPI": {"items": [{"path": "ns", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    volume = build({"name": "vol", "projected": {"sources": sources, "defaultMode": 0o440}}, room)
    assert tree(volume.path) == {"deep/a": "1", "ns": "here"} and volume.readonly
    assert [stat.S_IMODE((volume.path / name).stat().st_mode) for name in ("deep/a", "ns")] == [0o600, 0o440]
    plain = build({"name": "plain", "projected": {"sources": sources[3:]}}, room)
    assert stat.S_IMODE((plain.path / "ns").stat().st_mode) == 0o644
    with pytest.raises(Missing) as missing:
        build({"name": "root-ca", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}]}}, room)
    assert missing.value.ref == ("configmap", "kube-root-ca.crt")


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"path": "/no/such", "type": "Directory"}, "/no/such is not a directory: it does not exist"),
        ({"path": "/no/such", "type": "File"}, "/no/such is not a file: it does not exist"),
        ({"path": "/etc/passwd", "type": "Directory"}, "/etc/passwd is not a directory: it is a file"),
        (
            {"path": "/etc/passwd", "type": "DirectoryOrCreate"},
            "/etc/passwd is not a directory: it is a file",
        ),
        ({"path": "/etc", "type": "Socket"}, "/etc is not a socket: it is a directory"),
    ],
)
def test_a_host_path_of_another_type_is_waited_for_with_the_kubelets_message(
    source: Json, problem: str, room: VolumeContext
) -> None:
    with pytest.raises(Missing) as missing:
        build({"name": "vol", "hostPath": source}, room)
    expected = f'MountVolume.SetUp failed for volume "vol" : hostPath type check failed: {problem}'
    assert (missing.value.message, missing.value.reason) == (expected, "ContainerCreating")
    assert missing.value.retry_after > 0


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"nfs": {"server": "x"}}, "type nfs is not supported"),
        ({}, "type nothing"),
        ({"persistentVolumeClaim": {"claimName": "lost"}}, "--mount lost="),
        ({"configMap": {"name": "map", "items": [{"key": "a", "path": "../up"}]}}, 'without ".."'),
    ],
)
def test_a_volume_that_can_never_work_is_reported(source: Json, says: str, room: VolumeContext) -> None:
    with pytest.raises(FatalStartError) as hopeless:
        build({"name": "vol", **source}, room)
    assert says in str(hopeless.value)


def test_modes_are_the_items_or_the_default(room: VolumeContext) -> None:
    items = [{"key": "a", "path": "a", "mode": 0o700}, {"key": "b", "path": "b"}]
    folder = build({"name": "v", "configMap": {"name": "map", "items": items, "defaultMode": 0o400}}, room).path
    assert [stat.S_IMODE((folder / name).stat().st_mode) for name in ("a", "b")] == [0o700, 0o400]


def test_a_claim_is_one_shared_folder_and_a_mount_overrides_it(room: VolumeContext) -> None:
    new = build({"name": "a", "persistentVolumeClaim": {"claimName": "new"}}, room)
    assert build({"name": "b", "persistentVolumeClaim": {"claimName": "new"}}, room).path == new.path
    mine = build({"name": "c", "persistentVolumeClaim": {"claimName": "mine"}}, room)
    assert mine.path.name == "claimed" and not mine.pod_owned


def test_a_host_path_is_created_if_its_type_allows_it(room: VolumeContext, tmp_path: Path) -> None:
    volume = {"name": "v", "hostPath": {"path": str(tmp_path / "new"), "type": "DirectoryOrCreate"}}
    assert build(volume, room).path.is_dir()
    volume = {"name": "v", "hostPath": {"path": str(tmp_path / "file"), "type": "FileOrCreate"}}
    assert build(volume, room).path.is_file()


def test_a_memory_backed_empty_dir_is_a_tmpfs(room: VolumeContext) -> None:
    folder = build({"name": "v", "emptyDir": {"medium": "Memory"}}, room).path
    assert room.tmpfs_folders == [str(folder)]


# In real pods.


def there(*paths: str) -> list[str]:
    return [path for path in paths if Path(path).exists()]


def owner(path: Path) -> int:
    return path.stat().st_uid


async def test_a_pod_waits_for_a_host_path_of_type_directory(cluster: NodeCluster, tmp_path: Path) -> None:
    folder = tmp_path / "later"
    volumes = [{"name": "v", "hostPath": {"path": str(folder), "type": "Directory"}}]
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}], "command": ["cat", "/v/file"]}
    await cluster.pod("waits", container=mounts, volumes=volumes)
    await cluster.until("waits", lambda status: "is not a directory" in waiting(status).get("message", ""))
    folder.mkdir()
    (folder / "file").write_text("it is there")
    assert await cluster.result("waits") == "it is there"


async def test_a_volume_that_no_container_mounts_is_not_waited_for(cluster: NodeCluster) -> None:
    """As a kubelet 1.37 starts it: it sets up the volumes that are mounted, and no others."""
    volumes = [{"name": "v", "configMap": {"name": "gone"}}, {"name": "w", "secret": {"secretName": "gone"}}]
    await cluster.pod("starts", container={"command": ["echo", "it runs"]}, volumes=volumes)
    assert await cluster.result("starts") == "it runs\n"


async def test_a_missing_host_path_without_a_type_is_created_and_an_event_names_it(
    cluster: NodeCluster, tmp_path: Path
) -> None:
    volumes = [{"name": "v", "hostPath": {"path": f"{tmp_path}/results/new"}}]
    mounts = {"volumeMounts": [{"name": "v", "mountPath": f"{tmp_path}/v"}]}
    await cluster.pod("writes", f"open('{tmp_path}/v/model', 'w').write('m')", container=mounts, volumes=volumes)
    await cluster.phase("writes", "Succeeded")
    assert (tmp_path / "results/new/model").read_text() == "m"
    (event,) = [candidate for candidate in await cluster.events("writes") if candidate["reason"] == "HostPathMissing"]
    assert event["type"] == "Warning" and f"there was no {tmp_path}/results/new on this machine" in event["message"]


async def test_a_host_path_that_cannot_be_created_is_an_empty_folder_and_an_event_names_it(
    cluster: NodeCluster,
) -> None:
    volumes = [{"name": "v", "hostPath": {"path": "/proc/no/such/driver"}}]
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}], "command": ["ls", "/v"]}
    await cluster.pod("driver", container=mounts, volumes=volumes)
    assert await cluster.result("driver") == ""
    (event,) = [candidate for candidate in await cluster.events("driver") if candidate["reason"] == "HostPathMissing"]
    assert event["type"] == "Warning" and "there is no /proc/no/such/driver on this machine" in event["message"]
    assert "`mkdir -p /proc/no/such/driver`" in event["message"]


async def test_containers_share_a_volume_and_a_claim_outlives_the_pod(cluster: NodeCluster) -> None:
    mounts = [{"name": "both", "mountPath": "/both/of/us"}, {"name": "kept", "mountPath": "/kept"}]
    volumes = [{"name": "both", "emptyDir": {}}, {"name": "kept", "persistentVolumeClaim": {"claimName": "c"}}]
    write = {"command": ["sh", "-c", "echo shared > /both/of/us/x; echo kept > /kept/y"], "volumeMounts": mounts}
    read = {
        "name": "main",
        "image": "any",
        "command": ["sh", "-c", "cat /both/of/us/x /kept/y"],
        "volumeMounts": mounts,
    }
    await cluster.pod(
        "one", initContainers=[{"name": "w", "image": "any", **write}], containers=[read], volumes=volumes
    )
    assert await cluster.result("one") == "shared\nkept\n"
    again = {**read, "command": ["sh", "-c", "cat /kept/y; ls /both/of/us"]}
    await cluster.pod("two", containers=[again], volumes=volumes)
    assert await cluster.result("two") == "kept\n"


only_namespace = pytest.mark.parametrize("cluster", ["namespace"], indirect=True)


@only_namespace
async def test_a_pod_has_folders_of_its_own_and_nothing_is_made_on_the_machine(cluster: NodeCluster) -> None:
    script = """
import os
open(os.environ['TMPDIR'] + '/of-the-pod', 'w').close()
open('/of-the-pod', 'w').close()
open('/dev/shm/of-the-pod', 'w').close()
print(os.path.exists('/opt-of-the-pod/deep/file'), os.path.exists('/usr/lib/of-the-pod/x'), os.path.isdir('/usr/bin'))
print(sorted(os.listdir('/usr/share/doc-of-the-pod')), len(os.listdir('/usr/share')) > 3)
try:
    open('/usr/lib/of-the-pod/x', 'w')
except OSError as error:
    print(error.strerror)
"""
    mounts = [
        {"name": "empty", "mountPath": "/opt-of-the-pod/deep"},
        {"name": "made", "mountPath": "/opt-of-the-pod/deep/file", "subPath": "file"},
        {"name": "read", "mountPath": "/usr/lib/of-the-pod/x", "subPath": "a", "readOnly": True},
        {"name": "read", "mountPath": "/usr/share/doc-of-the-pod"},
    ]
    facts = {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}]}
    volumes: list[dict[str, Any]] = [{"name": name, "emptyDir": {}} for name in ("empty", "made")] + [
        {"name": "read", "downwardAPI": facts}
    ]
    await cluster.pod("own", script, container={"volumeMounts": mounts}, volumes=volumes)
    assert await cluster.result("own") == "True True True\n['a'] True\nRead-only file system\n"
    assert (
        there("/tmp/of-the-pod", "/of-the-pod", "/dev/shm/of-the-pod", "/opt-of-the-pod", "/usr/lib/of-the-pod") == []
    )


async def test_folders_of_this_machine_are_at_their_paths_and_are_the_real_ones(
    cluster: NodeCluster, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("of this machine")
    assert tmp_path.is_relative_to(tempfile.gettempdir()), "the folder of temporary files is one of them"
    script = f"print(open('{tmp_path}/data').read()); open('{tmp_path}/made', 'w').write('kept')"
    await cluster.pod("sees", script)
    assert await cluster.result("sees") == "of this machine\n"
    assert (tmp_path / "made").read_text() == "kept"


@only_namespace
async def test_a_volume_wins_over_the_folder_of_this_machine_at_its_path(cluster: NodeCluster, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("of this machine")
    mounts = {"volumeMounts": [{"name": "empty", "mountPath": str(tmp_path)}]}
    script = f"import os; print(os.listdir('{tmp_path}')); open('{tmp_path}/made', 'w').write('in the volume')"
    await cluster.pod("hides", script, container=mounts, volumes=[{"name": "empty", "emptyDir": {}}])
    assert await cluster.result("hides") == "[]\n"
    assert os.listdir(tmp_path) == ["data"]


def character_devices() -> dict[str, int]:
    """The numbers of the devices below /dev. Also run in a pod, so that it imports what it needs."""
    import os
    import stat

    devices = {}
    for name in os.listdir("/dev"):
        if os.path.exists(f"/dev/{name}") and stat.S_ISCHR((status := os.stat(f"/dev/{name}")).st_mode):
            devices[name] = status.st_rdev
    return devices


@only_namespace
async def test_a_pod_has_the_devices_of_this_machine(cluster: NodeCluster) -> None:
    values = "[character_devices(), os.path.islink('/dev/null'), os.path.isfile('/dev/termination-log')]"
    script = f"{inspect.getsource(character_devices)}\nimport json, os; os.openpty(); print(json.dumps({values}))"
    await cluster.pod("devices", script)
    devices, null_is_link, has_message_file = json.loads(await cluster.result("devices"))
    assert devices == character_devices() | {"ptmx": devices["ptmx"]}
    assert (null_is_link, has_message_file) == (False, True)


@only_namespace
async def test_the_root_of_a_pod_does_not_hold_itself(cluster: NodeCluster, state: Path) -> None:
    """The folder in which it is made is one of this machine's, so it is seen in the pod, too: as an empty one."""
    await cluster.pod("itself", f"print([line for line in open('/proc/mounts') if '{state}' in line.split()[1]])")
    printed = await cluster.result("itself")
    assert "/root" not in printed and "/shm" in printed


@only_namespace
async def test_a_pod_sees_only_its_own_processes(cluster: NodeCluster) -> None:
    script = "import os; print(sorted(int(name) for name in os.listdir('/proc') if name.isdigit()) == [1, os.getpid()])"
    await cluster.pod("alone", script)
    assert await cluster.result("alone") == "True\n"


@only_namespace
async def test_files_of_a_pod_belong_to_the_person_who_started_it(cluster: NodeCluster, state: Path) -> None:
    mounts = {"volumeMounts": [{"name": "kept", "mountPath": "/kept"}]}
    volumes = [{"name": "kept", "persistentVolumeClaim": {"claimName": "c"}}]
    await cluster.pod("makes", "open('/kept/made', 'w').close()", container=mounts, volumes=volumes)
    await cluster.phase("makes", "Succeeded")
    assert owner(state / "claims/default/c/made") == owner(state)
