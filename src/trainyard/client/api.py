"""The client: `Api` sends what request.py builds and raises what errors.py draws. A transport carries both.

Rules for this file:
- It never retries and never decides. A connection that fails, breaks or stays silent is `Unavailable`. Exceptions are
  answers on which no server acts: after a 401 a request is sent again if there is another identity to send it with,
  and after a 429 for as long as `patience` says.
- Short requests have a total time. A watch has no read time-out, because silence is normal; the server is told to end
  it after a while, and a peer that is dead is noticed, at the latest, shortly after that while.
- Answers come uncompressed: gunzip costs more than the decoding.
- aiohttp is loaded by the first request that goes over a network: it takes as long as all the rest.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType

from trainyard import __version__
from trainyard.client import request as requests
from trainyard.client.credentials import Credentials, Fixed, Identity
from trainyard.client.errors import ApiError, Unavailable
from trainyard.client.request import EVERYTHING, Query, Request, Selection
from trainyard.client.transport import Reply, Transport
from trainyard.objects import GVK, Json

SHORTEST_PAUSE = 0.2
TOTAL_SECONDS = 60.0
WATCH_SECONDS = 480
GUARD_SECONDS = 30.0  # how much longer than promised a watch may last before the peer counts as dead


class Api:
    """One API server. Use as `async with Api(url) as api`, or call `close`. `ca` is a file, or a whole TLS context.

    Before the first request may be set: `guard`, called with each request at the last moment before it is sent (what it
    raises is raised instead), and `observe`, called with each request, the answer's code (0: none) and the
    seconds until it began.
    """

    patience: float = 0.0  # seconds in which a request that finds no room (429) is sent again
    guard: Callable[[Request], None] | None = None
    observe: Callable[[Request, int, float], None] | None = None

    def __init__(
        self,
        url: str,
        token: str | Credentials = "",
        ca: str | Path | ssl.SSLContext | None = None,
        agent: str = "trainyard",
        *,
        proxy: str = "",
        server_name: str = "",
        transport: Transport | None = None,
    ) -> None:
        """`token` may be Credentials, which then also say whom to trust.

        `proxy`: the URL of an HTTP proxy on the way; `server_name`: the name in the server's certificate, where that is
        not the one in `url`. `transport` leads to a server in this process; `url` is then only its name.
        """
        self.url = url.rstrip("/")
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"{agent}/{__version__}",
        }
        self._token = token
        self._ca = ca
        self._proxy, self._server_name = proxy, server_name
        self._credentials: Credentials | None = None
        self._transport = transport

    async def __aenter__(self) -> Api:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. Streams that are still read end with Unavailable."""
        if self._transport is not None:
            await self._transport.close()

    async def get(self, gvk: GVK, namespace: str, name: str, subresource: str = "") -> Json:
        return await self._json(requests.get(gvk, namespace, name, subresource))

    async def list(
        self,
        gvk: GVK,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        cont: str = "",
    ) -> Json:
        """One page of a list, decoded; everything when `limit` is 0."""
        which = Selection(label_selector, field_selector)
        return await self._json(requests.list_objects(gvk, namespace, which, limit, cont))

    async def list_bytes(
        self, gvk: GVK, namespace: str, which: Selection = EVERYTHING, limit: int = 0, cont: str = ""
    ) -> bytes:
        """One page of a list as it came, for those who decode in two steps."""
        return await self.send(requests.list_objects(gvk, namespace, which, limit, cont))

    async def create(self, gvk: GVK, namespace: str, obj: Json, subresource: str = "") -> Json:
        """Create `obj`; with a subresource, POST it there (`binding` of the pod that `obj` names)."""
        return await self._json(requests.create(gvk, namespace, obj, subresource))

    async def replace(self, gvk: GVK, namespace: str, name: str, obj: Json, subresource: str = "") -> Json:
        return await self._json(requests.replace(gvk, namespace, name, obj, subresource))

    async def patch(self, gvk: GVK, namespace: str, name: str, body: Json, subresource: str = "") -> Json:
        """A JSON merge patch. A null removes a key; `metadata.resourceVersion` in it is a precondition."""
        return await self._json(requests.patch(gvk, namespace, name, body, subresource))

    async def delete(
        self,
        gvk: GVK,
        namespace: str,
        name: str,
        uid: str = "",
        propagation: str = "Background",
        grace: int | None = None,
    ) -> Json:
        """Delete one object; with a uid only if it is still that one (else Conflict)."""
        return await self._json(requests.delete(gvk, namespace, name, uid, propagation, grace))

    async def watch(
        self,
        gvk: GVK,
        namespace: str = "",
        revision: str = "",
        label_selector: str = "",
        field_selector: str = "",
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[bytes, None]:
        """Watch lines after `revision`, one JSON document each, until the server ends the watch.

        `opened` is called when the server has let the watch begin: its first line may be a minute away.
        """
        seconds = int(WATCH_SECONDS * random.uniform(0.8, 1.2))  # so that a fleet does not come back in step
        which = Selection(label_selector, field_selector)
        lines = requests.Lines()
        async for chunk in self.stream(requests.watch(gvk, namespace, revision, which, seconds), seconds, opened):
            for line in lines.feed(chunk):
                yield line

    async def logs(
        self,
        namespace: str,
        pod: str,
        container: str = "",
        *,
        follow: bool = False,
        previous: bool = False,
        since: int | None = None,
        tail: int | None = None,
        timestamps: bool = False,
    ) -> AsyncGenerator[bytes, None]:
        """A container's output, in chunks as they come; `since` in seconds, `tail` in lines."""
        query = {
            "container": container,
            "follow": "true" if follow else "",
            "previous": "true" if previous else "",
            "sinceSeconds": "" if since is None else str(since),
            "tailLines": "" if tail is None else str(tail),
            "timestamps": "true" if timestamps else "",
        }
        async for chunk in self.stream(requests.logs(namespace, pod, query), None if follow else TOTAL_SECONDS):
            yield chunk

    async def request(
        self, method: str, path: str, query: Query = (), body: bytes | None = None, content_type: str = ""
    ) -> bytes:
        """Any other request; the body of its answer as it came."""
        return await self.send(Request(method, path, query, body, content_type))

    async def _json(self, request: Request) -> Json:
        return requests.decoded(request, await self.send(request))

    async def send(self, request: Request) -> bytes:
        """Send one request; the body of a good answer. With `stream` the only door to the network."""
        until = time.monotonic() + self.patience
        while True:
            try:
                return await self._sent(request)
            except Unavailable as error:
                pause = max(SHORTEST_PAUSE, error.retry_after or 0.0)
                if error.code != 429 or time.monotonic() + pause > until:
                    raise
                await asyncio.sleep(pause)

    async def _sent(self, request: Request) -> bytes:
        identity = await self._who().identity()
        try:
            return await self._send(request, identity)
        except ApiError as error:
            if error.code != 401 or (other := await self._who().anew(identity)) is identity:
                raise
            return await self._send(request, other)

    async def _send(self, request: Request, identity: Identity) -> bytes:
        async with self._reply(request, identity, TOTAL_SECONDS, streams=False) as reply:
            return requests.answer(request, reply.status, reply.headers, await reply.read())

    async def stream(
        self, request: Request, seconds: float | None, opened: Callable[[], None] = lambda: None
    ) -> AsyncGenerator[bytes, None]:
        """Send one request and give its answer in chunks as they come; None lets it last for ever.

        `opened` is called when it is answered with 200, before any chunk.
        """
        total = seconds + GUARD_SECONDS if seconds is not None else None
        identity = await self._who().identity()
        async with self._reply(request, identity, total, streams=True) as reply:
            if reply.status == 401:
                await self._who().anew(identity)  # for whoever tries again
            if reply.status != 200:
                requests.answer(request, reply.status, reply.headers, await reply.read())
            opened()
            async for chunk in reply.chunks():
                yield chunk

    def _who(self) -> Credentials:
        """Made at the first use: a file that is not there is the fault of a request, not of a name."""
        if self._credentials is None:
            if isinstance(self._token, str):
                ca = self._ca
                secure = ca if isinstance(ca, ssl.SSLContext) else ssl.create_default_context(cafile=ca) if ca else None
                self._credentials = Fixed(self._token, secure)
            else:
                self._credentials = self._token
        return self._credentials

    @asynccontextmanager
    async def _reply(
        self, request: Request, identity: Identity, seconds: float | None, *, streams: bool
    ) -> AsyncIterator[Reply]:
        began, answered = time.perf_counter(), False
        try:
            async with self._carrier().open(request, identity, seconds, self.guard, streams=streams) as reply:
                answered = True
                self._observed(request, reply.status, began)
                yield reply
        finally:
            if not answered:
                self._observed(request, 0, began)

    def _carrier(self) -> Transport:
        if self._transport is None:
            from trainyard.client.http import HttpTransport

            self._transport = HttpTransport(self.url, self._headers, self._proxy, self._server_name)
        return self._transport

    def _observed(self, request: Request, code: int, began: float) -> None:
        if self.observe is not None:
            self.observe(request, code, time.perf_counter() - began)
