"""accelerate, data-parallel: every worker ends with the same weights."""

import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
data = torch.utils.data.DataLoader(torch.randn(640, 4), batch_size=16)
model, optimizer, data = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), data)
for step, batch in enumerate(data):
    loss = ((model(batch) - batch.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()
    if step % 5 == 0:
        print("step", step, "loss", loss.item(), flush=True)
weights = accelerator.unwrap_model(model).weight.detach().sum()
same = len({round(total.item(), 6) for total in accelerator.gather(weights.reshape(1))}) == 1
print("rank", accelerator.process_index, "of", accelerator.num_processes, "same weights", same, flush=True)
accelerator.end_training()
