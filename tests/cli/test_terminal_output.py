"""Names, messages and output of others do not steer the terminal, whatever the command; JSON and YAML keep them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Callable

import click
import pytest
import yaml

from trainyard.app.logging_setup import TextFormatter
from trainyard.cli.command.cluster_command import note, print_output
from trainyard.cli.commands import main
from trainyard.cli.output.layout import field_lines, table_line, table_lines
from trainyard.cli.output.printing import as_json, as_yaml
from trainyard.cli.output.screen import Descriptors, Screen

HOSTILE = "\x1b[2J\x1b]0;x\x07\rhidden\x9b1A\u202e"


def clean(text: str) -> bool:
    return not any(sign in text for sign in ("\x1b[2", "\x1b]", "\x07", "\r", "\x9b", "\u202e"))


def test_a_cell_stays_in_its_row_and_a_value_is_shown() -> None:
    (_, row) = table_lines([["NAME", "STATE"], [f"a\n{HOSTILE}", HOSTILE]], 200, colour=True)
    assert clean(row) and "\n" not in row
    assert clean(table_line([f"x\n{HOSTILE}"], [3], {}))
    assert all(clean(line) for line in field_lines([("Message:", HOSTILE)], 200, colour=True))


@pytest.mark.parametrize("command", ["out", "note", "echo"])
def test_every_command_writes_through_the_filter(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    """`main` puts the filter before stdout and stderr of all commands, also of one that knows nothing about it."""
    printers: dict[str, Callable[[str], object]] = {"out": print_output, "note": note, "echo": click.echo}
    say = printers[command]
    main.add_command(click.Command("hostile-output", callback=lambda: say(HOSTILE)))
    original = sys.stdout
    # `Commands` finds its own by name only, so the command is called as the group would call it.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(main), "get_command", lambda self, context, name: self.commands[name])
        with pytest.raises(SystemExit):
            main.main(["hostile-output"], prog_name="trainyard")
    written = "".join(capfd.readouterr())
    assert "hidden" in written and clean(written) and sys.stdout is original


def test_json_and_yaml_output_escape_control_characters() -> None:
    assert json.loads(as_json({"a": HOSTILE})) == yaml.safe_load(as_yaml({"a": HOSTILE})) == {"a": HOSTILE}
    for text in (as_json({"a": HOSTILE}), as_yaml({"a": HOSTILE})):
        assert not any(sign in text for sign in "\x1b\x07\r\x9b")


async def shown_on(descriptor: int) -> None:
    screen = Screen(Descriptors(descriptor, descriptor, descriptor), False, False, lambda: None)
    screen.log("worker-0", b"\x1b[32mgreen \x1b[2Jhidden")
    screen.note(HOSTILE)
    screen.result(HOSTILE)
    await screen.close()


def test_output_of_programs_on_a_terminal_keeps_its_colours_only() -> None:
    ours, terminal = os.openpty()
    asyncio.run(shown_on(terminal))
    text = os.read(ours, 65536).decode().replace("\r\n", "\n")
    os.close(terminal)
    os.close(ours)
    assert "\x1b[32mgreen \\x1b[2Jhidden\x1b[0m\n" in text and clean(text)


def test_output_of_programs_in_a_pipe_is_theirs_byte_for_byte() -> None:
    reader, writer = os.pipe()
    asyncio.run(shown_on(writer))
    assert b"| \x1b[32mgreen \x1b[2Jhidden\n" in os.read(reader, 65536)
    os.close(writer)
    os.close(reader)


def test_a_value_cannot_forge_a_log_line() -> None:
    forged = "x\n2026-11-23T00:00:00.000Z ERROR server all is lost"
    try:
        raise ValueError(forged + HOSTILE)
    except ValueError:
        record = logging.LogRecord("trainyard.node", logging.ERROR, "", 1, "pod=%s", (forged,), sys.exc_info())
    first, *rest = TextFormatter().format(record).split("\n")
    assert clean(first) and "pod=x\\n2026" in first
    assert rest and all(line.startswith("    ") and clean(line) for line in rest)
