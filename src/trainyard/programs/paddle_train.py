"""Data-parallel training with PaddlePaddle: the workers of a PaddleJob teach a small network to read digits.

`python -m paddle.distributed.launch` starts this program on every worker; the workers meet at PADDLE_MASTER, which the
operator sets. Every rank draws its own images; gradients are averaged over gloo. At the end all ranks must hold the same
weights. Exits with 0 only if the accuracy on held-out images reaches --target_accuracy.
"""

import argparse

import paddle
import paddle.distributed as dist

import drawn_digits

HIDDEN, PICTURES, RATE, SEED = 128, 2048, 0.5, 1  # PICTURES: of all ranks together


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--target_accuracy", type=float, default=0.9, help="on held-out pictures; below it, exit 1")
    parser.add_argument("--print_every", type=int, default=30, help="steps between two lines")
    return parser.parse_args()


def mean(value, world):
    """The mean of a scalar tensor over all ranks."""
    total = value.detach().clone()
    if dist.is_initialized():  # a single rank has no group, and collectives fail
        dist.all_reduce(total)
    return total.item() / world


def same_everywhere(model):
    weights = paddle.concat([parameter.flatten() for parameter in model.parameters()])
    all_weights = []
    if dist.is_initialized():
        dist.all_gather(all_weights, weights)
    return all(bool(paddle.equal_all(weights, other)) for other in all_weights)


def main(flags):
    dist.init_parallel_env()
    rank, world = dist.get_rank(), dist.get_world_size()

    def say(text):
        print("rank %d of %d: %s" % (rank, world, text), flush=True)

    def draw(count, seed):
        pictures, labels = drawn_digits.digits(count, seed)
        return paddle.to_tensor(pictures), paddle.to_tensor(labels)

    pictures, labels = draw(PICTURES // world, SEED + 100 + rank)
    paddle.seed(SEED + rank)  # DataParallel gives all ranks the weights of rank 0
    size = drawn_digits.HEIGHT * drawn_digits.WIDTH
    model = paddle.DataParallel(
        paddle.nn.Sequential(paddle.nn.Linear(size, HIDDEN), paddle.nn.ReLU(), paddle.nn.Linear(HIDDEN, 10))
    )
    optimizer = paddle.optimizer.SGD(RATE, parameters=model.parameters())
    for step in range(flags.steps):
        loss = paddle.nn.functional.cross_entropy(model(pictures), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if step % flags.print_every == 0 or step == flags.steps - 1:
            say("step %d loss %.6f" % (step, mean(loss, world)))
    if not same_everywhere(model):
        raise SystemExit("FAILED: the ranks hold different weights")
    say("all %d ranks hold the same weights" % world)
    held_pictures, held_labels = draw(2000, SEED)
    accuracy = (model(held_pictures).argmax(1) == held_labels).astype("float32").mean().item()
    say("held-out accuracy %.3f, after %d steps" % (accuracy, flags.steps))
    if accuracy < flags.target_accuracy:
        raise SystemExit("FAILED: held-out accuracy %.3f is below the target %.3f" % (accuracy, flags.target_accuracy))


if __name__ == "__main__":
    main(arguments())
