#!/usr/bin/env bash
# A training of Lightning that is stopped by SIGTERM ends with exit code 0.
#
# What: lightning 2.6.6 with torch 2.15.0, Trainer.fit on a CPU, SIGTERM in the middle: what a drain, a preemption or a
# scale down sends first.
# Guess: 143, the default action of the signal, or another code that is not 0; a handler that ends a program before its
# work is done has failed it. Code after fit() that writes the result is skipped, so the end should not look like success.
# Seen: fit() raises SIGTERMException at the end of the step. It is a SystemExit without a code: no traceback, nothing
# after fit() runs, and the process ends with 0.
# So: a Pod that is evicted is Succeeded, and a batch Job whose Pod is drained is Complete, after a part of its steps. Let
# the program say that it has finished (a file, a line), or catch SIGTERMException and exit with 143.
#
# Needs Python 3.11 to 3.13 with venv, and PyPI: torch and its CUDA libraries, which it needs without a GPU, too, are 3 GB
# of downloads. Half a minute after that. Ends with 1 when the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill -9 $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip install -q --disable-pip-version-check torch==2.15.0 numpy==2.4.6 lightning==2.6.6
cat >"$folder/train.py" <<'PY'
import time
import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, index):
        print("step", self.global_step, flush=True)
        time.sleep(0.1)
        return self.layer(batch[0]).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


trainer = lightning.Trainer(max_steps=10000, accelerator="cpu", logger=False, enable_checkpointing=False,
                            enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Model(), DataLoader(TensorDataset(torch.ones(100, 2)), batch_size=2))
print("trained to the end")
PY
"$python" "$folder/train.py" >"$folder/log" 2>&1 &
until grep -q "^step 3" "$folder/log"; do sleep 0.2; kill -0 $!; done
kill -TERM $!
code=0
wait $! || code=$?
echo "SIGTERM at step 3 of 10000: $(grep -c "^step" "$folder/log") steps, exit code $code," \
  "$(grep -c Traceback "$folder/log" || true) tracebacks, trained to the end: $(grep -c "trained to the end" "$folder/log" || true)"
[ "$code" = 0 ] && ! grep -q "trained to the end" "$folder/log" || { echo "changed"; exit 1; }
