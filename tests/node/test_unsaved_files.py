"""What a program writes is there afterwards, or the end of its pod names it: in every place, by root and by an ordinary
user, in both networks."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from tests.node.ordinary_user import ORDINARY, command

pytestmark = pytest.mark.slow

SECONDS = 120
MANIFEST = """
apiVersion: tensorflow.org/v1alpha1
kind: TfJob
metadata: {name: writes}
spec:
  replicaSpecs:
  - tfReplicaType: MASTER
    template:
      spec:
        containers:
        - name: tensorflow
          image: not/in-the-catalogue
          command: [python, write.py, $(PLACES), $(WAIT)]
          env:
          - name: PLACES
            value: "HERE"
          - {name: WAIT, value: /of-host/worker.pt}
          volumeMounts:
          - {name: host, mountPath: /of-host}
          - {name: mounted, mountPath: /mounted}
          - {name: kept, mountPath: /kept}
          - {name: empty, mountPath: /empty}
          - {name: missing, mountPath: /missing}
          - {name: driver, mountPath: /driver}
          - {name: empty, mountPath: FOLDER/project/mount-point}
        volumes: &volumes
        - {name: host, hostPath: {path: "FOLDER/host"}}
        - {name: mounted, persistentVolumeClaim: {claimName: mounted}}
        - {name: kept, persistentVolumeClaim: {claimName: kept}}
        - {name: empty, emptyDir: {}}
        - {name: missing, hostPath: {path: "FOLDER/no-such-folder"}}
        - {name: driver, hostPath: {path: /proc/no-such-folder}}
  - tfReplicaType: WORKER
    template:
      spec:
        containers:
        - name: tensorflow
          image: in/the-catalogue
          command: [python, "FOLDER/project/write.py", "workdir.pt,/var/scratch-of-the-image/s.pt,/of-host/worker.pt"]
          volumeMounts: [{name: host, mountPath: /of-host}]
        volumes: *volumes
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: mounted}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: kept}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""
PLACES = (
    *("here.pt", "FOLDER/direct.pt", "HOME/home.pt", "/of-host/host.pt", "/mounted/mounted.pt", "/kept/kept.pt"),
    *("ROOT", "/empty/empty.pt", "/missing/missing.pt", "/driver/driver.pt"),
)
# Writes 2000 bytes into each place, and something into the folder of temporary files. Waits for a file of the others.
PROGRAM = """
import os, sys, tempfile, time
for place in sys.argv[1].split(","):
    try:
        with open(place.replace("HOME", os.environ["HOME"]), "w") as file:
            file.write("x" * 2000)
        print("wrote", place, flush=True)
    except OSError as error:
        print("refused", place, error.strerror, flush=True)
with open(tempfile.mktemp(suffix=".temporary"), "w") as file:
    file.write("not reported")
while len(sys.argv) > 2 and not os.path.exists(sys.argv[2]):
    time.sleep(0.02)
"""
CATALOGUE = """
images:
- {match: "in/the-catalogue", providers: [{current: {}}], workdir: /in-the-image, scratch: [/var/scratch-of-the-image]}
"""


@dataclass(frozen=True)
class Outcome:
    """What `trainyard run` of the manifest printed, and the folders it was given."""

    network: str
    root: bool
    folder: Path
    in_root: str  # the file directly below /
    output: str

    def lost(self, who: str) -> str:
        """The line that names what has gone."""
        return "\n".join(line for line in self.output.splitlines() if line.startswith(f"{who}: "))


