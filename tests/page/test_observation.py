"""What is known of a cluster while a page is open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from tests.support.waiting import until_async
from trainyard import kinds
from trainyard.client import ApiClient, Forbidden, Selectors
from trainyard.client.request import ALL_OBJECTS
from trainyard.objects import GVK, encode
from trainyard.page.observation import Observation


class Api(ApiClient):
    """Refuses to list JAXJobs, and answers all other lists when `answers` is set."""

    def __init__(self) -> None:
        super().__init__("http://localhost")
        self.answers = asyncio.Event()

    async def list_bytes(
        self, gvk: GVK, namespace: str, selection: Selectors = ALL_OBJECTS, limit: int = 0, continue_token: str = ""
    ) -> bytes:
        if gvk == kinds.JAXJOB.gvk:
            text = 'jaxjobs is forbidden: User "ann" cannot list resource "jaxjobs" in API group "kubeflow.org"'
            raise Forbidden(403, "Forbidden", text)
        await self.answers.wait()
        return encode({"metadata": {"resourceVersion": "1"}, "items": []})

    async def watch(self, *arguments: Any, **options: Any) -> AsyncGenerator[bytes, None]:
        await asyncio.Event().wait()
        yield b""


async def test_what_is_refused_does_not_stand_for_what_is_not_listed_yet() -> None:
    api, changes = Api(), asyncio.Queue[str]()
    observation = Observation(api)
    observation.subscribe(changes.put_nowait)
    async with asyncio.timeout(20):
        assert await changes.get() == ""
        assert observation.forbidden == ["list jaxjobs.kubeflow.org"]
        assert not observation.synced
        api.answers.set()
        await until_async(lambda: observation.synced, "everything is listed", pause=0)
    await observation.stop()
