"""The transport against a real socket that misbehaves as the test scripts it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from trainyard.client import ApiClient, Conflict, NotFound, Unavailable
from trainyard.objects import Json
from trainyard.objects.resources import POD

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Scripted:
    """A server that answers everything with one function and remembers what it was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answer: Answer = self._empty
        self.url = ""

    async def _empty(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({})

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path_qs, dict(request.headers), await request.read()))
        return await self.answer(request)


@pytest.fixture
async def server() -> AsyncIterator[Scripted]:
    scripted = Scripted()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", scripted.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    scripted.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield scripted
    await runner.cleanup()


async def test_a_request_carries_token_agent_and_no_compression(server: Scripted) -> None:
    async with ApiClient(server.url + "/", token="s3cret") as api:
        assert await api.patch(POD, "n", "p", {"status": {"a": None}}, "status") == {}
    method, path, headers, body = server.requests[0]
    assert (method, path) == ("PATCH", "/api/v1/namespaces/n/pods/p/status")
    assert body == b'{"status":{"a":null}}'
    assert headers["Authorization"] == "Bearer s3cret"
    assert headers["Accept-Encoding"] == "identity"
    assert headers["Content-Type"] == "application/merge-patch+json"
    assert headers["User-Agent"].startswith("trainyard/")


async def test_a_refusal_is_an_error_of_its_branch(server: Scripted) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        status = {"kind": "Status", "reason": "Conflict", "message": "the object has been modified", "code": 409}
        return web.json_response(status, status=409)

    server.answer = refuse
    async with ApiClient(server.url) as api:
        with pytest.raises(Conflict, match="has been modified"):
            await api.create(POD, "n", {"metadata": {"name": "p"}})


async def test_a_refused_connection_is_unavailable_and_the_error_has_no_token() -> None:
    async with ApiClient("http://127.0.0.1:1", token="s3cret") as api:
        with pytest.raises(Unavailable) as caught:
            await api.get(POD, "n", "p")
    assert "s3cret" not in str(caught.value) and "/api/v1/namespaces/n/pods/p" in str(caught.value)


async def test_an_answer_cut_short_is_unavailable(server: Scripted) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b'{"a":')
        assert request.transport is not None
        request.transport.close()
        return response

    server.answer = cut
    async with ApiClient(server.url) as api:
        with pytest.raises(Unavailable):
            await api.get(POD, "n", "p")


def streamed(*chunks: bytes, drop: bool = False) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if drop:
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer


async def test_a_watch_yields_whole_lines_and_ends_with_the_response(server: Scripted) -> None:
    server.answer = streamed(b'{"type":"ADD', b'ED"}\n{"type":"BOOKMARK"}\n{"ty')
    async with ApiClient(server.url) as api:
        lines = [line async for line in api.watch(POD, "n", "41", "trainyard.dev/owner")]
    assert lines == [b'{"type":"ADDED"}', b'{"type":"BOOKMARK"}']
    assert "resourceVersion=41" in server.requests[0][1] and "allowWatchBookmarks=true" in server.requests[0][1]
    assert "labelSelector=trainyard.dev%2Fowner" in server.requests[0][1]


async def test_a_watch_that_breaks_gives_its_lines_and_then_unavailable(server: Scripted) -> None:
    server.answer = streamed(b'{"type":"ADDED"}\n', drop=True)
    lines: list[bytes] = []

    async def read(api: ApiClient) -> None:
        async for line in api.watch(POD, "n", "41"):
            lines.append(line)

    async with ApiClient(server.url) as api:
        with pytest.raises(Unavailable):
            await read(api)
    assert lines in ([b'{"type":"ADDED"}'], [])  # what was in flight when the peer reset may be lost with it


async def test_a_watch_line_of_a_megabyte_is_yielded_whole(server: Scripted) -> None:
    long = b'{"a":"' + b"x" * (1 << 20) + b'"}'
    server.answer = streamed(long + b"\n")
    async with ApiClient(server.url) as api:
        assert [line async for line in api.watch(POD)] == [long]


async def test_a_watch_of_an_unknown_resource_is_not_found(server: Scripted) -> None:
    async def missing(request: web.Request) -> web.StreamResponse:
        return web.Response(status=404, text="404 page not found")

    server.answer = missing
    opened = asyncio.Event()
    async with ApiClient(server.url) as api:
        with pytest.raises(NotFound):
            await anext(api.watch(POD, on_open=opened.set))
    assert not opened.is_set()


async def test_an_accepted_watch_is_reported_before_its_first_line(server: Scripted) -> None:
    opened = asyncio.Event()

    async def quiet(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await opened.wait()  # and only then a line
        await response.write(b'{"type":"ADDED"}\n')
        return response

    server.answer = quiet
    async with ApiClient(server.url) as api, asyncio.timeout(20):
        assert [line async for line in api.watch(POD, on_open=opened.set)] == [b'{"type":"ADDED"}']


async def test_logs_are_streamed(server: Scripted) -> None:
    server.answer = streamed(b"loss 0.5\n", b"loss 0.4\n")
    async with ApiClient(server.url) as api:
        output = b"".join([chunk async for chunk in api.logs("n", "p", "tensorflow", follow=True, tail_lines=10)])
    assert output == b"loss 0.5\nloss 0.4\n"
    assert server.requests[0][1] == "/api/v1/namespaces/n/pods/p/log?container=tensorflow&follow=true&tailLines=10"


async def test_a_hundred_open_streams_do_not_starve_a_write(server: Scripted) -> None:
    release = asyncio.Event()
    open_streams = 0
    all_open = asyncio.Event()

    async def hold(request: web.Request) -> web.StreamResponse:
        nonlocal open_streams
        if "watch" not in request.query:
            return web.json_response({"wrote": True})
        response = web.StreamResponse()
        await response.prepare(request)
        open_streams += 1
        if open_streams == 100:
            all_open.set()
        await release.wait()
        return response

    async def read(api: ApiClient) -> list[bytes]:
        return [line async for line in api.watch(POD)]

    server.answer = hold
    async with ApiClient(server.url) as api:
        readers = [asyncio.create_task(read(api)) for _ in range(100)]
        await asyncio.wait_for(all_open.wait(), 20)
        obj: Json = {"metadata": {"name": "p"}}
        assert await asyncio.wait_for(api.create(POD, "n", obj), 20) == {"wrote": True}
        release.set()
        assert await asyncio.gather(*readers) == [[]] * 100
