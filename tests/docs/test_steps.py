"""The Makefile's steps collect the files that have their marker, and no others."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import MARKED_FILES
from tools import ci_steps

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("marker", "variable"), [("frameworks", "FRAMEWORK_FILES"), ("cluster", "CLUSTER_FILES")], ids=lambda value: value
)
def test_a_step_collects_every_file_with_its_marker(marker: str, variable: str, pytestconfig: pytest.Config) -> None:
    """Of the files that this run has collected: in `make test-local`, all."""
    lists = ["make", "-s", f"--eval=print-files: ; @echo $({variable})", "print-files"]
    files = subprocess.run(lists, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert len(files) > 10
    assert pytestconfig.stash[MARKED_FILES][marker] <= set(files)


def test_no_target_is_written_twice() -> None:
    """make would say so at every call, and forget the first."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(targets) > 40 and len(set(targets)) == len(targets), sorted(targets)


def test_the_page_has_every_step() -> None:
    text = ci_steps.PAGE.read_text()
    steps = {name for stage in ci_steps.STAGES for name in stage} - set(ci_steps.PREPARATION)
    assert [step for step in sorted(steps) if f"`make {step}`" not in text] == []


def test_a_failed_step_ends_the_run_after_its_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The step beside it runs to its end, the output of both is shown, and no later step begins."""
    (tmp_path / "Makefile").write_text("a: ; @sleep 0.2; echo of-a\nb: ; @echo of-b; exit 3\nc: ; @echo of-c\n")
    for name, value in {"ROOT": tmp_path, "TIMES": tmp_path / "times.json", "REPORTS": tmp_path}.items():
        monkeypatch.setattr(ci_steps, name, value)
    monkeypatch.setattr(ci_steps, "STAGES", (("a", "b"), ("c",)))
    assert ci_steps.main() == 1
    output = capfd.readouterr().out
    assert "of-a" in output and "of-b" in output and "of-c" not in output
    assert "ci: failed: b," in output
    steps = json.loads((tmp_path / "times.json").read_text())["steps"]
    assert [(name, code) for name, _, _, code in steps] == [("a", 0), ("b", 2)]


def test_the_tables_have_the_steps_and_the_slowest_tests(tmp_path: Path) -> None:
    report = tmp_path / "test-local.xml"
    report.write_text('<t><testcase classname="tests.a" name="b" time="2.5"/><testcase classname="c" name="d"/></t>')
    steps = [("lint", 61.2, 70.0, 0), ("frameworks", 5.0, 1.0, 0)]
    times = {"cpus": 2, "python": "3.11.7", "seconds": 61, "steps": steps, "tests": ci_steps.slowest_tests([report])}
    text = ci_steps.tables(times)
    assert "| `make lint` | 1:01 | 1:10 |" in text and "| 2.5 | `tests.a::b` |" in text
    assert text.index("make lint") < text.index("make frameworks") < text.index("tests.a::b")
