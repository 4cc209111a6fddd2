"""An ordinary user whose package index cannot be reached: the message, `why`, and the next run with an index."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.node.ordinary_user import ORDINARY, command

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")]

PINNED = "images: [{match: my/img, providers: [{name: Tiny, requirements: [tiny==1.0]}]}]"
WHEEL = "tiny-1.0-py3-none-any.whl"
JOB = """
apiVersion: tensorflow.org/v1alpha1
kind: TfJob
metadata: {name: unreachable}
spec:
  replicaSpecs:
  - tfReplicaType: MASTER
    template:
      spec:
        restartPolicy: Never
        containers:
        - {name: tensorflow, image: my/img, command: [python, -c, "import tiny; print(tiny.VALUE)"]}
"""
NOWHERE = "http://127.0.0.1:9/simple"  # nothing listens on the port "discard"


class User(NamedTuple):
    """A user without privileges, with a home folder of their own."""

    folder: Path

    def trainyard(self, *line: str, **variables: str) -> subprocess.CompletedProcess[str]:
        python, env = command(True)
        env = {name: value for name, value in env.items() if not name.startswith(("PIP_", "UV_", "XDG_"))}
        env |= {
            "HOME": str(self.folder),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_RETRIES": "1",
            **variables,
        }
        return subprocess.run(
            [*python, "-m", "trainyard", *line],
            env=env, cwd=self.folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def run(self, network: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        options = ("--network", network, "--images", "images.yaml", "--timeout", "120")
        return self.trainyard("run", "job.yaml", *options, **variables)


@pytest.fixture
def user() -> Iterator[User]:
    folder = Path(tempfile.mkdtemp(prefix="index-", dir="/var/tmp"))
    (folder / "images.yaml").write_text(PINNED)
    (folder / "job.yaml").write_text(JOB)
    write_wheel(folder / "wheels" / WHEEL)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, ORDINARY, ORDINARY)
    yield User(folder)
    shutil.rmtree(folder, ignore_errors=True)


def write_wheel(path: Path) -> None:
    """A wheel with one module, `tiny`."""
    path.parent.mkdir()
    info = "tiny-1.0.dist-info"
    files = {
        "tiny.py": "VALUE = 'it is there'\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


@pytest.mark.parametrize("network", ["namespace", "shared"])
def test_an_unreachable_index_is_reported_with_a_fix_and_no_incomplete_environment_is_used(
    user: User, network: str
) -> None:
    refused = user.run(network, {"PIP_INDEX_URL": NOWHERE, "UV_INDEX_URL": NOWHERE})
    output = " ".join((refused.stdout + refused.stderr).split())
    assert refused.returncode == 3 and "Traceback" not in output, output
    assert "Tiny cannot be installed: the package index cannot be reached; check the network and the proxy" in output
    assert "Connection refused" in output and "Retry(total" not in output
    assert [path.suffix for path in (user.folder / ".cache/trainyard/environments").iterdir()] == [".lock"]
    why = " ".join(user.trainyard("why", "unreachable").stdout.split())
    assert (
        "the package index cannot be reached" in why and "do: mend what the message names; then `trainyard run" in why
    )
    wheels = str(user.folder / "wheels")
    done = user.run(
        network, {"PIP_NO_INDEX": "1", "UV_NO_INDEX": "1", "PIP_FIND_LINKS": wheels, "UV_FIND_LINKS": wheels}
    )
    assert (done.returncode, "master-0 | it is there" in done.stdout) == (0, True), done.stdout + done.stderr
