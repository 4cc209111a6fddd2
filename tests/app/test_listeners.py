"""Which process listens on a port of this machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from trainyard.app.evidence.listeners import listeners


def test_a_listener_is_named_by_process_and_command() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as v6,
    ):
        ports = server.getsockname()[1], v6.getsockname()[1]
        open_listeners = listeners(ports, {})
        assert {f"process {os.getpid()} (" in text for text in open_listeners.values()} == {True} and set(
            open_listeners
        ) == set(ports)


def test_a_port_without_listener_has_no_process() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert listeners([bound.getsockname()[1]], {}) == {}


def test_a_listener_in_a_pod_is_named_by_the_pod_and_others_by_their_process(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    row = "  0: 0100007F:08AE 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 {} 1"
    (tmp_path / "net" / "tcp").write_text(f"head\n{row.format(77)}\n{row.format(78).replace('08AE', '08AF')}\n")
    process = tmp_path / "42"
    (process / "fd").mkdir(parents=True)
    (process / "fd" / "3").symlink_to("socket:[77]")
    (process / "cmdline").write_bytes(b"python\0serve.py\0")
    (process / "environ").write_bytes(b"A=1\0HOSTNAME=ps-abcd-0\0")
    open_listeners = listeners([2222, 2223], {"ps-abcd-0": "ps-abcd-0-x7k2p"}, tmp_path)
    assert open_listeners == {
        2222: "pod ps-abcd-0-x7k2p, process 42 (python serve.py)",
        2223: "a program of another user",
    }
