"""From the options of the command line to a job: checked, with the framework guessed where nobody names it.

Every problem names the option and the fix, and is said before anything starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from trainyard.cli.scripts.command_line import Words
from trainyard.cli.scripts.frameworks import PLAIN, Guess, guess
from trainyard.cli.scripts.manifest import LOCAL_IMAGE, LOCAL_PROCESSES, WITH_SERVERS, Shape, job_of
from trainyard.cli.scripts.program import Program, program_of
from trainyard.cli.scripts.text import commented
from trainyard.core.names import is_dns_label
from trainyard.objects import Json, Problem
from trainyard.objects.manifest import Document, ManifestError

OPTIONS = ("workers", "ps", "nproc", "least", "most", "framework", "name", "env", "image")
"""Those that make no sense beside a manifest, by their parameter names."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Made(msgspec.Struct, frozen=True):
    """A job made of a program. `note` says which framework was guessed, and why; "" when none was."""

    job: Json
    program: Program
    framework: str
    note: str

    @property
    def document(self) -> Document:
        return Document(self.job, self.program.label, 1)

    def with_working_directory(self) -> Made:
        """The same, to be run from anywhere: its folder is written down."""
        from trainyard.objects.labels import WORKING_DIRECTORY

        meta = self.job["metadata"]
        annotations = {WORKING_DIRECTORY: str(self.program.folder), **meta.get("annotations", {})}
        job = {**self.job, "metadata": {**meta, "annotations": annotations}}
        return Made(job, self.program, self.framework, self.note)

    def at_home_in(self, folder: Path) -> Made:
        """The same, for a manifest that will stand in that folder: programs run in their manifest's folder anyhow."""
        return self if folder.resolve() == self.program.folder.resolve() else self.with_working_directory()

    def text(self, file: Path) -> str:
        """The commented manifest, for a file of that name."""
        shown = os.path.relpath(file)
        heading = [
            f"{self.job['kind']} for {self.program.label} ({self.framework}).",
            "",
            f"  trainyard run {shown}       on this machine",
            f"  trainyard submit {shown}    to a cluster: first name an image that it can pull",
            "",
        ]
        return commented(self.job, heading)


def make(words: Words, given: dict[str, Any]) -> Made:
    """The job that the words and the options ask for. Raises ManifestError."""
    program = program_of(words)
    found = _framework(program, given)
    shape = _shape(program, found.framework, given)
    note = f"{program.label}: runs as {found.framework}: {found.reason} (--framework changes it)"
    return Made(job_of(found.framework, program, shape), program, found.framework, note if found.reason else "")


def misplaced(words: Words, program: Program) -> str:
    """The first of the script's words that is an option of ours and nowhere in the script; "" when there is none."""
    text = program.source.read_text(errors="replace") if program.source else ""
    ours = (
        "-o",
        "--output",
        "--workers",
        "--ps",
        "--nproc",
        "--framework",
        "--python",
        "--image",
        "--save",
        "--dry-run",
        "--network",
    )
    return next((word for word in words.arguments if word.split("=")[0] in ours and word.split("=")[0] not in text), "")


def files_elsewhere(words: Words, program: Program, folder: Path) -> list[str]:
    """Of the script's arguments those that name a file in `folder`, where the command is given, and none in the
    script's own folder, where it runs: it would not find them."""
    if folder.resolve() == program.folder.resolve():
        return []
    named = ((word.partition("=")[2] if word.startswith("-") else word) for word in words.arguments)
    relative = (word for word in named if word and not os.path.isabs(word))
    return [word for word in dict.fromkeys(relative) if _names(folder, word) and not (program.folder / word).exists()]


def _names(folder: Path, word: str) -> bool:
    """A file; of a folder it is only certain where the word looks like a path."""
    path = folder / word
    try:
        return path.is_file() or ("/" in word and path.is_dir())
    except (OSError, ValueError):  # too long for a name, or with a zero byte
        return False


def _framework(program: Program, given: dict[str, Any]) -> Guess:
    if given["framework"]:
        return Guess(given["framework"], "")
    if program.source is None:
        return Guess(PLAIN, "")
    return guess(program.source, program.folder)


