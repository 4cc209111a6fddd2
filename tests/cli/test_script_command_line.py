"""Which arguments are Trainyard's and which the program's, and every argument that is refused before the start."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner, Result

from tests.cli.script_values import script
from trainyard.cli.init import init
from trainyard.cli.run import run
from trainyard.cli.scripts.command_line import ProgramArguments, split_arguments
from trainyard.cli.scripts.program import job_name


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    script(tmp_path, "import sys")
    script(tmp_path, "#!/bin/sh\n", "shell.sh")
    script(tmp_path, "#!/bin/sh\n", "shell").chmod(0o755)
    script(tmp_path, "apiVersion: v1\nkind: Pod\n", "job.yaml")
    script(tmp_path, "apiVersion: v1\nkind: Pod\n", "stored")
    script(tmp_path, "hello", "notes.txt")
    return tmp_path


def program_arguments(form: str, target: str, *arguments: str) -> ProgramArguments:
    return ProgramArguments(form, target, arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "ours", "program"),
    [
        ("train.py", "", program_arguments("script", "train.py")),
        (
            "train.py --lr 3 -o x --workers 2",
            "",
            program_arguments("script", "train.py", "--lr", "3", "-o", "x", "--workers", "2"),
        ),
        ("--workers 2 train.py a.yaml", "--workers 2", program_arguments("script", "train.py", "a.yaml")),
        ("--workers=2 --keep train.py -- x", "--workers=2 --keep", program_arguments("script", "train.py", "--", "x")),
        ("-o json train.py -m x", "-o json", program_arguments("script", "train.py", "-m", "x")),
        ("-ojson train.py", "-ojson", program_arguments("script", "train.py")),
        ("--name train.py train.py", "--name train.py", program_arguments("script", "train.py")),
        ("./shell 1", "", program_arguments("script", "./shell", "1")),
        ("shell.sh", "", program_arguments("script", "shell.sh")),
        ("-m pack.train --lr 3", "", program_arguments("module", "pack.train", "--lr", "3")),
        ("--keep -m train -m x", "--keep", program_arguments("module", "train", "-m", "x")),
        ("-- ls -l", "", program_arguments("command", "ls", "-l")),
        ("--keep -- train.py", "--keep", program_arguments("command", "train.py")),
        ("job.yaml --keep other.yaml", "job.yaml --keep other.yaml", None),
        ("--keep job.yaml train.py", "--keep job.yaml train.py", None),
        ("- --keep", "- --keep", None),
        ("stored", "stored", None),
        ("missing.py", "missing.py", None),
        ("--workers", "--workers", None),
        ("", "", None),
    ],
)
def test_options_of_trainyard_end_at_the_program(line: str, ours: str, program: ProgramArguments | None) -> None:
    assert split_arguments(line.split(), run.params) == (ours.split(), program)


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("train", "train"),
        ("My_Train v2", "my-train-v2"),
        ("__main__", "main"),
        ("0_start", "job-0-start"),
        ("übung", "bung"),
        ("___", "job"),
        ("a" * 60, "a" * 35),
        ("a" * 34 + "_b", "a" * 34),
    ],
)
def test_a_generated_job_name_is_legal_for_every_kind(stem: str, name: str) -> None:
    assert job_name(stem) == name


def refused(command: object, line: str) -> Result:
    result = CliRunner().invoke(command, line.split())  # type: ignore[arg-type]
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    return result


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("", "Missing a manifest, a script, -m MODULE or -- COMMAND"),
        ("-m", "'-m' has nothing after it"),
        ("--", "'--' has nothing after it"),
        ("missing.py", "missing.py: is not there; name a manifest (.yaml, .yml, .json) or a script (.py"),
        ("n" * 300, "nnn: is not there; name a manifest"),
        ("notes.txt", "notes.txt: is neither a manifest nor a script; name a manifest"),
        ("job.yaml train.py", "train.py: is a script after a manifest"),
        ("--workers 2 job.yaml", "--workers: is for a script only"),
        ("--save x job.yaml", "--save: is for a script only"),
        ("--env A=1 job.yaml", "--env: is for a script only"),
        ("--workers 0 train.py", "0 is not in the range"),
        ("--ps 1 train.py", "--ps: nothing has parameter servers with plain, only with mxnet, tensorflow"),
        (
            "--nproc 2 train.py",
            "only with chainer, mpi4py, torch; leave it out, or name --framework; or write --workers",
        ),
        ("--min 2 train.py", "--min, --max: nothing is elastic with plain"),
        ("--framework torch --min 3 --max 2 train.py", "let --min <= --workers <= --max"),
        ("--name Upper train.py", "--name: 'Upper' is not a legal name"),
        ("--name 1a train.py", "--name: '1a' is not a legal name"),
        (f"--name {'a' * 60} train.py", "at most 51 characters"),
        ("--env 1=2 train.py", "--env: '1' is no name of a variable"),
        ("--env NOT_SET_ANYWHERE train.py", "--env: NOT_SET_ANYWHERE is not set here"),
        ("--mount missing train.py", "--mount: missing is not a folder"),
        ("--mount claim=/ train.py", "--mount: 'claim=/' is CLAIM=DIR, which is for manifests"),
        ("--mount /:relative train.py", "--mount: 'relative' is no absolute path"),
        ("--mount /:/a --mount /:/a train.py", "--mount: /a is mounted twice"),
        ("--dry-run --save job.yaml train.py", "job.yaml: is there already; name another file"),
        ("--dry-run --save missing/job.yaml train.py", "missing/job.yaml: cannot be written (No such file"),
    ],
)
def test_every_invalid_option_is_refused_with_its_place_and_the_fix(line: str, text: str, folder: Path) -> None:
    before = (folder / "job.yaml").read_text()
    assert text in refused(run, line).output
    assert (folder / "job.yaml").read_text() == before


def test_init_finds_the_usual_script_and_overwrites_nothing(folder: Path) -> None:
    result = CliRunner().invoke(init, [])
    assert result.exit_code == 0, result.output
    assert "train.yaml written; next: trainyard run train.yaml" in result.output
    text = (folder / "train.yaml").read_text()
    assert "train.yaml: is there already; name another file" in refused(init, "train.py").output
    assert (folder / "train.yaml").read_text() == text


def test_init_warns_beside_the_manifest(folder: Path) -> None:
    script(folder, "import torch")
    result = CliRunner().invoke(init, ["--workers", "2", "train.py"])
    assert "train.py: " in result.output, "the case has a warning"
    stdout = CliRunner().invoke(init, ["--workers", "2", "-o", "-", "train.py"]).stdout
    assert yaml.safe_load(stdout) == yaml.safe_load((folder / "train.yaml").read_text())
    assert yaml.safe_load(stdout)["kind"] == "PyTorchJob"


@pytest.mark.parametrize(
    ("scripts", "text"),
    [([], "there is no .py file"), (["a.py", "b.py"], "there are a.py, b.py; write trainyard init SCRIPT")],
)
def test_init_asks_for_the_script_when_there_are_several(
    scripts: list[str], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for name in scripts:
        script(Path(), "", name)
    assert text in refused(init, "").output


@pytest.mark.parametrize("line", ["job.yaml", "notes.txt", "missing.py"])
def test_init_refuses_a_file_that_is_no_script(line: str) -> None:
    assert line in refused(init, line).output


@pytest.mark.parametrize("command", [run, init])
def test_the_help_about_scripts_fits_80_columns(command: click.Command) -> None:
    text = CliRunner().invoke(command, ["--help"], terminal_width=80).output
    about = text.partition("Options:")[0]
    assert "-m MODULE" in about
    assert max(map(len, about.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        ("notes.txt", ["notes.txt"]),
        ("--data=notes.txt notes.txt", ["notes.txt"]),
        ("sub/data/", ["sub/data/"]),
        ("sub beside.txt other.txt --epochs 3", []),  # a word, a file beside the script, one that is nowhere
    ],
)
def test_an_argument_with_a_file_outside_of_the_working_directory_is_reported(
    folder: Path, arguments: str, missing: list[str]
) -> None:
    script(folder, "", "sub/train.py")
    script(folder, "", "sub/beside.txt")
    script(folder, "", "beside.txt")
    (folder / "sub" / "data").mkdir()
    output = " ".join(CliRunner().invoke(run, ["--dry-run", "sub/train.py", *arguments.split()]).stderr.split())
    for name in missing:
        assert (
            f"runs in its own folder, {folder}/sub, and there is no {name}; write {folder}/{name}".rstrip("/") in output
        )
    assert output.count("runs in its own folder") == len(missing)
    beside = CliRunner().invoke(run, ["--dry-run", "train.py", "notes.txt"])
    assert "own folder" not in beside.stderr
