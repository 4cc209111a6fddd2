"""Text and tables that fit the terminal, and state words in colour."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.cli.output.layout import (
    coloured,
    field_lines,
    prose,
    table_lines,
    terminal_width,
    wants_colour,
    wrapped,
)

# A word of 29 letters fits the narrowest width of 40 beside the label "  problem: ".
WORDS = st.lists(st.text("abcdefgh`", min_size=1, max_size=29), min_size=1, max_size=30)


@given(WORDS, st.integers(40, 120))
def test_wrapping_breaks_and_loses_no_word(words: list[str], width: int) -> None:
    text = " ".join(words)
    lines = wrapped(text, width, "  problem: ", "    ")
    assert " ".join(" ".join(lines).split()) == f"problem: {text}"
    if "`" not in text:
        assert all(len(line) <= width for line in lines)


def test_a_command_in_backticks_stays_on_one_line() -> None:
    lines = wrapped("to go on: `trainyard resume tfjob/mnist -n team-a` and wait", 30, "do: ")
    assert lines == ["do: to go on:", "    `trainyard resume tfjob/mnist -n team-a`", "    and wait"]


def test_a_path_stays_whole_on_a_line_of_its_own() -> None:
    long, quoted = "/folder" * 5, "'/my folder/and another one'"
    assert wrapped(f"logs: {long} are kept", 30, "", "    ") == ["logs:", f"    {long}", "    are kept"]
    assert wrapped("/25-columns/" + "x" * 13, 30, "Folder:  ") == ["Folder:", "     /25-columns/" + "x" * 13]
    assert wrapped(f"{long} are kept", 30, "Folder:  ") == [f"Folder:  {long}", "         are kept"]
    lines = wrapped(f"mend {quoted}:5, in f; then run it again", 30, "do: ")
    assert lines == ["do: mend", f"    {quoted}:5,", "    in f; then run it again"]
    assert prose(f"logs: {quoted}", 30) == f"logs:\n  {quoted}"


def test_spaces_between_words_stay() -> None:
    assert wrapped("a  table   of three columns", 20, "seen: ") == ["seen: a  table   of", "      three columns"]


def test_prose_keeps_lines_that_fit_and_hangs_the_others() -> None:
    text = "one\n  two\n" + "word " * 10
    assert prose(text.rstrip(), 27) == "one\n  two\nword word word word word\n  word word word word word"


ROWS = [["AGE", "OBJECT", "STATE", "MESSAGE"], ["1s", "Pod/master-abcd-0-x7k2p", "Running", "m" * 100]]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_table_fits_and_its_last_column_is_cut_first(width: int) -> None:
    lines = table_lines(ROWS, width)
    assert all(len(line) <= width for line in lines)
    assert ("master-abcd-0-x7k2p" in lines[1]) == (width > 60) and lines[1].endswith("m…")
    assert lines[1].count("m") >= 28


@given(st.lists(st.integers(1, 60), min_size=1, max_size=10), st.integers(60, 120))
def test_a_table_of_many_columns_fits(lengths: list[int], width: int) -> None:
    lines = table_lines([["H" * min(length, 8) for length in lengths], ["x" * length for length in lengths]], width)
    assert all(len(line) <= width for line in lines)


def test_names_are_cut_and_states_are_not() -> None:
    heads = ["ID", "JOB", "KIND", "AGE", "TOOK", "RESULT", "RESTARTS", "WHERE"]
    row = ["2f34049a", "mnist-of-the-whole-team", "ElasticJob", "12m", "1:12:33", "Interrupted", "12", "c" * 40]
    lines = table_lines([heads, row], 80)
    assert max(map(len, lines)) == 80
    assert lines[1].split() == [row[0], "mnist-of…", *row[2:7], "c" * 9 + "…"]


def test_a_table_that_fits_is_not_cut() -> None:
    assert table_lines(ROWS, 1000)[1].endswith("m" * 100)
    assert table_lines([], 80) == []


def test_where_the_last_column_is_short_the_widest_gives_way() -> None:
    lines = table_lines([["NAME", "AGE"], ["n" * 100, "1s"]], 40)
    assert max(map(len, lines)) == 40
    assert "n…" in lines[1] and lines[1].endswith("1s")


def test_values_go_on_under_their_beginning() -> None:
    assert field_lines([("Name:", "a"), ("Policies:", "one two three four five six seven"), ("No:", "")], 30) == [
        "Name:      a",
        "Policies:  one two three four",
        "           five six seven",
    ]


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("Running", "32"),
        ("Succeeded", "32"),
        ("Failed", "31"),
        ("OOMKilled", "31"),
        ("ErrImagePull", "31"),
        ("CrashLoopBackOff", "31"),
        ("Pending", "33"),
        ("Restarting", "33"),
        ("Suspended", ""),
        ("2/3 ready", ""),
    ],
)
def test_states_are_coloured_by_their_meaning(state: str, code: str) -> None:
    assert coloured(state, True) == (f"\x1b[{code}m{state}\x1b[0m" if code else state)
    assert coloured(state, False) == state


def test_only_the_cells_of_state_columns_have_colour_and_columns_stay_aligned() -> None:
    rows = [["NAME", "STATE", "AGE"], ["Running", "Failed", "1s"], ["b", "Succeeded", "2s"]]
    plain, coloured = table_lines(rows, 80), table_lines(rows, 80, colour=True)
    assert coloured[1] == "Running  \x1b[31mFailed\x1b[0m     1s"
    assert [line.replace("\x1b[31m", "").replace("\x1b[32m", "").replace("\x1b[0m", "") for line in coloured] == plain


def test_a_state_that_is_cut_keeps_its_colour() -> None:
    (_, line) = table_lines([["STATE", "NAME"], ["CreateContainerConfigError", "n" * 28]], 48, colour=True)
    assert line.startswith("\x1b[31mCreateContain") and "…" in line


def test_colour_is_for_terminals_that_support_it() -> None:
    assert wants_colour(True, {})
    assert not any(wants_colour(*no) for no in ((False, {}), (True, {"NO_COLOR": "1"}), (True, {"TERM": "dumb"})))


def test_the_default_width_is_80(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    assert terminal_width() == 72
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr("os.get_terminal_size", _no_terminal)
    assert terminal_width() == 80


def _no_terminal(descriptor: int = 1) -> None:
    raise OSError
