"""TrainJob and TrainingRuntime objects."""

from __future__ import annotations

from trainyard.conversion.trainjob.replicated_jobs import JobSource
from trainyard.objects import Json

API_VERSION = "trainer.kubeflow.org/v1alpha1"
FRAMEWORK = "trainer.kubeflow.org/framework"


def train_job(source: JobSource, shipped_runtime: str = "", **fields: object) -> Json:
    """The TrainJob, with a runtime that Trainer ships or with its own. `fields`: of its spec, those that are empty are
    left out."""
    own = {"name": source.name, "apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime"}
    spec: Json = {**source.policy.job, "runtimeRef": {"name": shipped_runtime} if shipped_runtime else own}
    spec |= {name: value for name, value in fields.items() if value}
    return {"apiVersion": API_VERSION, "kind": "TrainJob", "metadata": source.metadata, "spec": spec}


def training_runtime(
    source: JobSource,
    replicated_jobs: list[Json],
    *,
    ml_policy: Json | None = None,
    job_set: Json | None = None,
    framework: str = "",
) -> Json:
    """The job's own TrainingRuntime, of the same name. `job_set`: further fields of the JobSet. `framework`: a label,
    without which the Kubeflow SDK ignores the runtime; with it the SDK requires an mlPolicy."""
    policy = source.policy
    metadata: Json = {"name": source.name}
    metadata |= {"namespace": source.metadata["namespace"]} if "namespace" in source.metadata else {}
    metadata |= {"labels": {FRAMEWORK: framework}} if framework else {}
    template: Json = {"metadata": {"annotations": policy.annotations}} if policy.annotations else {}
    template["spec"] = {**(job_set or {}), **policy.job_set, "replicatedJobs": replicated_jobs}
    spec: Json = {"mlPolicy": ml_policy} if ml_policy else {}
    spec |= {"podGroupPolicy": policy.pod_group_policy} if policy.pod_group_policy else {}
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingRuntime",
        "metadata": metadata,
        "spec": {**spec, "template": template},
    }
