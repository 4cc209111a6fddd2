"""Lightning, data-parallel: every worker ends with the same weights."""

import os

import lightning
import torch


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        loss = ((self.layer(batch) - batch.sum(1, keepdim=True)) ** 2).mean()
        if index % 5 == 0:
            print("step", index, "loss", loss.item(), flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


torch.manual_seed(0)
data = torch.utils.data.DataLoader(torch.randn(640, 4), batch_size=16)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=1,
    num_nodes=int(os.environ.get("GROUP_WORLD_SIZE") or os.environ["WORLD_SIZE"]),  # with torchrun, and without
    strategy="ddp",
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
model = Regression()
trainer.fit(model, data)
every = trainer.strategy.all_gather(model.layer.weight.detach().sum())
same = len({round(total.item(), 6) for total in every}) == 1
print("rank", trainer.global_rank, "of", trainer.world_size, "same weights", same, flush=True)
