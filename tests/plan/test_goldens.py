"""Golden cases: what `trainyard plan` prints for a file, byte for byte. `pytest --update` writes them anew.

A case is `testdata/<kind>/<case>.input.yaml`, with the clock in a comment of its first lines (`# now: TIME`), and,
where it needs one, a controller config file `<case>.config.yaml` (else the folder's `controller.yaml`). The programs we
ship stand there as one line each, so that a golden tells of the plan and not of them.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainyard import kinds
from trainyard.app import config
from trainyard.cli.plan import plan

DATA = Path(__file__).parents[2] / "testdata"
CASES = sorted(path.relative_to(DATA) for path in DATA.glob("*/*.input.yaml"))
PASSES = 6
PROGRAMS = dict.fromkeys(config.shipped_files(), "# the program\n")


def planned(case: Path) -> str:
    source = DATA / case
    clock = re.search(r"^# now: (\S+)$", source.read_text(), re.MULTILINE)
    assert clock, f"{case} does not say '# now: TIME'"
    own = source.with_name(source.name.replace(".input.", ".config."))
    settings = own if own.exists() else source.with_name("controller.yaml")
    arguments = [str(source), "--now", clock[1], "--config", str(settings)]
    result = CliRunner().invoke(plan, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def golden(case: Path) -> Path:
    return DATA / case.with_name(case.name.replace(".input.", ".plan."))


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case).removesuffix(".input.yaml"))
def test_the_plan_is_the_expected_one(
    case: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir((DATA / case).parent)  # where the config names its file
    monkeypatch.setattr(config, "shipped_files", lambda: dict(PROGRAMS))
    expected = golden(case)
    if request.config.getoption("--update"):
        expected.write_text(planned(case))
    assert planned(case) == expected.read_text()


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case).removesuffix(".input.yaml"))
def test_an_applied_plan_converges(case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pass after pass on what the pass before has made, at one time of the clock, until there is nothing to do."""
    monkeypatch.chdir((DATA / case).parent)
    monkeypatch.setattr(config, "shipped_files", lambda: dict(PROGRAMS))
    clock = re.search(r"^# now: (\S+)$", (DATA / case).read_text(), re.MULTILINE)
    file, arguments = tmp_path / "world.yaml", ["--now", clock[1] if clock else "", "--config", "controller.yaml"]
    file.write_text((DATA / case).read_text())
    for _ in range(PASSES):
        result = CliRunner().invoke(plan, [str(file), *arguments, "--apply"], catch_exceptions=False)
        assert result.exit_code == 0, result.stderr
        if "status:" not in result.stdout or file.read_text() == result.stdout:
            return  # nothing to do any more, or nothing left
        file.write_text(result.stdout)
    pytest.fail("it never comes to rest")


def test_no_expected_plan_is_left_without_its_input() -> None:
    assert set(DATA.glob("*/*.plan.yaml")) == {golden(case) for case in CASES}


def test_every_kind_has_cases() -> None:
    assert {case.parts[0] for case in CASES} >= {kinds.unique_name(kind) for kind in kinds.KINDS}
