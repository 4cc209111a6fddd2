"""The PodMetrics of metrics.k8s.io, and a sentence for what is missing: on a cluster metrics-server serves them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from trainyard.app.evidence.log_progress import read_log_progress
from trainyard.client import ApiClient, ApiError, Forbidden, NotFound, Unavailable
from trainyard.kinds import kind_of
from trainyard.objects import GVK, Json, name_of, namespace_of, uid_of
from trainyard.objects.labels import OWNER
from trainyard.objects.structs import replace
from trainyard.objects.usage import MEMORY_MEASURE
from trainyard.views.diagnosis.brief import brief_progress
from trainyard.views.job_view import NO_REPLICAS, JobView, job_result, job_state
from trainyard.views.usage_view import ReplicaUsage, by_pod, replica_usages

POD_METRICS = GVK("metrics.k8s.io", "v1beta1", "PodMetrics", "pods")


async def read_pod_metrics(api: ApiClient, namespace: str, labels: str) -> tuple[list[Json], str]:
    """The PodMetrics of a namespace ("": of all), and why there are none. Raises Unavailable when no API server
    answers."""
    where = f"in namespace {namespace}" if namespace else "in all namespaces"
    try:
        return list((await api.list(POD_METRICS, namespace, labels)).get("items") or []), ""
    except NotFound:
        return [], "no CPU and memory: this cluster does not serve metrics.k8s.io; install metrics-server in it"
    except Forbidden:
        rule = "apiGroups: [metrics.k8s.io], resources: [pods], verbs: [list]"
        return [], f"no CPU and memory: you may not list pods of metrics.k8s.io {where}; ask for a Role with {rule}"
    except Unavailable as error:
        if not error.code:
            raise
        return [], f"no CPU and memory: metrics.k8s.io cannot answer now ({error.message}); see its metrics-server"


async def read_usages(
    api: ApiClient, job: Json, view: JobView, pods: Sequence[Json] | None = None
) -> list[ReplicaUsage]:
    """The usage of the replicas of a job of `view`; [] where nobody measures it, or the API server refuses it. `pods`:
    those whose logs tell the steps where no Trainyard node measures; None: no log is read."""
    try:
        items, _ = await read_pod_metrics(api, namespace_of(job), f"{OWNER}={uid_of(job)}")
    except ApiError:
        items = []
    is_measured = any(MEMORY_MEASURE in (item["metadata"].get("annotations") or {}) for item in items)
    progress = await read_log_progress(api, pods or ()) if not is_measured else {}
    if not items and not progress:
        return []
    usages = replica_usages(namespace_of(job), view.slots(uid_of(job)), by_pod(items), progress)
    # Not all logs are read: a replica without a step need not lag.
    return [replace(usage, lag=0.0) if usage.pod not in progress and not is_measured else usage for usage in usages]


async def progress_warnings(api: ApiClient, namespace: str, jobs: Sequence[Json], pods: Iterable[Json]) -> list[str]:
    """What is wrong with those of these jobs that run, `KIND/NAME: text`: with their progress, where it is measured; or
    that they have no replicas. `namespace`: of the jobs, "" for several. Makes a request if a job runs."""
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
    try:
        items, _ = await read_pod_metrics(api, namespace, OWNER)
    except ApiError:
        return warnings
    metrics = by_pod(items)
    for kind, job in running if items else ():
        usages = replica_usages(namespace_of(job), view.slots(uid_of(job)), metrics)
        if text := brief_progress(kind, job, usages, now):
            warnings.append(f"{kind.api.singular}/{name_of(job)}: {text}")
    return warnings
