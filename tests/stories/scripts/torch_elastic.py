"""Steps until a worker has been lost and everybody has met again."""

import os
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print("begin rank", dist.get_rank(), "of", dist.get_world_size(), "restart", restarts, flush=True)
while True:
    most = torch.tensor(restarts)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    if most.item():
        break
    time.sleep(0.1)
print("done rank", dist.get_rank(), "of", dist.get_world_size(), flush=True)
dist.destroy_process_group()
os._exit(0)  # torch 2.15 has aborted at the exit of Python on a busy machine, after its work was done
