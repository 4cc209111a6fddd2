"""Numbers as text, and in JSON, which has none that is not finite.

A loss that diverges is NaN or infinite: that is what the program has reported, and it is shown as such.
"""

from __future__ import annotations

import math
from collections.abc import Mapping


def count_text(number: int, noun: str) -> str:
    """The number with its noun: 1 replica, 2 replicas."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def times_text(count: int) -> str:
    """How often something happened: once, 2 times."""
    return "once" if count == 1 else f"{count} times"


def json_number(value: float) -> float | str:
    """The value; "nan", "inf" or "-inf", which `float` parses, if it is not finite."""
    return value if math.isfinite(value) else str(value)


def json_numbers(values: Mapping[str, float]) -> dict[str, float | str]:
    """The values by name, each as `json_number`."""
    return {name: json_number(value) for name, value in values.items()}


def number_text(value: float) -> str:
    """A value in four significant digits, whole numbers with commas: 14,201, 0.4123, nan, -inf."""
    is_whole = math.isfinite(value) and value == round(value) and abs(value) < 1e9
    return f"{value:,.0f}" if is_whole else f"{value:.4g}"
