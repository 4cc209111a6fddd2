"""`mnist.py` of Kubeflow's PyTorch examples: a convolutional network learns digits, data-parallel over all ranks.

The arguments and the lines of the output are those of the original. The digits are drawn from a seed instead of
downloaded, and nothing is written to --dir. The operator sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import drawn_digits

TRAINED, HELD_OUT, SIDE = 20000, 2000, 28
ALONE = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1234"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--test-batch-size", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--momentum", type=float, default=0.5)
    parser.add_argument("--no-cuda", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=10, help="batches between two lines")
    parser.add_argument("--save-model", action="store_true", help="write mnist_cnn.pt")
    parser.add_argument("--dir", default="logs", help="of the original's summaries; nothing is written")
    parser.add_argument("--backend", choices=["gloo", "nccl", "mpi"], default="gloo")
    return parser.parse_args()


class Net(nn.Module):
    """Two convolutions and two layers: (n, 1, 28, 28) to the logarithms of ten chances."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(4 * 4 * 50, 500), nn.Linear(500, 10)

    def forward(self, pictures):
        hidden = F.max_pool2d(F.relu(self.conv1(pictures)), 2)
        hidden = F.max_pool2d(F.relu(self.conv2(hidden)), 2)
        return F.log_softmax(self.fc2(F.relu(self.fc1(hidden.flatten(1)))), dim=1)


def loader(count, seed, batch_size):
    """The share of this rank in `count` pictures, in batches."""
    pictures, labels = drawn_digits.enlarged(count, seed, SIDE)
    pictures = (pictures - pictures.mean()) / pictures.std()
    data = TensorDataset(torch.from_numpy(pictures[:, None]), torch.from_numpy(labels).long())
    return DataLoader(data, batch_size=batch_size, sampler=DistributedSampler(data))


def train(flags, model, device, batches, epoch):
    optimizer = torch.optim.SGD(model.parameters(), lr=flags.lr, momentum=flags.momentum)
    for batch, (pictures, labels) in enumerate(batches):
        optimizer.zero_grad()
        loss = F.nll_loss(model(pictures.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        if batch % flags.log_interval == 0:
            done = (epoch, batch * len(labels), len(batches.dataset), 100.0 * batch / len(batches))
            print("Train Epoch: %d [%d/%d (%.0f%%)]\tloss=%.4f" % (*done, loss.item()), flush=True)


def test(model, device, batches):
    """Print the accuracy of this rank's share of the held-out pictures. (The original divides by all of them.)"""
    right = seen = 0
    with torch.no_grad():
        for pictures, labels in batches:
            right += (model(pictures.to(device)).argmax(1).cpu() == labels).sum().item()
            seen += len(labels)
    print("\naccuracy=%.4f\n" % (right / seen), flush=True)


def backend_of(flags, cuda):
    """The backend of the arguments, gloo where it cannot run."""
    if {"gloo": True, "nccl": cuda, "mpi": dist.is_mpi_available()}[flags.backend]:
        return flags.backend
    print("the backend %s cannot run here; gloo takes its place" % flags.backend, flush=True)
    return "gloo"


def main():
    flags = arguments()
    cuda = not flags.no_cuda and torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    torch.manual_seed(flags.seed)
    backend = backend_of(flags, cuda)
    print("Using distributed PyTorch with %s backend" % backend)
    if "WORLD_SIZE" not in os.environ:
        os.environ.update(ALONE)
    print("World Size: %s. Rank: %s" % (os.environ["WORLD_SIZE"], os.environ["RANK"]), flush=True)
    dist.init_process_group(backend=backend)
    model = DistributedDataParallel(Net().to(device))
    batches = loader(TRAINED, flags.seed + 100, flags.batch_size)
    held_out = loader(HELD_OUT, flags.seed, flags.test_batch_size)
    for epoch in range(1, flags.epochs + 1):
        train(flags, model, device, batches, epoch)
        model.eval()
        test(model, device, held_out)
        model.train()
    if flags.save_model:
        torch.save(model.state_dict(), "mnist_cnn.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
