"""FSDP2 with a distributed checkpoint after half of the steps. A second run goes on from there, in any world size."""

import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

CHECKPOINT, STEPS = "checkpoint", 20

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
for layer in model:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
x = torch.randn(48, 8)
y = x.sum(1, keepdim=True)
x, y = x[rank::world], y[rank::world]  # the ranks' gradients have the same mean in every world size

start = 0
if os.path.isdir(CHECKPOINT):
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "step": 0}
    dcp.load(state, checkpoint_id=CHECKPOINT)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    start = state["step"]

shard = model[0].weight.to_local()
text = f"rank {rank} of {world} from step {start} holds {shard.numel()} of 128 weights\n"
print(text, end="", flush=True)  # in one write: the ranks of one worker share its output
for step in range(start, STEPS):
    if step == STEPS // 2 and start == 0:
        weights, moments = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": moments, "step": step}, checkpoint_id=CHECKPOINT)
    loss = ((model(x) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mean = loss.detach() / world
    dist.all_reduce(mean)
    if rank == 0:
        print("step", step, "loss", mean.item(), flush=True)
dist.destroy_process_group()
os._exit(0)  # torch 2.15 has aborted at the exit of Python on a busy machine, after its work was done
