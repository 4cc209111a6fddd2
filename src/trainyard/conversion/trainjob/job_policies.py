"""`runPolicy`: what of it a TrainJob has, what its runtime, and what neither."""

from __future__ import annotations

import msgspec

from trainyard.conversion.fields import Fields
from trainyard.core.kind import TRAINYARD_OPERATOR
from trainyard.kinds.kubeflow_v1.spec import MULTIKUEUE
from trainyard.objects import Json

CONTROLLERS = ("kubeflow.org/training-operator", "kubeflow.org/mpi-operator", TRAINYARD_OPERATOR)
"""Values of managedBy that name the controller in whose place Trainer's is."""
QUEUE = "scheduling.volcano.sh/queue-name"
CLEAN_ALL = "Pods that have ended stay until the TrainJob is deleted; write ttlSecondsAfterFinished"
DEFAULT_BACKOFF_LIMIT = 6  # of the Jobs that JobSet creates


class JobPolicies(msgspec.Struct, frozen=True):
    """`job`: fields of the TrainJob's spec. `job_set`: fields of the JobSet in the runtime. `pod_group_policy`: of the
    runtime. `annotations`: of the JobSet."""

    job: Json
    job_set: Json
    backoff_limit: int | None
    pod_group_policy: Json
    annotations: Json

    @property
    def needs_runtime(self) -> bool:
        """Whether the shipped runtimes cannot express this policy."""
        return bool(self.job_set or self.pod_group_policy or self.annotations or self.backoff_limit is not None)


def take_run_policy(policy: Fields) -> JobPolicies:
    """Take the fields of `runPolicy`, and report those without a counterpart."""
    job: Json = {}
    if (suspend := policy.take("suspend")) is not None:
        job["suspend"] = suspend
    if (deadline := policy.take("activeDeadlineSeconds")) is not None:
        job["activeDeadlineSeconds"] = deadline
    manager = policy.take("managedBy")
    if manager == MULTIKUEUE:
        job["managedBy"] = manager
    elif manager not in (None, "", *CONTROLLERS):
        policy.report_unmapped("managedBy", f"a TrainJob has Trainer's controller or {MULTIKUEUE}; leave it out")
    elif manager:
        policy.note("managedBy", "is left out: Trainer's own controller runs a TrainJob")
    _take_clean_pod_policy(policy)
    job_set: Json = {}
    if (ttl := policy.take("ttlSecondsAfterFinished")) is not None:
        job_set["ttlSecondsAfterFinished"] = ttl
        policy.note("ttlSecondsAfterFinished", "deletes the JobSet and its Pods; the TrainJob stays")
    limit = policy.take("backoffLimit")
    if limit is not None:
        policy.note("backoffLimit", "counts the failed attempts of each replicated job of the runtime by itself")
    pod_group_policy, annotations = _take_scheduling_policy(policy.child("schedulingPolicy"))
    return JobPolicies(job, job_set, limit, pod_group_policy, annotations)


def _take_clean_pod_policy(policy: Fields) -> None:
    if policy.peek("cleanPodPolicy") == "All":
        policy.unmapped("cleanPodPolicy", CLEAN_ALL)
    elif policy.take("cleanPodPolicy") == "None":
        policy.note("cleanPodPolicy", "Pods that still run at the end of a TrainJob are deleted all the same")


def _take_scheduling_policy(policy: Fields) -> tuple[Json, Json]:
    """podGroupPolicy of the runtime, and annotations of the JobSet."""
    policy.unmapped("minAvailable", "Trainer's PodGroup always has all Pods; leave it out")
    policy.unmapped("minResources", "Trainer computes it from the requests of all Pods; leave it out")
    policy.unmapped("priorityClass", "Trainer takes it from the Pods: write priorityClassName in the templates")
    queue, timeout = policy.take("queue"), policy.take("scheduleTimeoutSeconds")
    if queue is not None:  # only Volcano has queues
        if timeout is not None:
            policy.report_unmapped("scheduleTimeoutSeconds", "Volcano has no such time; leave it out")
        return {"volcano": {}}, {QUEUE: queue}
    return ({"coscheduling": {"scheduleTimeoutSeconds": timeout}} if timeout is not None else {}), {}
