"""Elastic training: data-parallel steps over gloo, with a state that survives every change of the members.

Guarantees:
- A step is printed only after every member has saved its result, so a printed step is never lost.
- After each rendezvous the members compare their checkpoints, and all load the most advanced one.
- An epoch continues where it was interrupted: each image is used once per epoch, however many members share it.

The checkpoint is one file per pod. It is replaced atomically, so a killed process cannot leave a partial file.
"""

import ctypes
import os
import signal
import socket
import stat
import sys
import tempfile
import time

import numpy as np

import drawn_digits

SIDE, SEED, HELD = 16, 5, 512
TEMPORARY = "/tmp/checkpoint.pth.tar"


def wait_for_name(host, patience=120.0, pause=0.25):
    """Resolve `host`, with retries: names of pods may resolve late."""
    deadline = time.time() + patience
    while True:
        try:
            return socket.getaddrinfo(host, None)
        except OSError:
            if time.time() > deadline:
                raise
            time.sleep(pause)


def checkpoint_path(wanted):
    """The path of this pod's checkpoint. Pods of one machine share /tmp, so the default is in TMPDIR, which each pod
    has for itself."""
    return os.path.join(tempfile.gettempdir(), os.path.basename(TEMPORARY)) if wanted == TEMPORARY else wanted


def open_own(path):
    """Open a file of this user for reading. Raises OSError for a symbolic link, a file that is not regular, or one
    that others can write."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o022:
        os.close(descriptor)
        raise PermissionError("%s: not a regular file that only user %d writes; remove it" % (path, os.getuid()))
    return os.fdopen(descriptor, "rb")


def create_own(path):
    """Create a file that only this user can read. An existing file of that name is removed; links are not followed."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb")


def share(order, seen, batch, rank, world):
    """(indices of this member's images in the next step, number of images in the whole step). Shares have the same
    size."""
    taken = order[seen : seen + batch * world]
    filled = np.concatenate([taken, order[: -len(taken) % world]])
    return filled[rank::world], len(taken)


class Course:
    """The parameters of the training."""

    def __init__(self, epochs, batch, lr, momentum=0.9, wd=1e-4, pictures=2048, depth=18, classes=10):
        self.epochs, self.batch, self.lr, self.momentum, self.wd = epochs, batch, lr, momentum, wd
        self.pictures, self.depth, self.classes = pictures, depth, classes


