"""The way within the process answers as HTTP does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.server.server_clients import until_listeners
from trainyard.client import ApiClient, ApiError, ApiRequest, Unavailable
from trainyard.client import request as requests
from trainyard.objects import GVK, Json
from trainyard.objects.resources import CONFIG_MAP
from trainyard.server import Server
from trainyard.server.http import in_process

TOKEN = "secret"
NONE = GVK("example.org", "v1", "Nothing", "nothings")


def a_map(name: str, **data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data}


LIFE = (
    requests.create(CONFIG_MAP, "default", a_map("a", key="1")),
    requests.create(CONFIG_MAP, "default", a_map("a")),
    requests.create(CONFIG_MAP, "default", a_map("not a name")),
    requests.create(CONFIG_MAP, "default", {"apiVersion": "v1", "kind": "ConfigMap", "data": 5}),
    requests.get(CONFIG_MAP, "default", "a"),
    requests.get(CONFIG_MAP, "default", "b"),
    requests.get(NONE, "default", "b"),
    requests.patch(CONFIG_MAP, "default", "a", {"data": {"key": "2", "other": "ü"}}),
    requests.patch(CONFIG_MAP, "default", "a", {"metadata": {"resourceVersion": "1"}}),
    requests.list_objects(CONFIG_MAP, "default", requests.Selectors(field_selector="metadata.name=a"), limit=1),
    requests.list_objects(CONFIG_MAP, "default", requests.Selectors(label_selector="a in")),
    requests.watch(CONFIG_MAP, "default", "x", requests.ALL_OBJECTS, 5),
    ApiRequest("GET", "/version"),
    ApiRequest("GET", "/nowhere"),
    ApiRequest("PUT", "/api/v1/namespaces/default/configmaps/a", (), b"{", "application/json"),
    ApiRequest("POST", "/api/v1/namespaces/default/configmaps", (), b"a: b", "application/yaml"),
    requests.delete(CONFIG_MAP, "default", "a", "another", "", None),
    requests.delete(CONFIG_MAP, "default", "a", "", "Background", 0),
)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server_with_token = Server(token=TOKEN, now=lambda: 1_000_000.0)
    await server_with_token.start()
    yield server_with_token
    await server_with_token.stop()


def inside(server: Server, token: str = TOKEN) -> ApiClient:
    return ApiClient("http://in-process", token, transport=server.in_process())


async def outcome(api: ApiClient, request: ApiRequest) -> object:
    try:
        return await api.send(request)
    except ApiError as error:
        return type(error), error.code, error.reason, error.message, error.details


@pytest.mark.parametrize("token", [TOKEN, "wrong", ""])
async def test_in_process_requests_get_the_same_responses(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setattr("trainyard.server.registry.metadata.new_uid", lambda: "00000000-0000-4000-8000-000000000000")
    warnings = []
    for way in ("http", "in-process"):
        server = Server(token=TOKEN, now=lambda: 1_000_000.0)
        await server.start()
        async with ApiClient(server.url, token) if way == "http" else inside(server, token) as api:
            warnings.append([await outcome(api, request) for request in LIFE])
        await server.stop()
    assert warnings[0] == warnings[1]


async def test_an_in_process_watch_gets_the_same_lines(server: Server) -> None:
    async with ApiClient(server.url, TOKEN) as http, inside(server) as near:
        await http.create(CONFIG_MAP, "default", a_map("before"))
        streams = [api.watch(CONFIG_MAP, "default", "1") for api in (http, near)]
        first = [await anext(stream) for stream in streams]
        await near.create(CONFIG_MAP, "default", a_map("after"))
        await near.delete(CONFIG_MAP, "default", "before")
        lines = [[line, *[await anext(stream) for _ in range(2)]] for line, stream in zip(first, streams, strict=True)]
        assert lines[0] == lines[1]
        assert [b'"ADDED"' in line for line in lines[1]] == [True, True, False]
        for stream in streams:
            await stream.aclose()


async def test_a_watch_ends_at_its_timeout_seconds(server: Server) -> None:
    async with inside(server) as api:
        lines = [
            chunk async for chunk in api.stream(requests.watch(CONFIG_MAP, "default", "1", requests.ALL_OBJECTS, 1), 1)
        ]
    assert lines == []
    assert server.hub.listener_count("configmaps") == 0


async def test_a_watch_that_is_not_read_is_dropped(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "MAX_BUFFERED", 10_000)
    async with inside(server) as api:
        stream = api.watch(
            CONFIG_MAP, "default", (await api.list(CONFIG_MAP, "default"))["metadata"]["resourceVersion"]
        )
        first = asyncio.ensure_future(anext(stream))
        await until_listeners(server, "configmaps", 1)
        await api.create(CONFIG_MAP, "default", a_map("first"))
        await first
        for number in range(40):
            await api.create(CONFIG_MAP, "default", a_map(f"large-{number}", key="x" * 1000))
        with pytest.raises(Unavailable, match="slow"):
            [line async for line in stream]


@pytest.mark.parametrize("who", ["client", "server"])
async def test_closing_the_server_ends_the_streams(server: Server, who: str) -> None:
    api = inside(server)
    stream = api.watch(CONFIG_MAP, "default", "1")
    await api.create(CONFIG_MAP, "default", a_map("first"))
    await anext(stream)
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    await (api.close() if who == "client" else server.stop())
    with pytest.raises(Unavailable if who == "client" else StopAsyncIteration):
        await waiting
    with pytest.raises(Unavailable, match="not up"):
        await api.get(CONFIG_MAP, "default", "first")
