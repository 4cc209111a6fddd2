"""The embedded server answers every kept sequence as the real API server did when it was recorded."""

from __future__ import annotations

import asyncio

import pytest

from tests.differential import cases
from tests.differential.compare import Difference
from tests.differential.target import embedded

KEPT = cases.read()


async def _all() -> dict[str, list[Difference]]:
    async with embedded() as ours:
        return await cases.check(ours, KEPT)


@pytest.fixture(scope="module")
def differences_by_case() -> dict[str, list[Difference]]:
    """All cases are played at once: a watch takes a second, all of them take one, too."""
    return asyncio.run(_all())


def test_there_are_cases() -> None:
    assert len(KEPT) > 20


@pytest.mark.parametrize("name", [case.name for case in KEPT])
def test_a_recorded_sequence_is_answered_as_recorded(
    name: str, differences_by_case: dict[str, list[Difference]]
) -> None:
    assert not differences_by_case[name], "\n".join(str(difference) for difference in differences_by_case[name])
