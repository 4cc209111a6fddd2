"""check_server on a real control plane. A check that has passed there runs again when it, or the server, changes."""

from __future__ import annotations

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
    if mode() != "use" or not checks.passed(check.name, key):
        async with real(request.getfixturevalue("control_plane")) as cluster:
            await run(check, cluster)
        checks.new[check.name] = key
