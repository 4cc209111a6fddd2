"""Gang scheduling: the PodGroup of a job, of Volcano or of scheduler-plugins (docs/rules.md 4.10).

`--gang-scheduler-name` names the scheduler: `volcano`, or any other name for scheduler-plugins, whose schedulerName it
is then. Volcano admits a job to its queue before the pods are created; scheduler-plugins holds the pods.
"""

from __future__ import annotations

from fractions import Fraction

from trainyard.core import AuxiliaryObject, Event, Job, PlannedCreate, Slot
from trainyard.core.names import digest
from trainyard.kinds.gang_members import living_members, start_together, started_members
from trainyard.kinds.kubeflow_v1.framework import total_replicas
from trainyard.kinds.native_gang import NATIVE
from trainyard.kinds.pods.requests import pod_requests
from trainyard.kinds.pods.templates import spec_of, whole_number
from trainyard.objects import GVK, Json, Problem, Ref
from trainyard.objects.labels import PREFIX
from trainyard.objects.meta import annotations_of
from trainyard.objects.patterns import lazy_pattern
from trainyard.objects.quantities import of_value

VOLCANO = "volcano"
VOLCANO_POD_GROUP = GVK("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")
PLUGINS_POD_GROUP = GVK("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")
POD_GROUPS = (VOLCANO_POD_GROUP, PLUGINS_POD_GROUP)
NOT_ADMITTED = frozenset({"", "Pending"})
"""The phases of a PodGroup that Volcano has not admitted to its queue."""
ASLEEP = lazy_pattern(r"rejection in (PostFilter|Unreserve)|at plugin Coscheduling|resource gap: ")
"""What Coscheduling writes into a pod that it has rejected itself. It registers no event of room that becomes free,
only the creation of a pod and a change of the PodGroup: without them the pod waits for five minutes."""
NOT_COPIED = ("kubectl.kubernetes.io/last-applied-configuration", PREFIX)


def pod_group_of(scheduler: str) -> GVK | None:
    """The resource of PodGroups for that gang scheduler; None without one, and for kube-scheduler itself, whose groups
    all kinds have (native_gang.py)."""
    if scheduler in ("", NATIVE):
        return None
    return VOLCANO_POD_GROUP if scheduler == VOLCANO else PLUGINS_POD_GROUP


def pod_groups(job: Job) -> tuple[AuxiliaryObject, ...]:
    """The PodGroup of the job, of the job's name; none without a gang scheduler."""
    gvk = pod_group_of(job.config.gang_scheduler)
    if gvk is None:
        return ()
    spec = _volcano_spec(job) if gvk == VOLCANO_POD_GROUP else _plugins_spec(job)
    annotations = {
        name: value for name, value in annotations_of(job.obj).items() if not str(name).startswith(NOT_COPIED)
    }

    def body() -> Json:
        metadata = {"annotations": annotations} if annotations else {}
        return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": metadata, "spec": spec}

    return (
        AuxiliaryObject(
            gvk,
            job.key.name,
            body,
            digest=digest(spec),
            deleted_on_suspend=True,
            deleted_at_end=True,
            blocking_phases=NOT_ADMITTED if gvk == VOLCANO_POD_GROUP else frozenset(),
            asleep_text=ASLEEP if gvk == PLUGINS_POD_GROUP else None,
            fixed_fields=frozenset({"queue"}),  # of the job immutable; a webhook of Volcano may have chosen another
            optional_fields=frozenset({"minResources", "priorityClassName", "scheduleTimeoutSeconds"}),
        ),
    )


def _policy(job: Job) -> Json:
    run_policy = job.parsed.spec.get("runPolicy")
    policy = run_policy.get("schedulingPolicy") if isinstance(run_policy, dict) else None
    return policy if isinstance(policy, dict) else {}


def fewest_members(job: Job) -> int | None:
    """schedulingPolicy.minAvailable, or of an elastic job its fewest workers and all other replicas; None: all."""
    stated = whole_number(_policy(job).get("minAvailable"))
    if stated is not None:
        return stated
    elastic = job.parsed.spec.get("elasticPolicy")
    fewest = whole_number(elastic.get("minReplicas")) if isinstance(elastic, dict) else None
    worker = job.role("Worker")
    if fewest is None or worker is None:
        return None
    return total_replicas(job) - worker.replicas + min(fewest, worker.replicas)


