"""CPU of a request of our client beside the same request by aiohttp's client: POST of a Pod over TLS to a server that
answers with constant bytes, 16 at a time, in turn.

    python -m bench.client --rounds 5
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp

from tests.client.test_connections import Certificates
from trainyard.client import ApiClient
from trainyard.objects import Json, encode
from trainyard.objects.resources import POD

BODY: Json = {"metadata": {"name": "p"}, "spec": {"text": "x" * 2000}}
ANSWER = b'{"metadata":{"name":"p"},"spec":{"text":"' + b"x" * 3900 + b'"}}'
CONCURRENT = 16
Send = Callable[[], Awaitable[object]]


async def serve(certificates: Certificates) -> None:
    """Print the port and answer for ever."""

    class Answers(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self._transport = transport

        def data_received(self, data: bytes) -> None:
            if data.endswith(b"}"):  # the end of a body
                head = (
                    f"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: {len(ANSWER)}\r\n\r\n"
                )
                self._transport.write(head.encode() + ANSWER)

    server = await asyncio.get_running_loop().create_server(Answers, "127.0.0.1", 0, ssl=certificates.server_context())
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def cpu(send: Send, requests: int) -> float:
    """Microseconds of CPU of this process per request."""

    async def worker() -> None:
        for _ in range(requests // CONCURRENT):
            await send()

    start = time.process_time()
    await asyncio.gather(*(worker() for _ in range(CONCURRENT)))
    return (time.process_time() - start) / requests * 1e6


async def measure(url: str, tls: ssl.SSLContext, rounds: int, requests: int) -> None:
    encoded = encode(BODY)
    values: dict[str, list[float]] = {"trainyard": [], "aiohttp": []}
    async with ApiClient(url, "token", tls) as ours, aiohttp.ClientSession() as theirs:

        async def by_aiohttp() -> None:
            async with theirs.post(f"{url}/api/v1/namespaces/n/pods", data=encoded, ssl=tls) as response:
                await response.read()

        async def by_trainyard() -> None:
            await ours.request("POST", "/api/v1/namespaces/n/pods", (), encoded, "application/json")

        senders: dict[str, Send] = {"trainyard": by_trainyard, "aiohttp": by_aiohttp}
        assert await ours.create(POD, "n", BODY)
        for number in range(rounds):
            for name in values if number % 2 else reversed(values):
                values[name].append(await cpu(senders[name], requests))
    aiohttp_median = statistics.median(values["aiohttp"])
    for name, samples in values.items():
        median = statistics.median(samples)
        print(
            f"{name:<10} {median:6.0f} us of CPU a request ({min(samples):.0f} to {max(samples):.0f}), "
            f"{median / aiohttp_median:.2f} of aiohttp's"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(Certificates(options.serve)))
        return
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bench.client", "--serve", folder]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            url = f"https://localhost:{int(server.stdout.readline())}"
            tls = ssl.create_default_context(cafile=f"{folder}/certificate.pem")
            asyncio.run(measure(url, tls, options.rounds, options.requests))
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
