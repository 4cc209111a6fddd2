"""SIGUSR1: each long-running program prints the stacks of all threads and tasks to stderr and continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.daemon_values import PATIENCE, Home, at_home
from tests.app.test_operating_process import log_record, operator
from tests.support.waiting import until

pytestmark = pytest.mark.slow

BLOCKED = """
import asyncio, threading
from trainyard.app.stack_dump import dump_stacks_on_signal

async def wait_for_ever():
    await asyncio.Event().wait()

async def main():
    dump_stacks_on_signal()
    task = asyncio.create_task(wait_for_ever(), name="waits")
    await asyncio.sleep(0)
    print("blocked", flush=True)
    input()
asyncio.run(main())
"""


def until_written(log: Path, *texts: str) -> str:
    """The content of a log as soon as it has all these texts."""
    return until(log.read_text, f"{texts} in the log", accept=lambda content: all(text in content for text in texts))


def test_the_stacks_of_a_blocked_event_loop_are_written() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", BLOCKED], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout and process.stdin and process.stderr
        process.stdout.readline()
        process.send_signal(signal.SIGUSR1)
        lines = iter(process.stderr.readline, "")
        stacks = "".join(line for line in iter(lambda: next(lines), "Task 'waits' (most recent call first):\n"))
        assert 'File "<string>", line' in stacks and " in main\n" in stacks  # where the main thread is blocked
        assert " in wait\n" in next(lines) and next(lines) == '  File "<string>", line 6 in wait_for_ever\n'
        process.communicate("\n")
    assert process.returncode == 0


def test_up_writes_stack_dumps_into_its_log_and_continues(tmp_path: Path) -> None:
    with at_home(tmp_path) as home:
        assert home.up()[0] == 0
        for _ in range(2):
            os.kill(home.pid, signal.SIGUSR1)
            until_written(home.state / "daemon.log", "Task 'node: ", "Task 'operator: ", "Thread 0x", "run_daemon")
        assert home.say("get")[0] == 0


def test_an_operator_and_a_node_dump_to_stderr_and_go_on(tmp_path: Path) -> None:
    with at_home(tmp_path) as home:
        assert home.up("--no-operator")[0] == 0
        kubeconfig = str(home.state / "kubeconfig")
        log = tmp_path / "operator.log"
        with operator(home, log, "--kubeconfig", kubeconfig, "--leader-elect") as running:
            log_record(log, "leading")
            running.send_signal(signal.SIGUSR1)
            until_written(log, "Task 'operator: hold the lease'", "Thread 0x", "in _operate")
            running.send_signal(signal.SIGTERM)
            assert running.wait(PATIENCE) == 0
        check_node(home, kubeconfig, tmp_path / "node.log")


def check_node(home: Home, kubeconfig: str, log: Path) -> None:
    arguments = ("--kubeconfig", kubeconfig, "--name", "other", "--network", "shared")
    with log.open("w") as out:
        line = [sys.executable, "-m", "trainyard", "node", *arguments]
        node = subprocess.Popen(line, env=home.env, stdin=subprocess.DEVNULL, stderr=out)
    try:
        until_written(log, "node other is ready")
        node.send_signal(signal.SIGUSR1)
        until_written(log, "Task 'node: ", "Thread 0x", "in _run_node")
        node.send_signal(signal.SIGTERM)
        assert node.wait(PATIENCE) == 0
    finally:
        node.kill()
        node.wait()
