"""train_cifar10.py of the MxJob README: an image classifier, on one machine or with parameter servers, with MXNet.

Arguments and log lines are those of the original. The images have the shape of CIFAR-10, 3 x 28 x 28 in ten classes,
but they are generated from a seed: nothing is downloaded, and --data-train and --data-val are not read. Every
--network is a small convolutional network; --num-layers is the number of its convolutions.

In a dist job every role runs this program. MXNet itself starts the scheduler and the servers: for these roles
`import mxnet` serves until the training is over. Each worker trains on its own part of the images.
"""

import argparse
import logging
import os
import socket
import sys
import time

import drawn_digits

SEED = 10
CHANNELS = 8  # of the first convolution; each further one has as many


def parser():
    """The arguments of the original, with its names and most of its defaults."""
    dist = os.environ.get("DMLC_ROLE", "")
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = options.add_argument
    add("--network", default="resnet", help="accepted for the sake of old command lines")
    add("--num-layers", type=int, default=2, help="convolutions of the network, at most 4")
    add("--gpus", help="list of GPUs, such as 0 or 0,2; without one the CPU trains")
    add("--kv-store", default="dist_sync" if dist else "device", help="local, device, dist_sync, dist_async, ...")
    add("--num-epochs", type=int, default=10)
    add("--lr", type=float, default=0.05)
    add("--lr-factor", type=float, default=0.1)
    add("--lr-step-epochs", default="200,250", help="epochs at which the learning rate is multiplied by --lr-factor")
    add("--optimizer", default="sgd")
    add("--mom", type=float, default=0.9, help="momentum of sgd")
    add("--wd", type=float, default=0.0001, help="weight decay")
    add("--batch-size", type=int, default=128)
    add("--disp-batches", type=int, default=20, help="batches between two lines")
    add("--model-prefix", help="save the model under this name after each epoch")
    add("--load-epoch", type=int, help="continue from this saved epoch of --model-prefix")
    add("--monitor", type=int, default=0)
    add("--top-k", type=int, default=0, help="also report the accuracy among the best K")
    add("--test-io", type=int, default=0)
    add("--dtype", default="float32")
    add("--benchmark", type=int, default=0)
    add("--data-train", default="data/cifar10_train.rec", help="not read: the pictures are generated")
    add("--data-val", default="data/cifar10_val.rec", help="not read")
    add("--image-shape", default="3,28,28")
    add("--num-classes", type=int, default=10)
    add("--num-examples", type=int, default=9600, help="pictures of an epoch, over all workers")
    add("--data-nthreads", type=int, default=4)
    add("--rgb-mean", default="123.68,116.779,103.939")
    add("--pad-size", type=int, default=4)
    for name in ("crop", "mirror"):
        add("--random-" + name, type=int, default=1)
    add("--max-random-h", type=int, default=36)
    add("--max-random-s", type=int, default=50)
    add("--max-random-l", type=int, default=50)
    add("--max-random-aspect-ratio", type=float, default=0)
    add("--max-random-rotate-angle", type=int, default=0)
    add("--max-random-shear-ratio", type=float, default=0)
    add("--max-random-scale", type=float, default=1)
    add("--min-random-scale", type=float, default=1)
    return options


def problem(args, role):
    """The mistake in the arguments as one sentence, "" without one."""
    if args.kv_store.startswith("dist") and not role:
        return "--kv-store=%s needs a dist job: DMLC_ROLE is not set; use jobMode dist, or --kv-store=device" % args.kv_store
    try:
        channels, height, width = map(int, args.image_shape.split(","))
    except ValueError:
        return "--image-shape=%s is no list of three numbers such as 3,28,28" % args.image_shape
    if channels != 3 or not (16 <= height <= 256 and 16 <= width <= 256):
        return "--image-shape=%s: the generated pictures have 3 channels and 16 to 256 rows and columns" % args.image_shape
    if args.num_classes < 10:
        return "--num-classes=%d: the pictures are of 10 classes" % args.num_classes
    if args.batch_size < 1 or args.num_examples < args.batch_size:
        return "--num-examples=%d must hold at least one batch of --batch-size=%d" % (args.num_examples, args.batch_size)
    return ""


def set_own_address(environ):
    """Set the address of this node, before MXNet is imported: on one machine servers and workers cannot find it
    themselves."""
    root = environ.get("DMLC_PS_ROOT_URI", "")
    if root and not environ.get("DMLC_NODE_HOST"):
        try:
            if socket.gethostbyname(root).startswith("127."):
                environ["DMLC_NODE_HOST"] = "127.0.0.1"
        except OSError:
            pass  # the name does not resolve yet; MXNet waits for it
    environ.setdefault("OMP_NUM_THREADS", "1")  # the pods of a job share the CPUs


