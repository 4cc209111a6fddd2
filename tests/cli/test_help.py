"""The help of every command fits a terminal of 80 columns."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from trainyard.cli.commands import COMMANDS, main


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_80_columns(command: str) -> None:
    page = CliRunner().invoke(main, [*filter(None, [command]), "--help"], terminal_width=80).output
    assert "Usage:" in page
    assert [line for line in page.splitlines() if len(line) > 80] == []