@pytest.fixture(
    scope="module",
    params=[(network, ordinary) for network in ("namespace", "shared") for ordinary in (False, True)],
    ids=lambda param: f"{param[0]}-{'ordinary' if param[1] else 'ourselves'}",
)
def outcome(request: pytest.FixtureRequest) -> Iterator[Outcome]:
    network, ordinary = request.param
    if ordinary and os.getuid() != 0:
        pytest.skip("we are an ordinary user already")
    python, env = command(ordinary)
    folder = Path(tempfile.mkdtemp(prefix="unsaved-", dir="/tmp"))  # a project below /tmp is one place of the list
    in_root = f"/unsaved-{uuid4().hex}.pt"
    try:
        for name in ("home", "project", "host", "mounted"):
            (folder / name).mkdir()
        text = MANIFEST.replace("HERE", ",".join(PLACES)).replace("FOLDER", str(folder)).replace("ROOT", in_root)
        (folder / "project/job.yaml").write_text(text)
        (folder / "project/write.py").write_text(PROGRAM)
        (folder / "images.yaml").write_text(CATALOGUE)
        if ordinary:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, ORDINARY, ORDINARY)
        env |= {"HOME": str(folder / "home"), "XDG_CACHE_HOME": str(folder / "cache")}
        arguments = (
            "run",
            "project/job.yaml",
            "--network",
            network,
            "--images",
            "images.yaml",
            "--timeout",
            str(SECONDS),
        )
        done = subprocess.run(
            [*python, "-m", "trainyard", *arguments, "--mount", f"mounted={folder}/mounted"],
            env=env, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        yield Outcome(network, not ordinary and os.getuid() == 0, folder, in_root, done.stdout + done.stderr)
    finally:
        Path(in_root).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(
    "place",
    [
        *("project/here.pt", "direct.pt", "home/home.pt", "host/host.pt", "host/worker.pt", "mounted/mounted.pt"),
        "no-such-folder/missing.pt",
    ],
)
def test_a_file_in_a_folder_of_the_user_is_there_afterwards(outcome: Outcome, place: str) -> None:
    assert (outcome.folder / place).stat().st_size == 2000, outcome.output
    assert os.path.basename(place) not in outcome.lost("master-0") + outcome.lost("worker-0")


@pytest.mark.parametrize(
    ("who", "path"),
    [("master-0", "/empty/empty.pt"), ("master-0", "/driver/driver.pt"), ("worker-0", "/in-the-image/workdir.pt")],
)
def test_a_file_that_is_lost_with_the_pod_is_reported(outcome: Outcome, who: str, path: str) -> None:
    assert path in outcome.lost(who), outcome.output


def test_the_mount_point_in_the_project_is_removed(outcome: Outcome) -> None:
    assert not (outcome.folder / "project/mount-point").exists()


def test_a_file_below_the_root_is_named_or_is_there_or_was_refused(outcome: Outcome) -> None:
    """The network of namespaces has a root of its own; on the shared network / is this machine's."""
    if outcome.network == "namespace":
        assert outcome.in_root in outcome.lost("master-0")
        assert not os.path.exists(outcome.in_root)
    elif outcome.root:
        assert os.path.getsize(outcome.in_root) == 2000
    else:
        assert f"refused {outcome.in_root} Permission denied" in outcome.output


def test_a_claim_that_is_deleted_with_the_cluster_is_reported_unless_it_has_a_folder(outcome: Outcome) -> None:
    line = "claim default/kept: 1 file, 2.0 kB, is gone with the cluster: kept.pt; use --mount kept=DIR to keep it"
    assert line in outcome.output.splitlines()
    assert "claim default/mounted" not in outcome.output


def test_one_line_per_pod_reports_number_and_size_of_lost_files_with_a_fix(outcome: Outcome) -> None:
    number = 3 if outcome.network == "namespace" else 2
    line = outcome.lost("master-0")
    assert line.startswith(f"master-0: {number} files, {2 * number}.0 kB, are gone with the pod: /")
    cure = f"write below {outcome.folder}/project or create /proc/no-such-folder on this machine, or mount a volume ("
    assert cure in line and "\n" not in line
    assert outcome.lost("worker-0").count("worker-0: 1 file, 2.0 kB, is gone with the pod: ") == 1
    assert ".temporary" not in outcome.output, "temporary files are nobody's loss"
