"""/workspace/examples/imagenet/main.py of torchelastic/examples: elastic training of an image classifier.

The arguments are those of the original. The images are small and generated: the folder in the arguments is not read.
Every --arch is a small residual network; a number above 18 in the name doubles the blocks.
"""

import argparse
import re
import sys

import elastic_train


def parser():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = options.add_argument
    add("data", nargs="?", default="", metavar="DIR", help="not read: the pictures are generated")
    add("-a", "--arch", default="resnet18")
    add("-j", "--workers", type=int, default=0, help="accepted: the pictures are in memory")
    add("--epochs", type=int, default=90)
    add("-b", "--batch-size", type=int, default=32, help="pictures of one member and one step")
    add("--lr", "--learning-rate", type=float, default=0.02)
    add("--momentum", type=float, default=0.9)
    add("--wd", "--weight-decay", type=float, default=1e-4)
    add("-p", "--print-freq", type=int, default=10, help="steps between two lines")
    add("--dist-backend", default="gloo", help="nccl needs GPUs; gloo is used here")
    add("--checkpoint-file", default=elastic_train.TEMPORARY)
    add("--local_rank", "--local-rank", type=int, default=0, help="accepted: the environment says it")
    add("--pictures", type=int, default=2048, help="pictures of an epoch")
    add("--delay", type=float, default=0.0, help="seconds to wait after each step, to have time to look")
    return options


def problem(args):
    """The mistake in the arguments as one sentence, "" without one."""
    for name in ("epochs", "batch_size", "print_freq", "pictures"):
        if getattr(args, name) < 1:
            return "--%s=%d must be at least 1" % (name.replace("_", "-"), getattr(args, name))
    return ""


def depth(arch):
    number = re.search(r"\d+", arch)
    return int(number.group()) if number else 18


def main():
    args = parser().parse_args()
    if problem(args):
        sys.exit(problem(args))
    print("data: %d pictures are generated; no folder is read" % args.pictures, flush=True)
    course = elastic_train.Course(
        args.epochs, args.batch_size, args.lr, args.momentum, args.wd, args.pictures, depth(args.arch)
    )
    elastic_train.main(course, args.checkpoint_file, args.print_freq, args.delay)


if __name__ == "__main__":
    main()
