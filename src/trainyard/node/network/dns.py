"""DNS messages, as far as a resolver for cluster names needs them. Pure.

Rules: a name outside of the cluster gets NXDOMAIN at once, so that no client waits for a timeout; a cluster name has A
records only, so an AAAA question gets an empty answer; the TTL is 0, because addresses of pods change."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

_A, _ANY, _IN = 1, 255, 1
_NO_ERROR, _FORMAT_ERROR, _NO_NAME, _NOT_IMPLEMENTED = 0, 1, 3, 4
_HEADER = struct.Struct("!6H")
_RESPONSE, _AUTHORITATIVE, _TRUNCATED, _RECURSION_WANTED, _RECURSION = 0x8000, 0x0400, 0x0200, 0x0100, 0x0080
UDP_LIMIT = 512

Lookup = Callable[[str], list[str] | None]


def answer(query: bytes, lookup: Lookup, limit: int = 65535) -> bytes | None:
    """The response to one DNS message; None when the message is no query. A response longer than `limit` bytes is
    truncated (TC), and the client asks again by TCP."""
    if len(query) < _HEADER.size:
        return None
    ident, flags, questions, _, _, _ = _HEADER.unpack_from(query)
    if flags & _RESPONSE:
        return None
    reply_flags = _RESPONSE | _AUTHORITATIVE | _RECURSION | (flags & (0x7800 | _RECURSION_WANTED))
    if flags & 0x7800:
        return _HEADER.pack(ident, reply_flags | _NOT_IMPLEMENTED, 0, 0, 0, 0)
    try:
        if questions != 1:
            raise ValueError("one question at a time")
        name, qtype, end = _question(query)
    except (ValueError, IndexError, struct.error):
        return _HEADER.pack(ident, reply_flags | _FORMAT_ERROR, 0, 0, 0, 0)
    question = query[_HEADER.size : end]
    addresses = lookup(name)
    code = _NO_NAME if addresses is None else _NO_ERROR
    answers = addresses if addresses and qtype in (_A, _ANY) else []
    records = b"".join(
        struct.pack("!HHHIH", 0xC000 | _HEADER.size, _A, _IN, 0, 4) + socket.inet_aton(address) for address in answers
    )
    reply = _HEADER.pack(ident, reply_flags | code, 1, len(answers), 0, 0) + question + records
    if len(reply) > limit:
        return _HEADER.pack(ident, reply_flags | _TRUNCATED, 1, 0, 0, 0) + question
    return reply


def _question(query: bytes) -> tuple[str, int, int]:
    """Name and type of the question, and the offset of its end. Raises ValueError, IndexError, struct.error."""
    labels: list[str] = []
    offset = _HEADER.size
    while size := query[offset]:
        if size > 63:
            raise ValueError("a question is not compressed")
        labels.append(query[offset + 1 : offset + 1 + size].decode("ascii", "replace"))
        offset += 1 + size
    qtype, _ = struct.unpack_from("!HH", query, offset + 1)
    return ".".join(labels), qtype, offset + 5
