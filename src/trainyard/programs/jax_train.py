"""Data-parallel training with JAX: the processes of a JAXJob teach a small network to read digits, on one mesh.

Every process draws its own images, and holds all weights. The mean of the losses is one computation over the devices
of all processes, so its gradients are, too. At the end the sum of 1, 2, ... over the processes is checked, and that all
of them hold the same weights. Exits with 0 only if the accuracy on held-out images reaches --target_accuracy.

The operator sets COORDINATOR_ADDRESS, COORDINATOR_PORT, NUM_PROCESSES and PROCESS_ID.
"""

import argparse
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import drawn_digits

HIDDEN, PICTURES, RATE, SEED = 128, 2048, 0.5, 1


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--target_accuracy", type=float, default=0.9, help="on held-out pictures; below it, exit 1")
    parser.add_argument("--print_every", type=int, default=20, help="steps between two lines")
    return parser.parse_args()


def join():
    """(rank, number of processes), after all processes have met at the coordinator."""
    rank, world = int(os.environ["PROCESS_ID"]), int(os.environ["NUM_PROCESSES"])
    coordinator = "%s:%s" % (os.environ["COORDINATOR_ADDRESS"], os.environ["COORDINATOR_PORT"])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, world, rank)
    return rank, world


def scores(weights, pictures):
    hidden = jax.nn.relu(pictures @ weights["hidden"] + weights["hidden_bias"])
    return hidden @ weights["scores"] + weights["scores_bias"]


def loss_of(weights, pictures, labels):
    chances = jax.nn.log_softmax(scores(weights, pictures))
    return -jnp.mean(jnp.take_along_axis(chances, labels[:, None], 1))


@jax.jit
def train(weights, pictures, labels):
    loss, gradients = jax.value_and_grad(loss_of)(weights, pictures, labels)
    return loss, jax.tree.map(lambda weight, gradient: weight - RATE * gradient, weights, gradients)


def first_weights():
    random, size = np.random.RandomState(SEED), drawn_digits.HEIGHT * drawn_digits.WIDTH
    layers = {
        "hidden": random.normal(0, (2 / size) ** 0.5, (size, HIDDEN)),
        "scores": random.normal(0, (2 / HIDDEN) ** 0.5, (HIDDEN, 10)),
        "hidden_bias": np.zeros(HIDDEN),
        "scores_bias": np.zeros(10),
    }
    return {name: layer.astype(np.float32) for name, layer in layers.items()}


def main(flags):
    rank, world = join()

    def say(text):
        print("process %d of %d: %s" % (rank, world, text), flush=True)

    mesh = Mesh(np.array(jax.devices()), ("data",))
    split, replicated = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    # Global arrays of world * PICTURES rows; this process holds the rows that it has drawn.
    pictures, labels = drawn_digits.digits(PICTURES, SEED + 100 + rank)
    pictures = jax.make_array_from_process_local_data(split, pictures)
    labels = jax.make_array_from_process_local_data(split, labels.astype(np.int32))
    weights = jax.device_put(first_weights(), replicated)
    for step in range(flags.steps):
        loss, weights = train(weights, pictures, labels)
        if step % flags.print_every == 0 or step == flags.steps - 1:
            say("step %d loss %.6f" % (step, loss))

    own = {name: np.asarray(layer.addressable_data(0)) for name, layer in weights.items()}
    total = int(multihost_utils.process_allgather(np.array([rank + 1])).sum())
    say("the sum over all processes is %d" % total)
    multihost_utils.assert_equal(own, "the processes hold different weights")
    held_pictures, held_labels = drawn_digits.digits(2000, SEED)
    accuracy = float((np.asarray(scores(own, held_pictures)).argmax(1) == held_labels).mean())
    say("held-out accuracy %.3f, loss %.4f, after %d steps" % (accuracy, loss, flags.steps))
    jax.distributed.shutdown()
    if total != world * (world + 1) // 2 or accuracy < flags.target_accuracy:
        raise SystemExit("FAILED: the sum is %d, the accuracy %.3f" % (total, accuracy))


if __name__ == "__main__":
    main(arguments())
