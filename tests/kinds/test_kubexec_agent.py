from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import os
import shutil
import signal
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from tests.kinds.exec_server import (
    AGENT,
    SHELL,
    SUCCESS,
    V4,
    V5,
    Place,
    code_of,
    ended_with,
    place,
    pod,
    until_requested,
)
from tests.support.interpreters import every_python
from trainyard.server.auth.certificates import CertificateAuthority

pytestmark = pytest.mark.slow

__all__ = ["place"]

WORKER = "j-workerset-a-0"


# --- one command


async def test_a_command_runs_in_the_pod_as_by_ssh(place: Place) -> None:
    done = await place.agent(
        WORKER, "PATH=$PATH; export PATH;", "printf", "'%s|'", '"two words"', "$TRAINYARD_POD_NAME"
    )
    assert (done.code, done.out, done.err) == (0, f"two words|{WORKER}|".encode(), "")
    (exec_request,) = place.toy.execs
    assert exec_request.query.getall("command")[:2] == ["/bin/sh", "-c"]
    assert {name: exec_request.query[name] for name in ("container", "stdin", "stdout", "stderr")} == {
        "container": "chainer",
        "stdin": "true",
        "stdout": "true",
        "stderr": "true",
    }
    assert place.toy.tokens == {"Bearer first"}


@pytest.mark.parametrize("code", [1, 3, 127, 255])
async def test_the_exit_code_and_both_outputs_are_returned(place: Place, code: int) -> None:
    done = await place.agent(WORKER, f"echo out; echo err >&2; exit {code}")
    assert done == (code, b"out\n", "err\n")


@pytest.mark.parametrize("python", every_python("3.5"))
async def test_megabytes_go_both_ways_on_every_python(place: Place, python: str) -> None:
    typed = os.urandom(3_000_000)
    done = await place.agent(WORKER, "cat; exit 7", typed=typed, python=python)
    assert (done.code, done.err) == (7, "") and done.out == typed
    (place.folder / "sets").write_text("j-workerset-a slots=2 replicas=1\n")
    hosts = place.folder / "hostfile"
    done = await place.agent("--hostfile", str(hosts), "m", "slots=1", f"{place.folder}/sets", python=python)
    assert done.code == 0
    assert hosts.read_text() == f"{WORKER} slots=2\nm slots=1\n"


async def test_with_v4_stdin_stays_open_and_everything_else_is_as_with_v5(place: Place) -> None:
    place.toy.protocols = (V4,)
    typed = os.urandom(500_000)
    done = await place.agent(WORKER, f"head -c {len(typed)}; sleep 0.3; exit 4", typed=typed)
    assert done == (4, typed, "")


async def test_the_pods_own_name_runs_the_command_locally(place: Place) -> None:
    command = ("j-master-x", "echo", "'a  b';", "kill -PIPE $$")
    assert await place.agent(*command) == (-signal.SIGPIPE, b"a  b\n", "")  # the signal is not ignored, either
    other: dict[str, Any] = {"TRAINYARD_POD_NAME": "", "POD_NAME": "j-master-y"}
    assert (await place.agent("j-master-y", "exit 5", **other)).code == 5
    assert not place.toy.requests


async def test_the_shell_script_starts_the_agent_beside_it(place: Place, tmp_path: Path) -> None:
    assets = tmp_path / "a folder"
    assets.mkdir()
    for source in (AGENT, SHELL):
        shutil.copy(source, assets)
    (assets / SHELL.name).chmod(0o555)
    argv = [str(assets / SHELL.name), "j-master-x", "echo", "'a  b'"]
    done = await asyncio.create_subprocess_exec(*argv, env=place.env, stdout=asyncio.subprocess.PIPE)
    assert (await done.communicate())[0] == b"a  b\n"


