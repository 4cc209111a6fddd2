"""JSON encoding and decoding. Only this module imports the JSON library, so that it can be replaced."""

from __future__ import annotations

from typing import Any

import msgspec

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def encode(value: Any) -> bytes:
    """The value as compact JSON. It may be a Struct, dict, list, str, int, float, bool or None."""
    return _encoder.encode(value)


def decode(data: bytes | str) -> Any:
    """JSON to plain Python values. Raises ValueError with the position when `data` is not JSON."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
