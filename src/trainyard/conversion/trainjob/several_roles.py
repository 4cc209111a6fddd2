"""Jobs whose roles run different templates: TFJob and PaddleJob. Each role is a replicated job of the TrainJob's own
runtime, which has the whole pod templates; Trainer's own variables are not needed."""

from __future__ import annotations

from trainyard.conversion.trainjob.replicated_jobs import JobSource, ReplicaSet, check_name, job_spec, note_backoff
from trainyard.conversion.trainjob.runtimes import train_job, training_runtime
from trainyard.objects import Json


def several_roles_job(
    source: JobSource, replica_sets: dict[str, ReplicaSet], success: list[str], first_pod_decides: str = ""
) -> list[Json]:
    """The TrainingRuntime and the TrainJob. `replica_sets` by the name of the replicated job. `success`: the replicated
    jobs whose end is the job's success; of `first_pod_decides` only the Pod with index 0 has to succeed."""
    check_name(source, {name: replica_set.replicas for name, replica_set in replica_sets.items()})
    note_backoff(source, replica_sets)
    replicated_jobs = []
    for name, replica_set in replica_sets.items():
        counts: Json = {"parallelism": replica_set.replicas, "completions": replica_set.replicas}
        if name == first_pod_decides and replica_set.replicas > 1:
            counts["successPolicy"] = {"rules": [{"succeededIndexes": "0"}]}
        spec = {**counts, **job_spec(replica_set, source.policy.backoff_limit)}
        replicated_jobs.append({"name": name, "template": {"spec": spec}})
    job_set = {"successPolicy": {"operator": "All", "targetReplicatedJobs": success}}
    return [training_runtime(source, replicated_jobs, job_set=job_set), train_job(source)]
