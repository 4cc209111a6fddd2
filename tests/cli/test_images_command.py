"""`trainyard images` and its commands: what they print, at 80 columns, and what they end with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainyard.cli import main
from trainyard.node.images import store

VERSION = ".".join(map(str, sys.version_info[:3]))
Trainyard = Callable[..., Result]
UV = """#!/bin/sh
[ "$1" = venv ] || exit 0
for last; do :; done
mkdir -p "$last/bin" && ln -s {python} "$last/bin/python" && echo home > "$last/pyvenv.cfg"
head -c 200000 {zero} > "$last/data"
"""


@pytest.fixture
def trainyard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trainyard:
    """The command, with a cache and a configuration folder of its own, and an installer of the test's instead of uv."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "TRAINYARD_YES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("os.isatty", lambda descriptor: descriptor in (1, 2))  # as on a terminal of 80 columns
    monkeypatch.setattr("os.get_terminal_size", lambda descriptor: os.terminal_size((80, 24)))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "uv").write_text(UV.format(python=sys.executable, zero="/dev/zero"))
    (tmp_path / "bin" / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, images: str = "") -> Result:
        if images:
            (tmp_path / "images.yaml").write_text(images)
            arguments = (*arguments, "--images", str(tmp_path / "images.yaml"))
        ended = CliRunner().invoke(main, ["images", *arguments])
        assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
        return ended

    return run


def flat(text: str) -> str:
    """Without line breaks: where they are depends on the length of the test's folder."""
    return " ".join(text.split())


def lines_without(text: str, words: list[str]) -> list[str]:
    return [line for line in text.splitlines() if not any(word in line for word in words)]


def cache(tmp_path: Path) -> list[store.Environment]:
    return store.list_environments(tmp_path / "cache" / "trainyard")


PINNED = "images:\n- {match: my/pinned, requirements: [a==1]}\n"
OWN = f"images:\n- {{match: my/img, python: {sys.prefix}}}\n"
GONE = "images:\n- {match: my/gone, python: /nowhere/venv}\n"


def test_the_list_describes_each_image_and_fits_the_terminal(trainyard: Trainyard) -> None:
    entries = (
        OWN + GONE.partition("\n")[2] + "- {match: [my/a, my/b], providers: [{requirements: [a==1], download: 9 MB}]}\n"
    )
    ended = trainyard(images=entries)
    lines = ended.stdout.splitlines()
    assert ended.exit_code == 0 and max(map(len, lines)) <= 80
    rows = [line.split() for line in lines]
    assert rows[0] == ["IMAGE", "IS", "STATE", "FROM"]
    assert ["my/img", "Python", VERSION, "ready", "images.yaml"] in rows
    assert ["my/gone", "/nowhere/venv", "missing", "images.yaml"] in rows
    assert ["my/a", "+1", "a==1", "would", "install", "9", "MB", "images.yaml"] in rows
    assert (
        "my/gone is missing: /nowhere/venv does not exist; make it (python3 -m venv\n  /nowhere/venv)" in ended.stdout
    )
    assert any(row[0] == "pytorch/pytorch*" and row[-1] == "shipped" for row in rows)


def test_the_list_as_data(trainyard: Trainyard) -> None:
    first, second = json.loads(trainyard("-o", "json", images=GONE + PINNED.partition("\n")[2]).stdout)[:2]
    assert (first["images"], first["state"], first["shipped"]) == (["my/gone"], "missing", False)
    assert "/nowhere/venv does not exist" in first["problems"][0]
    assert (second["state"], second["is"], second["problems"]) == ("install", "a==1", [])
    assert trainyard("-o", "name", images=GONE).stdout.splitlines()[0] == "my/gone"


def test_explain_names_the_chosen_provider_and_why_the_others_are_not_used(trainyard: Trainyard) -> None:
    entry = (
        "images:\n- match: x\n  providers: [{current: {no_such_module: ''}}, "
        f"{{interpreter: {sys.executable}}}, {{current: {{}}}}]\n  env: {{A: b}}\n  entrypoint: [python, ./train.py]\n"
    )
    ended = trainyard("explain", "x", "--python", sys.executable, images=entry)
    text = flat(ended.stdout)
    words = [word for word in ended.stdout.split() if len(word) > 60]  # a path is never broken
    assert ended.exit_code == 0 and all(len(line) <= 80 for line in lines_without(ended.stdout, words))
    assert f"(1) your Python: not taken: {sys.executable} has no module no_such_module; install it there" in text
    assert f"(2) {sys.executable}: taken: it is ready (3) your Python: not taken: a provider before it is taken" in text
    assert f"Interpreter {sys.executable} Version {VERSION} Because of its entry" in text
    assert "A=b" in text and f"Entrypoint python {os.getcwd()}/train.py" in text


def test_explaining_an_unavailable_image_ends_with_3(trainyard: Trainyard) -> None:
    ended = trainyard("explain", "my/gone", "-o", "json", images=GONE)
    (provider,) = json.loads(ended.stdout)["providers"]
    assert ended.exit_code == 3 and provider["state"].startswith("not taken: /nowhere/venv does not exist; make it")


def test_an_image_without_an_entry_is_explained_by_the_interpreter(trainyard: Trainyard) -> None:
    ended = trainyard("explain", "any/image", "--python", sys.prefix)
    assert "an image without an entry runs its pod's command" in flat(ended.stdout)
    assert "Because of   --python" in ended.stdout


