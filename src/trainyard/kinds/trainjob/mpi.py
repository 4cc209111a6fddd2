"""MPI: a launcher that reaches the nodes by ssh. Its keys are in a Secret, the list of nodes in a ConfigMap."""

from __future__ import annotations

from trainyard.kinds.pods.templates import whole_number
from trainyard.kinds.trainjob.pod_sets import (
    LAUNCHER,
    NODE,
    PodSet,
    Rendered,
    mount,
    set_variables,
    set_volumes,
    variable,
)
from trainyard.objects import Json

HOSTFILE, HOSTFILE_FOLDER = "hostfile", "/etc/mpi"
SSH_VOLUME, HOSTFILE_VOLUME = "mpi-ssh-auth", "mpi-hostfile"
PRIVATE_KEY, PUBLIC_KEY = "ssh-privatekey", "ssh-publickey"


def secret_name(job: str) -> str:
    """Of the Secret with the keys: type kubernetes.io/ssh-auth, immutable, made once."""
    return f"{job}-{SSH_VOLUME}"


def hostfile_name(job: str) -> str:
    """Of the ConfigMap with the list of nodes."""
    return f"{job}-{HOSTFILE_VOLUME}"


def launcher_is_node(policy: Json) -> bool:
    """Whether the launcher trains, too."""
    return (policy.get("mpi") or {}).get("runLauncherAsNode") is True


def slots(rendered: Rendered) -> int:
    """Processes of a node: as the job says, else as the runtime says; where that is one, those of its GPUs."""
    given = whole_number(rendered.trainer.get("numProcPerNode"))
    if given is not None:
        return given
    stated = whole_number(rendered.policy["mpi"].get("numProcPerNode"))
    count = 1 if stated is None else stated
    return max(rendered.gpus_per_node(), 1) if count == 1 else count


def enforce(rendered: Rendered) -> None:
    """Set the number of nodes, and put keys and list of nodes into the pods."""
    node = rendered.named(NODE)
    if node and rendered.num_nodes is not None:
        own = launcher_is_node(rendered.policy)
        node.count = max(rendered.num_nodes - 1, 1) if own else rendered.num_nodes
    for pod_set in rendered.sets:
        if pod_set.name in (NODE, LAUNCHER):
            _mount_files(rendered, pod_set)


def _mount_files(rendered: Rendered, pod_set: PodSet) -> None:
    set_volumes(pod_set.pod_spec, _ssh_volume(rendered.name))
    is_launcher = pod_set.name == LAUNCHER
    if is_launcher:
        set_volumes(pod_set.pod_spec, _hostfile_volume(rendered.name))
    if (container := pod_set.container(NODE)) is None:
        return
    path = rendered.policy["mpi"].get("sshAuthMountPath") or "/root/.ssh"
    mount(container, {"name": SSH_VOLUME, "mountPath": path})
    if is_launcher:
        mount(container, {"name": HOSTFILE_VOLUME, "mountPath": HOSTFILE_FOLDER})
        set_variables(
            container,
            variable("OMPI_MCA_orte_default_hostfile", f"{HOSTFILE_FOLDER}/{HOSTFILE}"),
            variable("OMPI_MCA_orte_keep_fqdn_hostnames", "true"),
            variable("OMPI_MCA_orte_set_default_slots", slots(rendered)),
            variable("OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=10"),
        )


def _ssh_volume(job: str) -> Json:
    files = ((PRIVATE_KEY, "id_rsa", 0o640), (PUBLIC_KEY, "id_rsa.pub", 0o644), (PUBLIC_KEY, "authorized_keys", 0o644))
    items = [{"key": key, "path": path, "mode": mode} for key, path, mode in files]
    return {"name": SSH_VOLUME, "secret": {"secretName": secret_name(job), "defaultMode": 0o400, "items": items}}


def _hostfile_volume(job: str) -> Json:
    items = [{"key": HOSTFILE, "path": HOSTFILE, "mode": 0o444}]
    return {"name": HOSTFILE_VOLUME, "configMap": {"name": hostfile_name(job), "items": items}}


def hostfile(rendered: Rendered) -> str:
    """The nodes with their slots, in the order of the runtime's replicated jobs."""
    names = (NODE, LAUNCHER) if launcher_is_node(rendered.policy) else (NODE,)
    return "".join(
        f"{rendered.name}-{pod_set.name}-{replica}-{index}.{rendered.subdomain()} slots={slots(rendered)}\n"
        for pod_set in rendered.sets
        if pod_set.name in names
        for replica in range(int(pod_set.document.get("replicas", 1)))
        for index in range(pod_set.count)
    )
