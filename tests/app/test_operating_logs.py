"""The log of a program that runs for weeks."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import subprocess
import sys
from typing import Any

import pytest

from trainyard.app.logging_setup import JsonFormatter, TextFormatter, split_message


def record(message: str, *args: Any, level: int = logging.INFO, **more: Any) -> logging.LogRecord:
    log_record = logging.LogRecord(
        "trainyard.controller_runtime.controller", level, "controller.py", 1, message, args, more.get("exc_info")
    )
    log_record.created = 1_800_000_000.25
    return log_record


@pytest.mark.parametrize(
    ("template", "args", "message", "fields"),
    [
        ("stopped", (), "stopped", {}),
        ("plan applied kind=%s job=%s/%s creates=%d", ("TfJob", "n", "j", 3), "plan applied", {
            "kind": "TfJob", "job": "n/j", "creates": "3",
        }),
        ("server unavailable key=%s requeue_after=%.1fs error=%s", ("k", 0.25, "a=b c=d"), "server unavailable", {
            "key": "k", "requeue_after": "0.2s", "error": "a=b c=d",
        }),
        ("deleted %s=%s/%s reason=%s", ("Job", "n", "j", "over"), "deleted Job=n/j", {"reason": "over"}),
        ("100%% of %s", ("it",), "100% of it", {}),
        ("bad starts=%r", (b"x",), "bad", {"starts": "b'x'"}),
    ],
)  # fmt: skip
def test_a_log_record_has_a_message_and_fields(
    template: str, args: tuple[Any, ...], message: str, fields: dict[str, str]
) -> None:
    assert split_message(template, args) == (message, fields)


def test_a_text_record_is_one_line_whatever_its_values() -> None:
    line = TextFormatter().format(record("refused error=%s", "no\nINFO forged"))
    assert line == "2027-01-15T08:00:00.250Z INFO controller_runtime.controller refused error=no\\nINFO forged"


def test_json_is_one_object_a_line() -> None:
    line = JsonFormatter().format(record("refused job=%s error=%s level=%s", "n/j", "no\nmore", "x"))
    assert "\n" not in line and json.loads(line) == {
        "time": "2027-01-15T08:00:00.250Z",
        "level": "info",
        "logger": "controller_runtime.controller",
        "message": "refused",
        "job": "n/j",
        "error": "no\nmore",
        "field_level": "x",
    }


def test_a_traceback_is_a_field_of_its_own() -> None:
    try:
        raise ValueError("oops")
    except ValueError:
        log_record = record("bug key=%s", "k", level=logging.ERROR, exc_info=sys.exc_info())
    record_fields = json.loads(JsonFormatter().format(log_record))
    assert (
        record_fields["key"] == "k"
        and record_fields["stacktrace"].endswith("ValueError: oops")
        and "Traceback" in record_fields["stacktrace"]
    )
    assert "ValueError: oops" in TextFormatter().format(log_record)


def test_a_record_of_another_library_is_logged_unchanged() -> None:
    log_record = record("%(a)s", {"a": 1})
    assert json.loads(JsonFormatter().format(log_record))["message"] == "1"


SCARCE = """
import asyncio, resource, sys
from trainyard.app.logging_setup import configure_logging

async def main():
    configure_logging("text", "WARNING")
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""


def test_a_listener_without_descriptors_writes_a_line_a_minute() -> None:
    """As the forwarders of Services and the node's port are: asyncio writes 100 tracebacks a second."""
    with (
        subprocess.Popen(
            [sys.executable, "-c", SCARCE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as server,
        contextlib.ExitStack() as stack,
    ):
        assert server.stdout and server.stderr
        port = int(server.stdout.readline())
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        line = server.stderr.readline()
        _, more = server.communicate(b"")
    text = b"ERROR asyncio no descriptors are left, new connections wait; raise `ulimit -n`\n"
    assert line.endswith(text) and more == b""
