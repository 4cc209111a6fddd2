#!/usr/bin/env bash
# A JAX process whose program raises an exception ends five minutes later, with SIGABRT.
#
# What: jax 0.10.2 with jax.distributed.initialize, two processes on CPUs; the second one raises ValueError after it has met
# the first, which goes on with work of its own.
# Guess: the exception ends its process at once with exit code 1, as any Python program, and the coordination service
# ends the other one.
# Seen: the traceback is printed, and the process stays. At its end it waits at a barrier for all others, which do not
# know of it. After 300 seconds the barrier fails, and both are aborted: exit code 134, also where the exception was.
# So: for five minutes a job of which one process has failed looks as if it runs; a policy by exit codes then takes a
# permanent failure (1) for a signal that is worth another try (134). Call os._exit(1) in sys.excepthook, or pass a short
# shutdown_timeout_seconds to initialize().
#
# Needs Python 3.11 or newer with venv, and PyPI: 400 MB. Six minutes. Ends with 1 when the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill -9 $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip install -q --disable-pip-version-check jax==0.10.2
cat >"$folder/train.py" <<'PY'
import sys, time
import jax

jax.distributed.initialize(f"127.0.0.1:{sys.argv[2]}", 2, int(sys.argv[1]))
print("met", flush=True)
if sys.argv[1] == "1":
    raise ValueError("bad batch")
time.sleep(500)
PY
port=$((20000 + RANDOM % 10000))
for index in 0 1; do
  JAX_PLATFORMS=cpu "$python" "$folder/train.py" $index $port >"$folder/log-$index" 2>&1 &
  processes[index]=$!
done
until grep -q "^ValueError" "$folder/log-1"; do sleep 0.2; kill -0 "${processes[1]}"; done
SECONDS=0
codes=
for index in 1 0; do
  code=0
  wait "${processes[$index]}" || code=$?
  codes="$codes $code"
  echo "process $index ended $SECONDS s after the exception with exit code $code"
done
[ "$codes" = " 134 134" ] && [ "$SECONDS" -ge 290 ] || { echo "changed"; exit 1; }
