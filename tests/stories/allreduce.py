"""The smallest program for torchrun: every rank adds its number and one, and prints what all have added."""

import torch
import torch.distributed

torch.distributed.init_process_group("gloo")
mine = torch.tensor([float(torch.distributed.get_rank() + 1)])
torch.distributed.all_reduce(mine)
print(f"sum over {torch.distributed.get_world_size()}: {mine.item()}", flush=True)
torch.distributed.destroy_process_group()
