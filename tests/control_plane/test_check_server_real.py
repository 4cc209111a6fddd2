"""check_server on a real control plane. A check that has passed there runs again when it, or the server, changes."""

from __future__ import annotations

import warnings
from functools import cache

import pytest

from tests.conformance import CHECKS, Check, real
from tests.conformance.runner import run
from tests.support.kept_answers import KeptChecks, check_key, mode

pytestmark = pytest.mark.cluster


@cache
def key_of_module(name: str) -> str:
    return check_key(name.rpartition(".")[2])


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_real_server_passes(check: Check, checks: KeptChecks, request: pytest.FixtureRequest) -> None:
    key = key_of_module(check.body.__module__)
    is_kept = checks.passed(check.name, key)
    assert is_kept or mode() != "compare", "not in testdata/kept; run `make kept-answers`"
    if mode() == "use" and not is_kept:
        warnings.warn("asked the real API server: not in testdata/kept; run `make kept-answers`", stacklevel=1)
    if mode() != "use" or not is_kept:
        plane = request.getfixturevalue("gang_plane" if "gangs" in check.needs else "control_plane")
        async with real(plane) as cluster:
            await run(check, cluster)
        checks.new[check.name] = key