def test_images_try_runs_the_image(trainyard: Trainyard, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    entry = OWN.replace("}", ", entrypoint: [python, train.py]}")
    ended = trainyard("try", "my/img", images=entry)
    assert ended.exit_code == 0 and ended.stdout.endswith("my/img works.\n")
    assert ended.stdout.startswith(f"python --version: Python {VERSION}\n")
    assert f"runs with Python {VERSION}" in flat(ended.stderr)
    (tmp_path / "train.py").unlink()
    ended = trainyard("try", "my/img", images=entry.replace("train.py", "./train.py"))
    assert ended.exit_code == 1 and f"{tmp_path}/train.py: fails: there is no such file" in flat(ended.stdout)


def test_images_try_imports_the_required_modules(trainyard: Trainyard, tmp_path: Path) -> None:
    (tmp_path / "broken_module.py").write_text("raise ImportError('libx.so.1 is missing')\n")
    providers = "[{current: {broken_module: ''}}]"
    entry = f"images:\n- match: x\n  providers: {providers}\n  env: {{PYTHONPATH: {tmp_path}}}\n"
    ended = trainyard("try", "x", "--python", sys.executable, images=entry)
    assert ended.exit_code == 1 and "import broken_module: fails: ImportError: libx.so.1 is missing" in flat(
        ended.stdout
    )
    assert ended.stderr.endswith("x does not work; see above.\n")


def test_images_try_reports_why_an_image_is_unavailable(trainyard: Trainyard) -> None:
    ended = trainyard("try", "my/gone", images=GONE)
    assert ended.exit_code == 3 and ended.stdout == ""
    assert ended.stderr.startswith("my/gone: /nowhere/venv does not exist; make it (python3 -m venv")


def test_an_environment_is_sized_kept_and_pruned(trainyard: Trainyard, tmp_path: Path) -> None:
    assert trainyard("try", "my/pinned", images=PINNED).exit_code == 0
    ended = trainyard("size")
    row = ended.stdout.splitlines()[1].split()
    assert row[0] == "a==1" and row[2] == "kB" and row[-2:] == ["idle", "my/pinned"]
    assert "1 environment, " in flat(ended.stdout)
    assert flat(trainyard("prune").stdout).endswith("; kept 1 environment"), "its catalogue still names it"
    (tmp_path / "images.yaml").unlink()
    (environment,) = cache(tmp_path)
    lock = store.lock_environment(environment.folder)
    assert "kept a==1: it is in use" in trainyard("prune").stdout
    os.close(lock)
    ended = trainyard("prune")
    assert f"removed {environment.folder.name}, " in flat(ended.stdout) and " kB: no entry names it freed " in flat(
        ended.stdout
    )
    assert cache(tmp_path) == []


def test_prune_removes_environments_that_were_not_used_for_long(trainyard: Trainyard, tmp_path: Path) -> None:
    trainyard("try", "my/pinned", images=PINNED)
    (environment,) = cache(tmp_path)
    assert "kept 1 environment" in flat(trainyard("prune", "--older-than", "30").stdout)
    os.utime(environment.folder / store.RECORD, (0, environment.last_used - 40 * 86400))
    assert "not used for 40 days" in trainyard("prune", "--older-than", "30").stdout
    assert cache(tmp_path) == []


def test_the_cache_is_emptied_only_with_consent(trainyard: Trainyard, tmp_path: Path) -> None:
    trainyard("try", "my/pinned", images=PINNED)
    ended = trainyard("clean")
    assert ended.exit_code == 2 and "would remove 1 environment" in flat(ended.stderr) and "--yes" in ended.stderr
    assert len(cache(tmp_path)) == 1
    ended = trainyard("clean", "--yes")
    assert ended.exit_code == 0 and "\nfreed " in ended.stdout and cache(tmp_path) == []
    assert (tmp_path / "images.yaml").exists()
    assert trainyard("clean").exit_code == 0, "there is nothing to agree to"


@pytest.mark.parametrize("arguments", [(), ("explain", "x"), ("try", "x"), ("size",), ("prune",)])
def test_a_catalogue_that_cannot_be_used_ends_with_2(trainyard: Trainyard, arguments: tuple[str, ...]) -> None:
    ended = trainyard(*arguments, images="images:\n- {match: x, python: ''}\n")
    assert ended.exit_code == 2 and "images.yaml:2: images[0].python: is empty; name a virtual" in flat(ended.stderr)


@pytest.mark.parametrize(
    ("python", "expected_message"),
    [
        ("/nowhere/venv", "--python: /nowhere/venv does not exist; make it"),
        ("no-such-python", "--python: no-such-python is neither here nor on PATH; name an interpreter"),
    ],
)
def test_a_missing_interpreter_ends_with_2_wherever_it_is_named(
    trainyard: Trainyard, tmp_path: Path, python: str, expected_message: str
) -> None:
    assert trainyard("--python", python).stderr.startswith(expected_message)
    (tmp_path / "job.yaml").write_text((Path(__file__).parents[2] / "examples" / "tf_job.yaml").read_text())
    argv = [sys.executable, "-m", "trainyard", "run", "--python", python, str(tmp_path / "job.yaml")]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "") and ended.stderr.startswith(expected_message)
