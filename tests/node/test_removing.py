"""What pods leave is removed, whatever they have made of its modes, and nothing beside it is touched."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.node.ordinary_user import command
from trainyard.node.kubelet.volumes.removal import remove

# As an ordinary user: root may remove all of it anyway.
READ_ONLY = """
import os, tempfile
from pathlib import Path
from trainyard.node.kubelet.volumes.removal import remove
beside = Path(tempfile.mkdtemp(prefix="cluster-beside-"))
folder = Path(tempfile.mkdtemp(prefix="cluster-removed-"))
(folder / "modules" / "inner").mkdir(parents=True)
(folder / "modules" / "inner" / "file").write_text("x")
(folder / "link").symlink_to(beside)
beside.chmod(0o555)
(folder / "modules" / "inner").chmod(0o000)
(folder / "modules").chmod(0o555)
folder.chmod(0o500)
remove(folder)
assert not folder.exists()
assert beside.stat().st_mode & 0o777 == 0o555
beside.rmdir()
"""


def test_read_only_folders_of_a_pod_are_removed() -> None:
    python, env = command(ordinary=True)
    done = subprocess.run([*python, "-c", READ_ONLY], env=env, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr


def test_removal_follows_no_link_and_ignores_a_missing_path(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir(mode=0o755)
    link.symlink_to(real)
    with pytest.raises(OSError, match="symbolic link"):
        remove(link)
    assert real.stat().st_mode & 0o777 == 0o755
    remove(tmp_path / "none")
