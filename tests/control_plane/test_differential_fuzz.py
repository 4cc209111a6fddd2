"""The embedded server and a real one, asked the same: recordings hold, and nothing differs that is not known."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.differential import cases
from tests.differential.allowed import USUAL
from tests.differential.fuzz import Pair, campaign
from tests.differential.target import Target, embedded, real
from tests.support.control_plane import ControlPlane

pytestmark = pytest.mark.cluster

SEED, SEQUENCES = 1, 300


@pytest.fixture
async def theirs() -> AsyncIterator[Target]:
    """A control plane of its own: its controllers are stopped."""
    async with ControlPlane() as plane, real(plane) as target:
        yield target


async def test_recordings_hold_and_random_sequences_agree(theirs: Target) -> None:
    kept = await cases.check(theirs, cases.read())
    stale = {name: [str(difference) for difference in differences] for name, differences in kept.items() if differences}
    assert not stale, "the real API server does not say any more what was recorded"
    async with embedded() as ours:
        pair = Pair(theirs, ours)
        result = await campaign(pair, SEED, range(SEQUENCES), shrink=False)
    fresh = [result[cause] for cause in result.keys() - cases.known()]
    assert not fresh, "\n".join(str(difference) for difference in fresh)
    unused = [entry.why for entry in USUAL if not pair.used[entry.why]]
    assert not unused, "these differences are allowed and were not met: forget them"
