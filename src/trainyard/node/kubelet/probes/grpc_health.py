"""The probe `grpc`: the one call `grpc.health.v1.Health/Check`, over HTTP/2 without TLS (RFC 9113).

Only what this call needs is here, since a gRPC library is a large dependency: the request has headers without
compression (RFC 7541, literals without indexing), and of the answer only the message is read. So a call that ends
without a message fails, without the text of its status, which stands in compressed headers."""

from __future__ import annotations

import asyncio

from trainyard.node.kubelet.probes.outcome import (
    PROBE_USER_AGENT,
    ConnectError,
    Dial,
    Outcome,
    Verdict,
    address_of,
    connect,
    reason_of,
)
from trainyard.node.network.proxy import Streams

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7
_END_STREAM, _ACK, _END_HEADERS = 0x1, 0x1, 0x4
_PADDED = 0x8
_STATUSES = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
_MAX_MESSAGE = 1 << 16  # bytes; a HealthCheckResponse has two
_RETRY_SECONDS = 1.0
_MAX_FRAME = 1 << 14  # bytes: larger frames need the consent of the receiver


async def check(service: str, host: str, port: int, timeout: float, dial: Dial) -> Outcome:
    """Ask the server at that host and port for the health of `service`, "" for the whole server."""
    address = address_of(host, port)
    connected = False
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await _connected(dial, host, port)
            connected = True
            try:
                writer.write(_request(service, address))
                status = await _status(reader, writer)
            finally:
                writer.close()
    except TimeoutError:
        seconds = f"{timeout:g}s"
        text = f"failed to connect service {_quoted(address)} within {seconds}: context deadline exceeded"
        return Outcome(
            Verdict.FAILED, f"timeout: {f'health rpc did not complete within {seconds}' if connected else text}"
        )
    except (OSError, EOFError, ValueError) as error:
        return Outcome(Verdict.FAILED, f"error: health rpc probe failed: {reason_of(error)}")
    if status != "SERVING":
        return Outcome(Verdict.FAILED, f"service unhealthy (responded with {_quoted(status)})")
    return Outcome(Verdict.PASSED)


async def _connected(dial: Dial, host: str, port: int) -> Streams:
    """Connect, and try it again as long as it is refused, as the gRPC library of the kubelet does."""
    while True:
        try:
            return await connect(dial, host, port)
        except ConnectError:
            await asyncio.sleep(_RETRY_SECONDS)


def _quoted(text: str) -> str:
    return f'"{text}"'


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def _request(service: str, authority: str) -> bytes:
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/grpc.health.v1.Health/Check",
        ":authority": authority,
        "content-type": "application/grpc",
        "te": "trailers",
        "user-agent": PROBE_USER_AGENT,
    }
    headers = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())
    name = service.encode()
    message = b"\x0a" + _varint(len(name)) + name if name else b""
    body = b"\0" + len(message).to_bytes(4) + message
    return (
        _PREFACE
        + _frame(_SETTINGS, 0, 0)
        + _frame(_HEADERS, _END_HEADERS, 1, headers)
        + _frame(_DATA, _END_STREAM, 1, body)
    )


def _text(text: str) -> bytes:
    """A string literal of HPACK without Huffman code: its length, with a prefix of 7 bits, and its bytes."""
    data = text.encode()
    return (bytes([len(data)]) if len(data) < 127 else b"\x7f" + _varint(len(data) - 127)) + data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


async def _status(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """The status in the message of the answer. Raises ValueError if there is none."""
    message = b""
    while True:
        head = await reader.readexactly(9)
        size, kind, flags, stream = int.from_bytes(head[:3]), head[3], head[4], int.from_bytes(head[5:]) & 0x7FFFFFFF
        if size > _MAX_FRAME:
            raise ValueError("the server does not speak HTTP/2")
        payload = await reader.readexactly(size)
        if kind == _SETTINGS and not flags & _ACK:
            writer.write(_frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            writer.write(_frame(_PING, _ACK, 0, payload))
        elif kind == _GOAWAY or (kind == _RST_STREAM and stream == 1):
            raise ValueError("the server has ended the call")
        elif kind == _DATA and stream == 1:
            message += payload[1 : len(payload) - payload[0]] if flags & _PADDED else payload
            if len(message) > _MAX_MESSAGE:
                raise ValueError("the answer is no HealthCheckResponse")
            if len(message) >= 5 and len(message) >= 5 + int.from_bytes(message[1:5]):
                return _health(message[5 : 5 + int.from_bytes(message[1:5])])
        if kind in (_DATA, _HEADERS) and stream == 1 and flags & _END_STREAM:
            raise ValueError("no answer: the service is unknown, or the server has no grpc.health.v1.Health")


def _health(message: bytes) -> str:
    """The status of a HealthCheckResponse, whose only field is the enum 1; an absent field is 0."""
    number = message[1] if len(message) == 2 and message[0] == 0x08 else 0
    return _STATUSES.get(number, str(number))