def test_the_agent_needs_only_python_3_5_and_the_standard_library() -> None:
    ast.parse(AGENT.read_text(), feature_version=(3, 5))
    assert "f'" not in AGENT.read_text() and 'f"' not in AGENT.read_text()
    assert SHELL.read_text() == '#!/bin/sh\nexec python3 "${0%/*}/kubexec.py" "$@"\n'


# --- the protocol


def raw(opcode: int, payload: bytes, final: bool = True, form: int = 0) -> bytes:
    """A frame as a server sends it, its length in the shortest form or in that many bits."""
    size = len(payload)
    form = form or (7 if size < 126 else 16 if size < 65536 else 64)
    length = {7: lambda: bytes([size]), 16: lambda: struct.pack("!BH", 126, size)}.get(
        form, lambda: struct.pack("!BQ", 127, size)
    )()
    return bytes([(0x80 if final else 0) | opcode]) + length + payload


def write(request: web.Request, data: bytes) -> None:
    assert request.transport is not None
    request.transport.write(data)


async def test_fragments_pings_and_all_frame_lengths_are_decoded(place: Place) -> None:
    big = os.urandom(200_000)

    async def script(request: web.Request, channel: web.WebSocketResponse) -> None:
        frames = raw(2, b"", False) + raw(9, b"are you there") + raw(0, b"\x01a", False) + raw(0, b"", False)
        frames += raw(0, b"b") + raw(2, b"\x01" + b"c" * 300) + raw(2, b"\x02e", form=64) + raw(2, b"\x01" + big)
        frames += raw(2, b"") + raw(10, b"unasked") + raw(2, b"\x09unknown channel") + raw(9, b"x" * 125)
        for byte in range(20):  # also byte by byte
            write(request, frames[byte : byte + 1])
            await asyncio.sleep(0)
        write(request, frames[20:])
        write(request, raw(2, b"\x03" + json.dumps(SUCCESS).encode()))
        await channel.close()

    place.toy.script = script
    done = await place.agent(WORKER, "x")
    assert done == (0, b"ab" + b"c" * 300 + big, "e")


async def test_a_ping_is_answered_with_its_payload(place: Place) -> None:
    heard: list[bytes] = []

    async def script(request: web.Request, channel: web.WebSocketResponse) -> None:
        reader = channel._reader  # the public side swallows pongs
        assert reader is not None
        await channel.ping(b"are you there")
        while True:
            message = await reader.read()
            if message.type is WSMsgType.PONG:
                heard.append(bytes(message.data))
                break
        await channel.send_bytes(b"\x03" + json.dumps(ended_with(6)).encode())

    place.toy.script = script
    assert (await place.agent(WORKER, "x")).code == 6
    assert heard == [b"are you there"]


async def test_output_after_the_status_is_still_printed(place: Place) -> None:
    async def script(request: web.Request, channel: web.WebSocketResponse) -> None:
        await channel.send_bytes(b"\x03" + json.dumps(ended_with(2)).encode())
        await channel.send_bytes(b"\x01" + late)

    late = b"late" * 250_000  # more than comes in one piece
    place.toy.script = script
    assert await place.agent(WORKER, "x") == (2, late, "")


async def cut(request: web.Request, channel: web.WebSocketResponse) -> None:
    await channel.send_bytes(b"\x01half")
    assert request.transport is not None
    request.transport.abort()


async def closes(request: web.Request, channel: web.WebSocketResponse) -> None:
    await channel.close()


@pytest.mark.parametrize("script", [cut, closes])
async def test_a_connection_that_ends_before_the_command_is_no_success(place: Place, script: object) -> None:
    place.toy.script = script  # type: ignore[assignment]  # one of the two above
    done = await place.agent(WORKER, "x")
    assert done.code == 255 and done.err.count("\n") == 1
    assert f"pod {WORKER}: the connection was lost before the command ended" in done.err
    assert len(place.toy.execs) == 1  # never sent twice


