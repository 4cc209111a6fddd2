"""Data-parallel training over MPI: every rank of an MPIJob reads its own images of digits, in NumPy.

After each step the gradients are summed with Allreduce, so all ranks hold the same weights: they are compared at the end.
Exits with 0 only if the accuracy on held-out images reaches --target_accuracy.
"""

import argparse
import os
import socket
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the ranks share the CPUs; a session of ssh has no variable of the image

import numpy as np
from mpi4py import MPI

import drawn_digits

PICTURES, SEED, HIDDEN, RATE, MOMENTUM = 1500, 1, 64, 0.3, 0.9


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=150, help="on all pictures of a rank")
    parser.add_argument("--target_accuracy", type=float, default=0.9, help="on held-out pictures; below it, exit 1")
    parser.add_argument("--print_every", type=int, default=25, help="steps between two lines")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds to wait after each step")
    return parser.parse_args()


def initial_weights():
    """Two layers, each with its bias as the last row: the same on every rank."""
    random, size = np.random.RandomState(SEED), drawn_digits.HEIGHT * drawn_digits.WIDTH
    shapes = [(size + 1, HIDDEN), (HIDDEN + 1, 10)]
    return [random.normal(0, 1 / np.sqrt(rows), (rows, columns)) for rows, columns in shapes]


def probabilities(weights, pictures):
    """The output of the hidden layer, and the probabilities of the ten digits for each picture."""
    first, second = weights
    hidden = np.maximum(pictures @ first[:-1] + first[-1], 0)
    scores = hidden @ second[:-1] + second[-1]
    scores = np.exp(scores - scores.max(1, keepdims=True))
    return hidden, scores / scores.sum(1, keepdims=True)


def loss_and_gradients(weights, pictures, labels):
    """The cross-entropy of this rank's pictures, and its gradient by each layer."""
    hidden, outputs = probabilities(weights, pictures)
    rows = np.arange(len(labels))
    loss = -np.log(outputs[rows, labels] + 1e-12).mean()
    outputs[rows, labels] -= 1
    outputs /= len(labels)
    back = outputs @ weights[1][:-1].T * (hidden > 0)
    second = np.vstack([hidden.T @ outputs, outputs.sum(0)])
    return loss, [np.vstack([pictures.T @ back, back.sum(0)]), second]


def mean_of_ranks(array):
    """The mean over all ranks, by Allreduce."""
    total = np.empty_like(array)
    MPI.COMM_WORLD.Allreduce(array, total, MPI.SUM)
    return total / MPI.COMM_WORLD.size


def main(flags):
    rank, world = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    # Pods may share the host name of the machine. MPICH and Intel MPI (PMI_RANK) give ranks the launcher's variables.
    name = "" if "PMI_RANK" in os.environ else os.environ.get("HOSTNAME")
    host = name or socket.gethostname()

    def say(text):
        # One write for each line: mpirun mixes the output of its ranks write by write.
        sys.stdout.write("rank %d of %d on %s: %s\n" % (rank, world, host, text))
        sys.stdout.flush()

    pictures, labels = drawn_digits.digits(PICTURES, SEED + 100 + rank)
    weights = initial_weights()
    speeds = [np.zeros_like(layer) for layer in weights]
    for step in range(flags.steps):
        loss, gradients = loss_and_gradients(weights, pictures, labels)
        for layer, speed, gradient in zip(weights, speeds, gradients):
            speed *= MOMENTUM
            speed -= RATE * mean_of_ranks(gradient)
            layer += speed
        if step % flags.print_every == 0 or step == flags.steps - 1:
            say("step %d loss %.6f" % (step, mean_of_ranks(np.array([loss]))[0]))
        time.sleep(flags.delay)

    for layer in weights:
        for other in MPI.COMM_WORLD.allgather(layer):
            if not np.array_equal(layer, other):
                raise SystemExit("FAILED: the ranks hold different weights")
    say("all %d ranks hold the same weights" % world)
    held_pictures, held_labels = drawn_digits.digits(2000, SEED)
    accuracy = float((probabilities(weights, held_pictures)[1].argmax(1) == held_labels).mean())
    say("held-out accuracy %.3f, after %d steps" % (accuracy, flags.steps))
    if accuracy < flags.target_accuracy:
        raise SystemExit("FAILED: held-out accuracy %.3f is below the target %.3f" % (accuracy, flags.target_accuracy))


if __name__ == "__main__":
    main(arguments())
