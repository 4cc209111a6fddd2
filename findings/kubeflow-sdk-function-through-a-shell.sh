#!/usr/bin/env bash
# The function that the Kubeflow SDK trains is changed on its way: dollars and doubled backslashes in it.
#
# What: kubeflow 0.5.0, CustomTrainer(func=...) on Kubernetes: the command that the SDK writes into the TrainJob, run by
# the bash of the container.
# Guess: the source of the function reaches the pod as it is written; the SDK quotes names of packages with care.
# Seen: it is the body of a here-document without quotes, so that the shell expands it. "price: $5 each" is printed as
# "price:  each", "$HOME" is the pod's home, and "\\t", two characters, becomes a tab. The job succeeds.
# So: a function for train() has no dollar and no doubled backslash in strings, comments or docstrings: take them from an
# argument (func_args is changed, too) or chr(36), or train a file with CustomTrainerContainer.
#
# Needs Python 3.10 to 3.13 with venv, bash, and PyPI. Half a minute. Ends with 1 when the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --disable-pip-version-check kubeflow==0.5.0
cd "$folder"
cat >train.py <<'PY'
def train():
    print("price: $5 each;", len("\\t"), "characters")
PY
cat >command.py <<'PY'
import json
from kubeflow.trainer.backends.kubernetes import utils
from kubeflow.trainer.constants import constants
from kubeflow.trainer.types import types
from train import train

kind = types.TrainerType.CUSTOM_TRAINER
trainer = types.RuntimeTrainer(trainer_type=kind, framework="torch", image="any")
trainer.set_command(constants.DEFAULT_COMMAND)
runtime = types.Runtime(name="any", trainer=trainer, kind=next(iter(types.RuntimeKind)))
print(json.dumps(utils.get_command_using_train_func(runtime, train, None, [], None)))
PY
as_written=$(venv/bin/python -c 'import train; train.train()')
venv/bin/python command.py >command.json
mkdir pod
sent=$(cd pod && PATH=$folder/venv/bin:$PATH python -c \
  'import json, subprocess; subprocess.run(json.load(open("../command.json")), check=True)')
echo "as it is written: $as_written"
echo "in the pod:       $sent"
[ "$as_written" = 'price: $5 each; 2 characters' ] || { echo "changed"; exit 1; }
[ "$sent" = 'price:  each; 1 characters' ] || { echo "changed"; exit 1; }
