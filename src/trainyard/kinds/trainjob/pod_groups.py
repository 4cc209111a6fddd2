"""Gangs: the PodGroup of a TrainJob, of coscheduling or of Volcano, as the runtime says."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from trainyard.kinds.trainjob.pod_sets import PodSet, Rendered
from trainyard.objects import Json
from trainyard.objects.quantities import exact, of_value

COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
VOLCANO_ANNOTATION = "scheduling.k8s.io/group-name"
VOLCANO_QUEUE = "scheduling.volcano.sh/queue-name"
DEFAULT_TIMEOUT = 60  # seconds, of coscheduling


def name_group_in_pods(rendered: Rendered) -> None:
    """By a label for coscheduling, an annotation for Volcano; a runtime may have both."""
    for policy, field, key in (
        ("coscheduling", "labels", COSCHEDULING_LABEL),
        ("volcano", "annotations", VOLCANO_ANNOTATION),
    ):
        for pod_set in rendered.sets if rendered.pod_groups.get(policy) is not None else ():
            metadata = pod_set.pod_template.setdefault("metadata", {})
            metadata[field] = {**(metadata.get(field) or {}), key: rendered.name}


def pod_groups(rendered: Rendered) -> list[Json]:
    """The PodGroups, without owner. An annotation of the JobSet names Volcano's queue."""
    groups = []
    gang: Json = {"minMember": sum(pod_set.count for pod_set in rendered.sets)}
    if resources := _sum_of_requests(rendered.sets):
        gang["minResources"] = resources
    if (coscheduling := rendered.pod_groups.get("coscheduling")) is not None:
        timeout = coscheduling.get("scheduleTimeoutSeconds")
        spec = {**gang, "scheduleTimeoutSeconds": DEFAULT_TIMEOUT if timeout is None else timeout}
        groups.append(_group("scheduling.x-k8s.io/v1alpha1", rendered.name, spec))
    if (volcano := rendered.pod_groups.get("volcano")) is not None:
        spec = dict(gang)
        if VOLCANO_QUEUE in rendered.annotations:
            spec["queue"] = rendered.annotations[VOLCANO_QUEUE]
        for pod_set in rendered.sets:
            if priority := pod_set.pod_spec.get("priorityClassName"):
                spec["priorityClassName"] = priority
        if volcano.get("networkTopology") is not None:
            spec["networkTopology"] = volcano["networkTopology"]
        groups.append(_group("scheduling.volcano.sh/v1beta1", rendered.name, spec))
    return groups


def of_members(group: Json, job_set: Json, min_member: int, living: Mapping[str, int]) -> Json:
    """The PodGroup of a job at a time. `living`: replicated job -> number of its pods that need room. Trainer's counts
    those as well that are not created before others have succeeded (`dependsOn`), so that such a gang never runs."""
    documents = (document for document in job_set["spec"]["replicatedJobs"] if living.get(document["name"]))
    resources = _sum_of_requests([PodSet(document, living[document["name"]]) for document in documents])
    spec = {**group["spec"], "minMember": min_member}
    return {**group, "spec": {**spec, "minResources": resources} if resources else spec}


def _group(api_version: str, name: str, spec: Json) -> Json:
    return {"apiVersion": api_version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def _sum_of_requests(sets: list[PodSet]) -> Json:
    total: dict[str, Fraction] = {}
    binary: set[str] = set()
    for pod_set in sets:
        for name, amount in pod_requests(pod_set.pod_spec, binary).items():
            total[name] = total.get(name, Fraction(0)) + amount * pod_set.count
    return {name: of_value(amount, name in binary) for name, amount in total.items()}


def pod_requests(pod_spec: Json, binary: set[str]) -> dict[str, Fraction]:
    """What the scheduler keeps for a pod: the sum of its containers and sidecars, or more where an init container needs
    more. `binary` gets the resources with an amount in Mi, Gi and the like."""
    running: dict[str, Fraction] = {}
    most: dict[str, Fraction] = {}
    for container in pod_spec.get("initContainers") or ():
        needed = _requests(container, binary)
        if container.get("restartPolicy") == "Always":
            running = _added(running, needed)
            needed = running
        else:
            needed = _added(running, needed)
        most = {name: max(most.get(name, Fraction(0)), needed.get(name, Fraction(0))) for name in most | needed}
    for container in pod_spec.get("containers") or ():
        running = _added(running, _requests(container, binary))
    whole = {name: max(most.get(name, Fraction(0)), running.get(name, Fraction(0))) for name in most | running}
    return _added(whole, _amounts(pod_spec.get("overhead"), binary))


def _requests(container: Json, binary: set[str]) -> dict[str, Fraction]:
    return _amounts((container.get("resources") or {}).get("requests"), binary)


def _amounts(quantities: Any, binary: set[str]) -> dict[str, Fraction]:
    amounts = {}
    for name, text in (quantities or {}).items():
        if (value := exact(str(text))) is not None:
            amounts[name] = value
            if str(text).endswith("i"):
                binary.add(name)
    return amounts


def _added(left: dict[str, Fraction], right: dict[str, Fraction]) -> dict[str, Fraction]:
    return {name: left.get(name, Fraction(0)) + right.get(name, Fraction(0)) for name in left | right}
