"""Fields of a pod that have no effect where pods are processes of one machine. One table, and one function over a pod.

`lint`, `run`, `submit` and `why` say them of a job, the node of any other pod; all in these words.

Rules for this file:
- A field that is empty, or that says what happens anyhow, is not spoken of.
- What makes a pod end otherwise than on a cluster does not belong here: the node refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from trainyard.objects.meta import Json


class IneffectiveField(NamedTuple):
    """A field of a pod or pod template that has no effect. `field` is its path without indexes, the same for all."""

    path: str  # spec.containers[0].livenessProbe
    field: str  # containers.livenessProbe
    reason: str


ONE_NODE = "this machine is the only node"
NO_PROBES = "a container is ready while its program runs"
NO_CONTAINERS = "pods are processes of this machine, without isolation"
# What the scheduler of a cluster looks at.
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
    "schedulingGroup": "pods start as they come",
}
POD = {
    "hostIPC": NO_CONTAINERS,
    "hostPID": NO_CONTAINERS,
    "hostNetwork": "in network namespace a pod has a network of its own, in network shared it has this machine's",
    "hostUsers": NO_CONTAINERS,
    "imagePullSecrets": "no image is pulled from a registry",
    "os": NO_CONTAINERS,
    "resources": "limits of a whole pod are not enforced",
    "runtimeClassName": NO_CONTAINERS,
    "setHostnameAsFQDN": "the host name is the short one",
    "shareProcessNamespace": NO_CONTAINERS,
}
CONTAINER = {
    "imagePullPolicy": "no image is pulled from a registry",
    "lifecycle": "hooks are not called",
    "livenessProbe": NO_PROBES,
    "readinessProbe": NO_PROBES,
    "startupProbe": NO_PROBES,
    "resizePolicy": "limits are not changed while a program runs",
    "restartPolicyRules": "the restartPolicy of the pod holds",
    "stdin": "standard input is empty",
    "tty": "a program has no terminal",
    "volumeDevices": "there are no block devices",
}
AS_YOU = "every program runs as the user who started Trainyard"
SECURITY = {"runAsUser": AS_YOU, "runAsGroup": AS_YOU, "runAsNonRoot": AS_YOU}
REQUESTS = "nothing is reserved"
LIMITS = {"cpu": "not enforced; a program may use every CPU", "ephemeral-storage": "not enforced; the disk is shared"}
DEVICES = "no device is allocated; a program sees those that this machine has"

# What an API server fills in by itself when it stores a pod, so that nobody may have written it.
FILLED_IN = frozenset({"imagePullPolicy", "preemptionPolicy", "priority", "tolerations"})


def ineffective_fields(pod: Json, *, stored: bool = False, scheduled: bool = False) -> list[IneffectiveField]:
    """The fields of a pod or pod template that have no effect here, in the order of the table.

    `stored`: an API server has filled in defaults. `scheduled`: the scheduler of a real cluster has placed it.
    """
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        return []
    table = POD if scheduled else {**SCHEDULING, **POD}
    found = [*_named(spec, "spec", "", table), *_security(spec, "spec", "")]
    for listed in ("initContainers", "containers"):
        items = spec.get(listed)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, dict):
                place = f"spec.{listed}[{index}]"
                found += [*_named(item, place, "containers.", CONTAINER), *_security(item, place, "containers.")]
                found += _resources(item, place, scheduled)
    return [one for one in found if not (stored and one.field.rpartition(".")[2] in FILLED_IN)]


def _named(values: Json, place: str, prefix: str, table: Mapping[str, str]) -> Iterator[IneffectiveField]:
    for name, reason in table.items():
        if values.get(name):
            yield IneffectiveField(f"{place}.{name}", f"{prefix}{name}", reason)


def _security(values: Json, place: str, prefix: str) -> Iterator[IneffectiveField]:
    context = values.get("securityContext")
    for name, value in context.items() if isinstance(context, dict) else ():
        if value is not None and value not in ({}, []):
            field = f"securityContext.{name}"
            yield IneffectiveField(f"{place}.{field}", field, SECURITY.get(name, NO_CONTAINERS))


def _resources(container: Json, place: str, scheduled: bool) -> Iterator[IneffectiveField]:
    resources = container.get("resources")
    resources = resources if isinstance(resources, dict) else {}
    limits, requests = (
        part if isinstance(part := resources.get(name), dict) else {} for name in ("limits", "requests")
    )
    for name in limits:
        reason = LIMITS.get(name, "" if name == "memory" or name.startswith("hugepages-") else DEVICES)
        if reason:
            field = f"resources.limits.{name}"
            yield IneffectiveField(f"{place}.{field}", f"containers.{field}", reason)
    if requests and not scheduled:
        yield IneffectiveField(f"{place}.resources.requests", "containers.resources.requests", REQUESTS)
    if resources.get("claims"):
        yield IneffectiveField(f"{place}.resources.claims", "containers.resources.claims", DEVICES)
