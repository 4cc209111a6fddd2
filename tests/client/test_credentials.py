"""Credentials that change: files that are swapped, programs whose answers expire, a 401 in between."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from trainyard.client import ApiClient, ApiError, ApiRequest, Identity, Unavailable
from trainyard.client.credentials import (
    ExecConfig,
    ExecPlugin,
    FileCredentials,
    PluginError,
    parse_exec_credential,
)
from trainyard.client.tls import tls_context
from trainyard.objects import format_time
from trainyard.objects.resources import POD

V1 = "client.authentication.k8s.io/v1"


class Doorkeeper:
    """A server that lets one token in."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.tokens: list[str] = []
        self.url = ""

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization", ""))
        if self.tokens[-1] != f"Bearer {self.token}":
            return web.json_response({"kind": "Status", "code": 401, "reason": "Unauthorized"}, status=401)
        return web.json_response({"items": []})


@pytest.fixture
async def door() -> Any:
    keeper = Doorkeeper("one")
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", keeper.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    keeper.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield keeper
    await runner.cleanup()


def files(path: Path, clock: Callable[[], float] | None = None) -> FileCredentials:
    """By default each request comes a second after the last."""
    return FileCredentials([path], lambda: Identity(path.read_text()), clock or count().__next__)


async def test_files_are_checked_once_a_second(tmp_path: Path) -> None:
    path, now = tmp_path / "token", [1000.0]
    path.write_text("one")
    who = files(path, lambda: now[0])
    tokens = []
    for token, seconds in (("one", 0.0), ("another", 0.9), ("a third", 0.2)):
        path.write_text(token)
        now[0] += seconds
        tokens.append((await who.identity()).token)
    assert tokens == ["one", "one", "a third"]


