"""Messages between node and supervisor that are cut, unreadable or odd: they concern one container and end nothing
else."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainyard.node.sandbox.supervisor_client import Sandbox, SandboxCallbacks
from trainyard.node.supervisor import memory, reaper
from trainyard.node.supervisor.channel import UNREADABLE, Channel
from trainyard.node.supervisor.container import Failed
from trainyard.node.supervisor.loop import StartingContainer, Supervisor


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours), Channel(theirs)


def _raw(body: bytes) -> bytes:
    return struct.pack("!I", len(body)) + body


@pytest.mark.parametrize("body", [b'{"re": 1, "err', b"[1]", b'{"fds": "x"}', b"\xff"])
def test_a_malformed_message_does_not_affect_those_beside_it(ends: tuple[Channel, Channel], body: bytes) -> None:
    ours, theirs = ends
    ours.sock.sendall(Channel.pack({"re": 1}, 0) + _raw(body) + Channel.pack({"re": 2}, 0))
    messages = [message for message, _ in theirs.receive() or []]
    assert [message.get("re") for message in messages] == [1, None, 2] and messages[1]["event"] == UNREADABLE


@pytest.mark.parametrize("report", [b'{"code": 12', b"[]", b'{"code": "x", "reason": "a", "message": "b"}', b"\xff"])
def test_half_a_report_of_an_init_is_a_start_error(report: bytes) -> None:
    failed = Failed.read(report).fields
    assert (failed["code"], failed["reason"]) == (128, "StartError") and "while it reported" in failed["message"]


def _supervisor(channel: Channel) -> Supervisor:
    return Supervisor(channel, None, memory.Cgroups(os.getpid()))


def test_half_a_report_ends_one_start_and_not_the_supervisor(ends: tuple[Channel, Channel]) -> None:
    """The supervisor reads it, answers, and serves the next request."""
    ours, theirs = ends
    supervisor = _supervisor(theirs)
    pipe, report = os.pipe()
    os.write(report, b'{"code": 128, "reas')
    os.close(report)
    starting = StartingContainer("u/main/1", 7, pipe)
    supervisor._starting[-5] = starting
    supervisor._selector.register(pipe, 1, starting)
    watched, watcher = os.pipe()
    ours.send({"do": "nonsense", "id": 8})
    ours.sock.shutdown(socket.SHUT_WR)
    supervisor.run(watched)
    os.close(watched), os.close(watcher)
    replies = {message.get("re"): message for message, _ in ours.receive() or []}
    assert replies[7]["error"]["reason"] == "StartError" and "no such request" in replies[8]["error"]["message"]


def test_the_exit_of_a_container_is_reported_even_if_another_cleanup_fails(
    ends: tuple[Channel, Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ends
    supervisor = _supervisor(theirs)
    supervisor._inits = {-5: "u/a/1", -6: "u/b/1"}

    def fail(*_: object, **__: object) -> None:
        raise OSError("no such process")

    monkeypatch.setattr(reaper, "reap", lambda: {-5: 1, -6: 2})
    monkeypatch.setattr(reaper, "end_all_below", fail)
    supervisor._collect()
    exits = {message["container"]: message["code"] for message, _ in ours.receive() or []}
    assert exits == {"u/a/1": 1, "u/b/1": 2}


async def test_one_bad_message_of_a_batch_does_not_drop_the_exits_of_others(
    ends: tuple[Channel, Channel], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    exits: list[tuple[str, int]] = []

    def exited(container: str, code: int, reason: str, report: dict[str, Any]) -> None:
        container.split("/")[2]  # as the node does
        exits.append((container, code))

    ours, theirs = ends
    sandbox = Sandbox("shared", SandboxCallbacks(exited))
    sandbox._channel = theirs
    good: list[dict[str, Any]] = [
        {"event": "exited", "container": f"u/{name}/1", "code": 3, "reason": ""} for name in "ab"
    ]
    bad: list[dict[str, Any]] = [
        {"event": "exited", "container": "odd", "code": 3, "reason": ""},
        {"event": "exited"},
        {"unasked": True},
    ]
    ours.sock.sendall(b"".join(Channel.pack(message, 0) for message in (good[0], *bad, good[1])) + _raw(b"{"))
    sandbox._receive()
    assert exits == [("u/a/1", 3), ("u/b/1", 3)]
    assert len(caplog.records) == 4
