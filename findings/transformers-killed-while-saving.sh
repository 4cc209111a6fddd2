#!/usr/bin/env bash
# A training of Hugging Face's Trainer that is killed while it saves does not resume, although an older checkpoint is whole.
#
# What: transformers 5.24.0 with accelerate 1.15.0 and torch 2.15.0, trainer.train(resume_from_checkpoint=True), on a CPU.
# Guess: it resumes from the last checkpoint that is whole; the folder of a checkpoint gets its name when all is in it.
# Seen: the folder checkpoint-4 has its final name from the first file on, trainer_state.json is written last, and
# resume_from_checkpoint=True takes the folder with the highest number. After a kill between the two each new attempt
# ends with FileNotFoundError (checkpoint-4/trainer_state.json), and checkpoint-2 is not looked at.
# So: a replica that is restarted after SIGKILL (out of memory, a lost node) may fail again and again for that reason.
# Pass the path of the newest folder that has trainer_state.json.
#
# Needs Python 3.11 to 3.13 with venv, and PyPI: torch and its CUDA libraries, which it needs without a GPU, too, are 3 GB
# of downloads. Half a minute after that. Ends with 1 when the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip install -q --disable-pip-version-check torch==2.15.0 numpy==2.4.6 transformers==5.24.0 accelerate==1.15.0
cat >"$folder/train.py" <<'PY'
import os, signal, sys
import torch
from transformers import Trainer, TrainingArguments


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x=None, labels=None):
        return {"loss": ((self.layer(x).squeeze(-1) - labels) ** 2).mean()}


class Killed(Trainer):
    """Killed in the second checkpoint: its model is written, the rest is not."""

    def _save_optimizer_and_scheduler(self, output_dir):
        if self.state.global_step == 4 and sys.argv[1] == "first":
            os.kill(os.getpid(), signal.SIGKILL)
        super()._save_optimizer_and_scheduler(output_dir)


data = [{"x": torch.ones(4), "labels": torch.tensor(1.0)} for _ in range(64)]
arguments = TrainingArguments(
    "out", max_steps=8, save_steps=2, per_device_train_batch_size=4, report_to=[], use_cpu=True, disable_tqdm=True
)
Killed(model=Model(), args=arguments, train_dataset=data).train(resume_from_checkpoint=sys.argv[1] == "second")
print("resumed, and trained to the end")
PY
cd "$folder"
"$python" train.py first >first.log 2>&1 && exit 1
for checkpoint in out/*; do echo "$checkpoint: $(ls "$checkpoint" | tr '\n' ' ')"; done
"$python" train.py second >second.log 2>&1 || true
tail -n 1 second.log
grep -q "FileNotFoundError.*checkpoint-4/trainer_state.json" second.log || { echo "changed"; exit 1; }
