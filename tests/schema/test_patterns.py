"""Patterns of other people's schemas: RE2's syntax, and no text that takes longer than its length."""

from __future__ import annotations

import sys
from subprocess import run

import pytest

from trainyard.schema import Schema
from trainyard.schema.patterns import PatternError, compiled_pattern

LETTERS = "a" * 100_000


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "^(.*a){20}$", "(x+x+)+y", "^(([a-z])+.)+[A-Z]$"]
)
def test_a_pattern_that_backtracking_cannot_finish_is_matched(pattern: str) -> None:
    """With an engine that backtracks none of these ends within a life."""
    schema = Schema({"type": "object", "properties": {"spec": {"type": "string", "pattern": pattern}}})
    assert [problem.path for problem in schema.validate({"spec": f"{LETTERS}!"})] == ["spec"]


@pytest.mark.parametrize("pattern", ["(a", r"(a)\1", "a(?=b)", "(?<!a)b", "(?:a{1000}){1000}", r"a\Z", "a{1001}"])
def test_a_crd_with_a_pattern_that_re2_does_not_support_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        compiled_pattern(pattern)
    with pytest.raises(ValueError, match="is not a regular expression"):
        Schema({"type": "string", "pattern": pattern})


def test_a_dollar_is_the_end_and_half_a_surrogate_pair_is_a_letter() -> None:
    assert compiled_pattern("^a$").search("a\n") is None
    assert compiled_pattern("^.$").search("\ud800") == "\ufffd"
    assert compiled_pattern("[é-ü]+").search("aéüa ü") == "éü"


def test_a_program_that_meets_no_pattern_does_not_load_the_engine() -> None:
    code = (
        "import sys; from trainyard.schema import Schema;"
        "Schema({'properties': {'spec': {'type': 'string', 'maxLength': 3}}}).validate({'spec': 'abc'});"
        "sys.exit('re2' in sys.modules)"
    )
    assert run([sys.executable, "-c", code], check=False).returncode == 0
