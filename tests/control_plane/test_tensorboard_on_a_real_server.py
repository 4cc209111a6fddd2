"""The TensorBoard of a job of a real cluster, through `pods/NAME/proxy` of its API server.

No kubelet is needed for that: the API server connects to the address of the pod, which is this machine's here.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.control_plane.test_page_on_a_real_server import limited
from tests.page.browsing import Browser, Loopback, origin
from tests.support.control_plane import ControlPlane
from trainyard import kinds
from trainyard.client import ApiClient
from trainyard.objects import Json, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import POD
from trainyard.page.listener import PageServer
from trainyard.page.options import PageOptions

pytestmark = pytest.mark.cluster
GVK = kinds.TFJOB.gvk
LOOKS: list[Json] = [
    {"apiGroups": [GVK.group], "resources": [GVK.plural], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
]
PROXIES: Json = {"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get", "create"]}
PAGE = "<html><body><a href='/runs'>runs</a></body></html>"


def own_address() -> str:
    """An address of this machine that is not loopback: an API server connects to no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("198.51.100.1", 9))  # sends nothing
        return str(probe.getsockname()[0])


class Program:
    """What runs in the pod."""

    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        if request.path == "/old":
            return web.Response(status=302, headers={"Location": "/runs?new=1"})
        if request.path == "/live":
            talk = web.WebSocketResponse()
            await talk.prepare(request)
            await talk.send_str(await talk.receive_str())
            await talk.close()
            return talk
        if request.path == "/upload":
            return web.Response(body=b"".join([chunk async for chunk in request.content.iter_any()]))
        return web.Response(text=PAGE if request.path == "/" else request.path_qs, content_type="text/html")


@pytest.fixture
async def program(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Program]:
    program = Program()
    runner = web.ServerRunner(web.Server(program.answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, own_address(), 0).start()
    monkeypatch.setattr("trainyard.page.forward.PORT", runner.addresses[0][1])
    yield program
    await runner.cleanup()


@pytest.fixture
async def job(installed: ControlPlane, namespace: str, program: Program) -> AsyncIterator[Json]:
    """A job whose TensorBoard runs at the address of this machine."""
    container = {"name": "tensorflow", "image": "none"}
    template = {"spec": {"restartPolicy": "OnFailure", "containers": [container]}}
    spec = {
        "replicaSpecs": [{"replicas": 1, "tfReplicaType": "MASTER", "template": template}],
        "tensorboard": {"logDir": "/logs"},
    }
    async with installed.api() as api:
        body = {"apiVersion": GVK.api_version, "kind": GVK.kind, "metadata": {"name": "a"}, "spec": spec}
        job = await api.create(GVK, namespace, body)
        labels = {OWNER: uid_of(job), "app": "tensorboard"}
        await api.create(
            POD, namespace, {"metadata": {"name": "board", "labels": labels}, "spec": {"containers": [container]}}
        )
        status = {"phase": "Running", "podIP": own_address(), "podIPs": [{"ip": own_address()}]}
        await api.patch(POD, namespace, "board", {"status": status}, "status")
        yield job


@asynccontextmanager
async def opened(api: ApiClient, namespace: str, job: Json) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """A browser, and the link that pressing the button gives."""
    page_server = PageServer(api, PageOptions("real", "cluster", namespace))
    await page_server.start()
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=Loopback())) as http:
            browser = Browser(page_server.url, http)
            assert await browser.log_in(page_server.link()) == 200
            url, body = f"{browser.url}v1/forward", {"job": uid_of(job)}
            async with http.post(url, json=body, headers=browser.headers) as got:
                answer: Any = await got.json()
                assert got.status == 200, answer
            yield http, answer["url"]
    finally:
        await page_server.stop()


async def test_the_pods_page_is_passed_on(installed: ControlPlane, namespace: str, job: Json, program: Program) -> None:
    async with (
        await limited(installed, namespace, [*LOOKS, PROXIES]) as api,
        opened(api, namespace, job) as (http, link),
    ):
        async with http.get(link) as got:
            text = await got.text()
            assert got.status == 200 and "runs" in text
        address, rewritten = origin(link), text.partition('href="')[2].partition('"')[0]
        assert rewritten.endswith("/proxy/runs")  # by the API server
        for path in (rewritten, "/old", "/runs?new=1"):
            async with http.get(f"{address}{path}") as got:
                assert (await got.text()).startswith("/runs")
        async with http.get(f"{address}/old", allow_redirects=False) as got:
            assert got.headers["Location"] == "/runs?new=1"
        large = b"x" * (1 << 22)
        async with http.post(f"{address}/upload", data=large, headers={"Origin": address}) as got:
            assert await got.read() == large
        async with http.ws_connect(f"{address}/live", headers={"Origin": address}) as talk:
            await talk.send_str("hello")
            assert await talk.receive_str() == "hello"
    for secret in ("Bearer", "trainyard-forward", "Impersonate"):
        assert secret not in str(program.headers)


async def test_who_may_not_use_the_proxy_is_told_so(
    installed: ControlPlane, namespace: str, job: Json, program: Program
) -> None:
    async with (
        await limited(installed, namespace, LOOKS) as api,
        opened(api, namespace, job) as (http, link),
        http.get(link) as got,
    ):
        assert got.status == 502 and 'cannot get resource "pods/proxy"' in await got.text()
    assert not program.headers


async def test_a_pod_without_a_program_is_a_sentence(
    installed: ControlPlane, namespace: str, job: Json, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        await limited(installed, namespace, [*LOOKS, PROXIES]) as api,
        opened(api, namespace, job) as (http, link),
    ):
        with socket.socket() as unused:
            unused.bind((own_address(), 0))  # it does not listen
            monkeypatch.setattr("trainyard.page.forward.PORT", unused.getsockname()[1])
            async with http.get(link) as got:
                text = await got.text()
                assert got.status == 502 and text.startswith("TensorBoard is not reached"), text
    assert not program.headers
