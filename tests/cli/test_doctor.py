"""`trainyard doctor` reports what this machine has, also when something is missing."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.cli.commands import run_in_process
from trainyard.cli.doctor import Check, rendered


@pytest.mark.slow
def test_the_checks_of_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}/simple"
    monkeypatch.setenv("PIP_INDEX_URL", nowhere)
    monkeypatch.setenv("UV_INDEX_URL", nowhere)
    answer = run_in_process("doctor", "-o", "json", "--cache", str(tmp_path / "cache"))
    checks = {check["name"]: check for check in json.loads(answer.out)}
    assert answer.code == 0
    assert checks["network shared"]["state"] == "ok"
    assert checks["package index"]["state"] == "limited"
    assert "PIP_INDEX_URL" in checks["package index"]["fix"]
    assert str(tmp_path / "cache") in checks["cache"]["text"]
    assert not (tmp_path / "cache").exists()
    assert checks["cluster of `up`"]["text"].startswith("none is up")


def test_the_page_keeps_to_the_terminals_width() -> None:
    long = Check("network namespace", "limited", "word " * 40, "do this or that " * 10)
    lines = rendered([long, Check("python", "ok", "Python 3.11.7")], 80)
    assert all(len(line) < 80 for line in lines)
    assert lines[0].startswith("network namespace  limited  word word")
    assert lines[-1] == "python             ok       Python 3.11.7"
