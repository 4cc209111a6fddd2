"""The TensorBoard of a job at a port of its own: who may open it, what is passed on, and when it is closed.

The API server is a small one that answers as the pod would; test_tensorboard_story.py has a real pod.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from tests.page.browsing import Loopback, origin, until_closed
from trainyard.client import ApiClient
from trainyard.objects import Json
from trainyard.page import forward
from trainyard.page.forward import Forwards, loopback_sockets
from trainyard.page.observation import ChangeListener, Observation
from trainyard.page.pod_requests import COOKIE
from trainyard.page.responses import RequestRefused

TOKEN = "token-of-the-person"
PREFIX = "/api/v1/namespaces/team/pods/board:6006/proxy"
LONG = b"0123456789abcdef" * (1 << 17)  # 2 MiB


def tf_job(uid: str, **spec: Any) -> Json:
    metadata = {"name": uid, "namespace": "team", "uid": uid}
    return {
        "apiVersion": "tensorflow.org/v1alpha1",
        "kind": "TfJob",
        "metadata": metadata,
        "spec": {"tensorboard": {"logDir": "/logs"}, **spec},
    }


def board_pod(job_uid: str, phase: str = "Running", namespace: str = "team", name: str = "board") -> Json:
    labels = {"trainyard.dev/owner": job_uid, "app": "tensorboard"}
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}-{job_uid}", "labels": labels}
    return {"metadata": metadata, "spec": {}, "status": {"phase": phase}}


class Watched(Observation):
    """What the watches have seen, as a test sets it."""

    def __init__(self, api: ApiClient) -> None:
        super().__init__(api)
        self.listeners: set[ChangeListener] = set()
        self.pods_by_job: dict[str, list[Json]] = {}

    def see(self, job: Json, *pods: Json) -> None:
        self.view.update_job(job)
        self.pods_by_job[job["metadata"]["uid"]] = list(pods)

    def delete(self, job_uid: str) -> None:
        self.view.remove_job(job_uid)
        for listener in tuple(self.listeners):
            listener(job_uid)

    def pods(self, job_uid: str) -> list[Json]:
        return self.pods_by_job.get(job_uid, [])

    def subscribe(self, listener: ChangeListener) -> None:
        self.listeners.add(listener)

    def unsubscribe(self, listener: ChangeListener) -> None:
        self.listeners.discard(listener)


class Pod:
    """The API server and the pod behind it. `answer` may be set by a test."""

    def __init__(self) -> None:
        self.requests: list[web.BaseRequest] = []
        self.answer: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] = self.echo
        self.closed = asyncio.Event()  # the end of a WebSocket

    async def serve(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        if request.headers.get("Upgrade"):
            return await self.talk(request)
        return await self.answer(request)

    async def echo(self, request: web.BaseRequest) -> web.StreamResponse:
        body = b"".join([chunk async for chunk in request.content.iter_any()])
        return web.Response(body=body or b"TensorBoard", headers={"Set-Cookie": "theirs=1"})

    async def talk(self, request: web.BaseRequest) -> web.StreamResponse:
        talk = web.WebSocketResponse(protocols=("graph",))
        await talk.prepare(request)
        async for message in talk:
            await (
                talk.send_str(message.data) if message.type is aiohttp.WSMsgType.TEXT else talk.send_bytes(message.data)
            )
        self.closed.set()
        return talk

    @property
    def last(self) -> web.BaseRequest:
        return self.requests[-1]


@pytest.fixture
async def pod() -> Pod:
    return Pod()


@pytest.fixture
async def api(pod: Pod) -> AsyncIterator[ApiClient]:
    runner = web.ServerRunner(web.Server(pod.serve), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with ApiClient(f"http://127.0.0.1:{runner.addresses[0][1]}", TOKEN) as api:
        yield api
    await runner.cleanup()


@pytest.fixture
async def watched(api: ApiClient) -> Watched:
    watched = Watched(api)
    watched.see(tf_job("a"), board_pod("a"))
    return watched


@pytest.fixture
async def forwards(api: ApiClient, watched: Watched) -> AsyncIterator[Forwards]:
    forwards = Forwards(api, watched)
    yield forwards
    await forwards.close()


@pytest.fixture
async def browser() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(resolver=Loopback())
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as browser:
        yield browser


@pytest.fixture
async def opened(forwards: Forwards, browser: aiohttp.ClientSession) -> str:
    """The origin of a forward that the browser may use."""
    link = await forwards.open("a")
    async with browser.get(link) as got:
        assert (got.status, await got.read()) == (200, b"TensorBoard")
    return origin(link)


async def status(browser: aiohttp.ClientSession, url: str, method: str = "GET", **headers: str) -> int:
    async with browser.request(method, URL(url, encoded=True), headers=headers, allow_redirects=False) as got:
        return got.status


# Who may.


async def test_a_link_opens_the_pods_page_once(forwards: Forwards, browser: aiohttp.ClientSession) -> None:
    link = await forwards.open("a")
    async with browser.get(link, allow_redirects=False) as got:
        assert (got.status, got.headers["Location"], got.headers["Referrer-Policy"]) == (303, "/", "no-referrer")
        cookie = got.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Path=/" in cookie and "Domain" not in cookie
    assert await status(browser, origin(link)) == 200
    browser.cookie_jar.clear()
    assert await status(browser, origin(link)) == 401
    async with browser.get(link) as got:
        assert got.status == 401 and "used" in await got.text()


async def test_a_link_is_valid_for_a_minute(
    forwards: Forwards, browser: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr("trainyard.page.forward.time.time", lambda: now)
    link = await forwards.open("a")
    now += 61
    assert await status(browser, link) == 401


async def test_the_right_to_a_forward_is_none_to_another(
    forwards: Forwards, watched: Watched, browser: aiohttp.ClientSession, opened: str
) -> None:
    watched.see(tf_job("b"), board_pod("b"))
    other = origin(await forwards.open("b"))
    (cookie,) = [cookie for cookie in browser.cookie_jar if cookie.key == COOKIE]
    browser.cookie_jar.clear()
    assert await status(browser, opened, Cookie=f"{COOKIE}={cookie.value}") == 200
    assert await status(browser, other, Cookie=f"{COOKIE}={cookie.value}") == 401
    for guess in ("", "x", "9999999999.x"):
        assert await status(browser, opened, Cookie=f"{COOKIE}={guess}") == 401


async def test_another_name_or_page_is_refused(browser: aiohttp.ClientSession, opened: str) -> None:
    host = urlsplit(opened).netloc
    for name in (
        f"127.0.0.1:{urlsplit(opened).port}",
        "localhost",
        f"evil.{host}",
        "evil.example",
        f"{host}.evil.example",
        f"{urlsplit(opened).hostname}.evil.example",
    ):
        assert await status(browser, opened, Host=name) == 421
    for page in ("http://127.0.0.1:1", "https://evil.example", "null", f"https://{host}"):
        assert await status(browser, opened, "POST", Origin=page) == 403
    assert await status(browser, opened, Origin=opened) == 200
    # The port may be another one: of `ssh -L`.
    forwarded = f"{urlsplit(opened).hostname}:8000"
    assert await status(browser, opened, Host=forwarded, Origin=f"http://{forwarded}") == 200


async def test_another_program_cannot_take_the_port_of_ipv6(opened: str) -> None:
    port = urlsplit(opened).port
    with pytest.raises(OSError):
        socket.create_server(("::1", port or 0), family=socket.AF_INET6)


async def test_without_ipv6_there_is_a_port_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    create_server = socket.create_server

    def refusing(address: tuple[str, int], **options: Any) -> socket.socket:
        if address[0] == "::1":
            raise OSError(99, "Cannot assign requested address")
        return create_server(address, **options)

    monkeypatch.setattr(socket, "create_server", refusing)
    (only,) = loopback_sockets()
    only.close()


# What is passed on.


async def test_the_pod_gets_the_request_and_no_credential(
    pod: Pod, browser: aiohttp.ClientSession, opened: str
) -> None:
    headers = {
        "Authorization": "Bearer of-the-page",
        "Impersonate-User": "system:admin",
        "Impersonate-Extra-Scopes": "all",
        "X-Remote-User": "admin",
        "X-Theirs": "yes",
        "Origin": opened,
        "Cookie": f"a=1; {COOKIE}={next(cookie.value for cookie in browser.cookie_jar if cookie.key == COOKIE)}; b=2",
    }
    browser.cookie_jar.clear()
    async with browser.post(URL(f"{opened}/x//y/?q=%2F&q=2", encoded=True), data=LONG, headers=headers) as got:
        assert (got.status, await got.read()) == (200, LONG)
    sent = pod.last
    assert sent.raw_path == f"{PREFIX}/x//y/?q=%2F&q=2"
    assert sent.headers["Authorization"] == f"Bearer {TOKEN}"
    assert (sent.headers["X-Theirs"], sent.headers["Cookie"]) == ("yes", "a=1; b=2")
    assert sent.headers["Content-Length"] == str(len(LONG))
    assert ".localhost" not in sent.headers["Host"]
    assert not {name for name in sent.headers if name.lower().startswith(("impersonate-", "x-remote-", "origin"))}


@pytest.mark.parametrize(
    "path",
    ["/../../../secrets", "/a/%2e%2e/%2E%2e/b", "/..%2f..%2fsecrets", "/./x", "/a\\..\\b", f"{PREFIX}/../../x"],
)
async def test_a_path_cannot_leave_that_of_the_pod(
    pod: Pod, browser: aiohttp.ClientSession, opened: str, path: str
) -> None:
    before = len(pod.requests)
    assert await status(browser, f"{opened}{path}") == 400
    assert len(pod.requests) == before


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "BREW"])
async def test_other_verbs_are_not_passed_on(
    pod: Pod, browser: aiohttp.ClientSession, opened: str, method: str
) -> None:
    before = len(pod.requests)
    assert await status(browser, opened, method) in (400, 405)
    assert len(pod.requests) == before


async def test_a_long_answer_is_streamed(pod: Pod, browser: aiohttp.ClientSession, opened: str) -> None:
    more = asyncio.Event()

    async def stream(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Encoding": "x", "Access-Control-Allow-Origin": "*"})
        await response.prepare(request)
        await response.write(b"first")
        await more.wait()
        for _ in range(8):
            await response.write(LONG)
        return response

    pod.answer = stream
    async with browser.get(opened) as got:
        assert await got.content.readexactly(5) == b"first"
        more.set()
        assert await got.content.read() == LONG * 8
        assert got.headers["Content-Encoding"] == "x" and "Access-Control-Allow-Origin" not in got.headers


async def test_an_answer_that_breaks_off_is_broken_off(pod: Pod, browser: aiohttp.ClientSession, opened: str) -> None:
    async def half(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.abort()
        return response

    pod.answer = half
    async with browser.get(opened) as got:
        with pytest.raises(aiohttp.ClientError):
            await got.read()


async def test_redirects_and_absolute_links_stay_at_the_pods_page(
    pod: Pod, browser: aiohttp.ClientSession, opened: str
) -> None:
    for location, meant in (
        (f"{PREFIX}/there?x=1", "/there?x=1"),
        (f"https://api.example{PREFIX}", "/"),
        ("there", "there"),
        ("https://example.org/", "https://example.org/"),
    ):

        async def redirect(request: web.BaseRequest, location: str = location) -> web.StreamResponse:
            return web.Response(status=302, headers={"Location": location})

        pod.answer = redirect
        async with browser.get(opened, allow_redirects=False) as got:
            assert (got.status, got.headers["Location"]) == (302, meant)
    pod.answer = pod.echo
    assert await status(browser, f"{opened}{PREFIX}/style.css?v=1") == 200
    assert pod.last.raw_path == f"{PREFIX}/style.css?v=1"


async def test_a_websocket_is_passed_on(pod: Pod, browser: aiohttp.ClientSession, opened: str) -> None:
    headers = {"Origin": opened}
    async with browser.ws_connect(f"{opened}/live", protocols=("graph",), headers=headers) as talk:
        assert talk.protocol == "graph"
        await talk.send_str("text")
        assert await talk.receive_str() == "text"
        await talk.send_bytes(LONG)
        assert await talk.receive_bytes() == LONG
    await asyncio.wait_for(pod.closed.wait(), 10)
    assert "Origin" not in pod.last.headers and pod.last.headers["Authorization"] == f"Bearer {TOKEN}"
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await browser.ws_connect(f"{opened}/live", headers={"Origin": "http://127.0.0.1:1"})
    assert refused.value.status == 403
    browser.cookie_jar.clear()
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await browser.ws_connect(f"{opened}/live", headers=headers)
    assert refused.value.status == 401


async def test_a_pod_that_is_not_reached_is_a_sentence(
    pod: Pod, api: ApiClient, watched: Watched, browser: aiohttp.ClientSession, opened: str
) -> None:
    async def unreachable(request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "message": "no route to the pod"}, status=503)

    async def theirs(request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"error": "no such run"}, status=404)

    pod.answer = unreachable
    async with browser.get(opened) as got:
        assert got.status == 502 and (await got.text()).startswith("TensorBoard is not reached: no route to the pod\n")
    pod.answer = theirs
    async with browser.get(opened) as got:
        assert got.status == 404 and await got.json() == {"error": "no such run"}
    watched.see(tf_job("a"), board_pod("a", "Pending"))
    async with browser.get(opened) as got:
        assert got.status == 502 and await got.text() == "TensorBoard does not run: its pod is Pending\n"


async def test_an_api_server_that_is_away_is_a_sentence(
    watched: Watched, browser: aiohttp.ClientSession, unused_tcp_port: int
) -> None:
    async with ApiClient(f"http://127.0.0.1:{unused_tcp_port}", TOKEN) as api:
        forwards = Forwards(api, watched)
        async with browser.get(await forwards.open("a")) as got:
            text = await got.text()
            assert got.status == 502 and text.startswith("the API server does not answer") and TOKEN not in text
        await forwards.close()


# When there is none, and when it is closed.


@pytest.mark.parametrize(
    ("job", "pods", "code", "text"),
    [
        (tf_job("a", tensorboard=None), [], 404, "has no TensorBoard"),
        (tf_job("a"), [], 409, "it has no pod yet"),
        (tf_job("a"), [board_pod("a", "Pending")], 409, "its pod is Pending"),
        (tf_job("a"), [board_pod("a", namespace="elsewhere")], 409, "it has no pod yet"),
        (tf_job("b"), [board_pod("b")], 404, "there is no such job"),
    ],
)
async def test_what_does_not_run_is_not_opened(
    api: ApiClient, job: Json, pods: list[Json], code: int, text: str
) -> None:
    watched = Watched(api)
    watched.see(job, *pods)
    with pytest.raises(RequestRefused) as refused:
        await Forwards(api, watched).open("a")
    assert refused.value.status == code and text in refused.value.text
    assert not watched.listeners


async def test_a_second_press_opens_the_same_forward(forwards: Forwards, opened: str) -> None:
    assert origin(await forwards.open("a")) == opened


async def test_there_is_a_limit(forwards: Forwards, watched: Watched) -> None:
    for number in range(forward.MAX_FORWARDS):
        watched.see(tf_job(str(number)), board_pod(str(number)))
        await forwards.open(str(number))
    with pytest.raises(RequestRefused) as refused:
        await forwards.open("a")
    assert refused.value.status == 503 and "8 are open already" in refused.value.text
    await forwards.open("0")


async def test_it_is_closed_when_nobody_uses_it(
    forwards: Forwards, watched: Watched, browser: aiohttp.ClientSession, opened: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "IDLE_SECONDS", 0.05)
    async with browser.ws_connect(opened, headers={"Origin": opened}) as talk:
        await status(browser, opened)
        watched.see(tf_job("b"), board_pod("b"))
        await until_closed(await forwards.open("b"))  # which nobody uses; a WebSocket is a use
        await talk.send_str("still here")
        assert await talk.receive_str() == "still here"
    await until_closed(opened)
    assert not watched.listeners
    assert origin(await forwards.open("a")) != opened


async def test_who_may_not_open_it_does_not_keep_it_open(
    browser: aiohttp.ClientSession, opened: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "IDLE_SECONDS", 0.2)
    await status(browser, opened)
    browser.cookie_jar.clear()
    await until_closed(opened)


async def test_it_is_closed_with_its_job(watched: Watched, browser: aiohttp.ClientSession, opened: str) -> None:
    async with browser.ws_connect(opened, headers={"Origin": opened}) as talk:
        watched.delete("a")
        assert (await talk.receive()).type in (
            aiohttp.WSMsgType.CLOSE,
            aiohttp.WSMsgType.CLOSING,
            aiohttp.WSMsgType.CLOSED,
            aiohttp.WSMsgType.ERROR,
        )
    await until_closed(opened)
    assert not watched.listeners


async def test_it_is_closed_with_the_server(forwards: Forwards, browser: aiohttp.ClientSession, opened: str) -> None:
    await forwards.close()
    await until_closed(opened)


def test_nothing_of_it_is_loaded_before_the_first_press() -> None:
    code = "import sys, trainyard.page.http; sys.exit('trainyard.page.forward' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
