"""docs/failures.md is what the failures and their answers give. `pytest --update` writes it anew."""

from __future__ import annotations

import pytest

from tests.cli.failure_cases import CASES
from tests.cli.failure_page import ANSWERS, PAGE, page


def test_the_page_is_made_of_the_failures(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update"):
        PAGE.write_text(page())
    assert PAGE.read_text() == page()


def test_every_answer_belongs_to_a_failure() -> None:
    assert {file.stem for file in ANSWERS.glob("*.txt")} == {case.slug for case in CASES}


def test_answers_fit_into_80_columns() -> None:
    """But for a word that is longer than a line."""
    for file in ANSWERS.glob("*.txt"):
        for line in file.read_text().splitlines():
            assert len(line) <= 80 or len(line.split()) <= 2 or "`" in line, f"{file.name}: {line}"
