"""Quantities, such as 100m and 1Gi: their value and their canonical form in kube-apiserver.

A quantity is stored in canonical form, so that 1000m and 1 are the same text: the largest suffix that leaves an
integer, in the format that was sent (binary, decimal, or exponent). Values are rounded up to thousandths.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from trainyard.objects.patterns import lazy_pattern

_QUANTITY = lazy_pattern(
    r"(?P<number>[+-]?(\d+(\.\d*)?|\.\d+))((?P<binary>[KMGTPE])i|(?P<decimal>[numkMGTPE])|[eE](?P<power>[+-]?\d+))?\Z",
    re.ASCII,
)
_POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SUFFIXES = {power: suffix for suffix, power in _POWERS.items()}
_BINARY = "KMGTPE"
_MOST = 2**63 - 1
_LONGEST = 64  # characters; longer numbers would take too long to parse
_LARGEST_POWER = 64


def is_quantity(text: str) -> bool:
    """Whether the text is a resource.Quantity of Kubernetes: `500m`, `2Gi`, `1e3`."""
    return bool(_QUANTITY.match(text))


def number(text: str) -> Fraction:
    """The value of a quantity, rounded up to thousandths; 0 for a text without one (see `exact`)."""
    return _number(text) if len(text) <= _LONGEST else Fraction(0)


def exact(text: str) -> Fraction | None:
    """The value of a quantity without rounding; exponents count as at most 64. None for a text that is no quantity or
    longer than 64 characters."""
    match = _QUANTITY.match(text) if len(text) <= _LONGEST else None
    if match is None:
        return None
    digits, factor = match["number"], _factor(match["binary"], match["decimal"], match["power"])
    return (int(digits) if digits.isdecimal() else Fraction(digits)) * factor


@lru_cache(maxsize=256)
def _factor(binary: str | None, decimal: str | None, exponent: str | None) -> Fraction:
    if binary:
        return Fraction(1024) ** (_BINARY.index(binary) + 1)
    power = int(exponent) if exponent else _POWERS[decimal or ""]
    return Fraction(10) ** max(-_LARGEST_POWER, min(power, _LARGEST_POWER))


@lru_cache(maxsize=1024)
def _number(text: str) -> Fraction:
    value = exact(text)
    if value is None:
        return Fraction(0)
    thousandths = abs(value) * 1000
    rounded_up = -(-thousandths.numerator // thousandths.denominator)
    magnitude = min(Fraction(rounded_up, 1000), Fraction(_MOST))
    return magnitude if value >= 0 else -magnitude


def canonical(text: str) -> str:
    """The quantity in canonical form; a text that is no quantity is returned unchanged."""
    return _canonical(text) if len(text) <= _LONGEST else text


@lru_cache(maxsize=1024)
def _canonical(text: str) -> str:
    match = _QUANTITY.match(text)
    if match is None:
        return text
    value = number(text)
    if match["binary"] and abs(value) >= 1024 and value.denominator == 1:
        integer, exponent = value.numerator, 0
        while integer % 1024 == 0 and exponent < len(_BINARY):
            integer, exponent = integer // 1024, exponent + 1
        return f"{integer}{_BINARY[exponent - 1]}i" if exponent else str(integer)
    if not value:
        return "0"
    value, power = (value, 0) if value.denominator == 1 else (value * 1000, -3)
    while value % 1000 == 0 and power < 18:
        value, power = value / 1000, power + 3
    if match["power"]:
        return f"{value}e{power}" if power else str(value)
    return f"{value}{_SUFFIXES[power]}"


def of_value(value: Fraction, is_binary: bool) -> str:
    """The quantity of a value, in canonical form: with a binary suffix if `is_binary` and it is a multiple of 1Ki."""
    if is_binary and value.denominator == 1 and value.numerator % 1024 == 0:
        return canonical(f"{value.numerator // 1024}Ki")
    return canonical(f"{-(-value.numerator * 1000 // value.denominator)}m")