def _shape(program: Program, framework: str, given: dict[str, Any]) -> Shape:
    workers = given["workers"] or given["least"] or 1
    problems: list[Problem] = []
    if given["ps"] and framework not in WITH_SERVERS:
        problems.append(_misfit("--ps", "has parameter servers", WITH_SERVERS, framework))
    if (given["nproc"] or 1) > 1 and framework not in LOCAL_PROCESSES:
        misfit = _misfit("--nproc", "starts several processes in one worker", LOCAL_PROCESSES, framework)
        problems.append(Problem(misfit.path, f"{misfit.text}; or write --workers"))
    bounds = None
    if given["least"] or given["most"]:
        if framework != "torch":
            problems.append(_misfit("--min, --max", "is elastic", ("torch",), framework))
        bounds = (given["least"] or workers, given["most"] or workers)
        if not bounds[0] <= workers <= bounds[1]:
            text = f"{bounds[0]} <= {workers} <= {bounds[1]} does not hold; let --min <= --workers <= --max"
            problems.append(Problem("--min, --max", text))
    name = given["name"] or program.name
    if not (is_dns_label(name) and name[0].isalpha()):
        text = f"{name!r} is not a legal name: write a letter, then lower-case letters, digits and '-'"
        problems.append(Problem("--name", text))
    env = _variables(given["env"], problems)
    mounts = _folders(given["mounts"], problems)
    if problems:
        raise ManifestError(problems)
    return Shape(
        name=name,
        workers=workers,
        servers=given["ps"] or 0,
        processes=given["nproc"] or 1,
        bounds=bounds,
        image=given["image"] or LOCAL_IMAGE,
        env=env,
        mounts=mounts,
    )


def _misfit(option: str, what: str, frameworks: tuple[str, ...], framework: str) -> Problem:
    known = ", ".join(frameworks)
    return Problem(option, f"nothing {what} with {framework}, only with {known}; leave it out, or name --framework")


def _variables(given: Iterable[str], problems: list[Problem]) -> dict[str, str]:
    """NAME=VALUE, or NAME as this shell has it."""
    env: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not _VARIABLE.fullmatch(name):
            problems.append(Problem("--env", f"{name!r} is no name of a variable; write NAME=VALUE, or NAME"))
        elif not equals and name not in os.environ:
            problems.append(Problem("--env", f"{name} is not set here; write {name}=VALUE, or export it first"))
        else:
            env[name] = value if equals else os.environ[name]
    return env


def _folders(given: Iterable[str], problems: list[Problem]) -> tuple[tuple[str, str], ...]:
    """DIR, or DIR:PATH; the folder must be there: a wrong path must not become an empty data set."""
    mounts: list[tuple[str, str]] = []
    for text in given:
        folder, _, path = text.partition(":")
        place = os.path.expanduser(folder)
        if not os.path.isdir(place) and "=" in text:
            fix = "a script's manifest has no claim; write DIR or DIR:PATH"
            problems.append(Problem("--mount", f"{text!r} is CLAIM=DIR, which is for manifests: {fix}"))
        elif not os.path.isdir(place):
            problems.append(Problem("--mount", f"{folder} is not a folder; make it, or name one that is there"))
        elif path and not path.startswith("/"):
            text = f"{path!r} is no absolute path; write DIR:/PATH, where the program sees the folder"
            problems.append(Problem("--mount", text))
        else:
            absolute = os.path.abspath(place)
            mounts.append((absolute, path or absolute))
    targets = [path for _, path in mounts]
    if again := next((path for path in targets if targets.count(path) > 1), ""):
        problems.append(Problem("--mount", f"{again} is mounted twice; give each folder a path of its own"))
    return tuple(mounts)


def write_new(file: Path, text: str) -> None:
    """Writes a file that is not there yet: nothing of a person's is ever overwritten. Raises ManifestError."""
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise ManifestError([Problem(str(file), "is there already; name another file, or remove it first")]) from None
    except OSError as error:
        text = f"cannot be written ({error.strerror}); name a file that can"
        raise ManifestError([Problem(str(file), text)]) from None
