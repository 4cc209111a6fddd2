#!/usr/bin/env python3
"""`pi` of the image mpioperator/mpi-pi: every rank throws points into a square, and rank 0 counts those in the circle."""

import socket

import numpy as np
from mpi4py import MPI

POINTS = 10_000_000


def main():
    rank, world = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    print("Rank %d on host %s" % (rank, socket.gethostname()), flush=True)
    random, inside = np.random.RandomState(rank), 0
    for _ in range(10):
        points = random.uniform(-1, 1, (2, POINTS // 10))
        inside += int(((points**2).sum(0) <= 1).sum())
    total = MPI.COMM_WORLD.reduce(inside)
    if rank == 0:
        print("pi is approximately %.16f" % (4 * total / (POINTS * world)), flush=True)


if __name__ == "__main__":
    main()
