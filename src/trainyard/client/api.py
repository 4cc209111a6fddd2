"""The client: `ApiClient` sends the requests of request.py through a transport and raises the errors of errors.py.

Rules for this file:
- The client does not retry. A connection that fails, breaks or times out raises `Unavailable`. Two exceptions, both
  after responses that prove that the server did not process the request: after a 401 it is sent once more if the
  credentials give another identity, and after a 429 it is sent again for up to `too_many_requests_timeout` seconds.
- Short requests have a total timeout. A watch has no read timeout, because silence is normal: `timeoutSeconds` makes
  the server end it, and the connection to a dead peer ends at the latest `DEAD_PEER_MARGIN` after that.
- Responses are requested uncompressed: gunzip takes longer than the decoding.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from types import TracebackType

import msgspec

from trainyard import __version__
from trainyard.client import request as requests
from trainyard.client.credentials import Credentials, Identity, StaticCredentials
from trainyard.client.errors import ApiError, Unavailable
from trainyard.client.request import ALL_OBJECTS, ApiRequest, Query, Selectors
from trainyard.client.tls import tls_context
from trainyard.client.transport import POOL_SIZE, Transport
from trainyard.objects import GVK, Json

MIN_RETRY_DELAY = 0.2  # seconds
REQUEST_TIMEOUT = 60.0
WATCH_TIMEOUT = 480
DEAD_PEER_MARGIN = 30.0  # a watch that lasts this much longer than its timeoutSeconds has a dead peer


class Endpoint(msgspec.Struct, frozen=True):
    """How another HTTP client connects as an ApiClient does; the fields are as in its constructor."""

    url: str
    identity: Identity
    proxy: str
    server_name: str


class ApiClient:
    """A client of one API server. Use as `async with ApiClient(url) as api`, or call `close`.

    More than 15 methods: one for each verb and way to send a request.

    These attributes may be set before the first request:
    - `before_send` is called with each request immediately before it is sent; an exception that it raises cancels the
      request and propagates.
    - `on_response` is called with each request, the status code of the response (0: none) and the seconds until the
      response was complete, or for a stream until it began.
    - `pool_size`, read at the first request: the most connections for short requests; further ones wait.
    - `too_many_requests_timeout`: for so many seconds a request answered with 429 (TooManyRequests) is sent again.
    """

    too_many_requests_timeout: float = 0.0
    pool_size: int = POOL_SIZE
    before_send: Callable[[ApiRequest], None] | None = None
    on_response: Callable[[ApiRequest, int, float], None] | None = None

    def __init__(
        self,
        url: str,
        token: str | Credentials = "",
        ca: str | Path | ssl.SSLContext | None = None,
        user_agent: str = "trainyard",
        *,
        proxy: str = "",
        server_name: str = "",
        transport: Transport | None = None,
    ) -> None:
        """`token` is a bearer token ("" for none), or Credentials, which then give the TLS context too.

        `ca`: a PEM file with the CA of the server, or a TLS context. `user_agent`: the product in `User-Agent`.
        `proxy`: the URL of an HTTP proxy. `server_name`: the name in the server's certificate, where `url` has another
        one. `transport`: the connection to a server in this process; `url` is then only a name.
        """
        self.url = url.rstrip("/")
        self._headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"{user_agent}/{__version__}",
        }
        self._token = token
        self._ca = ca
        self._proxy, self._server_name = proxy, server_name
        self._credentials: Credentials | None = None
        self._transport = transport

    async def __aenter__(self) -> ApiClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. A stream that is still being read raises Unavailable."""
        if self._transport is not None:
            await self._transport.close()

    async def endpoint(self) -> Endpoint:
        """For what this client does not send: WebSockets, and requests with headers of their own. Raises
        Unavailable."""
        return Endpoint(self.url, await self._get_credentials().identity(), self._proxy, self._server_name)

    async def get(self, gvk: GVK, namespace: str, name: str, subresource: str = "") -> Json:
        """The object or its subresource. Raises NotFound and other ApiErrors."""
        return await self._json(requests.get(gvk, namespace, name, subresource))

    async def list(
        self,
        gvk: GVK,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 0,
        continue_token: str = "",
    ) -> Json:
        """One page of a list, decoded; all objects when `limit` is 0. `continue_token`: of the page before."""
        selection = Selectors(label_selector, field_selector)
        return await self._json(requests.list_objects(gvk, namespace, selection, limit, continue_token))

    async def list_bytes(
        self, gvk: GVK, namespace: str, selection: Selectors = ALL_OBJECTS, limit: int = 0, continue_token: str = ""
    ) -> bytes:
        """One page of a list as received, for callers with a decoder of their own."""
        return await self.send(requests.list_objects(gvk, namespace, selection, limit, continue_token))

    async def create(
        self, gvk: GVK, namespace: str, obj: Json, subresource: str = "", *, version_only: bool = False
    ) -> Json:
        """Create `obj`; with a subresource, POST to it (`binding` of the pod that `obj` names). Returns the object;
        with `version_only` an object with no more than its uid and resourceVersion, which takes less time."""
        return await self._json(requests.create(gvk, namespace, obj, subresource), version_only)

    async def replace(self, gvk: GVK, namespace: str, name: str, obj: Json, subresource: str = "") -> Json:
        """Replace the object (PUT); its resourceVersion, if set, must be the stored one. Returns the stored object.
        Raises Conflict and other ApiErrors."""
        return await self._json(requests.replace(gvk, namespace, name, obj, subresource))

    async def patch(
        self, gvk: GVK, namespace: str, name: str, body: Json, subresource: str = "", *, version_only: bool = False
    ) -> Json:
        """Send a JSON merge patch. A null removes a key; `metadata.resourceVersion` in it is a precondition. Returns
        as `create`."""
        return await self._json(requests.patch(gvk, namespace, name, body, subresource), version_only)

    async def delete(
        self,
        gvk: GVK,
        namespace: str,
        name: str,
        uid: str = "",
        propagation_policy: str = "Background",
        grace_period_seconds: int | None = None,
        resource_version: str = "",
    ) -> Json:
        """Delete one object. `uid` and `resource_version` are preconditions: Conflict if the object has others.
        `grace_period_seconds` None leaves gracePeriodSeconds out."""
        return await self._json(
            requests.delete(gvk, namespace, name, uid, propagation_policy, grace_period_seconds, resource_version)
        )

    async def watch(
        self,
        gvk: GVK,
        namespace: str = "",
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        on_open: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[bytes, None]:
        """The watch events after that resourceVersion, a line of JSON each, until the server ends the watch.

        `on_open` is called when the server has answered 200: the first event may come a minute later.
        """
        seconds = int(WATCH_TIMEOUT * random.uniform(0.8, 1.2))  # jitter: many clients do not reconnect at one time
        selection = Selectors(label_selector, field_selector)
        lines = requests.LineSplitter()
        async for chunk in self.stream(
            requests.watch(gvk, namespace, resource_version, selection, seconds), seconds, on_open
        ):
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
        tail_lines: int | None = None,
        timestamps: bool = False,
        newest_bytes: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """The log of a container, in chunks as received. `follow`: until the container has ended; `previous`: of the
        run before; `newest_bytes`: a Trainyard node leaves out what is further behind (objects/log_files.py)."""
        query = {
            "container": container,
            "follow": "true" if follow else "",
            "previous": "true" if previous else "",
            "tailLines": "" if tail_lines is None else str(tail_lines),
            "timestamps": "true" if timestamps else "",
            "newestBytes": "" if newest_bytes is None else str(newest_bytes),
        }
        async for chunk in self.stream(requests.logs(namespace, pod, query), None if follow else REQUEST_TIMEOUT):
            yield chunk

    async def request(
        self, method: str, path: str, query: Query = (), body: bytes | None = None, content_type: str = ""
    ) -> bytes:
        """Send any other request. Returns the body of the response as received."""
        return await self.send(ApiRequest(method, path, query, body, content_type))

    async def _json(self, request: ApiRequest, version_only: bool = False) -> Json:
        decode = requests.decode_version if version_only else requests.decode_object
        return decode(request, await self.send(request))

    async def send(self, request: ApiRequest) -> bytes:
        """Send one request and return the body of a 2xx response. Raises an ApiError for any other.

        All requests go through this method or `stream`.
        """
        deadline = time.monotonic() + self.too_many_requests_timeout
        while True:
            try:
                return await self._send_authenticated(request)
            except Unavailable as error:
                pause = max(MIN_RETRY_DELAY, error.retry_after or 0.0)
                if error.code != 429 or time.monotonic() + pause > deadline:
                    raise
                await asyncio.sleep(pause)

    async def _send_authenticated(self, request: ApiRequest) -> bytes:
        """Send a request with the current identity; after a 401 once more with a new one, if there is one."""
        identity = await self._get_credentials().identity()
        try:
            return await self._send(request, identity)
        except ApiError as error:
            if error.code != 401 or (renewed := await self._get_credentials().renew(identity)) is identity:
                raise
            return await self._send(request, renewed)

    async def _send(self, request: ApiRequest, identity: Identity) -> bytes:
        start, status = time.perf_counter(), 0
        try:
            response = await self._get_transport().fetch(request, identity, REQUEST_TIMEOUT, self.before_send)
            status = response.status
        finally:
            self._report(request, status, start)
        return requests.check_response(request, *response)

    async def stream(
        self, request: ApiRequest, timeout: float | None, opened: Callable[[], None] = lambda: None
    ) -> AsyncGenerator[bytes, None]:
        """Send one request and yield the body of its response in chunks as received.

        `timeout`: seconds, to which `DEAD_PEER_MARGIN` is added; None for no timeout. `opened` is called after a
        response with status 200, before the first chunk. Any other status raises an ApiError.
        """
        total = timeout + DEAD_PEER_MARGIN if timeout is not None else None
        identity = await self._get_credentials().identity()
        start, status = time.perf_counter(), 0
        try:
            async with self._get_transport().stream(request, identity, total, self.before_send) as reply:
                status = reply.status
                self._report(request, status, start)
                if status == 401:
                    await self._get_credentials().renew(identity)  # for the caller's next attempt
                if status != 200:
                    requests.check_response(request, status, reply.headers, await reply.read())
                opened()
                async for chunk in reply.chunks():
                    yield chunk
        finally:
            if not status:
                self._report(request, 0, start)

    def _get_credentials(self) -> Credentials:
        """The credentials, created at the first request: a missing CA file fails that request, not the constructor."""
        if self._credentials is None:
            if isinstance(self._token, str):
                ca = self._ca
                tls = ca if isinstance(ca, ssl.SSLContext) else tls_context(Path(ca).read_bytes()) if ca else None
                self._credentials = StaticCredentials(self._token, tls)
            else:
                self._credentials = self._token
        return self._credentials

    def _get_transport(self) -> Transport:
        """The transport, created at the first request."""
        if self._transport is None:
            from trainyard.client.http import (
                HttpTransport,
            )  # 6 ms, which a client in the server's process does not need

            self._transport = HttpTransport(self.url, self._headers, self._proxy, self._server_name, self.pool_size)
        return self._transport

    def _report(self, request: ApiRequest, code: int, start: float) -> None:
        if self.on_response is not None:
            self.on_response(request, code, time.perf_counter() - start)
