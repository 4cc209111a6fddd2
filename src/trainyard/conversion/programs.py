"""What the command line of a container starts, as far as a conversion depends on it."""

from __future__ import annotations

from trainyard.objects import Json

TORCHRUN_MODULES = ("torch.distributed.run", "torch.distributed.launch")
MPI_LAUNCHERS = ("mpiexec", "mpirun")


def _words(container: Json) -> list[str]:
    """The words of command and args, also those of a shell's script."""
    entries = [*(container.get("command") or ()), *(container.get("args") or ())]
    return [word for entry in entries if isinstance(entry, str) for word in entry.split()]


def runs_torchrun(container: Json) -> bool:
    """Whether the container's command line names torchrun, which reads PET_ variables."""
    return any(word.rpartition("/")[2] == "torchrun" or word in TORCHRUN_MODULES for word in _words(container))


def runs_mpi_launcher(container: Json) -> bool:
    """Whether the container's command line names mpiexec or mpirun."""
    return any(word.rpartition("/")[2] in MPI_LAUNCHERS for word in _words(container))
