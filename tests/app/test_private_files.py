"""What `up` and `run` put on disk and into the list of processes is for this user alone, and the token is in none."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest
import yaml

from tests.app.daemon_values import at_home
from trainyard.app.local import LocalCluster, LocalClusterOptions

pytestmark = pytest.mark.slow

JOB = """
apiVersion: tensorflow.org/v1alpha1
kind: TfJob
metadata: {{name: mnist}}
spec:
  replicaSpecs:
  - tfReplicaType: MASTER
    template:
      spec:
        restartPolicy: OnFailure
        containers: [{{name: tensorflow, image: none, command: ["{python}", -c, "import time; time.sleep(60)"]}}]
"""


def open_to_others(folder: Path) -> list[str]:
    """Everything that has a mode for others, although they could not reach it: the folder itself is closed to them.

    What a pod sees (its volumes, its /tmp) has the modes that programs in pods expect; the pod's folder is looked at.
    """
    readable_by_others = []
    for path in [folder, *folder.rglob("*")]:
        try:
            kind = path.lstat()
        except FileNotFoundError:
            continue  # the cluster lives
        in_pods = "pods" in path.relative_to(folder).parts[:-2]
        if not stat.S_ISLNK(kind.st_mode) and not in_pods and kind.st_mode & 0o077:
            readable_by_others.append(f"{stat.filemode(kind.st_mode)} {path.relative_to(folder)}")
    return readable_by_others


def holding(secret: bytes, parts: tuple[str, ...] = ("cmdline", "environ")) -> list[str]:
    """The processes of this machine whose command line or environment holds it."""
    holders = []
    for process in Path("/proc").glob("[0-9]*"):
        for part in parts:
            try:
                if secret in (process / part).read_bytes():
                    holders.append(f"{process.name} {part}")
            except OSError:
                continue
    return holders


def test_files_of_up_are_private_and_its_token_is_in_no_command_line_and_no_log(tmp_path: Path) -> None:
    old = os.umask(0)  # the most careless one
    try:
        with at_home(tmp_path) as home:
            home.env["TRAINYARD_LOG"] = "DEBUG"
            assert home.up()[0] == 0
            manifest = tmp_path / "job.yaml"
            manifest.write_text(JOB.format(python=sys.executable))
            assert home.say("submit", str(manifest))[0] == 0
            home.until("1/1", "get")
            kubeconfig = yaml.safe_load((home.state / "kubeconfig").read_text())
            token = kubeconfig["users"][0]["user"]["token"].encode()
            assert len(token) >= 43  # 256 bits
            assert open_to_others(home.state) == []
            assert holding(token) == [] and holding(b"trainyard.daemon", ("cmdline",))
            logs = [path for path in home.state.rglob("*.log*") if path.is_file()]
            assert logs and all(token not in path.read_bytes() for path in logs)
            assert home.say("down")[0] == 0
            assert open_to_others(home.state) == []
    finally:
        os.umask(old)


async def test_files_of_a_cluster_in_this_process_are_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        async with LocalCluster(
            LocalClusterOptions(network="shared", cache=tmp_path / "cache", parent=tmp_path)
        ) as cluster:
            cluster.write_kubeconfig()
            assert open_to_others(cluster.folder) == []
            assert {"kubeconfig", "apiserver.key"} <= {path.name for path in cluster.folder.rglob("*")}
            assert cluster.server.kubelet_token != cluster.token and holding(cluster.token.encode()) == []
            assert holding(cluster.server.kubelet_token.encode()) == []
    finally:
        os.umask(old)
