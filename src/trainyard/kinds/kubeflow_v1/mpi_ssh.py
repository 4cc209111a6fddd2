"""MPIJob v2beta1: MPI starts its processes in the workers with ssh (docs/rules.md 4.11).

The key pair is made once, as a Secret that the operator may create and never read. Whether it exists is known from the
ConfigMap, which is created after it.
"""

from __future__ import annotations

from base64 import b64encode

from trainyard.core import AuxiliaryObject, Job, Slot
from trainyard.kinds.kubeflow_v1 import mpi
from trainyard.kinds.kubeflow_v1.framework import WORKER
from trainyard.kinds.kubeflow_v1.pods import JOB_NAME, JOB_ROLE, OPERATOR_NAME, REPLICA_INDEX
from trainyard.kinds.pods.templates import append_missing_variables, append_to_list, append_volume
from trainyard.objects import Json, Ref
from trainyard.objects.resources import CONFIG_MAP, SECRET, SERVICE

OPERATOR = "mpi-operator"
SSH_VOLUME, ROOT_SSH_PATH = "ssh-auth", "/root/.ssh"
PRIVATE_KEY, PUBLIC_KEY = "ssh-privatekey", "ssh-publickey"
SSH_FILES = {"id_rsa": PRIVATE_KEY, "id_rsa.pub": PUBLIC_KEY, "authorized_keys": PUBLIC_KEY}
OPEN_MPI, INTEL, MPICH = "OpenMPI", "Intel", "MPICH"
AT_STARTUP, WAIT_FOR_WORKERS = "AtStartup", "WaitForWorkersReady"
_HOSTFILE = f"{mpi.CONFIG_PATH}/{mpi.HOSTFILE}"
_SSH_OPTIONS = "-o ConnectionAttempts=10"  # the sshd of a worker may start later than the launcher
_VARIABLES = {
    OPEN_MPI: {
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "OMPI_MCA_orte_default_hostfile": _HOSTFILE,
        "OMPI_MCA_plm_rsh_args": _SSH_OPTIONS,
    },
    INTEL: {"I_MPI_HYDRA_HOST_FILE": _HOSTFILE, "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": _SSH_OPTIONS},
    MPICH: {"HYDRA_HOST_FILE": _HOSTFILE, "HYDRA_LAUNCH_EXTRA_ARGS": _SSH_OPTIONS},
}
_ADDED_VARIABLES = {
    # Open MPI 5 starts its processes by PRRTE, which ignores the names of Open MPI 4.
    OPEN_MPI: {"PRTE_MCA_prte_default_hostfile": _HOSTFILE, "PRTE_MCA_plm_ssh_args": _SSH_OPTIONS},
    MPICH: {"HYDRA_LAUNCHER_EXTRA_ARGS": _SSH_OPTIONS},  # MPICH does not read the name that the MPI Operator writes
}
"""Beside those of the MPI Operator, and after them. A user's own value stays."""
_SLOTS_VARIABLE = {OPEN_MPI: "OMPI_MCA_orte_set_default_slots", INTEL: "I_MPI_PERHOST"}


def implementation(job: Job) -> str:
    """`mpiImplementation`."""
    return str(job.parsed.spec.get("mpiImplementation") or OPEN_MPI)


def launcher_is_worker(job: Job) -> bool:
    """`runLauncherAsWorker`: MPI starts processes in the launcher, too."""
    return job.parsed.spec.get("runLauncherAsWorker") is True


def labels(job: Job, slot: Slot) -> dict[str, str]:
    """The labels of the launcher's pod, or of a worker. If the launcher is a worker, too, it has the first index."""
    first_worker = 1 if launcher_is_worker(job) else 0
    names = {**_job_labels(job), JOB_ROLE: slot.role.lower()}
    if slot.role == mpi.LAUNCHER:
        return {**names, REPLICA_INDEX: "0"} if first_worker else names
    return {**names, REPLICA_INDEX: str(slot.index + first_worker)}


def _job_labels(job: Job) -> dict[str, str]:
    return {JOB_NAME: job.key.name, OPERATOR_NAME: OPERATOR}


def auxiliary_objects(job: Job) -> tuple[AuxiliaryObject, ...]:
    """The key pair, the ConfigMap with the hostfile, and the headless Service for the host names."""
    config, secret = Ref(CONFIG_MAP.kind, mpi.config_name(job)), f"{job.key.name}-ssh"
    selector: Json = {"selector": _job_labels(job), "clusterIP": "None"}
    if launcher_is_worker(job):
        selector["publishNotReadyAddresses"] = True  # the launcher reaches itself before it is ready
    return (
        AuxiliaryObject(SECRET, secret, lambda: _key_pair(job), exists_with=config),
        mpi.config_map(job, _files(job), depends_on=(Ref(SECRET.kind, secret),)),
        mpi.auxiliary(job, SERVICE, job.key.name, {"spec": selector}),
    )


