"""What a browser sends to a page server: for tests."""

from __future__ import annotations

import asyncio
import json
import socket
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from tests.support.waiting import until_async
from trainyard.objects import Json, uid_of


class Browser:
    """A page's requests. `url`: that of the page server."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url, self.http, self.session = url, http, ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.session}"}

    async def log_in(self, link: str) -> int:
        token = link.partition("#token=")[2]
        async with self.http.post(f"{self.url}v1/session", json={"token": token}) as response:
            self.session = (await response.json()).get("session", "")
            return response.status

    async def get(self, path: str) -> tuple[int, Any, Any]:
        async with self.http.get(f"{self.url}{path}", headers=self.headers) as response:
            body = await response.read()
            is_json = response.content_type == "application/json"
            return response.status, json.loads(body) if is_json else body, response.headers

    @asynccontextmanager
    async def live(self, *topics: str) -> AsyncIterator[Live]:
        encoded = urlsafe_b64encode(self.session.encode()).decode().rstrip("=")
        protocols = ("v1.trainyard.dev", f"base64url.bearer.authorization.k8s.io.{encoded}")
        async with self.http.ws_connect(f"{self.url}v1/live", protocols=protocols) as socket:
            await socket.send_json({"subscribe": topics})
            yield Live(socket)


async def act(browser: Browser, verb: str, job: Json, **more: Any) -> tuple[int, str]:
    """Ask for an action on the job as it was read. Returns the status code and the sentence."""
    body = {"verb": verb, "uid": uid_of(job), "generation": job["metadata"]["generation"], **more}
    async with browser.http.post(f"{browser.url}v1/actions", json=body, headers=browser.headers) as answer:
        content = await answer.json()
        return answer.status, content.get("message") or content["error"]


class Live:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.frames: list[Json] = []
        self._position: dict[str, int] = {}  # in frames, by type: what a test has not looked at yet

    async def frame(self, kind: str, condition: Any = lambda frame: True, seconds: float = 30) -> Json:
        """The next frame of that type for which the condition is true. Frames of two types come in any order."""
        async with asyncio.timeout(seconds):
            while True:
                position = self._position.get(kind, 0)
                while position >= len(self.frames):
                    self.frames.append(await self.socket.receive_json())
                self._position[kind] = position + 1
                frame = self.frames[position]
                if frame["type"] == kind and condition(frame):
                    return frame


def rows_of(frame: Json) -> list[Json]:
    """The rows of a frame of jobs, by column."""
    rows = [dict(zip(frame["columns"], row, strict=True)) for row in frame["rows"]]
    for row in rows:
        row |= {column: frame["texts"][row[column]] for column in frame["repeated"]}
        row |= {column: row[column] + (row["created"] or 0) for column in frame["relative"] if row[column] is not None}
    return rows


def row_of(frame: Json, name: str) -> Json | None:
    return next((row for row in rows_of(frame) if row["name"] == name), None)


class Loopback(AbstractResolver):
    """Resolves every name to 127.0.0.1, as browsers do with *.localhost."""

    async def resolve(self, host: str, port: int = 0, family: Any = socket.AF_INET) -> list[ResolveResult]:
        return [ResolveResult(hostname=host, host="127.0.0.1", port=port, family=socket.AF_INET, proto=0, flags=0)]

    async def close(self) -> None:
        """Nothing is open."""


def origin(link: str) -> str:
    parts = urlsplit(link)
    return f"{parts.scheme}://{parts.netloc}"


async def until_closed(url: str) -> None:
    """Wait until nothing listens there. A request would be a use."""

    async def is_closed() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        except ConnectionError:
            return True
        writer.close()
        return False

    await until_async(is_closed, f"nothing listens at {url}")
