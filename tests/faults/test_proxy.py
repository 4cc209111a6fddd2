"""The proxy injects only what an API server and a network can do."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest

from tests.faults.proxy import Journal, Proxy, Rates
from trainyard.client import ApiClient, Gone, Unavailable
from trainyard.objects import Json
from trainyard.objects.resources import NAMESPACE
from trainyard.server import Server


class Scripted(random.Random):
    """Of the first three events of the first watch, the first is dropped, and the connection breaks in the third."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers, self.faults = [0.9, 0.0, 0.9, 0.9, 0.9, 0.0], ["drop", "cut"]

    def random(self) -> float:
        return self.numbers.pop(0) if self.numbers else 0.9

    def choice(self, seq: object) -> str:  # type: ignore[override]
        return self.faults.pop(0)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    await server.start()
    yield server
    await server.stop()


async def test_a_watch_whose_event_was_dropped_does_not_resume_after_it(server: Server) -> None:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        rates = Rates(line=0.5, delay=60.0)
        rates = Rates(line=0.5, delay=60.0)
        proxy = Proxy("operator", lambda: server.url, session, Journal(), rates, Scripted())
        await proxy.start()
        async with ApiClient(proxy.url) as api, ApiClient(server.url) as direct:
            revision = (await direct.list(NAMESPACE))["metadata"]["resourceVersion"]
            for name in ("dropped", "seen", "cut"):
                await direct.create(
                    NAMESPACE, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                )
            watch = api.watch(NAMESPACE, "", revision)
            assert b'"seen"' in await anext(watch)
            with pytest.raises(Unavailable):
                await anext(watch)
            for _ in range(2):
                with pytest.raises(Gone):
                    await anext(api.watch(NAMESPACE, "", revision))
            revision = (await api.list(NAMESPACE))["metadata"]["resourceVersion"]
            await direct.create(NAMESPACE, "", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "next"}})
            assert b'"next"' in await anext(api.watch(NAMESPACE, "", revision))
        await proxy.stop()


class Always(random.Random):
    """Every fault is this one."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def random(self) -> float:
        return 0.0

    def choice(self, seq: object) -> str:  # type: ignore[override]
        return self.fault if self.fault in seq else "delay"  # type: ignore[operator]


async def proxied(server: Server, fault: str, call: Callable[[ApiClient], Awaitable[object]]) -> None:
    """Send the call through a proxy with that fault."""
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        rates = Rates(request=0.5, delay=0.02)
        proxy = Proxy("operator", lambda: server.url, session, Journal(), rates, Always(fault))
        await proxy.start()
        try:
            async with ApiClient(proxy.url) as api:
                await call(api)
        finally:
            await proxy.stop()


def namespace(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


@pytest.mark.parametrize("fault", ["429-after", "503-after"])
async def test_a_write_is_made_and_answered_with_an_overload(server: Server, fault: str) -> None:
    with pytest.raises(Unavailable) as refused:
        await proxied(server, fault, lambda api: api.create(NAMESPACE, "", namespace("made")))
    assert (refused.value.code, refused.value.retry_after) == (int(fault[:3]), 1.0)
    async with ApiClient(server.url) as direct:
        assert await direct.get(NAMESPACE, "", "made")


async def test_410_comes_between_two_pages(server: Server) -> None:
    async with ApiClient(server.url) as direct:
        await direct.create(NAMESPACE, "", namespace("other"))

    async def list_in_pages(api: ApiClient) -> None:
        page = await api.list(NAMESPACE, limit=1)
        await api.list(NAMESPACE, limit=1, continue_token=page["metadata"]["continue"])

    with pytest.raises(Gone):
        await proxied(server, "gone-page", list_in_pages)
