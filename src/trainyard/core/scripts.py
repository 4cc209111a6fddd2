"""How a kind makes a job of a script, for `trainyard run SCRIPT` and `init` (`ScriptFramework`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from trainyard.objects import Json

LOCAL_IMAGE = "trainyard/local"
"""Image name that the shipped catalogue maps to this machine's own Python and files; no cluster can pull it."""


class ProgramCommand(msgspec.Struct, frozen=True):
    """The command line of a program. `torchrun_args`: the program as the last arguments of `python -m
    torch.distributed.run`. `has_launcher`: it starts a launcher of the framework itself, torchrun or mpirun."""

    command: tuple[str, ...]
    torchrun_args: tuple[str, ...]
    has_launcher: bool = False


class JobOptions(msgspec.Struct, frozen=True):
    """The values of the options for a job."""

    name: str
    workers: int = 1
    servers: int = 0
    processes: int = 1
    worker_bounds: tuple[int, int] | None = None  # (minimum, maximum) number of workers of an elastic job
    image: str = LOCAL_IMAGE
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    mounts: tuple[tuple[str, str], ...] = ()  # (host path, path in the container)
    devices: Mapping[str, int] = msgspec.field(default_factory=dict)  # limits of each worker: {"nvidia.com/gpu": 2}


class SourcePattern(msgspec.Struct, frozen=True):
    """A regular expression of a program's source, and what a message says about it."""

    pattern: str
    text: str


class ScriptFramework(msgspec.Struct, frozen=True):
    """A framework whose scripts run as jobs of a kind. `job` makes the job object.

    Rules for `job`:
    - One failure ends the job: a script is run once, because a retry of a broken script hides the first failure.
      Disrupted pods (their node is drained) are replaced and do not count as failures.
    - The command names files relative to the working directory, so that the same manifest is valid with an image.
    - The addresses and indexes of the replicas come from the operator or the downward API, never from this machine.
    """

    name: str
    job: Callable[[ProgramCommand, JobOptions], Json]
    modules: tuple[str, ...] = ()  # imports by which a script is recognized
    # Among several frameworks of one script the lowest decides. MPI programs need mpiexec, whatever else they import.
    # JAX programs often read data with torch or TensorFlow, and torch programs write logs with TensorFlow.
    precedence: int = 0
    has_servers: bool = False  # --ps
    starts_processes: bool = False  # --nproc: its launcher starts several processes in one worker
    is_elastic: bool = False  # --min, --max
    # What the processes of a program train together by; the text names the usual ways. None: its launcher joins them.
    joins: SourcePattern | None = None
    mistakes: tuple[SourcePattern, ...] = ()  # of which several processes do not join; the text ends with the fix
