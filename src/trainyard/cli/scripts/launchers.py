"""The launchers of frameworks, as torchrun and mpirun, by the first words of a command or of a shell script's line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

_PYTHON = re.compile(r"python[\d.]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_COMMANDS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("torchrun",): ("torch",),
    ("accelerate", "launch"): ("torch",),
    ("deepspeed",): ("torch",),
    ("mpirun",): ("mpi4py", "chainer"),
    ("mpiexec",): ("mpi4py", "chainer"),
}
"""The words of each launcher, with the frameworks whose jobs have its variables; the first is that of a job without
--framework."""
_UV_OPTIONS = """
--extra --no-extra --group --no-group --only-group --no-editable-package --env-file -w --with --with-editable
--with-requirements --package --python-platform --index --default-index -i --index-url --extra-index-url -f
--find-links --index-strategy --keyring-provider -P --upgrade-package --upgrade-group --resolution --prerelease
--prerelease-package --fork-strategy --exclude-newer --exclude-newer-package --no-sources-package --reinstall-package
--link-mode -C --config-setting --config-settings-package --no-build-isolation-package --no-build-package
--no-binary-package --cache-dir --refresh-package -p --python --color --allow-insecure-host --directory --project
--config-file
"""
"""The options of uv and `uv run` whose value may be the next word (`uv run --help`, uv 0.13). Behind one that is not
here no launcher is recognised."""


class Launcher(NamedTuple):
    """A launcher, and its arguments: options, and the program with its own. `uv_run`: the words up to it of a command
    that begins with `uv run`."""

    name: str
    frameworks: tuple[str, ...]
    arguments: tuple[str, ...]
    uv_run: tuple[str, ...] = ()

    @property
    def program(self) -> tuple[str, ...]:
        """The Python script (or -m and a module) that it starts, with its arguments; () if there is none among them."""
        for index, word in enumerate(self.arguments):
            if word.endswith(".py"):
                return self.arguments[index:]
            if word in ("-m", "--module"):
                return ("-m", *self.arguments[index + 1 :])
        return ()

    def option(self, *names: str) -> str:
        """The value of one of its options, also with `_` in place of `-`; "" without it."""
        options = self.arguments[: len(self.arguments) - len(self.program)]
        for index, word in enumerate(options):
            name, equals, value = word.partition("=")
            if name.replace("_", "-") in names:
                return value if equals else next(iter(options[index + 1 :]), "")
        return ""

    def has_flag(self, name: str) -> bool:
        """Whether the flag is among its options."""
        return name in self.arguments[: len(self.arguments) - len(self.program)]

    def processes_per_worker(self, workers: int) -> int:
        """How many processes its options start in each worker, 1 if they do not tell."""
        total, count = self.option("-n", "-np", "--n", "--np"), self.option("--nproc-per-node")
        if self.frameworks[0] != "torch" and total.isdecimal():
            return max(1, -(-int(total) // workers))
        return max(1, int(count)) if count.isdecimal() else 1


def launcher_of(command: tuple[str, ...]) -> Launcher | None:
    """The launcher with which a command begins, by its name in any folder, or as a module of Python; else None."""
    if not command:
        return None
    words = (Path(command[0]).name, *command[1:])
    if words[0] == "uv":
        start = _command_of_uv(words)
        rest = ("python", *words[start:]) if words[start : start + 1] in (("-m",), ("--module",)) else words[start:]
        launcher = launcher_of(rest)
        return launcher._replace(uv_run=words[:start]) if launcher else None
    if _PYTHON.fullmatch(words[0]):
        flags = next((index for index, word in enumerate(words[1:], 1) if not re.fullmatch(r"-[a-zA-Z]", word)), 0)
        if words[flags - 1] != "-m" or not flags:
            return None
        if words[flags] in _TORCHRUN_MODULES:
            return Launcher(f"python -m {words[flags]}", ("torch",), words[flags + 1 :])
        if words[flags] == "accelerate.commands.launch":
            return Launcher("accelerate launch", ("torch",), words[flags + 1 :])
        return None
    for names, frameworks in _COMMANDS.items():
        if words[: len(names)] == names:
            return Launcher(" ".join(names), frameworks, words[len(names) :])
    return None


def _command_of_uv(words: tuple[str, ...]) -> int:
    """The index of the command that `uv run` starts, of its -m with a module, or of the end without either."""
    has_run, index = False, 1
    while index < len(words):
        word = words[index]
        if word == "--":
            return index + 1
        if not word.startswith("-"):
            if has_run or word != "run":
                break
            has_run = True
        elif has_run and word in ("-m", "--module"):
            break
        index += 2 if word in _UV_OPTIONS.split() else 1
    return index if has_run else len(words)


def launcher_of_script(text: str) -> Launcher | None:
    """That of the first line of a shell script that begins with one, behind `exec`, `time` and assignments."""
    for line in text.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quotation over several lines
            continue
        while words and (words[0] in ("exec", "time", "env") or _ASSIGNMENT.match(words[0])):
            words = words[1:]
        if launcher := launcher_of(tuple(words)):
            return launcher
    return None


def launcher_notes(launcher: Launcher, workers: int) -> list[str]:
    """What a launcher that starts in each of the workers would not do as written, with the fix."""
    if launcher.frameworks[0] != "torch":
        return []
    if launcher.name in ("accelerate launch", "deepspeed"):
        has_hosts = launcher.option("--num-machines", "--hostfile", "--config-file") or launcher.has_flag("--cpu")
        if workers == 1 or has_hosts:
            return []
        program = shlex.join(launcher.program or ("SCRIPT",))
        command = f"-- {shlex.join(launcher.uv_run)} torchrun {program}" if launcher.uv_run else program
        fix = f"write `trainyard run --workers {workers} {command}`, which torchrun starts in all of them"
        return [f"{launcher.name} starts a training of its own in each of the {workers} workers: {fix}"]
    nodes = launcher.option("--nnodes")
    if workers > 1 and (launcher.has_flag("--standalone") or nodes in ("1", "1:1")):
        option = "--standalone" if launcher.has_flag("--standalone") else f"--nnodes {nodes}"
        return [f"with {option} each of the {workers} workers trains alone: leave it out, and they train together"]
    if nodes.isdecimal() and int(nodes) > workers:
        fix = f"write --workers {nodes}, or leave it out"
        return [f"with --nnodes {nodes} torchrun waits for {nodes} workers, and the job has {workers}: {fix}"]
    return []
