#!/usr/bin/env bash
# MPICH does not read the variable that its own documents name for extra arguments of ssh.
#
# What: mpich 5.0.2 from PyPI. mpi-operator writes HYDRA_LAUNCH_EXTRA_ARGS="-o ConnectionAttempts=10" for jobs of MPICH, so
# that a launcher which is quicker than sshd of a worker tries again.
# Guess: the launcher "ssh" hands it to ssh.
# Seen: it is not read, without a word. HYDRA_LAUNCHER_EXTRA_ARGS is. And the program that takes the place of ssh gets an
# option of its own before the host (-x), unless HYDRA_LAUNCHER=rsh says that it is none.
# So: each MPIJob of MPICH races with the sshd of its workers. Set both names; an agent must skip options before the host.
#
# Needs Python 3 with venv and PyPI; 20 seconds. Ends with 1 when the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check mpich==5.0.2

cat >agent <<SH
#!/bin/sh
words=
while [ "\$1" != alpha ]; do words="\$words \$1"; shift; done
echo "\$words alpha" >"$folder/arguments"
shift
exec sh -c "\$*"
SH
chmod +x agent
echo "alpha:1" >hosts
export HYDRA_LAUNCHER_EXEC="$folder/agent" HYDRA_HOST_FILE="$folder/hosts" HYDRA_LOCALHOST=127.0.0.1 # the name of this machine may resolve nowhere
failures=0
expect() { # the arguments before and with the host, then the variables
	rm -f arguments
	timeout 60 env "${@:2}" venv/bin/mpiexec -n 1 true >output 2>&1 || { cat output; failures=1; }
	arguments=$(cat arguments 2>/dev/null || true)
	printf '%-75s agent%s\n' "${*:2}" "$arguments"
	[ "$arguments" = " $1" ] || failures=1
}
expect "-x alpha" HYDRA_LAUNCHER=ssh HYDRA_LAUNCH_EXTRA_ARGS="-o ConnectionAttempts=10"
expect "-x -o ConnectionAttempts=10 alpha" HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXTRA_ARGS="-o ConnectionAttempts=10"
expect "alpha" HYDRA_LAUNCHER=rsh
if [ "$failures" = 1 ]; then
	echo "changed: see the line above that is different"
	exit 1
fi
