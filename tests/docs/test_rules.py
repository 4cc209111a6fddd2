"""docs/rules.md has every rule that the code, the tests and the documents cite; nothing cites what is not in here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "rules.md"
ROWS = re.compile(r"^\| ([A-Z0-9]+(?:\.\d+)?) \|", re.MULTILINE)
DECISION = re.compile(r"\bS\d{1,2}\b")
SECTION = re.compile(r"rules\.md(?:\)?,?) ((?:(?:I{1,2}|[123])\.\d+(?:\.\d+)?(?:, | to | and )?)+)")
IN_TABLES = re.compile(r"\| ((?:(?:II|[12])\.\d+(?:, )?)+) \|$", re.MULTILINE)  # docs/compatibility.md
ELSEWHERE = re.compile(r"\b(settled|architecture|house|product|reliability|models|stack)\.md\b")


def texts() -> Iterator[tuple[Path, str]]:
    for folder in ("src", "tests", "docs", "bench"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".md") and path not in (PAGE, Path(__file__)):
                yield path, path.read_text(encoding="utf-8")


def known() -> set[str]:
    return set(ROWS.findall(PAGE.read_text(encoding="utf-8")))


def cited(text: str) -> set[str]:
    cited = set(DECISION.findall(text))
    for sections in (*SECTION.findall(text), *IN_TABLES.findall(text)):
        cited |= {".".join(number.split(".")[:2]) for number in re.findall(r"[I\d]+\.[\d.]*\d", sections)}
    return cited


def test_every_rule_that_is_cited_is_on_the_page() -> None:
    rules = known()
    assert {"S1", "S44", "I.4", "II.6", "1.5", "2.2", "3.1"} <= rules
    lacking = {
        str(path.relative_to(ROOT)): sorted(cited(text) - rules) for path, text in texts() if cited(text) - rules
    }
    assert not lacking


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("(docs/rules.md 1.2, 1.3, S2, S21)", {"1.2", "1.3", "S2", "S21"}),
        ("(rules.md I.11.4)", {"I.11"}),
        ("| labels | none | ours | II.5, II.10 |", {"II.5", "II.10"}),
        ("a year like 2.5 and S3.", {"S3"}),
    ],
)
def test_citations_of_rules_are_recognized(text: str, numbers: set[str]) -> None:
    assert cited(text) == numbers


def test_no_document_is_cited_that_is_not_in_the_repository() -> None:
    assert not {str(path.relative_to(ROOT)): match[0] for path, text in texts() if (match := ELSEWHERE.search(text))}
