"""The PodMetrics of metrics.k8s.io, and a sentence for what is missing: on a cluster metrics-server serves them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trainyard.app.evidence.log_progress import read_log_progress
from trainyard.app.evidence.related_objects import is_served
from trainyard.client import ApiClient, ApiError, Forbidden, NotFound, Unavailable
from trainyard.kinds import kind_of
from trainyard.objects import GVK, Json, as_dict, labels_of, name_of, namespace_of, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.usage import DeviceUsage, Progress, devices_of
from trainyard.views.job_view import NO_REPLICAS, JobView, job_result, job_state
from trainyard.views.usage_view import ReplicaUsage, by_pod, replica_usages, with_progress

NODE_METRICS = GVK("metrics.k8s.io", "v1beta1", "NodeMetrics", "nodes")
POD_METRICS = GVK("metrics.k8s.io", "v1beta1", "PodMetrics", "pods")
NOT_SERVED = "no CPU and memory: this cluster does not serve metrics.k8s.io; install metrics-server in it"


async def read_pod_metrics(api: ApiClient, namespace: str, labels: str) -> tuple[list[Json], str]:
    """The PodMetrics of a namespace ("": of all), and why there are none. Raises Unavailable when no API server
    answers."""
    where = f"in namespace {namespace}" if namespace else "in all namespaces"
    try:
        return list((await api.list(POD_METRICS, namespace, labels)).get("items") or []), ""
    except NotFound:
        return [], NOT_SERVED
    except Forbidden:
        if not await is_served(api, POD_METRICS):
            return [], NOT_SERVED
        rule = "apiGroups: [metrics.k8s.io], resources: [pods], verbs: [list]"
        return [], f"no CPU and memory: you may not list pods of metrics.k8s.io {where}; ask for a Role with {rule}"
    except Unavailable as error:
        if not error.code:
            raise
        return [], f"no CPU and memory: metrics.k8s.io cannot answer now ({error.message}); see its metrics-server"


async def read_devices(api: ApiClient) -> list[DeviceUsage]:
    """The GPUs of the nodes that Trainyard runs, and who uses them; [] where the API server refuses it."""
    try:
        items = (await api.list(NODE_METRICS, "")).get("items") or []
    except ApiError:
        return []
    return [
        device for item in items for device in devices_of(as_dict(as_dict(item.get("metadata")).get("annotations")))
    ]


async def read_usages(api: ApiClient, job: Json, view: JobView) -> list[ReplicaUsage]:
    """The usage of the replicas of a job of `view`; [] where nobody measures it, or the API server refuses it."""
    try:
        items, _ = await read_pod_metrics(api, namespace_of(job), f"{OWNER}={uid_of(job)}")
    except ApiError:
        items = []
    return replica_usages(namespace_of(job), view.slots(uid_of(job)), by_pod(items)) if items else []


class JobUsages(NamedTuple):
    """The usage of the replicas of a job, why they have no CPU and memory, and why no steps are read in logs."""

    usages: list[ReplicaUsage]
    missing: str
    refusal: str


async def read_usages_and_steps(api: ApiClient, job: Json, pods: Sequence[Json], most_logs: int) -> JobUsages:
    """The usage of a job that has these pods, others may be among them; the steps in at most `most_logs` logs where no
    Trainyard node measures. Raises ApiError."""
    from trainyard.views.diagnosis.lookups import suspicion

    items, missing = await read_pod_metrics(api, namespace_of(job), f"{OWNER}={uid_of(job)}")
    slots = JobView.of([job], pods, time.time()).slots(uid_of(job))
    usages = replica_usages(namespace_of(job), slots, by_pod(items))
    by_name = {name_of(pod): pod for pod in pods if labels_of(pod).get(OWNER) == uid_of(job)}
    unmeasured = [usage for usage in usages if not usage.memory_measure and usage.pod in by_name]
    first = [by_name[usage.pod] for usage in sorted(unmeasured, key=suspicion)]
    progress, refusal = await read_log_progress(api, first, most_logs)
    return JobUsages(with_progress(usages, progress), missing, refusal)


def add_progress(
    job: Json, pods: Sequence[Json], usages: Sequence[ReplicaUsage], progress: Mapping[str, Progress]
) -> Sequence[ReplicaUsage]:
    """The usages of a job with the progress in logs. `usages`: [] where nobody measures."""
    if not progress:
        return usages
    slots = JobView.of([job], pods, time.time()).slots(uid_of(job))
    return with_progress(usages or replica_usages(namespace_of(job), slots, {}), progress)


async def progress_warnings(
    api: ApiClient, namespace: str, jobs: Sequence[Json], pods: Sequence[Json], reads_logs: bool = False
) -> list[str]:
    """What is wrong with those of these jobs that run, `KIND/NAME: text`: with their progress, where it is measured; or
    that they have no replicas. `namespace`: of the jobs, "" for several. Makes a request if a job runs. `reads_logs`:
    for a single job, read the steps in its logs where no Trainyard node measures."""
    now = time.time()
    view = JobView.of(jobs, pods, now)
    known = [(kind, job) for job in jobs if (kind := kind_of(job)) is not None]
    warnings = [
        f"{kind.api.singular}/{name_of(job)}: {NO_REPLICAS}; scale it"
        for kind, job in known
        if not job_result(job)
        and (parsed := view.parsed(uid_of(job)))
        and not any(role.replicas for role in parsed.roles)
    ]
    running = [(kind, job) for kind, job in known if job_state(job) == "Running"]
    if not running:
        return warnings
    from trainyard.views.diagnosis.brief import brief_progress  # imported here because it loads all of the diagnosis
    from trainyard.views.diagnosis.lookups import MAX_LOGS

    refusal, usages_of = "", dict[str, list[ReplicaUsage]]()
    try:
        if reads_logs:
            job = running[0][1]
            usages_of[uid_of(job)], _, refusal = await read_usages_and_steps(api, job, pods, MAX_LOGS)
        elif metrics := by_pod((await read_pod_metrics(api, namespace, OWNER))[0]):
            slots_of = {uid_of(job): (namespace_of(job), view.slots(uid_of(job))) for _, job in running}
            usages_of = {uid: replica_usages(*slots, metrics) for uid, slots in slots_of.items()}
    except ApiError:
        return warnings
    for kind, job in running:
        if text := brief_progress(kind, job, usages_of.get(uid_of(job), ()), now):
            warnings.append(f"{kind.api.singular}/{name_of(job)}: {text}")
    return [*warnings, *filter(None, [refusal])]
