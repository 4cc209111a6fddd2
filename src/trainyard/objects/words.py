"""What a plain (unquoted) word of YAML means to Kubernetes' own reader: YAML 1.1 with Go's numbers.

Rules: `yes no on off y n` are booleans; `0x1f 0b1 0o17 017` are whole numbers, `_` may separate digits; a whole float
(`1e3`, `2.0`) is a whole number, as it is after a trip through JSON there; a time, and everything else, is text.
"""

from __future__ import annotations

import math
import re

LEAST, MOST = -(2**63), 2**64 - 1  # what fits into JSON on both sides

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"], True),
    **dict.fromkeys(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"], False),
    **dict.fromkeys(["", "~", "null", "Null", "NULL"]),
}
_NOT_JSON = frozenset(
    [".nan", ".NaN", ".NAN", *(f"{sign}.{word}" for sign in ("", "+", "-") for word in ("inf", "Inf", "INF"))]
)
_WHOLE = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))\Z")
_REAL = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")


def meaning(text: str) -> str | int | float | bool | None:
    """The value of a plain word. Raises ValueError, as a sentence with the fix, when JSON cannot hold it."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if text in _NOT_JSON:
        raise ValueError(f"{text} is not a number in JSON; write a finite number, or quote it if it is text")
    found = _number(text if text[0] == "." else text.replace("_", ""))
    if found is None:
        return text
    if math.isinf(found) or (not LEAST <= found <= MOST and isinstance(found, int)):
        raise ValueError(f"the number {short(text)} does not fit into 64 bits; quote it if it is text")
    return found


def _number(text: str) -> int | float | None:
    if found := _WHOLE.match(text):
        if len(text) > 80:
            return math.inf
        sign = -1 if found[1] == "-" else 1
        for digits, radix in zip(found.groups()[1:], (16, 2, 8, 10), strict=True):
            if digits is not None:
                return sign * int(digits, radix)
    if not _REAL.match(text):
        return None
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**63 else value


def short(text: str) -> str:
    """A person's own text inside a sentence: one line, not long, nothing that a terminal would obey."""
    shown = "".join(char if char.isprintable() else "?" for char in text[:41])
    return shown if len(text) <= 40 else f"{shown[:37]}..."
