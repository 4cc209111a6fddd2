"""What an MPI job has beside its replicas: a hostfile, a way to start processes in its workers, and the right to.

The names are those that scripts of users may know (docs/rules.md 1.5, 1.6, S20): the two folders, the hostfile,
the variables of Open MPI, and `kubexeb.sh`, whose spelling is the interface.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trainyard.core import AuxiliaryObject, Job
from trainyard.core.model import Ref
from trainyard.core.names import digest
from trainyard.kinds.templates import append, append_volume, containers_of
from trainyard.objects import Json
from trainyard.objects.resources import CONFIG_MAP, ROLE, ROLE_BINDING, SERVICE_ACCOUNT, STATEFUL_SET

ROOT = "/kubeflow/chainer-operator"
ASSETS = f"{ROOT}/assets"
GENERATED = f"{ROOT}/generated"
HOSTFILE = f"{GENERATED}/hostfile"
AGENT = "kubexeb.sh"
PROGRAM = "kubexec.py"
SETS = "statefulsets_and_slots"
VOLUMES = {"chainer-operator-volume-generated": GENERATED, "chainer-operator-volume-assets": ASSETS}
EXECUTABLE = 0o555
_API = "rbac.authorization.k8s.io"
_MOUNTS = [{"name": name, "mountPath": path} for name, path in VOLUMES.items()]
_POD_NAME: Json = {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
_VARIABLES = {
    "OMPI_MCA_plm_rsh_agent": f"{ASSETS}/{AGENT}",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "t",
    "OMPI_MCA_orte_default_hostfile": HOSTFILE,
    "OMPI_MCA_btl_tcp_if_exclude": "lo,docker0",
    # Every orted is started by the master and goes on as a daemon: no session has to last as long as the job.
    "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
}


class WorkerSet(NamedTuple):
    """A StatefulSet of workers."""

    name: str
    replicas: int
    slots: int

    def pods(self) -> list[str]:
        return [f"{self.name}-{index}" for index in range(self.replicas)]


def account(job: Job) -> str:
    return f"{job.key.name}-launcher"


def equip(template: Json, job: Job) -> None:
    """The folders and, for every container of the user's, the variables; the user's own stand first."""
    generated, assets = VOLUMES
    items = [{"key": key, "path": key, "mode": EXECUTABLE} for key in (AGENT, PROGRAM, SETS)]
    append_volume(template, {"name": generated, "emptyDir": {}})
    append_volume(template, {"name": assets, "configMap": {"name": f"{job.key.name}-assets", "items": items}})
    variables: list[Json] = [{"name": name, "value": value} for name, value in _VARIABLES.items()]
    variables.append({"name": "TRAINYARD_POD_NAME", **_POD_NAME})
    for container in _init_containers(template):
        _mount(container)
    for container in containers_of(template):
        _mount(container)
        append(container, "env", *variables)


def _mount(container: Json) -> None:
    append(container, "volumeMounts", *_MOUNTS)


def _init_containers(template: Json) -> list[Json]:
    found = template["spec"].get("initContainers")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def wait_for_workers(template: Json, slots: int) -> None:
    """The last init container writes the hostfile once every worker runs, with the Python of the user's image."""
    chainer = next(one for one in containers_of(template) if one.get("name") == "chainer")
    kept: Json = {key: chainer[key] for key in ("image", "imagePullPolicy", "securityContext") if key in chainer}
    command = ["python3", f"{ASSETS}/{PROGRAM}", "--hostfile", HOSTFILE, "$(POD_NAME)", f"slots={slots}"]
    generator: Json = {
        "name": "chainer-operator-hostfile-generator",
        **kept,
        "command": [*command, f"{ASSETS}/{SETS}"],
        "env": [{"name": "POD_NAME", **_POD_NAME}],
        "volumeMounts": list(_MOUNTS),
    }
    append(template["spec"], "initContainers", generator)


def objects(job: Job, labels: Mapping[str, str], sets: Sequence[WorkerSet], files: bool) -> tuple[AuxiliaryObject, ...]:
    """The account and its rights, and for a distributed job the files. Rights and files follow the worker sets.

    A set that was not seen as ours gives no rights: its pods may be a stranger's.
    """
    name, owned = account(job), job.owned
    refs = {Ref(STATEFUL_SET.kind, one.name): one for one in sets}
    rules, subject = (
        _rules([one for ref, one in refs.items() if owned is None or ref in owned]),
        {"kind": "ServiceAccount", "name": name, "namespace": job.key.namespace},
    )
    role_ref = {"apiGroup": _API, "kind": "Role", "name": f"{name}-role"}

    def body(api_version: str, kind: str, **rest: object) -> Json:
        return {"apiVersion": api_version, "kind": kind, "metadata": {"labels": dict(labels)}, **rest}

    found = [
        AuxiliaryObject(SERVICE_ACCOUNT, name, lambda: body("v1", "ServiceAccount")),
        AuxiliaryObject(
            ROLE,
            f"{name}-role",
            lambda: body(f"{_API}/v1", "Role", rules=rules),
            digest=digest(rules),
            depends_on=tuple(refs),
        ),
        AuxiliaryObject(
            ROLE_BINDING,
            f"{name}-rolebinding",
            lambda: body(f"{_API}/v1", "RoleBinding", subjects=[subject], roleRef=role_ref),
            # The API server refuses it while its Role is not there; and a stranger's account gets no rights.
            depends_on=(Ref(SERVICE_ACCOUNT.kind, name), Ref(ROLE.kind, f"{name}-role")),
        ),
    ]
    if files:
        texts = {key: job.config.files.get(key, "") for key in (AGENT, PROGRAM)}
        texts[SETS] = "".join(f"{one.name} slots={one.slots} replicas={one.replicas}\n" for one in sets)
        files_of = AuxiliaryObject(
            CONFIG_MAP, f"{job.key.name}-assets", lambda: body("v1", "ConfigMap", data=texts), digest=digest(texts)
        )
        found.append(files_of)
    return tuple(found)


def _rules(sets: Sequence[WorkerSet]) -> list[Json]:
    """Exactly the worker pods by name, and nothing when there are none: a list without names would mean all (S22)."""
    pods = [pod for one in sets for pod in one.pods()]
    if not pods:
        return []
    return [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": pods},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"], "resourceNames": pods},
    ]
