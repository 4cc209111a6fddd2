"""Distributed XGBoost: the ranks of an XGBoostJob grow one set of trees, each from its own images of digits.

The master also runs the tracker, at which all ranks meet. Histograms are summed over the ranks, so all of them hold the
same trees: a hash of the model is compared at the end. Exits with 0 only if the accuracy on held-out images reaches
--target_accuracy.

The operator sets MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE.
"""

import argparse
import hashlib
import os
import socket
import time

import numpy as np
import xgboost
from xgboost.tracker import RabitTracker

import drawn_digits

PICTURES, SEED, PATIENCE = 1500, 1, 120.0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="trees for each digit")
    parser.add_argument("--target_accuracy", type=float, default=0.9, help="on held-out pictures; below it, exit 1")
    parser.add_argument("--print_every", type=int, default=5, help="rounds between two lines")
    return parser.parse_args()


def address_of(host):
    """The IPv4 address of `host`, with retries: names of pods may resolve late."""
    deadline = time.time() + PATIENCE
    while True:
        try:
            return socket.gethostbyname(host)
        except OSError:
            if time.time() > deadline:
                raise
            time.sleep(0.25)


class RoundPrinter(xgboost.callback.TrainingCallback):
    """Prints the losses: that of the training is over all ranks."""

    def __init__(self, say, every, last):
        self.say, self.every, self.last = say, every, last

    def after_iteration(self, model, epoch, evals_log):
        if epoch % self.every == 0 or epoch == self.last:
            self.say("round %d loss %.6f" % (epoch, evals_log["train"]["mlogloss"][-1]))
        return False


def grow(flags, say, rank, world):
    """Train with all other ranks, which are connected. Returns the model."""
    pictures, labels = drawn_digits.digits(PICTURES, SEED + 100 + rank)
    data = xgboost.DMatrix(pictures, labels)
    parameters = {
        "objective": "multi:softprob", "num_class": 10, "tree_method": "hist", "max_depth": 5, "eta": 0.4, "nthread": 1,
    }  # fmt: skip
    progress = RoundPrinter(say, flags.print_every, flags.rounds - 1)
    model = xgboost.train(
        parameters, data, flags.rounds, evals=[(data, "train")], verbose_eval=False, callbacks=[progress]
    )
    digest = hashlib.sha256(bytes(model.save_raw())).digest()[:4]
    number = int.from_bytes(digest, "big") % 1000003  # small enough for an exact sum
    total = int(xgboost.collective.allreduce(np.array([number], np.int64), xgboost.collective.Op.SUM)[0])
    if total != number * world:
        raise SystemExit("FAILED: the ranks hold different models")
    say("all %d ranks hold the same model, %d" % (world, number))
    return model


def main(flags):
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host, port = address_of(os.environ["MASTER_ADDR"]), int(os.environ["MASTER_PORT"])

    def say(text):
        print("rank %d of %d: %s" % (rank, world, text), flush=True)

    tracker = RabitTracker(n_workers=world, host_ip=host, port=port) if rank == 0 else None
    if tracker is not None:
        tracker.start()
    communicator = {"dmlc_tracker_uri": host, "dmlc_tracker_port": port, "dmlc_task_id": str(rank), "dmlc_retry": 60}
    with xgboost.collective.CommunicatorContext(**communicator):
        model = grow(flags, say, rank, world)
    if tracker is not None:
        tracker.wait_for()
    pictures, labels = drawn_digits.digits(2000, SEED)
    accuracy = float((model.predict(xgboost.DMatrix(pictures)).argmax(1) == labels).mean())
    say("held-out accuracy %.3f, after %d rounds" % (accuracy, flags.rounds))
    if accuracy < flags.target_accuracy:
        raise SystemExit("FAILED: held-out accuracy %.3f is below the target %.3f" % (accuracy, flags.target_accuracy))


if __name__ == "__main__":
    main(arguments())