def worker_range(args, rank, workers):
    """(first, last) index of the images of this worker: whole batches, the same number for every worker."""
    part = max(args.num_examples // workers // args.batch_size, 1) * args.batch_size
    return rank * part, (rank + 1) * part


def network(mx, args):
    """Convolutions with pooling, then two dense layers."""
    layer = mx.sym.Variable("data")
    for at in range(min(max(args.num_layers, 1), 4)):
        stride = (2, 2) if at == 0 else (1, 1)
        name = "conv%d" % at
        layer = mx.sym.Convolution(layer, num_filter=CHANNELS, kernel=(3, 3), pad=(1, 1), stride=stride, name=name)
        layer = mx.sym.Activation(layer, act_type="relu")
        if at < 2:
            layer = mx.sym.Pooling(layer, pool_type="max", kernel=(2, 2), stride=(2, 2))
    layer = mx.sym.Activation(mx.sym.FullyConnected(mx.sym.flatten(layer), num_hidden=64), act_type="relu")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(layer, num_hidden=args.num_classes), name="softmax")


class Speed:
    """Prints the line of the README after every --disp-batches batches. The accuracy is that since the start of the
    epoch."""

    def __init__(self, batch_size, every):
        self.batch_size, self.every, self.since = batch_size, every, time.time()

    def __call__(self, now):
        if now.nbatch == 0:
            self.since = time.time()
        elif now.nbatch % self.every == 0:
            speed = self.every * self.batch_size / max(time.time() - self.since, 1e-9)
            values = dict(now.eval_metric.get_name_value())
            line = "Epoch[%d] Batch [%d]\tSpeed: %.2f samples/sec\taccuracy=%f"
            logging.info(line, now.epoch, now.nbatch, speed, values["accuracy"])
            self.since = time.time()


def devices(mx, gpus):
    """The devices to compute on. A GPU that is requested but missing is reported in one line."""
    if not gpus:
        return mx.cpu()
    have = mx.context.num_gpus()
    wanted = [int(number) for number in gpus.split(",") if number.strip()]
    if have > max(wanted, default=-1):
        return [mx.gpu(number) for number in wanted]
    logging.info("--gpus=%s: MXNet finds %s here; training runs on the CPU", gpus, "%d GPUs" % have if have else "no GPU")
    return mx.cpu()


def saved(mx, args, rank):
    """(prefix, callback) of the checkpoints. As in the original, the prefix has the rank for all workers but the
    first."""
    if not args.model_prefix:
        return "", None
    folder = os.path.dirname(args.model_prefix)
    if folder:
        os.makedirs(folder, exist_ok=True)
    prefix = args.model_prefix if rank == 0 else "%s-%d" % (args.model_prefix, rank)
    return prefix, mx.callback.do_checkpoint(prefix)


def data(mx, args, rank, workers):
    """(training, validation) iterators."""
    _, height, width = map(int, args.image_shape.split(","))
    first, last = worker_range(args, rank, workers)
    pictures, labels = drawn_digits.coloured(last, SEED, height, width)
    held, answers = drawn_digits.coloured(max(1000, args.batch_size), SEED + 1000, height, width)
    train = mx.io.NDArrayIter(pictures[first:], labels[first:], args.batch_size, shuffle=True)
    return train, mx.io.NDArrayIter(held, answers, args.batch_size)


def train(mx, args):
    store = mx.kvstore.create(args.kv_store)
    mx.random.seed(SEED)
    training, validation = data(mx, args, store.rank, store.num_workers)
    prefix, checkpoint = saved(mx, args, store.rank)
    symbol, known, auxiliary, begin = network(mx, args), None, None, args.load_epoch or 0
    if begin and prefix:
        symbol, known, auxiliary = mx.model.load_checkpoint(prefix, begin)
    module = mx.mod.Module(symbol, context=devices(mx, args.gpus))
    settings = {"learning_rate": args.lr, "wd": args.wd}
    if args.optimizer in ("sgd", "nag", "dcasgd", "signum"):
        settings["momentum"] = args.mom
    batches = training.num_data // args.batch_size
    steps = [batches * (int(epoch) - begin) for epoch in args.lr_step_epochs.split(",") if int(epoch) > begin]
    if steps:
        settings["lr_scheduler"] = mx.lr_scheduler.MultiFactorScheduler(steps, args.lr_factor, base_lr=args.lr)
    metrics = [mx.metric.Accuracy(), mx.metric.CrossEntropy()]
    if args.top_k > 1:
        metrics.append(mx.metric.TopKAccuracy(top_k=args.top_k))
    module.fit(
        training, validation, eval_metric=mx.metric.CompositeEvalMetric(metrics), kvstore=store,
        optimizer=args.optimizer, optimizer_params=settings, arg_params=known, aux_params=auxiliary,
        initializer=mx.init.Xavier(), batch_end_callback=Speed(args.batch_size, args.disp_batches),
        epoch_end_callback=checkpoint, begin_epoch=begin, num_epoch=args.num_epochs,
    )
    return store


def main():
    args = parser().parse_args()
    role = os.environ.get("DMLC_ROLE", "")
    wrong = problem(args, role)
    if wrong:
        sys.exit(wrong)
    set_own_address(os.environ)
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    if role in ("scheduler", "server"):
        root = "%s:%s" % (os.environ.get("DMLC_PS_ROOT_URI"), os.environ.get("DMLC_PS_ROOT_PORT"))
        logging.info("%s of the job, which meets at %s; serving until training is over", role, root)
    import mxnet as mx  # never returns in a scheduler or a server

    logging.info("start with arguments %s", args)
    store = train(mx, args)
    logging.info("done: worker %d of %d", store.rank, store.num_workers)


if __name__ == "__main__":
    main()
