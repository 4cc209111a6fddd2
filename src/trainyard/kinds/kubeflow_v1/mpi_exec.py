"""MPIJob v1: MPI starts its processes in the workers with `exec`, the right to which the launcher's account gets.

The launcher runs `kubexec.sh` in place of ssh. The Training Operator puts kubectl beside it, from an image of its own.
Without `--mpi-kubectl-delivery-image` no foreign image is needed: the script then runs files/kubexec.py with the
launcher's own Python, which waits for a worker that does not run yet.
"""

from __future__ import annotations

from trainyard.core import AuxiliaryObject, Job, Slot
from trainyard.core.names import digest
from trainyard.kinds.kubeflow_v1 import mpi
from trainyard.kinds.kubeflow_v1.framework import WORKER
from trainyard.kinds.mpi_variables import (
    HYDRA_HOSTFILE,
    POD_NAME_VARIABLE,
    WAIT_FOR_COMMANDS,
    exec_variables,
    hydra_hosts,
)
from trainyard.kinds.pods.templates import (
    append_missing_variables,
    append_to_list,
    append_volume,
    containers_of,
    spec_of,
)
from trainyard.objects import Json, Ref
from trainyard.objects.resources import CONFIG_MAP, POD, ROLE, ROLE_BINDING, SERVICE_ACCOUNT

RSH_AGENT, EXEC_PROGRAM = "kubexec.sh", "kubexec.py"
KUBECTL_VOLUME, KUBECTL_PATH = "mpi-job-kubectl", "/opt/kube"
AUXILIARY_RESOURCES = (CONFIG_MAP, SERVICE_ACCOUNT, ROLE, ROLE_BINDING)
_RBAC_GROUP = "rbac.authorization.k8s.io"
_KUBECTL_RESOURCES = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}


def has_gpu(job: Job) -> bool:
    """Whether a container of the launcher has a limit of GPUs; it is a host of MPI processes then."""
    launcher = job.role(mpi.LAUNCHER)
    resources = (container.get("resources") for container in containers_of(launcher.template if launcher else None))
    limits = (fields.get("limits") for fields in resources if isinstance(fields, dict))
    return any("gpu" in str(name) for names in limits if isinstance(names, dict) for name in names)


def own_account(job: Job) -> str:
    """The ServiceAccount that the user has named for the launcher, "" for none."""
    launcher = job.role(mpi.LAUNCHER)
    return str(spec_of(launcher.template if launcher else None).get("serviceAccountName") or "")


def auxiliary_objects(job: Job) -> tuple[AuxiliaryObject, ...]:
    """The ConfigMap, and what gives the launcher the right to exec into the workers. A user's own account is used and
    not created."""
    name, account = mpi.launcher_name(job), own_account(job)
    workers = tuple(Ref(POD.kind, worker) for worker in mpi.worker_names(job))
    rules = _policy_rules([worker.name for worker in workers if job.owned is None or worker in job.owned])
    subject = {"kind": "ServiceAccount", "name": account or name, "namespace": job.key.namespace}
    binding: Json = {"roleRef": {"apiGroup": _RBAC_GROUP, "kind": "Role", "name": name}, "subjects": [subject]}
    accounts = () if account else (mpi.auxiliary(job, SERVICE_ACCOUNT, name, {}),)
    return (
        mpi.config_map(job, _files(job)),
        *accounts,
        # The Role names only Pods that are known to be the job's own.
        mpi.auxiliary(job, ROLE, name, {"rules": rules}, digest=digest(rules), depends_on=workers),
        mpi.auxiliary(
            job,
            ROLE_BINDING,
            name,
            binding,
            depends_on=(*(account.ref for account in accounts), Ref(ROLE.kind, name)),
        ),
    )


def dependencies(job: Job, slot: Slot) -> tuple[Ref, ...]:
    """A worker needs the ConfigMap and the PodGroup, the launcher every object."""
    blocking = job.blocking_objects()
    if slot.role == mpi.LAUNCHER:
        return blocking
    unneeded = (SERVICE_ACCOUNT.kind, ROLE.kind, ROLE_BINDING.kind)
    return tuple(ref for ref in blocking if ref.kind not in unneeded)


def _policy_rules(workers: list[str]) -> list[Json]:
    """kubectl reads pods before it executes in one. Empty resourceNames would allow all pods (S22)."""
    read = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    run = {"apiGroups": [""], "resources": ["pods/exec"], "resourceNames": workers, "verbs": ["get", "create"]}
    return [read, run] if workers else [read]


