#!/usr/bin/env bash
# One preempted worker of TensorFlow ends all workers, each with exit code 42.
#
# What: tensorflow-cpu 2.21.0, tf.distribute.experimental.PreemptionCheckpointHandler with MultiWorkerMirroredStrategy, two
# workers; SIGTERM to one of them. No cloud is named: TF_CONFIG is all they have.
# Guess: the worker that gets the signal saves and ends with 143 (or 0), and the other goes on, or waits for it.
# Seen: both save one checkpoint together at the next step, and both end with 42, within a step. 42 asks for a restart by a
# convention of the handler alone.
# So: with exit codes from 1 to 127 as permanent failures (restartPolicy ExitCode of a TFJob) the worker that nobody
# evicted fails the job. Pass TerminationConfig(exit_fn=lambda: sys.exit(143)), or restart on failures of any code.
#
# Needs Python 3.11 to 3.13 with venv, and PyPI: 600 MB. A minute after that. Ends with 1 when the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill -9 $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python=$folder/venv/bin/python
"$python" -m pip install -q --disable-pip-version-check tensorflow-cpu==2.21.0
cat >"$folder/train.py" <<'PY'
import json, os, sys, time

index, port, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
workers = [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"]
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}})
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    total = tf.Variable(0.0)
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
checkpoint = tf.train.Checkpoint(total=total)
handler = tf.distribute.experimental.PreemptionCheckpointHandler(resolver, checkpoint, folder + "/checkpoints")


@tf.function
def step():
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0)))


for number in range(600):
    handler.run(step)
    print("step", number, flush=True)
    time.sleep(0.2)
PY
port=$((20000 + RANDOM % 10000))
for index in 0 1; do
  "$python" "$folder/train.py" $index $port "$folder" >"$folder/log-$index" 2>&1 &
  workers[index]=$!
done
until grep -q "^step 5" "$folder/log-1"; do sleep 0.2; kill -0 "${workers[1]}"; done
kill -TERM "${workers[1]}"
codes=
for index in 0 1; do
  code=0
  wait "${workers[$index]}" || code=$?
  codes="$codes $code"
  echo "worker $index: $(grep -c "^step" "$folder/log-$index") steps of 600, exit code $code"
done
echo "checkpoints: $(ls "$folder/checkpoints" | tr '\n' ' ')"
[ "$codes" = " 42 42" ] || { echo "changed"; exit 1; }
