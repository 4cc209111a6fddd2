"""check_server on the embedded server, and the proof that each check can fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import CHECKS, Check
from tests.conformance.runner import passes_under_mutation, run_embedded
from tests.conformance.table import page

PAGE = Path(__file__).parents[2] / "docs" / "api-server.md"

EACH = pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)


@EACH
async def test_embedded_server_passes(check: Check) -> None:
    await run_embedded(check)


@pytest.mark.slow  # twenty seconds, all together
@EACH
async def test_check_fails_under_its_mutation(check: Check) -> None:
    assert check.mutation is not None, "pass mutation= to @check"
    assert not await passes_under_mutation(check), f"it passes on a server that {check.mutation.description}"


def test_names_and_sentences_are_unique() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert len({check.sentence for check in CHECKS}) == len(CHECKS)
    assert all(check.sentence.endswith(".") for check in CHECKS)


def test_docs_page_is_current() -> None:
    """`python -m tests.conformance > docs/api-server.md` writes it."""
    assert PAGE.read_text(encoding="utf-8") == page(CHECKS)
