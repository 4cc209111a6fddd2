"""Opens a `Cluster` on the embedded server, on a control plane of the tests, or on any other server.

async with embedded() as cluster: ...                   a fresh server of this process
async with real(control_plane) as cluster: ...          a real control plane
async with remote(url, token, secure) as cluster: ...   any other server
"""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp

from tests.conformance.cluster import Cluster
from tests.support.control_plane import ControlPlane
from trainyard.client import ApiClient
from trainyard.server import CertificateAuthority, Server
from trainyard.workloads import ControllerManager


@asynccontextmanager
async def embedded(*, controllers: bool = False, server: Server | None = None) -> AsyncIterator[Cluster]:
    """A fresh server of this process, with the controllers of the workloads if `controllers` is set."""
    async with AsyncExitStack() as stack:
        token = secrets.token_urlsafe(16)
        running = server or Server(token=token)
        await running.start()
        stack.push_async_callback(running.stop)
        if controllers:
            api = ApiClient(running.url, token)
            stack.push_async_callback(api.close)
            manager = ControllerManager(api, time.time, "a certificate authority")
            await manager.start()
            stack.push_async_callback(manager.stop)

        async def compact() -> None:
            running.log.compact(running.log.revision)

        async def start_tls() -> str:
            with TemporaryDirectory() as folder:
                await running.start_tls(CertificateAuthority.new(time.time()).server_context(Path(folder)))
            return running.tls_url

        cluster = Cluster(running.url, token, None, is_real=False, compact=compact, start_tls=start_tls)
        stack.push_async_callback(cluster.close)
        await cluster.create_namespace()
        yield cluster


@asynccontextmanager
async def remote(url: str, token: str, secure: ssl.SSLContext | None, etcd: str = "") -> AsyncIterator[Cluster]:
    """A real server. `etcd` is the URL of its store, for the checks about expired resource versions."""

    async def compact() -> None:
        await _compact_etcd(etcd)

    cluster = Cluster(url, token, secure, is_real=True, compact=compact if etcd else None)
    try:
        await cluster.create_namespace()
        yield cluster
    finally:
        await cluster.close()


@asynccontextmanager
async def real(control_plane: ControlPlane) -> AsyncIterator[Cluster]:
    """A real control plane that is running."""
    etcd = f"http://127.0.0.1:{control_plane.places.etcd}"
    secure = control_plane.identities.secure("")
    async with remote(control_plane.url, control_plane.token(), secure, etcd) as cluster:
        yield cluster


async def _compact_etcd(url: str) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{url}/v3/kv/range", json={"key": "AA=="}) as response:
            revision = (await response.json())["header"]["revision"]
        async with session.post(f"{url}/v3/kv/compaction", json={"revision": revision}) as response:
            assert response.status in (200, 400), await response.text()  # 400: another check has just compacted
