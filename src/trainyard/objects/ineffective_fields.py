"""Pod fields that have no effect where pods run as processes of one machine: one table, and one function over a pod.

`lint`, `run`, `submit` and `why` report them for jobs, the node for any other pod; all use these texts.

Rules for this file:
- A field that is empty, or that asks for what happens in any case, is not reported.
- A field that would make a pod end differently than on a cluster does not belong here: the node rejects such pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from trainyard.objects.extended_resources import OLD_NAMES, is_device_resource
from trainyard.objects.meta import Json


class IneffectiveField(NamedTuple):
    """A field of a pod or pod template that has no effect. `field` is its path without indexes of containers."""

    path: str  # spec.containers[0].tty
    field: str  # containers.tty
    reason: str


ONE_NODE = "this machine is the only node"
NO_CONTAINERS = "pods are processes of this machine, without isolation"
# Fields that the scheduler of a cluster reads.
SCHEDULING = {
    "affinity": ONE_NODE,
    "nodeSelector": ONE_NODE,
    "tolerations": ONE_NODE,
    "topologySpreadConstraints": ONE_NODE,
    "overhead": "nothing is reserved",
    "priority": "no pod is preempted",
    "priorityClassName": "no pod is preempted",
    "preemptionPolicy": "no pod is preempted",
    "resourceClaims": "no device is allocated; a program sees those that this machine has",
    "schedulerName": "the scheduler of this machine places every pod",
    "schedulingGroup": "pods are not ordered",
}
POD = {
    "hostIPC": NO_CONTAINERS,
    "hostPID": NO_CONTAINERS,
    "hostNetwork": "in network namespace a pod has a network of its own, in network shared it has this machine's",
    "hostUsers": NO_CONTAINERS,
    "imagePullSecrets": "images are not pulled",
    "os": NO_CONTAINERS,
    "resources": "limits of a whole pod are not enforced",
    "runtimeClassName": NO_CONTAINERS,
    "setHostnameAsFQDN": "the host name is the short one",
    "shareProcessNamespace": NO_CONTAINERS,
}
CONTAINER = {
    "imagePullPolicy": "images are not pulled",
    "resizePolicy": "limits are not changed while a program runs",
    "stdin": "standard input is empty",
    "tty": "a program has no terminal",
    "volumeDevices": "there are no block devices",
}
SAME_USER = "every program runs as the user who started Trainyard, unless root did, in network namespace"
NO_IMAGE_USER = "images are not read: every program runs as the user who started Trainyard, or as its runAsUser"
# Fields of a security context that a node of root, which can change users, carries out.
USERS = dict.fromkeys(("runAsUser", "runAsGroup", "supplementalGroups", "fsGroup"), SAME_USER)
SECURITY = {**USERS, "runAsNonRoot": NO_IMAGE_USER}
REQUESTS = "nothing is reserved"
LIMITS = {"cpu": "not enforced; a program may use every CPU", "ephemeral-storage": "not enforced; the disk is shared"}
NO_DEVICES = "no device is allocated; a program sees those that this machine has"
NO_SUCH_GPU = "this machine has no such GPU, or no driver for it; the program runs without"

USUAL = {"schedulerName": "default-scheduler"}  # values that ask for what happens in any case

# Fields that an API server defaults when it stores a pod, so that the user may not have set them.
DEFAULTED = frozenset({"imagePullPolicy", "preemptionPolicy", "priority", "tolerations"})


def ineffective_fields(
    pod: Json,
    *,
    stored: bool = False,
    scheduled: bool = False,
    users: bool = False,
    is_given_out: Callable[[str], bool] = lambda resource: False,
) -> list[IneffectiveField]:
    """The fields of a pod or pod template that have no effect on one machine, in the order of the table.

    `stored`: the pod was read from an API server, which has set defaults; fields that it defaults are left out.
    `scheduled`: the scheduler of a real cluster has bound the pod, so the scheduling fields did have an effect.
    `users`: the node can run programs as other users.
    `is_given_out`: whether this machine may have devices of a resource, which are then given to pods.
    """
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return []
    table = POD if scheduled else {**SCHEDULING, **POD}
    is_root = not _runs_as_user(spec)  # as far as the pod says
    ineffective = [*_fields_in_table(spec, "spec", "", table), *_security_context_fields(spec, "spec", "", is_root)]
    for list_name in ("initContainers", "containers"):
        containers = spec.get(list_name)
        for index, container in enumerate(containers if isinstance(containers, list) else ()):
            if isinstance(container, dict):
                path = f"spec.{list_name}[{index}]"
                ineffective += _fields_in_table(container, path, "containers.", CONTAINER)
                is_root_here = is_root and not _runs_as_user(container)
                ineffective += _security_context_fields(container, path, "containers.", is_root_here)
                ineffective += _resource_fields(container, path, scheduled, is_given_out)
    left_out = {*(DEFAULTED if stored else ()), *(USERS if users else ())}
    return [entry for entry in ineffective if entry.field.rpartition(".")[2] not in left_out]


def _fields_in_table(
    spec_or_container: Json, path: str, prefix: str, table: Mapping[str, str]
) -> Iterator[IneffectiveField]:
    for name, reason in table.items():
        if (value := spec_or_container.get(name)) and value != USUAL.get(name):
            yield IneffectiveField(f"{path}.{name}", f"{prefix}{name}", reason)


def _runs_as_user(spec_or_container: Json) -> bool:
    context = spec_or_container.get("securityContext")
    return isinstance(context, dict) and context.get("runAsUser") is not None


def _security_context_fields(
    spec_or_container: Json, path: str, prefix: str, is_root: bool
) -> Iterator[IneffectiveField]:
    context = spec_or_container.get("securityContext")
    for name, value in context.items() if isinstance(context, dict) else ():
        if name == "runAsNonRoot" and not (value and is_root):
            continue
        if value is not None and value not in ({}, []):
            field = f"securityContext.{name}"
            yield IneffectiveField(f"{path}.{field}", field, SECURITY.get(name, NO_CONTAINERS))


def _resource_fields(
    container: Json, path: str, scheduled: bool, is_given_out: Callable[[str], bool]
) -> Iterator[IneffectiveField]:
    resources = container.get("resources")
    resources = resources if isinstance(resources, dict) else {}
    limits, requests = (
        quantities if isinstance(quantities := resources.get(name), dict) else {} for name in ("limits", "requests")
    )
    for name in limits:
        resource = OLD_NAMES.get(str(name), str(name))
        no_device = NO_SUCH_GPU if is_device_resource(resource) else NO_DEVICES
        reason = LIMITS.get(name, "" if name == "memory" or name.startswith("hugepages-") else no_device)
        if reason and not is_given_out(resource):
            field = f"resources.limits.{name}"
            yield IneffectiveField(f"{path}.{field}", f"containers.{field}", reason)
    if requests and not scheduled:
        yield IneffectiveField(f"{path}.resources.requests", "containers.resources.requests", REQUESTS)
    if resources.get("claims"):
        yield IneffectiveField(f"{path}.resources.claims", "containers.resources.claims", NO_DEVICES)
