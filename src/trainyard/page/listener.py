"""The server of the page: loopback only, plain HTTP, which browsers trust there.

It has a port of its own: that of the API server speaks TLS with the cluster's own CA, about which a browser warns.
Until the first browser connects it is a socket and nothing else: what answers is imported then (http.py: 0.13 s,
14 MB), so that a `trainyard run` that nobody looks at costs nothing.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainyard.page.access import LIMITS
from trainyard.page.options import PageOptions
from trainyard.page.sessions import Right, Sessions
from trainyard.server.http.listeners import Listeners

if TYPE_CHECKING:
    from trainyard.app.local import LocalCluster
    from trainyard.client import ApiClient
    from trainyard.page.http import HttpPages


class PageServer:
    """`await start()`, then `link()` for each browser, finally `await stop()`. `api`: a client of the cluster, whose
    rights the page has; None for a history alone. `secret`: signs sessions, which are valid at a later page server with
    the same one. `proxy_api`: returns the client by which pods are reached, where `api` has no connection."""

    def __init__(
        self,
        api: ApiClient | None,
        options: PageOptions,
        secret: bytes = b"",
        proxy_api: Callable[[], ApiClient] | None = None,
    ) -> None:
        self._api, self._options, self._proxy_api = api, options, proxy_api
        self.sessions = Sessions(secret or secrets.token_bytes(32), time.time)
        self.url = ""
        """The address of the page, without an invitation."""
        self._listeners: Listeners | None = None
        self.pages: HttpPages | None = None
        """None until the first connection."""

    async def start(self, port: int = 0) -> None:
        """Listen on 127.0.0.1; 0 is any free port. Raises OSError when the port is taken; then there is nothing to
        stop."""
        self._listeners = Listeners(
            self._new_connection,
            lambda: len(self.pages.connections) if self.pages else 0,
            LIMITS,
            lambda: self.pages is not None and self.pages.connections.close_idle(),
            "page",
        )
        self.url = f"http://{await self._listeners.listen('127.0.0.1', port, None)}/ui/"

    def link(self, right: Right = "read") -> str:
        """A link that opens the page with that right, once and within a minute. The invitation is in the fragment:
        browsers send that to no server, and the page removes it from the history at once."""
        return f"{self.url}#token={self.sessions.invite(right)}"

    async def stop(self, reason: str = "the cluster stops") -> None:
        """Tell the pages, close the listener and the watches. Idempotent."""
        listeners, self._listeners = self._listeners, None
        if listeners is not None:
            await listeners.close()
        pages, self.pages = self.pages, None
        if pages is not None:
            await pages.close(reason)

    def _new_connection(self) -> asyncio.Protocol:
        if self.pages is None:
            from trainyard.page.http import HttpPages

            self.pages = HttpPages(self._api, self._options, self.sessions, self.link, self._proxy_api)
        return self.pages.connections.new_connection()


def local_page_server(cluster: LocalCluster, options: PageOptions, secret: bytes = b"") -> PageServer:
    """The page server of a cluster in this process. It calls the API server in memory, as the cluster's other
    components do; only pods are reached by the API server's listener."""

    def proxy_api() -> ApiClient:
        from trainyard.app.kubeconfig import ClusterAccess

        return ClusterAccess(cluster.server.tls_url, token=cluster.token, ca=cluster.root_ca.encode()).api()

    return PageServer(cluster.api, options, secret, proxy_api)