def member_warnings(job: Job) -> tuple[Problem, ...]:
    """A minAvailable that no gang can have."""
    stated, total = whole_number(_policy(job).get("minAvailable")), total_replicas(job)
    if stated is None or 1 <= stated <= total:
        return ()
    text = f"is {stated}, and the job has {total} replicas: it counts as {1 if stated < 1 else total}"
    return (Problem("spec.runPolicy.schedulingPolicy.minAvailable", f"{text}; write a number from 1 to {total}"),)


def priority_class(job: Job) -> str:
    """schedulingPolicy.priorityClass, "" when it is unset."""
    return str(_policy(job).get("priorityClass") or "")


def _volcano_spec(job: Job) -> Json:
    policy = _policy(job)
    # Volcano counts the replicas that have succeeded as ready; only the others need room.
    spec: Json = {"minMember": start_together(started_members(job), fewest_members(job))}
    spec |= {"queue": policy["queue"]} if policy.get("queue") else {}
    if policy.get("priorityClass"):
        spec["priorityClassName"] = policy["priorityClass"]
    return {**spec, "minResources": min_resources(job)}


def _plugins_spec(job: Job) -> Json:
    policy = _policy(job)
    spec: Json = {"minMember": start_together(living_members(job), fewest_members(job))}
    # Only where it is stated: a gang that Coscheduling rejects for it waits up to five minutes after its room is free.
    if isinstance(policy.get("minResources"), dict):
        spec["minResources"] = policy["minResources"]
    if policy.get("scheduleTimeoutSeconds") is not None:
        spec["scheduleTimeoutSeconds"] = policy["scheduleTimeoutSeconds"]
    return spec


def min_resources(job: Job) -> Json:
    """schedulingPolicy.minResources, or the sum of the requests of the first pods that start together and have not
    ended: resource -> quantity.

    The roles count in their own order, whatever the priority of their pods: the operator does not read PriorityClasses.
    """
    stated = _policy(job).get("minResources")
    if isinstance(stated, dict):
        return stated
    sums: dict[str, Fraction] = {}
    binary: set[str] = set()
    members = living_members(job)
    left = start_together(members, fewest_members(job))
    for role in job.roles:
        count = min(members[role.name], max(left, 0))
        left -= count
        for name, value in pod_requests(spec_of(role.template), binary).items() if count else ():
            sums[name] = sums.get(name, Fraction(0)) + value * count
    return {name: of_value(value, name in binary) for name, value in sums.items()}


def schedule_in_gang(template: Json, job: Job, slot: Slot) -> None:
    """Name the gang scheduler and the PodGroup in a pod template. A schedulerName of the user stays."""
    scheduler = job.config.gang_scheduler
    if pod_group_of(scheduler) is None:
        return
    spec = template["spec"]
    spec["schedulerName"] = spec.get("schedulerName") or scheduler
    stored = template.get("metadata")
    metadata = template["metadata"] = dict(stored) if isinstance(stored, dict) else {}
    if scheduler == VOLCANO:
        names = {"scheduling.k8s.io/group-name": job.key.name, "volcano.sh/task-spec": slot.role.lower()}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **names}
    else:
        name = {"scheduling.x-k8s.io/pod-group": job.key.name}
        metadata["labels"] = {**(metadata.get("labels") or {}), **name}


def scheduler_event(job: Job, create: PlannedCreate, template: object) -> tuple[Event, ...]:
    """A warning for a created Pod whose template names another scheduler than the gang scheduler."""
    named, scheduler = spec_of(template).get("schedulerName"), job.config.gang_scheduler
    if pod_group_of(scheduler) is None or named in (None, "", scheduler):
        return ()
    text = "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten"
    return (Event("Warning", "SetPodTemplateSchedulerName", text, Ref("Pod", create.name)),)


def deleted_group_events(name: str) -> tuple[Event, ...]:
    """A PodGroup is deleted when its job has ended or is suspended."""
    return (
        Event("Normal", "JobTerminated", "Job has been terminated. Deleting PodGroup"),
        Event("Normal", "SuccessfulDeletePodGroup", f"Deleted PodGroup: {name}"),
    )
