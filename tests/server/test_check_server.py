"""check_server on the embedded server, and the proof that each of its checks can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.testing.check_server import CHECKS, Check
from trainyard.testing.check_server.runner import run_embedded, survives
from trainyard.testing.check_server.table import page

PAGE = Path(__file__).parents[2] / "docs" / "api-server.md"

EACH = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)


@EACH
async def test_our_server_does_what_the_sentence_says(check: Check) -> None:
    await run_embedded(check)


@pytest.mark.slow  # twenty seconds, all together
@EACH
async def test_the_check_fails_on_a_server_without_that_behaviour(check: Check) -> None:
    assert check.breaks is not None, "name a mutation with breaks="
    assert not await survives(check), f"it holds on a server that {check.breaks.words}"


def test_no_two_checks_have_one_name_or_sentence() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert len({check.sentence for check in CHECKS}) == len(CHECKS)
    assert all(check.sentence.endswith(".") for check in CHECKS)


def test_the_page_in_the_documents_is_the_table() -> None:
    """`python -m trainyard.testing.check_server > docs/api-server.md` writes it."""
    assert PAGE.read_text(encoding="utf-8") == page(CHECKS)
