"""docs/readme-commands.md, typed: every command of the four READMEs against a real API server, and what it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.control_plane.readme_node import joined
from tests.control_plane.readme_story import PREPARATIONS, Story
from tests.control_plane.readme_table import NOT_RUN, PAGE, Row, matches, rows
from tests.support.control_plane import ControlPlane

READMES = {"TfJob", "ChainerJob", "ElasticJob", "MxJob"}
ROWS = rows(PAGE.read_text())
SILENT = re.compile(r"(export |cd |mkdir |ln |rm )|\w+=")  # what says nothing when all is well
REASONS = ("a cloud", "not our build", "the network")


def of(readme: str) -> list[Row]:
    """In the order of their steps."""
    return sorted((row for row in ROWS if row.readme == readme and row.runs), key=lambda row: int(row.step))


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.frameworks
@pytest.mark.parametrize("readme", sorted(READMES))
def test_every_readme_command_prints_what_the_page_shows(readme: str, tmp_path: Path) -> None:
    with ControlPlane() as plane, joined(plane, tmp_path / "node"):
        story = Story(plane, tmp_path)
        try:
            for row in of(readme):
                story.play(row)
        finally:
            story.close()


def test_the_page_has_the_four_readmes() -> None:
    assert {row.readme for row in ROWS} == READMES
    for readme in READMES:
        lines = [int(row.line) for row in ROWS if row.readme == readme]
        assert lines == sorted(set(lines)), f"{readme}: one row for each command, in the README's order"
        assert [int(row.step) for row in of(readme)] == list(range(1, len(of(readme)) + 1)), readme


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_row_is_run_and_compared_or_has_a_reason(row: Row) -> None:
    if not row.runs:
        assert row.why.startswith(REASONS) and not row.prints and not row.first
        return
    assert row.command not in ("", NOT_RUN)
    assert row.prints or SILENT.match(row.command), "a command that says something is compared with nothing"
    assert row.prints == () or set(row.prints) != {"..."}, "any output would do"
    assert row.why or row.command == row.printed, "today's form has a reason"
    for step in row.first:
        assert step.startswith("`") or any(re.fullmatch(pattern, step) for pattern in PREPARATIONS), step


def test_kubectl_and_helm_commands_are_run_without_exception() -> None:
    left_out = [row.printed for row in ROWS if not row.runs]
    assert len(left_out) == 7
    assert [command for command in left_out if command.startswith(("kubectl", "helm"))] == [
        "kubectl create -f https://raw.githubusercontent.com/NVIDIA/k8s-device-plugin/1.0.0-beta4/nvidia-device-plugin.yml"
    ]


@pytest.mark.parametrize(
    ("shown", "output", "agree"),
    [
        (("a",), "a\n", True),
        (("a",), "a\nb\n", False),
        (("a", "b"), "a\n", False),
        ((), "", True),
        ((), "a\n", False),
        (("a  <age>",), "a   12s\n", True),
        (("a <age>",), "a 12s ago\n", False),
        (("...",), "a\nb\n", True),
        (("...", "b"), "a\nb\n", True),
        (("...", "a"), "a\nb\n", False),
        (("a", "...", "c"), "a\nb\nb\nc\n", True),
        (("a", "...", "c"), "a\nc\n", True),
        (("a", "...", "c"), "b\nc\n", False),
        (("...", "b", "...", "b"), "b\n", False),
        (("...", "b", "...", "b", "..."), "a\nb\nb\na\n", True),
        (("...", "a", "b", "..."), "a\na\nb\n", True),
        (("x-<id>-0 <ip> <none>",), "x-7k2a-0 10.0.0.1 <none>\n", True),
        (("x-<id>-0",), "x-7K2A-0\n", False),
        (("a.c",), "abc\n", False),
    ],
)
def test_an_output_agrees_with_a_row_or_not(shown: tuple[str, ...], output: str, agree: bool) -> None:
    assert matches(shown, output) is agree


def test_an_unknown_preparation_is_refused() -> None:
    with pytest.raises(AssertionError, match="known: age"):
        matches(("<anything>",), "a\n")
