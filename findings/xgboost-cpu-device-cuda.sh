#!/usr/bin/env bash
# XGBoost without CUDA, asked for device=cuda, trains on the CPU and succeeds.
#
# What: the wheel xgboost-cpu 3.2.0, which installs the module xgboost as the wheel xgboost does; train() with
# {"device": "cuda"}.
# Guess: an error, as for an unknown device (`device="gpux"` is one), or as torch raises: this build has no CUDA.
# Seen: one UserWarning in the middle of the output, a model, exit code 0. The model's configuration says device cpu.
# So: a job that paid for a GPU runs on the CPU and is Succeeded. xgboost.build_info()["USE_CUDA"] tells before; in CI
# turn the warning into an error (python -W error::UserWarning).
#
# Needs Python 3.10 to 3.13 with venv, and PyPI. Half a minute. Ends with 1 when the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip install -q --disable-pip-version-check xgboost-cpu==3.2.0 numpy==2.4.6
cat >"$folder/train.py" <<'PY'
import json
import numpy, xgboost

print("built with CUDA:", xgboost.build_info()["USE_CUDA"])
data = xgboost.DMatrix(numpy.eye(8), label=numpy.arange(8))
try:
    xgboost.train({"device": "gpux"}, data, num_boost_round=1)
    print("device gpux: trained")
except xgboost.core.XGBoostError:
    print("device gpux: XGBoostError")
model = xgboost.train({"device": "cuda"}, data, num_boost_round=3)
configuration = json.loads(model.save_config())
device = configuration["learner"]["generic_param"]["device"]
print("device cuda:", model.num_boosted_rounds(), "rounds on", device)
PY
code=0
"$python" "$folder/train.py" >"$folder/out" 2>"$folder/err" || code=$?
cat "$folder/out"
echo "exit code $code; warnings: $(grep -c "UserWarning" "$folder/err" || true)"
grep -q "device gpux: XGBoostError" "$folder/out" && grep -q "device cuda: 3 rounds on" "$folder/out" && [ $code = 0 ] &&
  grep -q "UserWarning" "$folder/err" || { echo "changed"; exit 1; }