def network(torch, depth, classes):
    """A small residual network: one block per stage up to 18 layers, two above. Its normalisation layers have no
    state that members would have to agree on."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, before, after, stride):
            super().__init__()
            self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
            self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
            self.norms = nn.ModuleList([nn.GroupNorm(4, after), nn.GroupNorm(4, after)])
            self.around = nn.Conv2d(before, after, 1, stride, bias=False) if (before, stride) != (after, 1) else None

        def forward(self, x):
            y = self.norms[1](self.second(torch.relu(self.norms[0](self.first(x)))))
            return torch.relu(y + (x if self.around is None else self.around(x)))

    layers, before = [nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.GroupNorm(4, 8), nn.ReLU()], 8
    for after, stride in ((8, 2), (16, 2), (32, 2)):
        for at in range(1 if depth <= 18 else 2):
            layers.append(Block(before, after, stride if at == 0 else 1))
            before = after
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(before * (SIDE // 8) ** 2, classes))


class Training:
    """One member of the job: its model, its progress, and the training steps."""

    def __init__(self, torch, course, file, print_freq=10, delay=0.0):
        self.torch, self.dist, self.course, self.file = torch, torch.distributed, course, file
        self.print_freq, self.delay = print_freq, delay
        self.rank, self.world = self.dist.get_rank(), self.dist.get_world_size()
        self.saves = os.environ.get("LOCAL_RANK", "0") == "0"
        torch.manual_seed(SEED)
        self.model = network(torch, course.depth, course.classes)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), course.lr, momentum=course.momentum, weight_decay=course.wd
        )
        self.epoch = self.seen = self.step = 0

    def say(self, text):
        print(text + "\n", end="", flush=True)  # one write: several trainers may share the stream

    def resume(self):
        """Load the most advanced checkpoint of all members."""
        torch, own = self.torch, None
        if os.path.lexists(self.file):
            with open_own(self.file) as file:
                own = torch.load(file, map_location="cpu", weights_only=True)  # executes no code
        steps = torch.zeros(self.world, dtype=torch.long)
        steps[self.rank] = own["step"] if own else 0
        self.dist.all_reduce(steps)
        best = int(steps.argmax())
        if int(steps[best]):
            shared = [own if self.rank == best else None]
            self.dist.broadcast_object_list(shared, src=best)
            checkpoint = shared[0]
            self.model.load_state_dict(checkpoint["model"])
            self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": checkpoint["optimizer"]})
            self.epoch, self.seen, self.step = checkpoint["epoch"], checkpoint["seen"], checkpoint["step"]
        source = "from rank %d's checkpoint" % best if int(steps[best]) else "from the beginning"
        self.say("rank %d of %d: continues %s, epoch %d step %d" % (self.rank, self.world, source, self.epoch, self.step))

    def save(self):
        """Write the checkpoint to a temporary file and rename it. The optimizer's settings are those of the course,
        and torch 1.13 loads no floating-point number outside of a tensor: so only the optimizer's tensors are saved."""
        if self.saves:
            state = {
                "epoch": self.epoch, "seen": self.seen, "step": self.step, "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict()["state"], "arch": self.course.depth,
            }
            temporary = "%s.%d" % (self.file, os.getpid())
            with create_own(temporary) as file:
                self.torch.save(state, file)
            os.replace(temporary, self.file)

    def run(self):
        """Train the remaining epochs. Returns the accuracy on held-out images."""
        torch, course = self.torch, self.course
        pictures, labels = drawn_digits.coloured(course.pictures, SEED, SIDE, SIDE)
        pictures, labels = torch.from_numpy(pictures), torch.from_numpy(labels).long()
        parallel = torch.nn.parallel.DistributedDataParallel(self.model)
        accuracy = 0.0
        while self.epoch < course.epochs:
            order = np.random.RandomState(SEED + self.epoch).permutation(course.pictures)
            totals = torch.zeros(3)
            while self.seen < course.pictures:
                totals += self.run_step(parallel, pictures, labels, order)
            self.epoch, self.seen = self.epoch + 1, 0
            self.save()
            accuracy = self.held_out_accuracy()
            loss = float(totals[0] / totals[2]) if totals[2] else float("nan")
            line = "epoch %d done: step %d world %d loss %.4f held-out accuracy %.3f, checkpoint in %s"
            self.say(line % (self.epoch - 1, self.step, self.world, loss, accuracy, self.file))
        return accuracy

    def run_step(self, parallel, pictures, labels, order):
        """(sum of losses, number of correct answers, number of images) of the step, over all members."""
        torch = self.torch
        mine, taken = share(order, self.seen, self.course.batch, self.rank, self.world)
        self.optimizer.zero_grad()
        scores = parallel(pictures[mine])
        loss = torch.nn.functional.cross_entropy(scores, labels[mine])
        loss.backward()
        self.optimizer.step()
        self.step, self.seen = self.step + 1, self.seen + taken
        self.save()
        right = float((scores.argmax(1) == labels[mine]).sum())
        totals = torch.tensor([float(loss) * len(mine), right, float(len(mine))])
        self.dist.all_reduce(totals)  # all members have saved, so the step may be printed
        if self.step % self.print_freq == 0 or self.seen >= self.course.pictures:
            line = "epoch %d step %d pictures %d/%d world %d rank %d loss %.4f accuracy %.3f"
            where = (self.epoch, self.step, self.seen, self.course.pictures, self.world, self.rank)
            self.say(line % (*where, float(totals[0] / totals[2]), float(totals[1] / totals[2])))
        if self.delay:
            time.sleep(self.delay)
        return totals

    def held_out_accuracy(self):
        torch = self.torch
        pictures, labels = drawn_digits.coloured(HELD, SEED + 1000, SIDE, SIDE)
        with torch.no_grad():
            predicted = self.model(torch.from_numpy(pictures)).argmax(1)
        return float((predicted == torch.from_numpy(labels)).float().mean())


def die_with_agent():
    """Ask the kernel to kill this trainer when its agent dies: the trainer has its own session, so no signal would
    reach it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main(course, file, print_freq, delay):
    """Join the process group, train, leave."""
    die_with_agent()
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if "RANK" not in os.environ:
        os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0", LOCAL_RANK="0")
        store = dist.TCPStore("127.0.0.1", 0, 1, True)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    else:
        wait_for_name(os.environ["MASTER_ADDR"])
        dist.init_process_group("gloo")
    training = Training(torch, course, checkpoint_path(file), print_freq, delay)
    training.resume()
    accuracy = training.run()
    dist.barrier()
    line = "done: rank %d of %d, %d epochs, %d steps, held-out accuracy %.3f"
    training.say(line % (training.rank, training.world, training.epoch, training.step, accuracy or training.held_out_accuracy()))
    dist.destroy_process_group()  # without it a thread of gloo may abort the process at its exit
