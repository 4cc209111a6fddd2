from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from trainyard.app.background.folder import PREFIX, PrivateFolder

_KILLED = """
import os, signal, sys
from pathlib import Path
from trainyard.app.background.folder import PrivateFolder
folder = PrivateFolder(Path(sys.argv[1]))
(folder.path / "log").write_text("x")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_folder_is_private_and_removed_at_the_end(tmp_path: Path) -> None:
    folder = PrivateFolder(tmp_path)
    assert folder.path.stat().st_mode & 0o777 == 0o700
    folder.close()
    assert not list(tmp_path.iterdir())


def test_a_kept_folder_stays_also_when_another_one_is_made(tmp_path: Path) -> None:
    folder = PrivateFolder(tmp_path)
    folder.close(keep=True)
    PrivateFolder(tmp_path).close()
    assert folder.path.is_dir()


def test_folders_of_killed_processes_are_removed_and_those_in_use_are_not(tmp_path: Path) -> None:
    living = PrivateFolder(tmp_path)
    subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], check=False)
    left = [path for path in tmp_path.glob(f"{PREFIX}*") if path != living.path]
    assert len(left) == 1
    another = PrivateFolder(tmp_path)
    assert set(tmp_path.iterdir()) == {living.path, another.path}
    living.close()
    another.close()
