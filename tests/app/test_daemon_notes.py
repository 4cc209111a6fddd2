"""Notes of the daemon behind `trainyard up`."""

from __future__ import annotations

import errno

import pytest

from trainyard.daemon import StartupPipe


class FullDisk:
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_note_that_finds_no_space_in_the_log_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node reports the lost output of a pod so, and a pod whose program exits with 0 has not failed for that."""
    monkeypatch.setattr("sys.stdout", FullDisk())
    StartupPipe(-1).note("output was lost")
