"""train_mnist.py of the Chainer and ChainerMN examples: trains a multi-layer perceptron to read digits.

One file for both images. Started directly it is the program of everpeace/chainer; with ChainerMN
(chainermn_mnist.py) every process of mpiexec trains on its share, and gradients are averaged over MPI after every
batch. Arguments and output lines are those of the originals. The digits are generated from a seed, without a
download.
"""

import argparse
import os
import sys

TRAINING, HELD = 60000, 10000  # as many images as MNIST has
ENTRIES = ["epoch", "main/loss", "validation/main/loss", "main/accuracy", "validation/main/accuracy", "elapsed_time"]


def parser(mpi):
    """The arguments of the original of that image."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = options.add_argument
    add("--batchsize", "-b", type=int, default=100, help="pictures of one process and one step")
    add("--epoch", "-e", type=int, default=20)
    add("--unit", "-u", type=int, default=1000, help="units of a hidden layer")
    add("--out", "-o", default="result", help="folder for what is saved")
    add("--resume", "-r", default="", help="a snapshot to continue from")
    add("--noplot", action="store_true", help="accepted: no curves are plotted")
    add("--frequency", "-f", type=int, default=-1, help="epochs between two snapshots; -1: only at the end")
    if mpi:
        add("--gpu", "-g", action="store_true", help="there is none here: the CPU trains")
        add("--communicator", default="hierarchical", help="without GPUs this is always naive")
    else:
        add("--gpu", "-g", "--device", "-d", default="-1", help="there is none here: the CPU trains")
    add("--pictures", type=int, default=TRAINING, help="pictures of an epoch, over all processes")
    return options


def problem(args):
    """The mistake in the arguments as one sentence, "" without one."""
    for name in ("batchsize", "epoch", "unit", "pictures"):
        if getattr(args, name) < 1:
            return "--%s=%d must be at least 1" % (name, getattr(args, name))
    return ""


class WithoutControlCodes:
    """A stream for the table of PrintReport: removes the codes that clear a terminal's line."""

    def __init__(self, out):
        self.out = out

    def write(self, text):
        self.out.write(text.replace("\033[J", ""))

    def flush(self):
        self.out.flush()


def network(chainer, units):
    """Two hidden layers, with the loss as the last one."""
    layers = chainer.links.Linear
    relu = chainer.functions.relu
    return chainer.links.Classifier(
        chainer.Sequential(layers(None, units), relu, layers(None, units), relu, layers(None, 10))
    )


def pictures(chainer, args):
    """(training, validation) data sets."""
    import drawn_digits

    datasets = []
    for count, seed in ((args.pictures, 1), (max(args.pictures * HELD // TRAINING, 1), 2)):
        images, labels = drawn_digits.digits(count, seed)
        datasets.append(chainer.datasets.TupleDataset(images, labels.astype("int32")))
    return datasets


def train(args, comm):
    """Train until the last epoch. `comm` is a ChainerMN communicator, or None for a single process."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import chainer
    from chainer.training import StandardUpdater, Trainer, extensions

    leads = comm is None or comm.rank == 0
    model, optimizer = network(chainer, args.unit), chainer.optimizers.Adam()
    training, held = pictures(chainer, args) if leads else (None, None)
    if comm is not None:
        import chainermn

        optimizer = chainermn.create_multi_node_optimizer(optimizer, comm)
        training = chainermn.scatter_dataset(training, comm, shuffle=True, seed=1)
        held = chainermn.scatter_dataset(held, comm)
    optimizer.setup(model)
    batches = chainer.iterators.SerialIterator(training, args.batchsize)
    evaluated = extensions.Evaluator(
        chainer.iterators.SerialIterator(held, args.batchsize, repeat=False, shuffle=False), model
    )
    if comm is not None:
        evaluated = chainermn.create_multi_node_evaluator(evaluated, comm)
    trainer = Trainer(StandardUpdater(batches, optimizer), (args.epoch, "epoch"), args.out)
    trainer.extend(evaluated)
    if leads:
        every = (args.frequency if args.frequency > 0 else args.epoch, "epoch")
        trainer.extend(extensions.snapshot(filename="snapshot_iter_{.updater.iteration}"), trigger=every)
        trainer.extend(extensions.LogReport())
        trainer.extend(extensions.PrintReport(ENTRIES, out=WithoutControlCodes(sys.stdout)))
    if args.resume:
        chainer.serializers.load_npz(args.resume, trainer)
    trainer.run()
    sys.stdout.flush()


def main():
    args = parser(mpi=False).parse_args()
    if problem(args):
        sys.exit(problem(args))
    if args.gpu not in ("-1", "@numpy"):
        print("--gpu=%s: Chainer has no GPU here; training runs on the CPU" % args.gpu)
    for line in ("GPU: -1", "# unit: %d" % args.unit, "# Minibatch-size: %d" % args.batchsize, "# epoch: %d" % args.epoch):
        print(line)
    print("", flush=True)
    train(args, None)


if __name__ == "__main__":
    main()
