"""Golden cases: what `trainyard plan` prints for a file, byte for byte. `pytest --update` writes them anew.

A case is `testdata/tfjob/<case>.input.yaml`, with the clock in a comment of its first lines (`# now: TIME`), and, where
it needs one, a controller config file `<case>.config.yaml` (else `controller.yaml`, whose PS program is one line).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainyard.cli.plan import plan

CASES = Path(__file__).parents[2] / "testdata" / "tfjob"
NAMES = sorted(path.name.removesuffix(".input.yaml") for path in CASES.glob("*.input.yaml"))


def planned(name: str) -> str:
    source = CASES / f"{name}.input.yaml"
    clock = re.search(r"^# now: (\S+)$", source.read_text(), re.MULTILINE)
    assert clock, f"{source.name} does not say '# now: TIME'"
    own = CASES / f"{name}.config.yaml"
    config = own if own.exists() else CASES / "controller.yaml"
    arguments = [str(source), "--now", clock[1], "--config", str(config)]
    result = CliRunner().invoke(plan, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_is_the_expected_one(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(CASES)  # where the config names its file
    expected = CASES / f"{name}.plan.yaml"
    if request.config.getoption("--update"):
        expected.write_text(planned(name))
    assert planned(name) == expected.read_text()


def test_no_expected_plan_is_left_without_its_input() -> None:
    assert {path.name.removesuffix(".plan.yaml") for path in CASES.glob("*.plan.yaml")} == set(NAMES)
