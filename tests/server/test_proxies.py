"""`pods/NAME/proxy` and `services/NAME/proxy`, to a simulated program behind a Unix socket.

The node, which says which socket that is, is another small server. With kubectl and real pods: tests/kubectl.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from tests.server.server_clients import PODS, Client, pod
from trainyard.objects import decode
from trainyard.server import CertificateAuthority, Server
from trainyard.server.model import paths
from trainyard.server.model.errors import StatusError
from trainyard.server.proxy.pod_proxy import rewritten_location
from trainyard.server.proxy.targets import split

HEADERS = {"Authorization": "Bearer canary"}
SERVICES = "/api/v1/namespaces/default/services"


@dataclass
class World:
    """A node and a program behind it."""

    folder: Path
    socket: str
    refusal: str = ""
    authorized: list[str] = field(default_factory=list)
    requests: list[web.BaseRequest] = field(default_factory=list)

    async def node(self, request: web.BaseRequest) -> web.StreamResponse:
        self.authorized.append(f"{request.headers.get('Authorization')} {request.path}")
        return web.Response(status=503, text=self.refusal) if self.refusal else web.Response(text=self.socket)

    async def program(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        body = await request.read()
        if request.path == "/slow":
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"half")
            assert request.transport is not None
            request.transport.abort()
            return response
        return web.Response(body=body or b"nothing", headers={"X-Program": "yes", "Access-Control-Allow-Origin": "*"})


@pytest.fixture
async def world() -> AsyncIterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="proxy-"))
    world = World(folder, str(folder / "s"))
    runner = web.ServerRunner(web.Server(world.program), shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, world.socket).start()
    yield world
    await runner.cleanup()
    shutil.rmtree(world.folder)


@pytest.fixture
async def locked(world: World) -> AsyncIterator[Server]:
    """A server with a node, a ready pod `a` on it, and a Service in front."""
    runner = web.ServerRunner(web.Server(world.node), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server = Server(token="canary")
    await server.start()
    async with aiohttp.ClientSession(headers=HEADERS) as session:
        client = Client(session, server.url)
        endpoint = {"kubeletEndpoint": {"Port": runner.addresses[0][1]}}
        status = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": endpoint}
        meta = {"name": "n"}
        await client.make("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status})
        ports = [{"name": "http", "containerPort": 8080}]
        new_pod = pod("a", nodeName="n", containers=[{"name": "main", "image": "i", "ports": ports}])
        new_pod["metadata"]["labels"] = {"app": "a"}
        await client.make(PODS, new_pod)
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        await client.ask("PATCH", f"{PODS}/a/status", ready)
        listed = [{"name": "web", "port": 80, "targetPort": "http"}, {"name": "none", "port": 81, "targetPort": "x"}]
        spec = {"selector": {"app": "a"}, "ports": listed}
        await client.make(SERVICES, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec})
    yield server
    await server.stop()
    await runner.cleanup()


@pytest.mark.parametrize("where", [f"{PODS}/a", f"{PODS}/a:8080", f"{PODS}/http:a:8080", f"{SERVICES}/s:web",
                                   f"{SERVICES}/s:80"])  # fmt: skip
async def test_a_proxied_request_reaches_the_program_unchanged(locked: Server, world: World, where: str) -> None:
    async with aiohttp.ClientSession(headers={**HEADERS, "X-Mine": "yes"}) as session:
        url = f"{locked.url}{where}/proxy/a//b/?x=1&x=2"
        async with session.post(url, data=b"words") as got:
            assert (got.status, await got.read()) == (200, b"words")
            assert got.headers["X-Program"] == "yes" and "Access-Control-Allow-Origin" not in got.headers
        for method in ("HEAD", "OPTIONS"):
            async with session.request(method, url) as got:
                assert got.status == 200
    received = world.requests[0]
    assert [request.method for request in world.requests] == ["POST", "HEAD", "OPTIONS"]
    assert (received.method, received.path_qs, received.headers["X-Mine"]) == ("POST", "/a//b/?x=1&x=2", "yes")
    assert "Authorization" not in received.headers and received.headers["X-Forwarded-Uri"] == f"{where}/proxy/a//b/"
    assert set(world.authorized) == {"Bearer canary /sockets/default/a/8080"}


@pytest.mark.parametrize(
    ("where", "code", "message"),
    [
        (f"{PODS}/b", 404, 'pods "b" not found'),
        (f"{PODS}/a:0", 400, "from 1 to 65535"),
        (f"{PODS}/a:b:c:d", 400, "invalid pod request"),
        (f"{SERVICES}/s", 503, 'no endpoints available for service "s"; its ports: web, none'),
        (f"{SERVICES}/s:9", 503, 'no service port 9 found for service "s"'),
        (f"{SERVICES}/s:none", 503, 'no endpoints available for service "s"'),
    ],
)
async def test_an_unreachable_program_is_a_status(locked: Server, where: str, code: int, message: str) -> None:
    async with aiohttp.ClientSession(headers=HEADERS) as session, session.get(f"{locked.url}{where}/proxy/") as got:
        answer = decode(await got.read())
        assert (got.status, answer["kind"], answer["code"]) == (code, "Status", code) and message in answer["message"]


async def test_the_kubelets_refusal_is_reported(locked: Server, world: World) -> None:
    world.refusal = "pod default/a has ended"
    async with aiohttp.ClientSession(headers=HEADERS) as session, session.get(f"{locked.url}{PODS}/a/proxy/") as got:
        answer = decode(await got.read())
    assert answer["reason"] == "ServiceUnavailable" and answer["message"].endswith("pod default/a has ended")


async def test_a_program_that_aborts_its_response_aborts_the_proxied_response(locked: Server) -> None:
    async with (
        aiohttp.ClientSession(headers=HEADERS) as session,
        session.get(f"{locked.url}{PODS}/a/proxy/slow") as got,
    ):
        with pytest.raises(aiohttp.ClientError):
            await got.read()


async def test_a_tls_backend_may_have_any_certificate(locked: Server, world: World) -> None:
    (world.folder / "tls").mkdir()
    runner = web.ServerRunner(web.Server(world.program), shutdown_timeout=0.1)
    await runner.setup()
    world.socket = str(world.folder / "tls" / "s")
    await web.UnixSite(
        runner, world.socket, ssl_context=CertificateAuthority.new(time.time()).server_context(world.folder)
    ).start()
    async with aiohttp.ClientSession(headers=HEADERS) as session:
        async with session.post(f"{locked.url}{PODS}/https:a:8080/proxy/x", data=b"said") as got:
            assert (got.status, await got.read()) == (200, b"said")
        async with session.get(f"{locked.url}{PODS}/a:8080/proxy/x") as got:
            assert got.status == 503, "it speaks TLS only"
    assert world.requests[-1].secure
    await runner.cleanup()


async def test_the_proxy_needs_a_token(locked: Server, world: World) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{locked.url}{PODS}/a/proxy/") as got:
        assert got.status in (401, 403)
    assert not world.authorized and not world.requests


async def test_unsupported_subresources_are_answered_with_an_alternative(locked: Server) -> None:
    async with aiohttp.ClientSession(headers=HEADERS) as session:
        for path, hint in (("portforward", "kubectl proxy"), ("ephemeralcontainers", "kubectl exec")):
            async with session.get(f"{locked.url}{PODS}/a/{path}") as got:
                assert got.status == 405 and hint in decode(await got.read())["message"]
        async with session.get(f"{locked.url}{PODS}/a/attach?stdin=true&stdout=true") as got:
            assert got.status == 400 and "no standard input" in decode(await got.read())["message"]


def test_a_redirect_stays_below_the_clients_path() -> None:
    for location, meant in (
        ("/there?x=1", "/p/proxy/there?x=1"),
        ("there", "there"),
        ("http://pod:80/there", "/p/proxy/there"),
        ("http://client/there", "/p/proxy/there"),
        ("https://example.org/there", "https://example.org/there"),
        ("/p/proxy/there", "/p/proxy/there"),
    ):
        assert rewritten_location(location, "/p/proxy", ("client", "pod:80")) == meant, location


def test_names_of_programs_are_read() -> None:
    assert split("a", "pod") == ("", "a", "") and split("a:b", "pod") == ("", "a", "b")
    assert split("https:a:b", "pod") == ("https", "a", "b")
    for bad in ("", ":b", "ftp:a:b", "a:b:c:d", f"a:{'9' * 5000}", f"http:a:{'9' * 5000}"):
        with pytest.raises(StatusError):
            split(bad, "pod")


def test_the_path_after_proxy_is_not_parsed() -> None:
    for path, tail in ((f"{PODS}/a/proxy", ""), (f"{PODS}/a/proxy/", "/"), (f"{PODS}/a/proxy/b//c%2F", "/b//c%2F")):
        target = paths.parse(path)
        assert target is not None and (target.name, target.subresource, target.proxy_path) == ("a", "proxy", tail)
    assert paths.parse(f"{PODS}/a/log/b") is None
