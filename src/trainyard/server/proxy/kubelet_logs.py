"""Streams container logs from the kubelet to the client. An error response of the kubelet becomes a Status."""

from __future__ import annotations

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web

from trainyard.server.model.errors import StatusError, kubelet_error
from trainyard.server.model.requests import KubeletProxy
from trainyard.server.proxy.tunnel import CONNECT_SECONDS, LARGEST_REFUSAL


class KubeletClient:
    """HTTP connections to kubelets. `token` is the bearer token for them."""

    def __init__(self, token: str) -> None:
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._session: ClientSession | None = None

    async def close(self) -> None:
        """Close the connections to the kubelets."""
        if self._session is not None:
            await self._session.close()
            self._session = None


class KubeletLogs(KubeletClient):
    """Streams container logs."""

    async def stream(self, request: web.BaseRequest, answer: KubeletProxy) -> web.StreamResponse:
        """Stream the kubelet's response. A slow client slows down only its own stream. Raises StatusError,
        ConnectionResetError."""
        if self._session is None:
            forever = ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
            many = TCPConnector(limit=0)
            self._session = ClientSession(connector=many, timeout=forever, auto_decompress=False)
        try:
            async with self._session.get(answer.url, headers=self._headers) as got:
                if got.status >= 300:
                    raise kubelet_error(
                        got.status, (await got.content.read(LARGEST_REFUSAL)).decode("utf-8", "replace")
                    )
                kind = got.headers.get("Content-Type", "text/plain")
                headers = {"Content-Type": kind, "Cache-Control": "no-cache, private"}
                response = web.StreamResponse(status=got.status, headers=headers)
                response.enable_chunked_encoding()
                await response.prepare(request)
                async for chunk in got.content.iter_any():
                    await response.write(chunk)
                await response.write_eof()
                return response
        except (ClientError, TimeoutError, OSError) as error:
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError("the client of a log has gone") from None
            text = f"the kubelet of the pod's node does not answer: {type(error).__name__}"
            raise StatusError(500, "InternalError", text) from None
