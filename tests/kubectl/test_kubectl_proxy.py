"""Programs in pods, reached through the API server: `kubectl proxy` and a browser, the way to TensorBoard.

At the embedded cluster alone: a real API server reaches pods by their addresses, which those of a joined node do not
have.
"""

from __future__ import annotations

from collections.abc import Iterator

import aiohttp
import pytest

from tests.kubectl.kubectl_clusters import Person
from tests.kubectl.terminals import running
from tests.support.waiting import until_async

pytestmark = pytest.mark.cluster

BOARD = """
apiVersion: tensorflow.org/v1alpha1
kind: TfJob
metadata: {name: seen}
spec:
  tensorBoard: {logDir: /var/tmp}
  replicaSpecs:
  - replicas: 1
    tfReplicaType: MASTER
    template: {spec: {restartPolicy: Never, containers: [{name: tensorflow, image: busybox, command: [sleep, "60"]}]}}
"""


@pytest.fixture
def browser(here: Person) -> Iterator[str]:
    """Where a browser finds the cluster."""
    with running(here, "proxy", "--port=0") as proxy:
        address = proxy.read_until(r"127\.0\.0\.1:\d+")
        yield f"http://{address}/api/v1/namespaces/{here.namespace}"


@pytest.fixture
def echo(here: Person) -> Person:
    here.apply("echo")
    here("wait", "--for=condition=Ready", "pod/echo", "--timeout=60s")
    return here


async def answered(url: str) -> str:
    """The body, once the program listens."""

    async def look() -> tuple[int, str]:
        async with session.get(url) as got:
            return got.status, await got.text()

    async with aiohttp.ClientSession() as session:
        _, body = await until_async(look, f"{url} is served", accept=lambda answer: answer[0] != 503)
        return body


async def test_method_path_query_body_and_headers_arrive(echo: Person, browser: str) -> None:
    await answered(f"{browser}/pods/echo:8080/proxy/")
    async with aiohttp.ClientSession() as session:
        for where in ("pods/echo:8080", "pods/echo", "services/echo:http", "services/echo:80", "pods/http:echo:8080"):
            for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
                url = f"{browser}/{where}/proxy/a%2Fb/c/?d=e&d=f"
                async with session.request(method, url, data="some words", headers={"X-Mine": "yes"}) as got:
                    request = await got.json()
                assert (got.status, request["method"], request["path"]) == (200, method, "/a%2Fb/c/?d=e&d=f")
                assert request["body"] == "some words" and request["headers"]["X-Mine"] == "yes"
                assert "Authorization" not in request["headers"]
                assert request["headers"]["X-Forwarded-Uri"].endswith(f"{where}/proxy/a%2Fb/c/")
        async with session.head(f"{browser}/pods/echo/proxy/x") as got:
            assert got.status == 200 and await got.read() == b""
        async with session.get(f"{browser}/pods/echo/proxy/teapot") as got:
            assert got.status == 418 and (await got.json())["path"] == "/teapot"


async def test_redirects_stay_below_the_clients_path(echo: Person, browser: str) -> None:
    await answered(f"{browser}/pods/echo:8080/proxy/")
    base = f"/api/v1/namespaces/{echo.namespace}/pods/echo:8080/proxy"
    async with aiohttp.ClientSession() as session:
        for path, code, location in (
            ("away", 302, f"{base}/there?x=1"),
            ("away/far", 302, f"{base}/there?x=1"),
        ):
            async with session.get(f"{browser}/pods/echo:8080/proxy/{path}", allow_redirects=False) as got:
                assert (got.status, got.headers["Location"]) == (code, location)
        async with session.get(f"{browser}/pods/echo:8080/proxy?q=1", allow_redirects=False) as got:
            assert (got.status, got.headers["Location"]) == (301, f"{base}/?q=1")


async def test_a_websocket_is_proxied(echo: Person, browser: str) -> None:
    await answered(f"{browser}/pods/echo:8080/proxy/")
    url = f"{browser}/pods/echo:8080/proxy/talk"
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(url, protocols=("parrot",)) as socket:
            assert socket.protocol == "parrot"
            await socket.send_str("hello")
            assert await socket.receive_str(timeout=10) == "HELLO"
        async with session.ws_connect(url) as socket:
            await socket.send_str("again")
            assert await socket.receive_str(timeout=10) == "AGAIN"


def test_a_missing_backend_is_reported(echo: Person) -> None:
    raw = f"/api/v1/namespaces/{echo.namespace}"
    for path, message in (
        ("pods/echo:9/proxy/", "port 9 of pod echo does not answer"),
        ("pods/nobody/proxy/", 'pods "nobody" not found'),
        ("pods/echo:x/proxy/", "must be a number from 1 to 65535"),
        ("pods/a:b:c:d/proxy/", "invalid pod request"),
        ("services/echo/proxy/", 'no endpoints available for service "echo"'),
        ("services/echo:82/proxy/", 'no service port 82 found for service "echo"'),
        ("services/echo:other/proxy/", "port 9 of pod echo does not answer"),
        ("services/nobody:80/proxy/", 'services "nobody" not found'),
    ):
        assert message in echo.refused("get", "--raw", f"{raw}/{path}"), path


def test_a_user_without_permission_on_pods_is_refused(echo: Person) -> None:
    path = f"/api/v1/namespaces/{echo.namespace}/pods/echo/proxy/"
    assert "forbidden" in echo.refused("get", "--raw", path, f"--as=system:serviceaccount:{echo.namespace}:default")


async def test_tensorboard_is_served_through_the_proxy(here: Person, browser: str) -> None:
    here("create", "-f", "-", stdin=BOARD)
    here("wait", "--for=jsonpath={.status.state}=Running", "tfjob/seen", "--timeout=60s")
    runtime = here("get", "tfjob", "seen", "-o", "jsonpath={.spec.RuntimeId}")
    here("wait", "--for=create", f"deployment/tensorboard-{runtime}", "--timeout=60s")
    here("rollout", "status", f"deployment/tensorboard-{runtime}", "--timeout=60s")
    page = await answered(f"{browser}/services/tensorboard-{runtime}:80/proxy/")
    assert "Directory listing for /" in page  # a stand-in, that lists the folder of the logs
