"""Quantities, such as 100m and 1Gi: their value, and how the real server writes them.

A quantity is stored in its canonical form, so that 1000m and 1 are the same text: the largest suffix that leaves a
whole number, of the kind that was sent (binary, decimal, or an exponent). Nothing is smaller than a thousandth.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(\d+(\.\d*)?|\.\d+))((?P<binary>[KMGTPE])i|(?P<decimal>[numkMGTPE])|[eE](?P<power>[+-]?\d+))?\Z",
    re.ASCII,
)
_POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SUFFIXES = {power: suffix for suffix, power in _POWERS.items()}
_BINARY = "KMGTPE"
_MOST = 2**63 - 1
_LONGEST = 64  # characters; nobody writes more, and a long number takes its time
_LARGEST_POWER = 64


def is_quantity(text: str) -> bool:
    return bool(_QUANTITY.match(text))


def number(text: str) -> Fraction:
    """The value. What is no quantity, or too long to be looked at, counts as 0."""
    return _number(text) if len(text) <= _LONGEST else Fraction(0)


@lru_cache(maxsize=1024)
def _number(text: str) -> Fraction:
    found = _QUANTITY.match(text)
    if found is None:
        return Fraction(0)
    value = Fraction(found["number"])
    if binary := found["binary"]:
        value *= 1024 ** (_BINARY.index(binary) + 1)
    else:
        power = int(found["power"]) if found["power"] else _POWERS[found["decimal"] or ""]
        value *= Fraction(10) ** max(-_LARGEST_POWER, min(power, _LARGEST_POWER))
    thousandths = abs(value) * 1000
    up = -(-thousandths.numerator // thousandths.denominator)
    size = min(Fraction(up, 1000), Fraction(_MOST))
    return size if value >= 0 else -size


def canonical(text: str) -> str:
    """The same quantity in the one way in which it is stored."""
    return _canonical(text) if len(text) <= _LONGEST else text


@lru_cache(maxsize=1024)
def _canonical(text: str) -> str:
    found = _QUANTITY.match(text)
    if found is None:
        return text
    value = number(text)
    if found["binary"] and abs(value) >= 1024 and value.denominator == 1:
        whole, at = value.numerator, 0
        while whole % 1024 == 0 and at < len(_BINARY):
            whole, at = whole // 1024, at + 1
        return f"{whole}{_BINARY[at - 1]}i" if at else str(whole)
    if not value:
        return "0"
    value, power = (value, 0) if value.denominator == 1 else (value * 1000, -3)
    while value % 1000 == 0 and power < 18:
        value, power = value / 1000, power + 3
    if found["power"]:
        return f"{value}e{power}" if power else str(value)
    return f"{value}{_SUFFIXES[power]}"
