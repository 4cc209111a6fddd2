"""Defaults of options: the config file, environment variables, and which of them wins."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from tests.cli.commands import run_in_process
from trainyard.cli.command import defaults
from trainyard.cli.commands import COMMANDS, main


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's config file, not there yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv(defaults.VARIABLE, raising=False)
    path = tmp_path / "trainyard" / "config.yaml"
    path.parent.mkdir()
    return path


def value(command: str, option: str, *line: str) -> object:
    """What the command would get for that parameter; nothing is run."""
    context = click.Context(main, info_name="trainyard", auto_envvar_prefix=defaults.PREFIX)
    context.default_map = defaults.default_map(main, context, command)  # a group
    loaded = main.get_command(context, command)
    assert loaded is not None
    return loaded.make_context(command, list(line), parent=context).params[option]


def test_the_file_is_below_the_command_line_and_the_variable(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text("run: {network: shared, timeout: 5}\n")
    assert value("run", "network", "job.yaml") == "shared"
    assert value("run", "timeout", "job.yaml") == 5.0
    monkeypatch.setenv("TRAINYARD_RUN_NETWORK", "namespace")
    assert value("run", "network", "job.yaml") == "namespace"
    assert value("run", "network", "--network", "auto", "job.yaml") == "auto"
    assert value("up", "network") == "auto"


def test_a_path_in_the_file_is_relative_to_the_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    config.write_text("run: {images: [mine.yaml, ~/ours.yaml, /etc/all.yaml], cache: ../cache}\n")
    folder = config.parent
    assert value("run", "images", "job.yaml") == (f"{folder}/mine.yaml", "/home/ann/ours.yaml", "/etc/all.yaml")
    assert value("run", "cache", "job.yaml") == f"{folder}/../cache"


def test_one_value_is_enough_where_an_option_may_be_repeated(config: Path) -> None:
    config.write_text("run: {images: /etc/mine.yaml}\n")
    assert value("run", "images", "job.yaml") == ("/etc/mine.yaml",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("runn: {network: shared}", ":1: runn: is not a command (did you mean run?)"),
        ("lint:\n  network: shared", ":2: lint.network: `trainyard lint` has no option --network"),
        ("lint: shared", ":1: lint: is not a mapping; write its options below it"),
        ("- lint", ":1: document: is not one mapping; write commands with their options"),
        ("lint: {a: 1", "config.yaml:"),
        ("lint: {}\n---\nlint: {}", ":3: document: is not one mapping"),
    ],
)
def test_a_mistake_in_the_file_is_an_error_with_its_place(config: Path, text: str, problem: str) -> None:
    config.write_text(text)
    answer = run_in_process("lint", "job.yaml")
    assert answer.code == 2
    assert str(config) in answer.err
    assert problem in answer.err
    assert "Usage:" not in answer.err


def test_a_value_that_the_option_does_not_take_is_an_error(config: Path) -> None:
    config.write_text("run: {network: bridged}\n")
    answer = run_in_process("run", "job.yaml")
    assert answer.code == 2
    assert answer.err.startswith(f"{config}:1: run.network: 'bridged' is not one of")


def test_a_mistake_in_another_commands_section_stops_only_that_command(config: Path) -> None:
    config.write_text("run: {network: bridged}\n")
    assert run_in_process("manifests").code == 0


def test_an_error_names_the_variable_of_the_value(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_RUN_NETWORK", "bridged")
    assert "(from the variable TRAINYARD_RUN_NETWORK)" in run_in_process("run", "job.yaml").err


def test_a_named_file_must_be_there(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(defaults.VARIABLE, str(config))
    answer = run_in_process("manifests")
    assert answer.code == 2
    assert f"TRAINYARD_CONFIG: there is no file {config}" in answer.err
    monkeypatch.setenv(defaults.VARIABLE, "/dev/null")
    assert run_in_process("manifests").code == 0


def test_help_works_with_any_config_file(config: Path) -> None:
    config.write_text("runn: {")
    assert run_in_process("--help").code == 0
    assert all(name in run_in_process("--help").out for name in COMMANDS)


def test_an_unknown_command_is_answered_with_the_most_similar_one() -> None:
    from click.testing import CliRunner

    ended = CliRunner().invoke(main, ["statsu"])
    assert ended.exit_code == 2 and "there is no command 'statsu' (did you mean status?)" in ended.output


def test_an_unknown_variable_is_reported_with_the_most_similar_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRAINYARD_RUN_NETWROK", "TRAINYARD_RUN_NETWORK", "TRAINYARD_HISTORY_JOBS"):
        monkeypatch.setenv(name, "1")
    assert isinstance(main, click.Group)
    context = click.Context(main)
    (line,) = defaults.unknown_variables(main, context, "run")
    assert line.startswith("TRAINYARD_RUN_NETWROK: ") and "did you mean TRAINYARD_RUN_NETWORK?" in line
    assert defaults.unknown_variables(main, context, "history") == []
