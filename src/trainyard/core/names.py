"""Deterministic names and digests. Nothing is random, and no name is ever parsed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection

from trainyard.objects.patterns import lazy_pattern

RUNTIME_ID = r"^[a-z0-9]([a-z0-9-]{0,14}[a-z0-9])?$"
MAX_LABEL_LENGTH = 63
ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"

_DNS_LABEL = lazy_pattern(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def is_dns_label(name: str) -> bool:
    """True for a legal object, host or label name of at most 63 characters."""
    return len(name) <= MAX_LABEL_LENGTH and _DNS_LABEL.fullmatch(name) is not None


def runtime_id(uid: str, in_use: Collection[str]) -> str:
    """Four characters derived from the uid: the first candidate (uid, 0), (uid, 1) ... that is not in use.

    The same arguments give the same id, so that it can be computed again after a crash.
    """
    number = 0
    while True:
        candidate = _candidate(uid, number)
        # If all ids are in use, any id leads to a name conflict, which the API server answers with 409 (S8).
        if candidate not in in_use or number > len(in_use):
            return candidate
        number += 1


def _candidate(uid: str, number: int) -> str:
    value = int.from_bytes(hashlib.sha256(f"{uid} {number}".encode()).digest()[:8], "big")
    letters = []
    for _ in range(4):
        value, rest = divmod(value, len(ALPHABET))
        letters.append(ALPHABET[rest])
    return "".join(letters)


def digest(*parts: object) -> str:
    """A letter and ten hexadecimal digits: the digest of JSON values. Equal values have equal digests.

    The letter makes it a string in YAML: without it one digest in two hundred is a number, such as 18549e9054.
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return _LETTER + hashlib.sha256(text.encode()).hexdigest()[:10]


def same_digest(stored: str, current: str) -> bool:
    """True when both are digests of the same values: earlier versions stored a digest without the letter."""
    return stored == current or (f"{_LETTER}{stored}" == current and _WITHOUT_LETTER.fullmatch(stored) is not None)


_LETTER = "h"  # not a hexadecimal digit, so that the two forms are distinct
_WITHOUT_LETTER = re.compile(r"[0-9a-f]{10}")
