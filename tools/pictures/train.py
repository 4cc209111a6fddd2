"""Logistic regression in plain Python, which prints and reports its loss: what the jobs of the pictures run.

    python train.py --steps 400 --delay 0.02

Each worker draws its own samples from a seed; the labels come from a linear function that all of them know.
"""

import argparse
import math
import os
import random
import time

import trainyard

FEATURES, BATCH, RATE = 16, 32, 0.3

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--every", type=int, default=20, metavar="STEPS", help="between two lines of output")
parser.add_argument("--delay", type=float, default=0.02, help="seconds to wait after each step")
parser.add_argument("--slow", type=int, default=-1, metavar="RANK", help="the rank that waits ten times as long")
options = parser.parse_args()
rank = int(os.environ.get("RANK", "0"))
delay = options.delay * (10 if rank == options.slow else 1)

teachers = random.Random(0)
teacher = [teachers.gauss(0, 1) for _ in range(FEATURES)]
draw = random.Random(1 + rank)
weights = [0.0] * FEATURES
for step in range(1, options.steps + 1):
    gradient, loss = [0.0] * FEATURES, 0.0
    for _ in range(BATCH):
        sample = [draw.gauss(0, 1) for _ in range(FEATURES)]
        label = sum(map(lambda a, b: a * b, sample, teacher)) > 0
        chance = 1 / (1 + math.exp(-sum(map(lambda a, b: a * b, sample, weights))))
        loss -= math.log(max(chance if label else 1 - chance, 1e-9)) / BATCH
        for at, value in enumerate(sample):
            gradient[at] += (chance - label) * value / BATCH
    weights = [weight - RATE * slope for weight, slope in zip(weights, gradient, strict=True)]
    trainyard.report(step=step, loss=loss)
    if step % options.every == 0:
        print(f"step {step:4} loss {loss:.4f}", flush=True)
    time.sleep(delay)
