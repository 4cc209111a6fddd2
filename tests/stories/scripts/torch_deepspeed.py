"""DeepSpeed with the optimizer's state in shards (ZeRO 1), on CPUs: every worker ends with the same weights."""

import deepspeed
import torch
import torch.distributed as dist

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
settings = {
    "train_micro_batch_size_per_gpu": 16,
    "optimizer": {"type": "Adam", "params": {"lr": 0.1, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank + 1)
for step in range(40):
    batch = torch.randn(16, 4)
    loss = ((engine(batch) - batch.sum(1, keepdim=True)) ** 2).mean()
    engine.backward(loss)
    engine.step()
    if step % 5 == 0:
        print("step", step, "loss", loss.item(), flush=True)
every = [torch.zeros(()) for _ in range(world)]
dist.all_gather(every, model.weight.detach().float().sum())
same = len({round(total.item(), 6) for total in every}) == 1
print("rank", rank, "of", world, "same weights", same, "stage", engine.zero_optimization_stage(), flush=True)
dist.barrier()
dist.destroy_process_group()
