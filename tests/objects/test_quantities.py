"""Quantities: their values and their canonical form."""

from __future__ import annotations

from fractions import Fraction

import pytest

from trainyard.objects.quantities import canonical, exact, is_quantity, number


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1), ("500m", 0.5), ("1Ki", 1024), ("2Gi", 2 * 2**30), ("1e3", 1000), ("1.5G", 1.5e9), ("-2k", -2000),
        ("1u", 0.001), ("99E", 2**63 - 1), ("x", 0), ("", 0), ("1Kib", 0), ("1" * 65, 0),
    ],
)  # fmt: skip
def test_values_are_rounded_up_to_thousandths_and_no_quantity_counts_as_zero(text: str, expected: float) -> None:
    assert float(number(text)) == float(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1000m", "1"),
        ("1024Mi", "1Gi"),
        ("1500m", "1500m"),
        ("0.5Gi", "512Mi"),
        ("2e3", "2e3"),
        ("0Ki", "0"),
        ("x", "x"),
    ],
)
def test_the_canonical_form_has_the_largest_suffix_that_leaves_an_integer(text: str, expected: str) -> None:
    assert canonical(text) == expected and is_quantity(text) == (text != "x")


def test_the_exact_value_is_not_rounded_and_its_exponent_is_bounded() -> None:
    assert exact("1n") == Fraction(1, 10**9) and exact("-0.5Ki") == -512
    assert exact("1e99999") == 10**64 and exact("x") is None and exact("1" * 65) is None
