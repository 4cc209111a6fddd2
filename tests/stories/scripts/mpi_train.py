"""Gradients averaged with mpi4py."""

import sys

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
random, truth, weights = np.random.default_rng(world.rank), np.array([1, -2, 3, 0.5]), np.zeros(4)
for step in range(60):
    x = random.normal(size=(32, 4))
    error = x @ (weights - truth)
    gradient = world.allreduce(2 * x.T @ error / 32) / world.size
    weights -= 0.1 * gradient
    if step in (0, 59):
        print("step", step, "loss", (error**2).mean(), flush=True)
# One write for a line: print makes a write of each part, and mpiexec may put the parts of two ranks into one line.
sys.stdout.write(f"rank {world.rank} of {world.size} weights {weights.round(2).tolist()}\n")