def _files(job: Job) -> dict[str, str]:
    slots, launcher = mpi.slots_per_worker(job), mpi.launcher_name(job)
    hosts = [*([launcher] if has_gpu(job) else []), *mpi.worker_names(job)]
    discovered = [f"echo {worker}:{slots}" for worker in mpi.running_workers(job)]
    first = [f"echo {launcher}:{slots}", ""] if has_gpu(job) else []
    files = {
        mpi.HOSTFILE: "".join(f"{host} slots={slots}\n" for host in hosts),
        mpi.DISCOVER_HOSTS: "\n".join(["#!/bin/sh", *first, *discovered]),
        RSH_AGENT: _rsh_agent(job),
        HYDRA_HOSTFILE: hydra_hosts((host, slots) for host in hosts),
    }
    if not job.config.kubectl_delivery_image:
        files[EXEC_PROGRAM] = job.config.program_files.get(EXEC_PROGRAM, "")
    return files


def _rsh_agent(job: Job) -> str:
    stated = str(job.parsed.spec.get("mainContainer") or "")
    head = "#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n"
    if job.config.kubectl_delivery_image:
        option = f" --container {stated}" if stated else ""
        return f'{head}{KUBECTL_PATH}/kubectl exec ${{POD_NAME}}{option} -- /bin/sh -c "$*"'
    worker = job.role(WORKER)
    container = stated or mpi.main_container_of((worker.template if worker else None) or {}).get("name", "")
    return f'{head}exec python3 {mpi.CONFIG_PATH}/{EXEC_PROGRAM} --container {container} "${{POD_NAME}}" "$*"\n'


def mutate(template: Json, job: Job, slot: Slot) -> None:
    """Adds the files, the variables of each MPI, and for a worker without a command one that waits."""
    container = mpi.main_container_of(template)
    if slot.role != mpi.LAUNCHER:
        if not container.get("command"):
            container.update(command=["sh", "-c"], args=[WAIT_FOR_COMMANDS])
        append_to_list(container, "volumeMounts", _config_mount())
        append_volume(template, mpi.config_volume(job, {RSH_AGENT: mpi.SCRIPT_MODE}))
        return
    if not own_account(job):
        template["spec"]["serviceAccountName"] = mpi.launcher_name(job)
    _add_variables(template, container, job)
    if image := job.config.kubectl_delivery_image:
        append_to_list(template["spec"], "initContainers", _kubectl_delivery(job, image))
        append_to_list(container, "volumeMounts", _kubectl_mount())
        append_volume(template, {"name": KUBECTL_VOLUME, "emptyDir": {}})
    append_to_list(container, "volumeMounts", _config_mount())
    modes = {RSH_AGENT: mpi.SCRIPT_MODE, mpi.HOSTFILE: mpi.DATA_MODE, mpi.DISCOVER_HOSTS: mpi.SCRIPT_MODE}
    modes[HYDRA_HOSTFILE] = mpi.DATA_MODE
    if not job.config.kubectl_delivery_image:
        modes[EXEC_PROGRAM] = mpi.SCRIPT_MODE
    append_volume(template, mpi.config_volume(job, modes))


def _add_variables(template: Json, container: Json, job: Job) -> None:
    agent = f"{mpi.CONFIG_PATH}/{RSH_AGENT}"
    recorded = [
        {"name": "OMPI_MCA_plm_rsh_agent", "value": agent},
        {"name": "OMPI_MCA_orte_default_hostfile", "value": f"{mpi.CONFIG_PATH}/{mpi.HOSTFILE}"},
        *([] if has_gpu(job) else mpi.NO_GPU),
    ]
    append_to_list(container, "env", *recorded)
    append_missing_variables(
        container, exec_variables(agent, mpi.CONFIG_PATH, mpi.slots_per_worker(job), template["spec"])
    )
    # The agent runs a command for its own pod itself, also where the pod's host name is that of the machine.
    append_to_list(container, "env", POD_NAME_VARIABLE)


def _config_mount() -> Json:
    return {"name": mpi.CONFIG_VOLUME, "mountPath": mpi.CONFIG_PATH}


def _kubectl_mount() -> Json:
    return {"name": KUBECTL_VOLUME, "mountPath": KUBECTL_PATH}


def _kubectl_delivery(job: Job, image: str) -> Json:
    """The Training Operator's init container, which waits for the workers and leaves kubectl for the launcher."""
    return {
        "name": "kubectl-delivery",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": "TARGET_DIR", "value": KUBECTL_PATH}, {"name": "NAMESPACE", "value": job.key.namespace}],
        "volumeMounts": [_kubectl_mount(), _config_mount()],
        "resources": {"limits": _KUBECTL_RESOURCES, "requests": _KUBECTL_RESOURCES},
    }
