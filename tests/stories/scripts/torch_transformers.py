"""The Trainer of transformers, with a model that is small and untrained: every worker ends with the same weights."""

import torch
import torch.distributed as dist
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

WORDS = 32


class Report(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **more):
        if "loss" in logs:
            print("step", state.global_step, "loss", logs["loss"], flush=True)


torch.manual_seed(0)
config = BertConfig(
    vocab_size=WORDS, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=2
)
model = BertForSequenceClassification(config)
sentences = torch.randint(0, WORDS, (256, 8))
data = [{"input_ids": words, "labels": int(words[0] >= WORDS // 2)} for words in sentences]
arguments = TrainingArguments(
    output_dir="output",
    use_cpu=True,
    per_device_train_batch_size=16,
    learning_rate=1e-2,
    num_train_epochs=4,
    logging_strategy="epoch",
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
)
Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Report()]).train()
every = [torch.zeros(()) for _ in range(dist.get_world_size())]
dist.all_gather(every, sum(parameter.detach().abs().sum() for parameter in model.parameters()))
same = len({round(total.item(), 4) for total in every}) == 1
print("rank", arguments.process_index, "of", arguments.world_size, "same weights", same, flush=True)
