"""The HorizontalPodAutoscaler of an elastic job, if `elasticPolicy.metrics` is set (docs/rules.md 4.10)."""

from __future__ import annotations

from trainyard.core import AuxiliaryObject, Job
from trainyard.core.names import digest
from trainyard.kinds.kubeflow_v1.framework import WORKER
from trainyard.kinds.pods.templates import whole_number
from trainyard.objects import Json
from trainyard.objects.resources import HORIZONTAL_POD_AUTOSCALER


def elastic_policy(job: Job) -> Json | None:
    """`spec.elasticPolicy`, None without one."""
    policy = job.parsed.spec.get("elasticPolicy")
    return policy if isinstance(policy, dict) else None


def bounds(job: Job) -> tuple[int, int]:
    """Fewest and most workers. One that is unset is the other one; both unset, the number of workers."""
    policy, worker = elastic_policy(job) or {}, job.role(WORKER)
    low, high = (whole_number(policy.get(name)) for name in ("minReplicas", "maxReplicas"))
    default = worker.replicas if worker else 1
    return (
        next(bound for bound in (low, high, default) if bound is not None),
        next(bound for bound in (high, low, default) if bound is not None),
    )


def set_bounds(job: Job) -> tuple[int | None, int | None]:
    """Fewest and most workers of an `elasticPolicy` that sets one of them; (None, None) without."""
    policy = elastic_policy(job) or {}
    is_set = any(whole_number(policy.get(name)) is not None for name in ("minReplicas", "maxReplicas"))
    return bounds(job) if is_set else (None, None)


def autoscalers(job: Job) -> tuple[AuxiliaryObject, ...]:
    """The HorizontalPodAutoscaler, of the job's name; none without metrics, or where the cluster has none."""
    metrics = (elastic_policy(job) or {}).get("metrics")
    if metrics is None or HORIZONTAL_POD_AUTOSCALER in job.config.missing_resources:
        return ()
    low, high = bounds(job)
    gvk, target = HORIZONTAL_POD_AUTOSCALER, job.kind.gvk
    spec: Json = {
        "scaleTargetRef": {"apiVersion": target.api_version, "kind": target.kind, "name": job.key.name},
        "minReplicas": low,
        "maxReplicas": high,
        "metrics": metrics,
    }
    return (
        AuxiliaryObject(
            gvk,
            job.key.name,
            lambda: {"apiVersion": gvk.api_version, "kind": gvk.kind, "spec": spec},
            create_after_replicas=True,
            digest=digest(spec),
            deleted_on_suspend=True,
            deleted_at_end=True,
        ),
    )
