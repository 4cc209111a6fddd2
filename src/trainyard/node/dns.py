"""DNS messages, as far as a resolver for cluster names needs them. Pure.

Rules: what is not ours does not exist (NXDOMAIN, at once: nobody waits for a time-out); a name of ours has A records
only, so an AAAA question gets an empty answer; answers may not be kept (TTL 0), because pods move."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

_A, _ANY, _IN = 1, 255, 1
_NO_ERROR, _FORMAT_ERROR, _NO_NAME, _NOT_IMPLEMENTED = 0, 1, 3, 4
_HEAD = struct.Struct("!6H")
_RESPONSE, _AUTHORITATIVE, _TRUNCATED, _RECURSION_WANTED, _RECURSION = 0x8000, 0x0400, 0x0200, 0x0100, 0x0080
UDP_LIMIT = 512

Lookup = Callable[[str], list[str] | None]


def answer(query: bytes, lookup: Lookup, limit: int = 65535) -> bytes | None:
    """The answer to one message; None for what is no question at all. Longer than `limit`: truncated, ask by TCP."""
    if len(query) < _HEAD.size:
        return None
    ident, flags, questions, _, _, _ = _HEAD.unpack_from(query)
    if flags & _RESPONSE:
        return None
    kept = _RESPONSE | _AUTHORITATIVE | _RECURSION | (flags & (0x7800 | _RECURSION_WANTED))
    if flags & 0x7800:
        return _HEAD.pack(ident, kept | _NOT_IMPLEMENTED, 0, 0, 0, 0)
    try:
        if questions != 1:
            raise ValueError("one question at a time")
        name, kind, end = _question(query)
    except (ValueError, IndexError, struct.error):
        return _HEAD.pack(ident, kept | _FORMAT_ERROR, 0, 0, 0, 0)
    question = query[_HEAD.size : end]
    addresses = lookup(name)
    code = _NO_NAME if addresses is None else _NO_ERROR
    shown = addresses if addresses and kind in (_A, _ANY) else []
    records = b"".join(
        struct.pack("!HHHIH", 0xC000 | _HEAD.size, _A, _IN, 0, 4) + socket.inet_aton(one) for one in shown
    )
    said = _HEAD.pack(ident, kept | code, 1, len(shown), 0, 0) + question + records
    if len(said) > limit:
        return _HEAD.pack(ident, kept | _TRUNCATED, 1, 0, 0, 0) + question
    return said


def _question(query: bytes) -> tuple[str, int, int]:
    """The name and type that are asked for, and where the question ends."""
    labels: list[str] = []
    at = _HEAD.size
    while size := query[at]:
        if size > 63:
            raise ValueError("a question is not compressed")
        labels.append(query[at + 1 : at + 1 + size].decode("ascii", "replace"))
        at += 1 + size
    kind, _ = struct.unpack_from("!HH", query, at + 1)
    return ".".join(labels), kind, at + 5
