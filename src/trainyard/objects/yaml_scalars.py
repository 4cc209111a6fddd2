"""The value of a plain (unquoted) YAML scalar as Kubernetes' YAML parser resolves it: YAML 1.1 with Go's numbers.

Rules: `yes no on off y n` are booleans; `0x1f 0b1 0o17 017` are whole numbers, `_` may separate digits; a whole float
(`1e3`, `2.0`) is a whole number, as Kubernetes' conversion to JSON makes it; a time, and everything else, is text. So
is a number that Go cannot represent: `18549e9054` may be a git hash, and kubectl prints such text unquoted. A decimal
number beyond 64 bits is a float, a hexadecimal, binary or octal one (`0o`) is text.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from trainyard.objects.patterns import lazy_pattern

MIN_INTEGER, MAX_INTEGER = -(2**63), 2**64 - 1  # the integers that Go and JSON can represent

_BOOLEANS_AND_NULLS: dict[str, bool | None] = {
    **dict.fromkeys(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"], True),
    **dict.fromkeys(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"], False),
    **dict.fromkeys(["", "~", "null", "Null", "NULL"]),
}
_NOT_JSON = frozenset(
    [".nan", ".NaN", ".NAN", *(f"{sign}.{word}" for sign in ("", "+", "-") for word in ("inf", "Inf", "INF"))]
)
_INTEGER = lazy_pattern(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))\Z")
_BINARY_WITH_SIGN = re.compile(r"0b([-+])([01]+)\Z")  # Go's YAML parser accepts it, by accident
_REAL = lazy_pattern(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_REAL_WITHOUT_INTEGER_PART = lazy_pattern(r"\.[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+(?:_[0-9]+)*)?\Z")
_MOST_DIGITS = 64  # of a number of 64 bits, in any radix, without leading zeros


def resolve_scalar(text: str) -> str | int | float | bool | None:
    """The value of a plain scalar. Raises ValueError, with the fix in its text, when JSON cannot represent it."""
    if text in _BOOLEANS_AND_NULLS:
        return _BOOLEANS_AND_NULLS[text]
    if text[0] not in "+-.0123456789":
        return text
    if text in _NOT_JSON:
        raise ValueError(f"{text} is not a number in JSON; write a finite number, or quote it if it is text")
    number = _number(text)
    return text if number is None else number


def is_always_text(text: str) -> bool:
    """True when the plain scalar is text to Kubernetes' YAML parser and to parsers of larger numbers (integers without
    limit, `Infinity` for `1e999`). A YAML writer has to quote all other texts."""
    try:
        if resolve_scalar(text) != text:
            return False
    except ValueError:
        return False
    plain = text.replace("_", "")
    return not (_INTEGER.match(plain) or _REAL.match(plain))


def _number(text: str) -> int | float | None:
    if text[0] == ".":  # the only case in which Go requires a digit on both sides of each `_`
        return _real(text) if _REAL_WITHOUT_INTEGER_PART.match(text) else None
    plain = text.replace("_", "")
    number = _integer(plain)
    return number if number is not None or not _REAL.match(plain) else _real(plain)


def _integer(plain: str) -> int | None:
    """The integer of at most 64 bits, None for everything else."""
    if match := _BINARY_WITH_SIGN.match(plain):
        return _integer_of_64_bits(match[1], match[2], 2)
    if match := _INTEGER.match(plain):
        for digits, radix in zip(match.groups()[1:], (16, 2, 8, 10), strict=True):
            if digits is not None:
                return _integer_of_64_bits(match[1], digits, radix)
    return None


def _integer_of_64_bits(sign: str, digits: str, radix: int) -> int | None:
    """The number; None when it needs more than 64 bits without a sign, or more than 63 with one."""
    digits = digits.lstrip("0")
    if len(digits) > _MOST_DIGITS:
        return None
    number = int(digits or "0", radix) * (-1 if sign == "-" else 1)
    return number if MIN_INTEGER <= number <= (2**63 - 1 if sign else MAX_INTEGER) else None


def _real(plain: str) -> int | float | None:
    value = float(plain)
    if math.isinf(value):
        return None
    if value.is_integer() and abs(value) < 2**64:
        number = int(Decimal(repr(value)))  # as in JSON: Go writes the fewest digits, then zeros
        return number if MIN_INTEGER <= number < 2**63 else value
    return value


def shorten(text: str) -> str:
    """A user's text for a message: one line, at most 40 characters, without control characters."""
    printable = "".join(char if char.isprintable() else "?" for char in text[:41])
    return printable if len(text) <= 40 else f"{printable[:37]}..."
