"""/workspace/classy_vision/classy_train.py of torchelastic/examples: training from a configuration file.

It reads num_epochs, optimizer (lr, momentum, weight_decay), dataset.train.batchsize_per_replica and the model's
depth from the file. Everything else is as in elastic_imagenet.py: small generated images, a small residual network.
"""

import argparse
import json
import os
import sys

import elastic_train


def parser():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = options.add_argument
    add("--config_file", "--config", required=True)
    add("--num_workers", type=int, default=0, help="accepted: the pictures are in memory")
    add("--device", default="cpu", help="the CPU trains here")
    add("--checkpoint_folder", default="", help="where the checkpoint goes; default: TMPDIR")
    add("--checkpoint_period", type=int, default=1, help="accepted: every step is saved")
    add("--log_freq", type=int, default=10, help="steps between two lines")
    add("--distributed_backend", default="ddp")
    add("--pictures", type=int, default=2048, help="pictures of an epoch")
    add("--delay", type=float, default=0.0, help="seconds to wait after each step, to have time to look")
    for name in ("show_progress", "skip_tensorboard"):
        add("--" + name, action="store_true")
    return options


def course(config, pictures):
    """The `Course` of the configuration. Raises ValueError with one sentence when a value is missing or wrong."""
    if not isinstance(config, dict):
        raise ValueError("holds no JSON object")
    try:
        optimizer = config.get("optimizer") or {}
        lr = optimizer.get("lr", 0.02)
        if isinstance(lr, dict):  # of a schedule, its first value
            lr = lr.get("value") or (lr.get("values") or [0.02])[0]
        train = (config.get("dataset") or {}).get("train") or {}
        model = config.get("model") or {}
        deep = model.get("depth") or 2 * sum(model.get("num_blocks") or [2, 2, 2, 2]) + 2
        return elastic_train.Course(
            int(config.get("num_epochs", 10)), int(train.get("batchsize_per_replica", 32)), float(lr),
            float(optimizer.get("momentum", 0.9)), float(optimizer.get("weight_decay", 1e-4)), pictures, int(deep),
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError("num_epochs, optimizer, dataset or model is not as expected: %s" % error) from None


def main():
    args, unknown = parser().parse_known_args()
    if unknown:
        print("unknown arguments are ignored: %s" % " ".join(unknown), flush=True)
    try:
        with open(args.config_file) as file:
            parameters = course(json.load(file), args.pictures)
    except (OSError, ValueError) as error:
        sys.exit("--config_file=%s: %s" % (args.config_file, error))
    print("data: %d pictures are generated; no data set is read" % args.pictures, flush=True)
    file = elastic_train.TEMPORARY
    if args.checkpoint_folder:
        os.makedirs(args.checkpoint_folder, exist_ok=True)
        file = os.path.join(args.checkpoint_folder, "checkpoint.pth.tar")
    elastic_train.main(parameters, file, max(args.log_freq, 1), args.delay)


if __name__ == "__main__":
    main()
