"""Makes a job of the options on the command line: checks them, and guesses the framework without --framework.

Every problem names the option and the fix, and is raised before any program starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from trainyard.cli.scripts.command_line import ProgramArguments
from trainyard.cli.scripts.commented_yaml import yaml_with_comments
from trainyard.cli.scripts.frameworks import FRAMEWORKS, PLAIN, GuessedFramework, guess_framework
from trainyard.cli.scripts.launchers import launcher_notes
from trainyard.cli.scripts.lone_processes import lone_process_notes
from trainyard.cli.scripts.machine_devices import machine_devices
from trainyard.cli.scripts.program import WorkerProgram, program_of
from trainyard.cli.scripts.worker_devices import WorkerDevices, worker_devices
from trainyard.core.names import is_dns_label
from trainyard.core.scripts import LOCAL_IMAGE, JobOptions, ProgramCommand, ScriptFramework
from trainyard.objects import Json, Problem
from trainyard.objects.manifest import Document, ManifestError
from trainyard.objects.patterns import lazy_pattern

SCRIPT_OPTIONS = ("workers", "ps", "nproc", "gpus", "least", "most", "framework", "api", "name", "env", "image")
"""Parameter names of the options that are rejected with a manifest."""
_OWN_OPTIONS = frozenset(
    (
        "-o",
        "--output",
        "--workers",
        "--ps",
        "--nproc",
        "--gpus",
        "--framework",
        "--api",
        "--python",
        "--image",
        "--save",
        "--dry-run",
        "--network",
    )
)
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_READ_VARIABLE = lazy_pattern(
    r"""\b(?:environ(?:\.get)?\s*[\[(]|getenv\s*\()\s*["']([A-Za-z_][A-Za-z0-9_]*)["'](?!\s*\]\s*=[^=])"""
)
_LAUNCHER_VARIABLES = frozenset(
    {"RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TF_CONFIG", "TMPDIR", "HOSTNAME"}
)
_LAUNCHER_PREFIXES = ("LOCAL_", "GROUP_", "TORCHELASTIC_", "OMPI_", "DMLC_", "JAX_")


class ProgramJob(msgspec.Struct, frozen=True):
    """A job made of a program. `note`: text with the guessed framework and the reason; "" when it was not guessed.
    `runtimes`: the TrainingRuntime of a TrainJob, which is created before it."""

    job: Json
    program: WorkerProgram
    framework: str
    note: str
    warnings: tuple[str, ...] = ()
    """What the program would not do as it is started, each with the fix."""
    runtimes: tuple[Json, ...] = ()

    @property
    def objects(self) -> list[Json]:
        """All objects of the manifest, the job last."""
        return [*self.runtimes, self.job]

    @property
    def document(self) -> Document:
        """The job as if it had been read from a manifest."""
        return self.documents[-1]

    @property
    def documents(self) -> list[Document]:
        """The objects as if they had been read from a manifest."""
        return [Document(obj, self.program.label, 1) for obj in self.objects]

    def with_working_directory(self) -> ProgramJob:
        """A copy whose job has the program's directory as annotation, so that it runs from any directory."""
        from trainyard.objects.labels import WORKING_DIRECTORY

        metadata = self.job["metadata"]
        annotations = {WORKING_DIRECTORY: str(self.program.directory), **metadata.get("annotations", {})}
        job = {**self.job, "metadata": {**metadata, "annotations": annotations}}
        return msgspec.structs.replace(self, job=job)

    def for_directory(self, folder: Path) -> ProgramJob:
        """A copy for a manifest in `folder`. The annotation is not needed in the program's directory: a program runs in
        the directory of its manifest."""
        return self if folder.resolve() == self.program.directory.resolve() else self.with_working_directory()

    def manifest_yaml(self, file: Path) -> str:
        """The YAML with comments, for a manifest at the path `file`."""
        relative_path = os.path.relpath(file)
        commands = [
            f"  trainyard run {relative_path}       on this machine",
            f"  trainyard submit {relative_path}    to a cluster: first name an image that it can pull",
        ]
        heading = [f"{self.job['kind']} for {self.program.label} ({self.framework}).", "", *commands, ""]
        first, *others = self.objects
        return "---\n".join([yaml_with_comments(first, heading), *(yaml_with_comments(obj, []) for obj in others)])


def make_job(arguments: ProgramArguments, options: dict[str, Any]) -> ProgramJob:
    """Make the job of a program and the options on the command line (`options`: values by parameter name).

    Raises ManifestError with a problem per option."""
    program = program_of(arguments)
    name, reason = _framework(program, options)
    framework = FRAMEWORKS[name]
    launcher = program.launcher if program.launcher and name in program.launcher.frameworks else None
    command = ProgramCommand(program.command, program.torchrun_args, launcher is not None)
    devices = worker_devices(
        options, options["most"] or options["workers"] or options["least"] or 1, name != PLAIN, machine_devices
    )
    job_options = _job_options(program, framework, {**options, "nproc": _processes(options["nproc"], devices)}, devices)
    if launcher and not options["nproc"]:
        processes = launcher.processes_per_worker(job_options.workers)
        job_options = msgspec.structs.replace(job_options, processes=processes)
    note = f"{program.label}: runs as {name}: {reason} (--framework changes it)" if reason else ""
    warnings = [f"{program.label}: {devices.note}"] if devices.note else []
    warnings += launcher_notes(launcher, job_options.workers) if launcher else []
    if program.source:
        count = job_options.workers * job_options.processes
        warnings += lone_process_notes(program.source, program.directory, framework, count)
    *runtimes, job = _converted(framework.job(command, job_options), options["api"])
    return ProgramJob(job, program, name, note, tuple(warnings), tuple(runtimes))


def _converted(job: Json, api: str | None) -> list[Json]:
    """The job, or what it is in another API. Raises ManifestError for what that API cannot do."""
    if not api:
        return [job]
    from trainyard.conversion import convert, is_convertible

    if not is_convertible(job, api):
        return [job]
    conversion = convert(job, api)
    lost = [f"{problem.path} is not mapped: {problem.text}" for problem in conversion.unmapped]
    if lost:
        raise ManifestError([Problem(f"--api {api}", text) for text in lost])
    return conversion.objects


def misplaced_option(arguments: ProgramArguments, program: WorkerProgram) -> str:
    """The first of the script's arguments that is an option of trainyard and does not occur in the script; else ""."""
    text = program.source.read_text(errors="replace") if program.source else ""
    uv_run = program.launcher.uv_run if program.launcher else ()  # uv has a --python, too
    words = arguments.arguments[max(0, len(uv_run) - 1) :]
    options = ((argument.partition("=")[0], argument) for argument in words)
    return next((argument for name, argument in options if name in _OWN_OPTIONS and name not in text), "")


def unreachable_files(arguments: ProgramArguments, program: WorkerProgram, folder: Path) -> list[str]:
    """The script's arguments that name a file relative to `folder`, the current directory, but not relative to the
    script's own directory, in which the script runs: it would not find these files."""
    if folder.resolve() == program.directory.resolve():
        return []
    values = ((word.partition("=")[2] if word.startswith("-") else word) for word in arguments.arguments)
    relative = (word for word in values if word and not os.path.isabs(word))
    return [
        word
        for word in dict.fromkeys(relative)
        if _names_file(folder, word) and not (program.directory / word).exists()
    ]


def unpassed_variables(program: WorkerProgram, options: dict[str, Any]) -> list[str]:
    """The environment variables that the script's own source reads, that are set here, and that it does not get: those
    that a launcher sets are not among them."""
    from trainyard.node.sandbox.inherited_environment import is_inherited

    text = program.source.read_text(errors="replace") if program.source else ""
    passed = {assignment.partition("=")[0] for assignment in options["env"]} | _LAUNCHER_VARIABLES
    return [
        name
        for name in dict.fromkeys(_READ_VARIABLE.findall(text))
        if name in os.environ
        and name not in passed
        and not name.startswith(_LAUNCHER_PREFIXES)
        and not is_inherited(name)
    ]


def _names_file(folder: Path, word: str) -> bool:
    """True when `word` names a file in `folder`, or a directory if it contains a slash."""
    path = folder / word
    try:
        return path.is_file() or ("/" in word and path.is_dir())
    except (OSError, ValueError):  # too long for a file name, or with a null byte
        return False


def _framework(program: WorkerProgram, options: dict[str, Any]) -> GuessedFramework:
    if options["framework"]:
        return GuessedFramework(options["framework"], "")
    if program.launcher:
        return GuessedFramework(program.launcher.frameworks[0], f"its launcher is {program.launcher.name}")
    if program.source is None:
        return GuessedFramework(PLAIN, "")
    return guess_framework(program.source, program.directory)


def _processes(nproc: int | str | None, devices: WorkerDevices) -> int | None:
    """The number of --nproc; for `gpu` one for each device of a worker. Raises ManifestError where it has none."""
    if not isinstance(nproc, str):
        return nproc
    if not devices.total:
        text = "gpu is one process for each GPU of a worker, and it has none; write a number, or --gpus N"
        raise ManifestError([Problem("--nproc", text)])
    return devices.total


def _job_options(
    program: WorkerProgram, framework: ScriptFramework, options: dict[str, Any], devices: WorkerDevices
) -> JobOptions:
    workers = options["workers"] or options["least"] or 1
    problems: list[Problem] = []
    if options["ps"] and not framework.has_servers:
        supported = [name for name, other in FRAMEWORKS.items() if other.has_servers]
        problems.append(_unsupported_option("--ps", "has parameter servers", supported, framework))
    if (options["nproc"] or 1) > 1 and not framework.starts_processes:
        supported = [name for name, other in FRAMEWORKS.items() if other.starts_processes]
        problem = _unsupported_option("--nproc", "starts several processes in one worker", supported, framework)
        problems.append(Problem(problem.path, f"{problem.text}; or write --workers"))
    bounds = None
    if options["least"] or options["most"]:
        if not framework.is_elastic:
            supported = [name for name, other in FRAMEWORKS.items() if other.is_elastic]
            problems.append(_unsupported_option("--min, --max", "is elastic", supported, framework))
        bounds = (options["least"] or workers, options["most"] or workers)
        if not bounds[0] <= workers <= bounds[1]:
            text = f"{bounds[0]} <= {workers} <= {bounds[1]} does not hold; let --min <= --workers <= --max"
            problems.append(Problem("--min, --max", text))
    name = options["name"] or program.name
    if not (is_dns_label(name) and name[0].isalpha()):
        text = f"{name!r} is not a legal name: write a letter, then lower-case letters, digits and '-'"
        problems.append(Problem("--name", text))
    env = _environment(options["env"], problems)
    mounts = _host_path_mounts(options["mounts"], problems)
    if problems:
        raise ManifestError(problems)
    return JobOptions(
        name=name,
        workers=workers,
        servers=options["ps"] or 0,
        processes=options["nproc"] or 1,
        worker_bounds=bounds,
        image=options["image"] or LOCAL_IMAGE,
        env=env,
        mounts=mounts,
        devices=devices.limits,
    )


def _unsupported_option(option: str, capability: str, supported: list[str], framework: ScriptFramework) -> Problem:
    text = f"nothing {capability} with {framework.name}, only with {', '.join(supported)}"
    return Problem(option, f"{text}; leave it out, or name --framework")


def _environment(assignments: Iterable[str], problems: list[Problem]) -> dict[str, str]:
    """The variables of --env: NAME=VALUE, or NAME with its value in this environment. Appends to `problems`."""
    env: dict[str, str] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not _VARIABLE_NAME.fullmatch(name):
            problems.append(Problem("--env", f"{name!r} is no name of a variable; write NAME=VALUE, or NAME"))
        elif not equals and name not in os.environ:
            problems.append(Problem("--env", f"{name} is not set here; write {name}=VALUE, or export it first"))
        else:
            env[name] = value if equals else os.environ[name]
    return env


def _host_path_mounts(mount_options: Iterable[str], problems: list[Problem]) -> tuple[tuple[str, str], ...]:
    """The mounts of --mount, DIR or DIR:PATH, as (host path, path in the container). Appends to `problems`.

    The directory must exist: a wrong path must not become an empty data set."""
    mounts: list[tuple[str, str]] = []
    for text in mount_options:
        folder, _, mount_path = text.partition(":")
        host_path = os.path.expanduser(folder)
        if not os.path.isdir(host_path) and "=" in text:
            fix = "a script's manifest has no claim; write DIR or DIR:PATH"
            problems.append(Problem("--mount", f"{text!r} is CLAIM=DIR, which is for manifests: {fix}"))
        elif not os.path.isdir(host_path):
            problems.append(Problem("--mount", f"{folder} is not a folder; make it, or name one that is there"))
        elif mount_path and not mount_path.startswith("/"):
            text = f"{mount_path!r} is no absolute path; write DIR:/PATH, where the program sees the folder"
            problems.append(Problem("--mount", text))
        else:
            absolute = os.path.abspath(host_path)
            mounts.append((absolute, mount_path or absolute))
    mount_paths = [mount_path for _, mount_path in mounts]
    if duplicate := next((mount_path for mount_path in mount_paths if mount_paths.count(mount_path) > 1), ""):
        problems.append(Problem("--mount", f"{duplicate} is mounted twice; give each folder a path of its own"))
    return tuple(mounts)


def create_file(file: Path, text: str) -> None:
    """Create a file exclusively (O_EXCL): an existing file is never overwritten.

    Raises ManifestError when it exists or cannot be written."""
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise ManifestError([Problem(str(file), "is there already; name another file, or remove it first")]) from None
    except OSError as error:
        text = f"cannot be written ({error.strerror}); name a file in a folder that you can write"
        raise ManifestError([Problem(str(file), text)]) from None
