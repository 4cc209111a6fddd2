"""What another user of this machine leaves for a program that we ship: a file with a name that can be worked out."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest

from trainyard.node.images.catalogue import PROGRAMS


@pytest.fixture
def program() -> ModuleType:
    """What opens files in the elastic example's program; the rest of it needs torch."""
    text = (PROGRAMS / "elastic_train.py").read_text()
    module = ModuleType("elastic_train_files")
    exec("import os, stat\n" + text[text.index("def open_own(") : text.index("def share(")], module.__dict__)  # noqa: S102
    return module


def test_a_checkpoint_that_another_user_made_is_refused(
    program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "checkpoint.pth.tar"
    file.write_bytes(b"theirs")
    file.chmod(0o600)
    assert program.open_own(file).read() == b"theirs"
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    with pytest.raises(PermissionError, match="not a regular file that only user 4711 writes; remove it"):
        program.open_own(file)


@pytest.mark.parametrize("way", ["a link", "a FIFO", "writable by others"])
def test_a_checkpoint_file_of_another_owner_is_refused(program: ModuleType, tmp_path: Path, way: str) -> None:
    """The FIFO has no writer: an open that waits for one never ends."""
    file = tmp_path / "checkpoint.pth.tar"
    if way == "a FIFO":
        os.mkfifo(file, 0o600)
    elif way == "a link":
        (tmp_path / "theirs").write_bytes(b"")
        file.symlink_to("theirs")
    else:
        file.write_bytes(b"")
        file.chmod(0o666)
    with pytest.raises(OSError):
        program.open_own(file)


def test_a_checkpoint_is_never_written_through_a_link(program: ModuleType, tmp_path: Path) -> None:
    theirs, beside = tmp_path / "theirs", tmp_path / "checkpoint.pth.tar.7"
    theirs.write_bytes(b"precious")
    beside.symlink_to(theirs)
    with program.create_own(beside) as file:
        file.write(b"ours")
    assert theirs.read_bytes() == b"precious" and not beside.is_symlink()
    assert beside.stat().st_mode & 0o777 == 0o600


def test_shipped_programs_load_weights_without_unpickling() -> None:
    for path in PROGRAMS.rglob("*.py"):
        for line in path.read_text().splitlines():
            assert "pickle.load" not in line and "allow_pickle=True" not in line, f"{path}: {line}"
            assert "torch.load(" not in line or "weights_only=True" in line, f"{path}: {line}"
