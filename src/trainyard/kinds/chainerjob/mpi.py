"""Auxiliary objects of an MPI job: a hostfile, programs that start processes in the workers, and their RBAC rights.

Users' scripts may depend on these names (docs/rules.md 1.5, 1.6, S20): the two directories, the hostfile, the variables
of Open MPI, and `kubexeb.sh`, which is spelled so in the old operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trainyard.core import AuxiliaryObject, Job
from trainyard.core.names import digest
from trainyard.kinds.mpi_variables import POD_NAME_VARIABLE, exec_variables
from trainyard.kinds.pods.templates import append_missing_variables, append_to_list, append_volume, containers_of
from trainyard.objects import Json, Ref
from trainyard.objects.resources import CONFIG_MAP, ROLE, ROLE_BINDING, SERVICE_ACCOUNT, STATEFUL_SET

ROOT = "/kubeflow/chainer-operator"
ASSETS = f"{ROOT}/assets"
GENERATED = f"{ROOT}/generated"
HOSTFILE = f"{GENERATED}/hostfile"
RSH_AGENT = "kubexeb.sh"
EXEC_PROGRAM = "kubexec.py"
SLOTS_FILE = "statefulsets_and_slots"
VOLUMES = {"chainer-operator-volume-generated": GENERATED, "chainer-operator-volume-assets": ASSETS}
EXECUTABLE_MODE = 0o555
_RBAC_GROUP = "rbac.authorization.k8s.io"
_MOUNTS = [{"name": name, "mountPath": path} for name, path in VOLUMES.items()]
_VARIABLES = {
    "OMPI_MCA_plm_rsh_agent": f"{ASSETS}/{RSH_AGENT}",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "t",
    "OMPI_MCA_orte_default_hostfile": HOSTFILE,
    "OMPI_MCA_btl_tcp_if_exclude": "lo,docker0",
    # The master starts each orted, which daemonizes itself: no exec session stays open for as long as the job runs.
    "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
}
ABORT_ON_EXCEPTION = {"CHAINERMN_FORCE_ABORT_ON_EXCEPTION": "1"}
"""An exception in one rank ends all: without it ChainerMN's other ranks wait for that rank, and it for them."""


class WorkerStatefulSet(msgspec.Struct, frozen=True):
    """A StatefulSet of workers; `slots` are MPI slots in each pod."""

    name: str
    replicas: int
    slots: int

    def pods(self) -> list[str]:
        """The names of the set's pods."""
        return [f"{self.name}-{index}" for index in range(self.replicas)]


def service_account_name(job: Job) -> str:
    """The name of the ServiceAccount of the job's pods."""
    return f"{job.key.name}-launcher"


def add_mpi_volumes_and_env(template: Json, job: Job, slots: int) -> None:
    """Add the two volumes and, to each container of the user, the mounts and, after the user's, the variables.

    `slots`: the least of all pods. Changes the template in place.
    """
    generated, assets = VOLUMES
    items = [{"key": key, "path": key, "mode": EXECUTABLE_MODE} for key in (RSH_AGENT, EXEC_PROGRAM, SLOTS_FILE)]
    append_volume(template, {"name": generated, "emptyDir": {}})
    append_volume(template, {"name": assets, "configMap": {"name": f"{job.key.name}-assets", "items": items}})
    variables: list[Json] = [{"name": name, "value": value} for name, value in _VARIABLES.items()]
    variables.append(POD_NAME_VARIABLE)
    exec_env = exec_variables(f"{ASSETS}/{RSH_AGENT}", GENERATED, slots, template["spec"])
    for container in _init_containers(template):
        _add_mounts(container)
    for container in containers_of(template):
        _add_mounts(container)
        append_to_list(container, "env", *variables)
        append_missing_variables(container, exec_env | ABORT_ON_EXCEPTION)


def _add_mounts(container: Json) -> None:
    append_to_list(container, "volumeMounts", *_MOUNTS)