async def test_a_token_file_that_is_swapped_is_read_before_the_next_request(door: Doorkeeper, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    async with ApiClient(door.url, files(path)) as api:
        await api.list(POD)
        door.token = "two"
        (tmp_path / "new").write_text("two")
        os.replace(tmp_path / "new", path)
        await api.list(POD)
    assert door.tokens == ["Bearer one", "Bearer two"]


async def test_after_a_401_the_token_file_is_read_even_if_it_looks_unchanged(door: Doorkeeper, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    who = files(path)
    stamp = path.stat()
    async with ApiClient(door.url, who) as api:
        door.token = "two"
        path.write_text("two")
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # same inode, size and time
        await api.list(POD)
    assert door.tokens == ["Bearer one", "Bearer two"]


async def test_after_a_401_a_new_client_certificate_is_used_although_no_token_changed(tmp_path: Path) -> None:
    """The file was replaced between two checks: the old certificate stayed until it changed once more."""
    path = tmp_path / "client.crt"
    path.write_text("old")
    loaded: list[Identity] = []

    def load() -> Identity:
        loaded.append(Identity(""))
        return loaded[-1]

    credentials = FileCredentials([path], load)
    old = await credentials.identity()
    (tmp_path / "new").write_text("renewed")
    os.replace(tmp_path / "new", path)
    assert await credentials.renew(old) is loaded[1]
    assert await credentials.identity() is loaded[1]
    assert await credentials.renew(loaded[1]) is loaded[1]  # nothing has changed: the caller does not retry


async def test_a_401_with_unchanged_credentials_is_not_retried(door: Doorkeeper, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("stale")
    async with ApiClient(door.url, files(path)) as api:
        with pytest.raises(ApiError) as refused:
            await api.list(POD)
    assert refused.value.code == 401 and len(door.tokens) == 1


async def test_a_watch_that_is_refused_has_the_new_token_the_next_time(door: Doorkeeper, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    who = files(path)
    stamp = path.stat()
    async with ApiClient(door.url, who) as api:
        door.token = "two"
        path.write_text("two")
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        with pytest.raises(ApiError):
            await anext(api.watch(POD))
        assert [line async for line in api.watch(POD)] == []
    assert door.tokens == ["Bearer one", "Bearer two"]


async def test_a_token_file_that_is_missing_for_a_moment_leaves_the_old_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    who = files(path)
    path.unlink()
    assert (await who.identity()).token == "one"
    path.write_text("three")
    assert (await who.identity()).token == "three"


# Programs.

ASKED = """
import json, os, sys, pathlib
count = pathlib.Path(sys.argv[1]); n = len(count.read_text()) + 1 if count.exists() else 1
count.write_text("x" * n)
told = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert told["kind"] == "ExecCredential" and told["spec"]["interactive"] is False and os.environ["WHO"] == "me"
status = {"token": f"t{n}", "expirationTimestamp": sys.argv[2]}
print(json.dumps({"apiVersion": told["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


def plugin(count: Path, expires: float, now: Any) -> ExecPlugin:
    args = ("-c", ASKED, str(count), format_time(expires))
    return ExecPlugin(ExecConfig(V1, sys.executable, args, {"WHO": "me"}), lambda certificate: None, now)


async def test_a_credential_plugin_is_called_once_and_again_when_its_credential_expires(tmp_path: Path) -> None:
    clock = [1_000_000.0]
    who = plugin(tmp_path / "count", 1_000_100.0, lambda: clock[0])
    assert [(await who.identity()).token for _ in range(3)] == ["t1"] * 3
    clock[0] += 95  # five seconds before the end is too late
    assert (await who.identity()).token == "t2"


async def test_a_credential_plugin_is_called_again_after_a_401(door: Doorkeeper, tmp_path: Path) -> None:
    door.token = "t2"
    who = plugin(tmp_path / "count", 2_000_000_000.0, lambda: 1_000_000.0)
    async with ApiClient(door.url, who) as api:
        await api.list(POD)
    assert door.tokens == ["Bearer t1", "Bearer t2"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("print('no')", "not JSON"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("print('{}')", "no ExecCredential"),
    ],
)
async def test_a_failing_credential_plugin_is_named_without_its_output(code: str, message: str) -> None:
    who = ExecPlugin(ExecConfig(V1, sys.executable, ("-c", code), install_hint="install it"), lambda certificate: None)
    with pytest.raises(PluginError, match=message) as failed:
        await who.identity()
    assert sys.executable in str(failed.value) and "install it" in str(failed.value)


async def test_concurrent_requests_share_one_failure_of_the_plugin(tmp_path: Path) -> None:
    count = tmp_path / "count"
    code = f"open({str(count)!r}, 'a').write('x'); raise SystemExit(1)"
    who = ExecPlugin(ExecConfig(V1, sys.executable, ("-c", code)), lambda certificate: None)
    ended = await asyncio.gather(*(who.identity() for _ in range(5)), return_exceptions=True)
    assert [type(error) for error in ended] == [PluginError] * 5 and count.read_text() == "x"
    with pytest.raises(PluginError):
        await who.identity()  # later it is asked again
    assert count.read_text() == "xx"


async def test_an_answer_that_still_holds_is_used_while_there_is_no_new_one(tmp_path: Path) -> None:
    clock = [1_000_000.0]
    status = {"token": "t", "expirationTimestamp": format_time(1_000_100.0)}
    answer = {"apiVersion": V1, "kind": "ExecCredential", "status": status}
    (tmp_path / "answer").write_text(json.dumps(answer))
    code = f"print(open({str(tmp_path / 'answer')!r}).read())"
    who = ExecPlugin(ExecConfig(V1, sys.executable, ("-c", code)), lambda certificate: None, lambda: clock[0])
    await who.identity()
    (tmp_path / "answer").unlink()
    clock[0] += 95
    assert (await who.identity()).token == "t"
    clock[0] += 5
    with pytest.raises(PluginError):
        await who.identity()


async def test_a_certificate_of_no_use_is_the_programs_fault() -> None:
    status = {"clientCertificateData": "CERT", "clientKeyData": "KEY"}
    code = f"print({json.dumps({'apiVersion': V1, 'kind': 'ExecCredential', 'status': status})!r})"
    who = ExecPlugin(
        ExecConfig(V1, sys.executable, ("-c", code)), lambda certificate: tls_context(certificate=certificate)
    )
    with pytest.raises(PluginError, match="an unusable certificate"):
        await who.identity()


async def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(PluginError, match=r"/no/such cannot be started"):
        await ExecPlugin(ExecConfig(V1, "/no/such"), lambda certificate: None).identity()


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (None, "without a status"),
        ({}, "neither a token nor"),
        ({"clientCertificateData": "PEM"}, "only one of"),
        ({"token": "secret", "expirationTimestamp": "soon"}, "not a time"),
    ],
)
def test_an_invalid_exec_credential_is_refused(status: Any, message: str) -> None:
    text = json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status}).encode()
    with pytest.raises(PluginError, match=message) as failed:
        parse_exec_credential(ExecConfig(V1, "aws"), text)
    assert "secret" not in str(failed.value)


def test_a_credential_plugin_may_return_a_certificate_that_never_expires() -> None:
    status = {"clientCertificateData": "CERT", "clientKeyData": "KEY"}
    text = json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status}).encode()
    answer = parse_exec_credential(ExecConfig(V1, "aws"), text)
    assert (answer.token, answer.certificate, answer.expiration) == ("", b"CERT\nKEY", float("inf"))
    assert "KEY" not in repr(answer)


# The guard and the observer.


async def test_a_write_that_the_guard_refuses_is_not_sent(door: Doorkeeper) -> None:
    api = ApiClient(door.url, "one")
    looks: list[ApiRequest] = []

    class Stop(Exception):
        pass

    def guard(request: ApiRequest) -> None:
        looks.append(request)
        if len(looks) > 1:  # the second look is that of a connection that is there
            raise Stop

    api.before_send = guard
    async with api:
        with pytest.raises(Stop):
            await api.list(POD)
    assert not door.tokens and len(looks) == 2


async def test_the_guard_is_checked_in_the_same_step_as_the_write(door: Doorkeeper) -> None:
    """In the same step as the write: an operator that is paused after an earlier check would still send it."""
    api = ApiClient(door.url, "one")
    looks: list[ApiRequest] = []

    def guard(request: ApiRequest) -> None:
        looks.append(request)
        if len(looks) == 2:
            raise Unavailable(0, "NotLeading", "no more")

    api.before_send = guard
    async with api:
        with pytest.raises(Unavailable):
            await api.create(POD, "default", {"metadata": {"name": "late"}})
        assert not door.tokens
        await api.list(POD)
    assert door.tokens == ["Bearer one"]


async def test_the_observer_is_called_for_each_response_and_for_none(door: Doorkeeper) -> None:
    heard: list[tuple[str, int]] = []
    api = ApiClient(door.url, "other")
    api.on_response = lambda request, code, seconds: heard.append((request.path, code))
    async with api:
        with pytest.raises(ApiError):
            await api.list(POD, "n")
    nobody = ApiClient("http://127.0.0.1:1")
    nobody.on_response = api.on_response
    async with nobody:
        with pytest.raises(ApiError):
            await nobody.list(POD)
    assert heard == [("/api/v1/namespaces/n/pods", 401), ("/api/v1/pods", 0)]
