"""Carries connections into a network namespace: `real_node_relay.py DESCRIPTOR PORT`. A script, alone.

The descriptor is a socket that listens outside. The script runs within, and connects to the PORT of loopback there.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

PIECE = 1 << 16


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """All that comes, until the sender ends; then the receiver is told so."""
    with contextlib.suppress(OSError):
        while piece := await reader.read(PIECE):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()


async def main() -> None:
    descriptor, port = int(sys.argv[1]), int(sys.argv[2])

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(inner_writer):
                await asyncio.gather(carry(reader, inner_writer), carry(inner_reader, writer))

    server = await asyncio.start_server(connected, sock=socket.socket(fileno=descriptor))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