@pytest.mark.parametrize(
    "data",
    [
        raw(0, b"x"),
        raw(2, b"x", False) + raw(2, b"y"),
        b"\xf2\x00",
        b"\x82\x81aaaab",
        raw(2, b"", form=64)[:2] + b"\x7f" * 8,
    ],
)
async def test_a_violation_of_the_websocket_protocol_is_reported(place: Place, data: bytes) -> None:
    async def script(request: web.Request, channel: web.WebSocketResponse) -> None:
        write(request, data)
        with contextlib.suppress(Exception):
            await channel.receive()

    place.toy.script = script
    done = await place.agent(WORKER, "x")
    assert done.code == 255 and "breaks the WebSocket protocol" in done.err


async def test_an_unknown_exec_subprotocol_is_refused(place: Place) -> None:
    place.toy.protocols = ("channel.k8s.io",)
    done = await place.agent(WORKER, "x")
    assert done.code == 255 and f"answers exec with something else than {V5} or {V4}" in done.err


async def test_a_command_that_cannot_run_is_reported_with_the_servers_message(place: Place) -> None:
    async def script(request: web.Request, channel: web.WebSocketResponse) -> None:
        status = {"status": "Failure", "message": "container is gone", "reason": "InternalError"}
        await channel.send_bytes(b"\x03" + json.dumps(status).encode())

    place.toy.script = script
    done = await place.agent(WORKER, "x")
    assert done.code == 255 and done.err == f"kubexec: pod {WORKER}: the command could not be run: container is gone\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_closes_the_connection(place: Place, number: signal.Signals) -> None:
    ended = asyncio.Event()

    async def script(request: web.Request, channel: web.WebSocketResponse) -> None:
        await channel.send_bytes(b"\x01ready")
        async for _ in channel:
            pass
        assert channel.close_code == 1000
        ended.set()

    place.toy.script = script
    process = await place.start(WORKER, "sleep 100")
    assert process.stdout and await process.stdout.readexactly(5) == b"ready"
    process.send_signal(number)
    async with asyncio.timeout(10):
        await ended.wait()
    assert await code_of(process) == 128 + number


async def test_a_closed_stdout_does_not_end_the_command(place: Place) -> None:
    read, written = os.pipe()
    os.close(read)
    command = [str(AGENT), WORKER, "yes | head -c 300000; exit 9"]
    process = await asyncio.create_subprocess_exec("python3", *command, env=place.env, stdout=written)
    os.close(written)
    assert await code_of(process) == 9


async def test_closed_standard_streams_do_no_harm(place: Place) -> None:
    line = f"exec python3 {AGENT} {WORKER} 'cat; exit 8' <&- >&- 2>&-"
    process = await asyncio.create_subprocess_exec("/bin/sh", "-c", line, env=place.env)
    assert await code_of(process) == 8


# --- the way there


async def test_a_worker_that_does_not_run_yet_is_waited_for(place: Place) -> None:
    place.toy.pods.clear()
    process = asyncio.create_task(place.agent(WORKER, "exit 3"))
    await until_requested(place.toy, 1)
    place.toy.pods[WORKER] = pod(WORKER, "Pending")
    before = len(place.toy.requests)
    await until_requested(place.toy, before + 2)
    place.toy.pods[WORKER] = pod(WORKER, "Running", deletionTimestamp="2024-01-01T00:00:00Z")
    before = len(place.toy.requests)
    await until_requested(place.toy, before + 2)
    (place.folder / "token").write_text("second")
    place.toy.pods[WORKER] = pod(WORKER)
    done = await process
    assert done.code == 3 and place.toy.tokens == {"Bearer first", "Bearer second"}
    assert [line.partition(WORKER)[2] for line in done.err.splitlines()] == [
        f': there is no such pod (404): pods "{WORKER}" not found',
        ": its container chainer does not run yet (phase Pending)",
        ": it is being deleted",
    ]


