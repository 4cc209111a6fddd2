#!/usr/bin/env bash
# An elastic agent of torch that is started again never joins the agents that are left.
#
# What: torch 2.15.0, torchrun with --rdzv-backend c10d and --nnodes 1:2, on CPUs, without Kubernetes.
# Guess: when an agent is lost and another takes its place, both meet in the next rendezvous. That is what it is for.
# Seen: the agent that is left, with rank 0, and the new one wait for each other. The new agent waits for MASTER_ADDR in
# the store of this rendezvous; the first agent has written it in the first rendezvous only, because all share one
# TCPStore, and waits for the role of the new one. After read_timeout (60 s by default) both end with an error. With
# TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 they meet, and train together.
# So: set that variable for elastic jobs; --max-restarts alone does not survive a lost node.
#
# Needs Python 3.11 to 3.13 with venv, and PyPI: torch and its CUDA libraries, which it needs without a GPU, too, are 3 GB
# of downloads. Two to three minutes after that. Ends with 1 when the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill -9 $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip install -q --disable-pip-version-check torch==2.15.0 numpy==2.4.6
cat >"$folder/train.py" <<'PY'
import os, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print("begin", dist.get_rank(), "of", dist.get_world_size(), "restart", restarts, flush=True)
most = torch.tensor(restarts)
while True:
    dist.all_reduce(most, dist.ReduceOp.MAX)
    if most.item():
        break
    time.sleep(0.1)
print("done", dist.get_rank(), "of", dist.get_world_size(), flush=True)
PY
agent() {  # NUMBER IS_HOST
  "$python" -m torch.distributed.run --nnodes 1:2 --nproc-per-node 1 --max-restarts 3 --rdzv-id a --rdzv-backend c10d \
    --local-addr "127.0.0.$1" --rdzv-endpoint "127.0.0.1:$port" \
    --rdzv-conf "is_host=$2,read_timeout=30,last_call_timeout=20" "$folder/train.py" >>"$folder/log" 2>&1 &
}
lines() { grep -c "$1" "$folder/log" || true; }
port=$((20000 + RANDOM % 10000))
attempt() {
  : >"$folder/log"
  port=$((port + 1))
  agent 1 1
  first=$!
  agent 2 0
  second=$!
  until [ "$(lines "of 2 restart 0")" = 2 ]; do sleep 0.2; kill -0 "$first"; done
  pkill -9 -P "$second" || true  # its worker
  kill -9 "$second"
  agent 2 0
  third=$!
  wait "$first" || true
  wait "$third" || true
  echo "$1: $(lines "done . of 2") of 2 workers trained together again"
}
unset TORCH_DISABLE_SHARE_RDZV_TCP_STORE
attempt "by default"
[ "$(lines "done . of 2")" = 0 ] || { echo "changed: the new agent joins"; exit 1; }
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
attempt "with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"
[ "$(lines "done . of 2")" = 2 ] || { echo "changed: the variable does not help"; tail -20 "$folder/log"; exit 1; }
