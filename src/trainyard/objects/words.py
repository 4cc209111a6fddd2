"""What a plain (unquoted) word of YAML means to Kubernetes' own reader: YAML 1.1 with Go's numbers.

Rules: `yes no on off y n` are booleans; `0x1f 0b1 0o17 017` are whole numbers, `_` may separate digits; a whole float
(`1e3`, `2.0`) is a whole number, as it is after a trip through JSON there; a time, and everything else, is text. So is
a number that Go cannot hold: `18549e9054` may be a git hash, and kubectl prints such a text without quotes. A decimal
number beyond 64 bits is a float, a hexadecimal, binary or octal one (`0o`) is text.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

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
_BINARY_WITH_SIGN = re.compile(r"0b([-+])([01]+)\Z")  # Go's YAML reader takes it, by accident
_REAL = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_FRACTION = re.compile(r"\.[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+(?:_[0-9]+)*)?\Z")
_MOST_DIGITS = 64  # of a number of 64 bits, in any radix, without leading zeros


def meaning(text: str) -> str | int | float | bool | None:
    """The value of a plain word. Raises ValueError, as a sentence with the fix, when JSON cannot hold it."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if text in _NOT_JSON:
        raise ValueError(f"{text} is not a number in JSON; write a finite number, or quote it if it is text")
    number = _number(text)
    return text if number is None else number


def is_always_text(text: str) -> bool:
    """True when the plain word is text to Kubernetes' reader and to those that have larger numbers (a whole number
    without limit, `Infinity` for `1e999`). A writer quotes everything else."""
    try:
        if meaning(text) != text:
            return False
    except ValueError:
        return False
    plain = text.replace("_", "")
    return not (_WHOLE.match(plain) or _REAL.match(plain))


def _number(text: str) -> int | float | None:
    if text[0] == ".":  # the only place where Go wants each `_` between two digits
        return _real(text) if _FRACTION.match(text) else None
    plain = text.replace("_", "")
    number = _whole(plain)
    return number if number is not None or not _REAL.match(plain) else _real(plain)


def _whole(plain: str) -> int | None:
    """A whole number of 64 bits, None for everything else."""
    if match := _BINARY_WITH_SIGN.match(plain):
        return _within(match[1], match[2], 2)
    if match := _WHOLE.match(plain):
        for digits, radix in zip(match.groups()[1:], (16, 2, 8, 10), strict=True):
            if digits is not None:
                return _within(match[1], digits, radix)
    return None


def _within(sign: str, digits: str, radix: int) -> int | None:
    """Without a sign the number may fill 64 bits, with one 63."""
    digits = digits.lstrip("0")
    if len(digits) > _MOST_DIGITS:
        return None
    number = int(digits or "0", radix) * (-1 if sign == "-" else 1)
    return number if LEAST <= number <= (2**63 - 1 if sign else MOST) else None


def _real(plain: str) -> int | float | None:
    value = float(plain)
    if math.isinf(value):
        return None
    if value.is_integer() and abs(value) < 2**64:
        number = int(Decimal(repr(value)))  # the digits that JSON has for it: Go writes the fewest and fills with zeros
        return number if LEAST <= number < 2**63 else value
    return value


def short(text: str) -> str:
    """A person's own text inside a sentence: one line, not long, nothing that a terminal would obey."""
    shown = "".join(char if char.isprintable() else "?" for char in text[:41])
    return shown if len(text) <= 40 else f"{shown[:37]}..."
