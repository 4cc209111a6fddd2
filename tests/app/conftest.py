"""The server that the tests of the operator's process run against."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.app.operating_values import Site, running_site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with running_site(tmp_path) as server_site:
        yield server_site
