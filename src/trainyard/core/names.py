"""Names that can be computed again: nothing is ever parsed back out of a name, nothing is random."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection

RUNTIME_ID = r"^[a-z0-9]([a-z0-9-]{0,14}[a-z0-9])?$"
LABEL_MAX = 63
ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def is_dns_label(name: str) -> bool:
    """True for a legal object, host or label name of at most 63 characters."""
    return len(name) <= LABEL_MAX and _DNS_LABEL.fullmatch(name) is not None


def runtime_id(uid: str, in_use: Collection[str]) -> str:
    """Four characters derived from the uid: the first candidate (uid, 0), (uid, 1) ... that nobody else uses.

    The same uid and the same neighbours give the same id, so it can be worked out again after any crash.
    """
    number = 0
    while True:
        found = _candidate(uid, number)
        # With every id taken the names would clash whatever we choose; the API server then says so (S8).
        if found not in in_use or number > len(in_use):
            return found
        number += 1


def _candidate(uid: str, number: int) -> str:
    value = int.from_bytes(hashlib.sha256(f"{uid} {number}".encode()).digest()[:8], "big")
    letters = []
    for _ in range(4):
        value, rest = divmod(value, len(ALPHABET))
        letters.append(ALPHABET[rest])
    return "".join(letters)


def digest(*parts: object) -> str:
    """A letter and ten hexadecimal characters that stand for JSON values; equal values give equal text.

    The letter is for readers of YAML: without it one of two hundred is a number, such as 18549e9054.
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return _LETTER + hashlib.sha256(text.encode()).hexdigest()[:10]


def same_digest(stored: str, today: str) -> bool:
    """True when both stand for the same values: earlier versions stored a digest without the letter."""
    return stored == today or (f"{_LETTER}{stored}" == today and _WITHOUT_LETTER.fullmatch(stored) is not None)


_LETTER = "h"  # no hexadecimal digit, so that the two spellings cannot be mixed up
_WITHOUT_LETTER = re.compile(r"[0-9a-f]{10}")
