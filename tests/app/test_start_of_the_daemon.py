"""The process of the daemon starts before `trainyard up` has imported its modules, and ends if it is not used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.app.background.cluster_folders import BackgroundError
from trainyard.app.background.clusters import Background
from trainyard.app.background.daemon_interpreter import DaemonInterpreter

START = """
import os, sys
sys.argv[1:] = {arguments!r}
def hook(event, arguments):
    if event in ("os.posix_spawn", "subprocess.Popen"):
        name = os.path.basename(arguments[1][-1])
        print("starts", name, "before click is imported:", "click" not in sys.modules, flush=True)
sys.addaudithook(hook)
from trainyard.__main__ import start
start()
"""


def started(*arguments: str) -> tuple[list[str], str]:
    """What a command starts, as lines, and its stderr."""
    command = [sys.executable, "-c", START.format(arguments=list(arguments))]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return [line for line in result.stdout.splitlines() if line.startswith("starts")], result.stderr


def test_up_starts_the_process_of_the_daemon_first() -> None:
    starts, errors = started("up", "--name", "Bad Name")
    assert starts == ["starts trainyard.daemon before click is imported: True"]
    assert "'Bad Name' is not a name" in errors
    assert started("up", "--help")[0] == started("status")[0] == []


def test_the_certificates_of_a_new_cluster_are_made_while_the_daemon_imports_its_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    processes = ["starts trainyard.daemon before click is imported: True"]
    try:
        assert started("up")[0] == [*processes, "starts certificates.py before click is imported: False"]
        kubeconfig = Background().kubeconfig.read_bytes()
        started("down")
        assert started("up")[0] == processes
        assert Background().kubeconfig.read_bytes() == kubeconfig
    finally:
        started("down")


def test_the_process_ends_when_nothing_is_handed_over() -> None:
    interpreter = DaemonInterpreter()
    interpreter.close()
    assert os.waitpid(interpreter.pid, 0)[1] == 0


def test_the_process_inherits_no_descriptor_of_the_shell() -> None:
    with Path(os.devnull).open() as file:
        os.set_inheritable(file.fileno(), True)
        interpreter = DaemonInterpreter()
        try:
            inherited = Path(f"/proc/{interpreter.pid}/fd/{file.fileno()}")
            assert not (inherited.exists() and inherited.samefile(os.devnull))
        finally:
            interpreter.close()
            os.waitpid(interpreter.pid, 0)


def test_the_error_names_what_python_printed_before_it_had_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "msgspec.py").write_text("raise ImportError('msgspec is broken')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with pytest.raises(BackgroundError, match="its last message: ImportError: msgspec is broken"):
        Background().start({}, print)