def _init_containers(template: Json) -> list[Json]:
    containers = template["spec"].get("initContainers")
    if not isinstance(containers, list):
        return []
    return [container for container in containers if isinstance(container, dict)]


def wait_for_workers(template: Json, slots: int) -> None:
    """Add the last init container, which writes the hostfile once every worker runs.

    It runs the image of the container chainer, which has to have Python. Changes the template in place.
    """
    chainer = next(container for container in containers_of(template) if container.get("name") == "chainer")
    copied_fields: Json = {
        key: chainer[key] for key in ("image", "imagePullPolicy", "securityContext") if key in chainer
    }
    command = ["python3", f"{ASSETS}/{EXEC_PROGRAM}", "--hostfile", HOSTFILE, "$(POD_NAME)", f"slots={slots}"]
    generator: Json = {
        "name": "chainer-operator-hostfile-generator",
        **copied_fields,
        "command": [*command, f"{ASSETS}/{SLOTS_FILE}"],
        "env": [{**POD_NAME_VARIABLE, "name": "POD_NAME"}],
        "volumeMounts": list(_MOUNTS),
    }
    append_to_list(template["spec"], "initContainers", generator)


def auxiliary_objects(
    job: Job, labels: Mapping[str, str], sets: Sequence[WorkerStatefulSet], files: bool
) -> tuple[AuxiliaryObject, ...]:
    """The ServiceAccount, Role and RoleBinding, and with `files` the ConfigMap.

    Role and ConfigMap are updated when the worker sets change.

    The Role has no rules for a StatefulSet that is not known to be owned by the job: its pods may be another user's.
    """
    name, owned = service_account_name(job), job.owned
    refs = {Ref(STATEFUL_SET.kind, worker_set.name): worker_set for worker_set in sets}
    rules = _policy_rules([worker_set for ref, worker_set in refs.items() if owned is None or ref in owned])
    subject = {"kind": "ServiceAccount", "name": name, "namespace": job.key.namespace}
    role_ref = {"apiGroup": _RBAC_GROUP, "kind": "Role", "name": f"{name}-role"}

    def body(api_version: str, kind: str, **fields: object) -> Json:
        return {"apiVersion": api_version, "kind": kind, "metadata": {"labels": dict(labels)}, **fields}

    auxiliary = [
        AuxiliaryObject(SERVICE_ACCOUNT, name, lambda: body("v1", "ServiceAccount")),
        AuxiliaryObject(
            ROLE,
            f"{name}-role",
            lambda: body(f"{_RBAC_GROUP}/v1", "Role", rules=rules),
            digest=digest(rules),
            depends_on=tuple(refs),
        ),
        AuxiliaryObject(
            ROLE_BINDING,
            f"{name}-rolebinding",
            lambda: body(f"{_RBAC_GROUP}/v1", "RoleBinding", subjects=[subject], roleRef=role_ref),
            # An API server rejects a RoleBinding without its Role; another user's ServiceAccount must get no rights.
            depends_on=(Ref(SERVICE_ACCOUNT.kind, name), Ref(ROLE.kind, f"{name}-role")),
        ),
    ]
    if files:
        texts = {key: job.config.program_files.get(key, "") for key in (RSH_AGENT, EXEC_PROGRAM)}
        texts[SLOTS_FILE] = "".join(
            f"{worker_set.name} slots={worker_set.slots} replicas={worker_set.replicas}\n" for worker_set in sets
        )
        config_map = AuxiliaryObject(
            CONFIG_MAP, f"{job.key.name}-assets", lambda: body("v1", "ConfigMap", data=texts), digest=digest(texts)
        )
        auxiliary.append(config_map)
    return tuple(auxiliary)


def _policy_rules(sets: Sequence[WorkerStatefulSet]) -> list[Json]:
    """Rules for the worker pods by name, [] when there are none: empty resourceNames would allow all pods (S22)."""
    pods = [pod for worker_set in sets for pod in worker_set.pods()]
    if not pods:
        return []
    return [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": pods},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"], "resourceNames": pods},
    ]
