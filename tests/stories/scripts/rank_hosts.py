"""Each rank prints in which pod it runs, and the sum of all ranks. The program of test_mpi_today.py."""

import os
import socket
import sys
from pathlib import Path

from mpi4py import MPI


def pod() -> str:
    """The name of this rank's pod.

    MPICH and Intel MPI give each rank the variables of mpiexec, and on the network shared all pods have one host name:
    the daemon of MPI, which started the rank, has those of its pod.
    """
    variables = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
    names = (pair.removeprefix(b"HOSTNAME=").decode() for pair in variables if pair.startswith(b"HOSTNAME="))
    return next(names, socket.gethostname())


world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
sys.stdout.write(f"rank {world.rank} of {world.size} in {pod()}, sum {total}\n")