async def test_an_unavailable_server_is_retried_for_exec_too(place: Place) -> None:
    place.toy.trouble = [(503, "not now"), (500, "nor now"), (429, "slowly")]
    place.toy.exec_trouble = [(502, "the node is busy"), (404, "no container yet")]
    done = await place.agent(WORKER, "exit 3")
    assert done.code == 3 and len(place.toy.execs) == 1
    for answer in ("not now", "nor now", "slowly", "the node is busy", "no container yet"):
        assert answer in done.err


async def test_an_exec_that_is_wrong_is_not_tried_again(place: Place) -> None:
    place.toy.exec_trouble = [(400, "container not valid")]
    done = await place.agent(WORKER, "x")
    assert done == (255, b"", f"kubexec: pod {WORKER}: the API server refuses (400): container not valid\n")


async def test_a_pod_that_never_runs_is_reported_after_the_time_out(place: Place) -> None:
    place.toy.pods[WORKER] = pod(WORKER, "Pending")
    done = await place.agent(WORKER, "x", TRAINYARD_EXEC_TIMEOUT="0.3")
    assert done.code == 255 and not place.toy.execs
    last = done.err.splitlines()[-1]
    assert WORKER in last and "phase Pending" in last and "TRAINYARD_EXEC_TIMEOUT" in last


@pytest.mark.parametrize("code", [401, 403])
async def test_a_forbidden_request_is_reported_in_one_line_with_the_pod_and_the_fix(place: Place, code: int) -> None:
    place.toy.trouble = [(code, "you may not")] * 20
    done = await place.agent(WORKER, "x", TRAINYARD_EXEC_TIMEOUT="0")
    assert done.code == 255 and done.err.count("\n") == 1
    fix = "the pod's Role must allow get on this pod, and get and create on its pods/exec"
    assert done.err == f"kubexec: pod {WORKER}: forbidden ({code}): you may not; {fix}\n"


async def test_a_role_that_takes_a_moment_is_waited_for(place: Place) -> None:
    place.toy.trouble = [(403, "not yet")]
    assert (await place.agent(WORKER, "exit 3")).code == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"KUBERNETES_SERVICE_HOST": ""}, "KUBERNETES_SERVICE_HOST"),
        ({"TRAINYARD_SERVICEACCOUNT_DIR": "/nowhere"}, "automountServiceAccountToken"),
        ({"TRAINYARD_EXEC_TIMEOUT": "long"}, "write a number of seconds"),
        ({"KUBERNETES_SERVICE_PORT": "1", "TRAINYARD_EXEC_TIMEOUT": "0"}, "the API server 127.0.0.1:1: "),
    ],
)
async def test_a_pod_without_service_account_files_is_reported(
    place: Place, change: dict[str, Any], message: str
) -> None:
    done = await place.agent(WORKER, "x", **change)
    assert done.code == 255 and message in done.err and done.err.count("\n") == 1


async def test_a_server_with_another_ca_gets_no_token(place: Place) -> None:
    (place.folder / "ca.crt").write_text(CertificateAuthority.new(time.time()).pem)
    done = await place.agent(WORKER, "x")
    assert done.code == 255 and "its certificate is not of the CA in" in done.err and not place.toy.tokens
    (place.folder / "ca.crt").write_text("no certificate")
    assert "the pod needs the cluster's CA there" in (await place.agent(WORKER, "x")).err


async def test_a_pod_without_the_container_is_reported_at_once(place: Place) -> None:
    place.toy.pods[WORKER] = pod(WORKER, container="mine")
    done = await place.agent(WORKER, "x")
    assert done.code == 255 and "no container named chainer, only mine" in done.err


@pytest.mark.parametrize("arguments", [[], ["pod"], ["--help"], ["--hostfile", "x"]])
async def test_invalid_arguments_are_answered_with_the_usage(place: Place, arguments: list[str]) -> None:
    done = await place.agent(*arguments)
    assert done.code == 255 and "write kubexec.py POD COMMAND" in done.err
