#!/usr/bin/env bash
# With checkpoints on SIGTERM, the Trainer of transformers returns from train() as if it had trained to the end.
#
# What: transformers 5.24.0 with accelerate 1.15.0 and torch 2.15.0, TrainingArguments(enable_jit_checkpoint=True), which
# is made for preemptible nodes, on a CPU; SIGTERM in the middle.
# Guess: it saves a checkpoint, and ends the program with a code that is not 0, so that whoever started it starts it again.
# Seen: it saves checkpoint-N, train() returns its usual result, and the program goes on: what comes after train(), such
# as save_model() of the final model, is done with a model of a few steps. Exit code 0. Without the option: 143.
# So: the option turns a preemption into a success for a batch Job, and its checkpoint is never resumed from. After
# train() compare trainer.state.global_step with trainer.state.max_steps, and exit with 143 when it is less.
#
# Needs Python 3.11 to 3.13 with venv, and PyPI: torch and its CUDA libraries, which it needs without a GPU, too, are 3 GB
# of downloads. A minute after that. Ends with 1 when the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill -9 $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip install -q --disable-pip-version-check torch==2.15.0 numpy==2.4.6 transformers==5.24.0 accelerate==1.15.0
cat >"$folder/train.py" <<'PY'
import sys, time
import torch
from transformers import Trainer, TrainingArguments


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x=None, labels=None):
        print("step", flush=True)
        time.sleep(0.1)
        return {"loss": ((self.layer(x).squeeze(-1) - labels) ** 2).mean()}


data = [{"x": torch.ones(2), "labels": torch.tensor(1.0)} for _ in range(1000)]
arguments = TrainingArguments("out", max_steps=10000, report_to=[], use_cpu=True, disable_tqdm=True,
                              enable_jit_checkpoint=sys.argv[1] == "on")
trainer = Trainer(model=Model(), args=arguments, train_dataset=data)
trainer.train()
print("train() returned at step", trainer.state.global_step, "of", trainer.state.max_steps, flush=True)
trainer.save_model("final")
PY
cd "$folder"
codes=
for option in off on; do
  "$python" train.py $option >log 2>&1 &
  until [ "$(grep -c "^step" log)" -gt 3 ]; do sleep 0.2; kill -0 $!; done
  kill -TERM $!
  code=0
  wait $! || code=$?
  codes="$codes $code"
  echo "enable_jit_checkpoint $option: exit code $code; $(grep "returned" log || echo "train() did not return");" \
    "left: $(ls out final 2>/dev/null | grep -E "checkpoint|model" | tr '\n' ' ')"
done
[ "$codes" = " 143 0" ] && grep -q returned log && [ -e final/model.safetensors ] || { echo "changed"; exit 1; }