def _key_pair(job: Job) -> Json:
    new_key = job.config.new_ssh_key
    data = {}
    if new_key is not None:
        key = new_key()
        data = {
            PRIVATE_KEY: b64encode(key.private.encode()).decode(),
            PUBLIC_KEY: b64encode(key.public.encode()).decode(),
        }
    metadata = {"labels": {"app": job.key.name}}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/ssh-auth", "data": data}


def _files(job: Job) -> dict[str, str]:
    own = [_host(job, mpi.launcher_name(job))] if launcher_is_worker(job) else []
    # Intel MPI knows itself by its bare host name only: it would start ssh to the launcher, which runs no sshd.
    listed = [mpi.launcher_name(job)] if own and implementation(job) == INTEL else own
    hosts = [*listed, *(_host(job, worker) for worker in mpi.worker_names(job))]
    running = [*own, *(_host(job, worker) for worker in mpi.running_workers(job))]
    slots = mpi.slots_per_worker(job)
    separator = " slots=" if implementation(job) == OPEN_MPI else ":"
    return {
        mpi.HOSTFILE: "".join(f"{host}{separator}{slots}\n" for host in hosts),
        mpi.DISCOVER_HOSTS: "".join(["#!/bin/sh\n", *(f"echo {host}\n" for host in running)]),
    }


def _host(job: Job, pod: str) -> str:
    return f"{pod}.{job.key.name}.{job.key.namespace}.svc"


def mutate(template: Json, job: Job, slot: Slot) -> None:
    """Adds host name, key pair, variables, and for the launcher the hostfile, for a worker without a command sshd."""
    spec, container = template["spec"], mpi.main_container_of(template)
    name = mpi.launcher_name(job) if slot.role == mpi.LAUNCHER else mpi.worker_names(job)[slot.index]
    spec.update(hostname=name, subdomain=job.key.name)
    if spec.get("hostNetwork"):
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"
    append_to_list(container, "env", {"name": "K_MPI_JOB_ROLE", "value": slot.role.lower()})
    if slot.role == mpi.LAUNCHER:
        append_to_list(container, "env", *_launcher_variables(job))
        append_missing_variables(container, _ADDED_VARIABLES.get(implementation(job), {}))
    else:
        _add_search_domain(spec, job)
        if not container.get("command") and not container.get("args"):
            container["command"] = ["/usr/sbin/sshd", "-De"]
    _add_key_pair(template, container, job)
    if slot.role == mpi.LAUNCHER:
        append_volume(
            template, mpi.config_volume(job, {mpi.HOSTFILE: mpi.DATA_MODE, mpi.DISCOVER_HOSTS: mpi.SCRIPT_MODE})
        )
        append_to_list(container, "volumeMounts", {"name": mpi.CONFIG_VOLUME, "mountPath": mpi.CONFIG_PATH})


def _launcher_variables(job: Job) -> list[Json]:
    chosen = implementation(job)
    variables = dict(_VARIABLES.get(chosen, {}))
    if chosen in _SLOTS_VARIABLE:
        variables[_SLOTS_VARIABLE[chosen]] = str(mpi.slots_per_worker(job))
    gpus = [] if launcher_is_worker(job) else mpi.NO_GPU
    return [*({"name": name, "value": value} for name, value in variables.items()), *gpus]


def _add_search_domain(spec: Json, job: Job) -> None:
    """Intel MPI and MPICH reach the launcher by its host name alone."""
    domain = f"{job.key.name}.{job.key.namespace}.svc.{job.config.cluster_domain}"
    dns = spec.get("dnsConfig")
    dns = dict(dns) if isinstance(dns, dict) else {}
    append_to_list(dns, "searches", domain)
    spec["dnsConfig"] = dns


def _add_key_pair(template: Json, container: Json, job: Job) -> None:
    path = str(job.parsed.spec.get("sshAuthMountPath") or ROOT_SSH_PATH)
    items = [{"key": key, "path": file} for file, key in SSH_FILES.items()]
    source: Json = {"secretName": f"{job.key.name}-ssh", "items": items}
    if path == ROOT_SSH_PATH:
        source["defaultMode"] = 0o600  # ssh and sshd of root refuse a key that others may read
    append_volume(template, {"name": SSH_VOLUME, "secret": source})
    append_to_list(container, "volumeMounts", {"name": SSH_VOLUME, "mountPath": path})


def awaited_slots(job: Job, slot: Slot) -> frozenset[Slot]:
    """The launcher is created at once, or with WaitForWorkersReady once all workers run."""
    waits = job.parsed.spec.get("launcherCreationPolicy") not in (None, "", AT_STARTUP)
    if slot.role != mpi.LAUNCHER or not waits:
        return frozenset()
    return frozenset(other for other in job.slots() if other.role == WORKER)
