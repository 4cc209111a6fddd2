"""Variables by which today's MPIs reach the workers of a job whose remote shell is an agent over exec.

Those of Open MPI 4 are written by each kind. Open MPI 5 starts its processes by PRRTE, which ignores them. MPICH, Intel
MPI and MVAPICH start them by hydra, which refuses a hostfile with `slots=`. Each MPI ignores the variables of others.
"""

from __future__ import annotations

from collections.abc import Iterable

from trainyard.objects import Json
from trainyard.objects.pod_network import POD_INTERFACE

HYDRA_HOSTFILE = "hydra-hostfile"
"""The name of hydra's hostfile, beside the hostfile of Open MPI."""
WAIT_FOR_COMMANDS = "trap 'exit 143' TERM; sleep 365d & wait $!"
"""The shell script of a worker that does nothing by itself: the launcher executes commands in its container. It ends at
once with SIGTERM, which the kernel keeps from a process 1 without a handler, such as `sleep` alone."""
MPI_ENV = {
    # Open MPI refuses to run as root, the user of most images, unless both variables allow it. The other two allow more
    # processes than cores, to Open MPI 4 and 5.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
"""Of the job of a script."""
ONE_POD_ENV = {"PRTE_MCA_rmaps_default_mapping_policy": "slot:oversubscribe"}
"""The same for processes in one pod, which has a slot for each core by default. Open MPI 5 would start all processes of
several pods in the first."""
POD_NAME_VARIABLE: Json = {
    "name": "TRAINYARD_POD_NAME",
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
}
"""The pod of the agent: it runs a command for this pod itself."""


def exec_variables(agent: str, folder: str, slots: int, pod_spec: Json) -> dict[str, str]:
    """The variables of a pod that runs mpiexec.

    `agent` is called with a pod's name and a command, `folder` has both hostfiles, `slots` are processes in each pod.
    """
    hostfile, hydra_hostfile = f"{folder}/hostfile", f"{folder}/{HYDRA_HOSTFILE}"
    variables = {
        "I_MPI_HYDRA_BOOTSTRAP": "rsh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": agent,
        "PRTE_MCA_plm_ssh_agent": agent,
        "PRTE_MCA_prte_default_hostfile": hostfile,
        # Where there are many hosts, PRRTE starts some from a worker, which has no right to exec.
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "HYDRA_LAUNCHER": "rsh",  # with ssh the agent would get options of ssh
        "HYDRA_LAUNCHER_EXEC": agent,
        "HYDRA_HOST_FILE": hydra_hostfile,
        "I_MPI_HYDRA_HOST_FILE": hydra_hostfile,
        "I_MPI_PERHOST": str(slots),  # Intel MPI ignores the slots in the file
    }
    if not pod_spec.get("hostNetwork"):
        # Workers connect to the address of this interface, by default to the host name, which has no DNS record.
        variables |= {"HYDRA_IFACE": POD_INTERFACE, "I_MPI_HYDRA_IFACE": POD_INTERFACE}
    return variables


def hydra_hosts(hosts: Iterable[tuple[str, int]]) -> str:
    """The text of hydra's hostfile, from names of pods with their slots."""
    return "".join(f"{host}:{slots}\n" for host, slots in hosts)
