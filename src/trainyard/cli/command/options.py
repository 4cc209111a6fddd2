"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trainyard.objects import Problem
from trainyard.objects.manifest import ManifestError

if TYPE_CHECKING:
    from trainyard.app.history.limits import RetentionLimits

F = TypeVar("F", bound=Callable[..., Any])


def _agree_to_downloads(context: click.Context, option: click.Parameter, agreed: bool) -> None:
    """The consent to large downloads, passed on to the code that builds environments in $TRAINYARD_YES; scripts may set
    the variable themselves."""
    if agreed:
        os.environ["TRAINYARD_YES"] = "1"


class ProcessCount(click.ParamType):  # type: ignore[type-arg]
    """A number of processes, or `gpu`."""

    name = "integer or gpu"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """The number, or "gpu" itself."""
        return "gpu" if value == "gpu" else int(click.IntRange(1, 65536).convert(value, param, ctx))


WORKERS = click.IntRange(1, 10000)
CACHE = "Directory of the Python environments for images.  [default: ~/.cache/trainyard]"
_CATALOGUE_OPTIONS = (
    click.option(
        "--images",
        multiple=True,
        metavar="FILE",
        help="Image catalogue, searched before the built-in one: it maps images to Python environments. Repeatable.",
    ),
    click.option(
        "--python",
        metavar="PATH|VENV",
        default="",
        help="Python interpreter or virtual environment for images without an entry in a catalogue."
        "  [default: the active one, see docs/images.md]",
    ),
    click.option("--cache", metavar="DIR", help=CACHE),
    click.option(
        "--yes",
        is_flag=True,
        expose_value=False,
        callback=_agree_to_downloads,
        help="Allow downloads of more than 1 GB.",
    ),
)
_RUNNER_OPTIONS = (
    click.option(
        "--network",
        type=click.Choice(["auto", "namespace", "shared"]),
        default="auto",
        show_default=True,
        help="Network of the pods: a network namespace for each pod, or that of this machine (shared).",
    ),
    click.option(
        "--mount",
        "mounts",
        multiple=True,
        metavar="CLAIM=DIR",
        help="Directory of this machine for the PersistentVolumeClaim CLAIM. Repeatable.",
    ),
    *_CATALOGUE_OPTIONS,
)
_MACHINE_OPTIONS = (
    *_RUNNER_OPTIONS,
    click.option(
        "--logs-dir",
        metavar="DIR",
        help="Directory to keep the logs in.  [default: the history]",
    ),
    click.option(
        "--controller-config-file",
        "config",
        metavar="FILE",
        help="Config file of the operator: volumes and variables for accelerators.",
    ),
)
_CLUSTER_OPTIONS = (
    click.option(
        "--kubeconfig",
        metavar="FILE",
        default="",
        help="Kubeconfig file.  [default: $KUBECONFIG, else that of `trainyard up`]",
    ),
    click.option(
        "--context", metavar="NAME", default="", help="Context of the kubeconfig.  [default: the current one]"
    ),
    click.option(
        "-n",
        "--namespace",
        metavar="NAMESPACE",
        default="",
        help="Namespace of the jobs.  [default: that of the context]",
    ),
)


def machine(command: F) -> F:
    """Add the options of a cluster on this machine: for `run` and `up`."""
    return _apply_options(_MACHINE_OPTIONS, command)


def runner(command: F) -> F:
    """Add the options of a node that runs pods as processes: for `node`, `run` and `up`."""
    return _apply_options(_RUNNER_OPTIONS, command)


def catalogues(command: F) -> F:
    """Add the options of the image catalogues: for `images` and its subcommands."""
    return _apply_options(_CATALOGUE_OPTIONS, command)


APIS = ("kubeflow", "trainjob")
"""conversion.TARGETS, whose import takes milliseconds that few scripts need."""


def script(command: F) -> F:
    """Add the options for the manifest of a script: for `run` and `init`."""
    from trainyard.cli.scripts.frameworks import FRAMEWORKS  # not at the top: it imports the kinds

    options: tuple[Callable[[F], F], ...] = (
        click.option("--workers", type=WORKERS, metavar="N", help="Number of workers.  [default: 1]"),
        click.option("--ps", type=WORKERS, metavar="N", help="Number of parameter servers (tensorflow, mxnet)."),
        click.option(
            "--nproc",
            type=ProcessCount(),
            metavar="N|gpu",
            help="Number of processes per worker (torch, chainer, mpi4py); gpu: one for each of its GPUs."
            "  [default: 1]",
        ),
        click.option(
            "--gpus",
            type=click.IntRange(0, 1024),
            metavar="N",
            help="Number of GPUs per worker.  [default: an even share of this machine's; 0 without a framework]",
        ),
        click.option("--min", "least", type=WORKERS, metavar="N", help="Minimum number of workers (elastic torch)."),
        click.option("--max", "most", type=WORKERS, metavar="N", help="Maximum number of workers (elastic torch)."),
        click.option(
            "--framework",
            type=click.Choice(sorted(FRAMEWORKS)),
            help="Framework of the script.  [default: guessed from its imports]",
        ),
        click.option("--api", type=click.Choice(APIS), help="API of the job, as for `convert --to`."),
        click.option("--name", metavar="NAME", help="Name of the job.  [default: that of the script]"),
        click.option(
            "--env",
            multiple=True,
            metavar="NAME[=VALUE]",
            help="Environment variable; without VALUE, that of this shell. Repeatable.",
        ),
        click.option("--image", metavar="IMAGE", help="Container image of the job, for a cluster."),
    )
    return _apply_options(options, command)


def cluster(command: F) -> F:
    """Add the options for cluster and namespace: for every command about jobs."""
    return _apply_options(_CLUSTER_OPTIONS, command)


def _apply_options(options: tuple[Callable[[F], F], ...], command: F) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def forbid(ctx: click.Context, names: Iterable[str], text: str) -> None:
    """Raises ManifestError if an option with one of the names, which has no effect here, is on the command line."""
    # A default from the config file or the environment is no error.
    command_line = click.core.ParameterSource.COMMANDLINE
    written_params = [
        param
        for param in ctx.command.params
        if param.name in names and ctx.get_parameter_source(param.name) == command_line
    ]
    if written_params:
        raise ManifestError([Problem(param.opts[0], f"{text}; leave it out") for param in written_params])


def path(text: str | None) -> Path | None:
    """The path of an option, None when the option is unset or empty."""
    return Path(text) if text else None


def interpreter(text: str) -> str:
    """The absolute path of --python: an interpreter, a program name on PATH, a virtual environment or a prefix.

    Raises ManifestError."""
    if not text:
        return ""
    from trainyard.node.images.interpreters import BrokenInterpreter, locate

    program_name = text if os.sep not in text and not os.path.lexists(text) else ""
    interpreter_path = shutil.which(program_name) if program_name else os.path.abspath(os.path.expanduser(text))
    if not interpreter_path:
        raise ManifestError(
            [Problem("--python", f"{text} is neither here nor on PATH; name an interpreter or a folder")]
        )
    try:
        locate(interpreter_path)
    except BrokenInterpreter as error:
        raise ManifestError([Problem("--python", str(error))]) from None
    return interpreter_path


def logs_dir(text: str | None) -> Path | None:
    """The absolute path of --logs-dir; the folder is created if it does not exist. Raises ManifestError."""
    if not text:
        return None
    folder = Path(text).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = (
            "is a file" if isinstance(error, FileExistsError) else f"cannot be made: {(error.strerror or '').lower()}"
        )
        raise ManifestError([Problem("--logs-dir", f"{text} {problem}; name a folder that you can write")]) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ManifestError([Problem("--logs-dir", f"{text} cannot be written; name a folder that you can write")])
    return folder


def history_limits() -> RetentionLimits:
    """The limits of the history: from the environment, else the defaults. Raises ManifestError."""
    from trainyard.app.history.limits import RetentionLimits

    try:
        return RetentionLimits.from_environment(os.environ)
    except ValueError as error:
        variable, _, problem = str(error).partition(": ")
        raise ManifestError([Problem(variable, problem)]) from None


def parse_claim(text: str) -> tuple[str, Path]:
    """Parse CLAIM=DIR. The folder must exist: a wrong path must not become an empty data set. Raises ManifestError."""
    name, equals, folder = text.partition("=")
    if not (name and equals and folder):
        raise ManifestError([Problem("--mount", f"{text!r} is not CLAIM=DIR; write a claim's name, '=' and a folder")])
    if not Path(folder).is_dir():
        raise ManifestError([Problem("--mount", f"{folder} is not a folder; make it, or name one that is there")])
    return name, Path(folder).absolute()
