"""TFJob to TrainJob: a replicated job for each role, and TF_CONFIG from the index of the Pod in its role."""

from __future__ import annotations

import json

from trainyard.conversion.fields import Fields
from trainyard.conversion.template_edits import add_variables, main_container
from trainyard.conversion.trainjob.pod_references import follow_pods
from trainyard.conversion.trainjob.replicated_jobs import (
    JobSource,
    ReplicaSet,
    address,
    index_variable,
    open_source,
    take_replica_sets,
)
from trainyard.conversion.trainjob.several_roles import several_roles_job
from trainyard.kinds.kubeflow_v1.framework import WORKER
from trainyard.kinds.kubeflow_v1.pods import variable
from trainyard.kinds.kubeflow_v1.spec import port_of
from trainyard.kinds.kubeflow_v1.tfjob import CHIEFS, FRAMEWORK
from trainyard.objects import Json

INDEX = "TASK_INDEX"
DYNAMIC = "all workers of a TrainJob are in TF_CONFIG from its start, and a failed one fails the job; leave it out"


def convert(root: Fields) -> list[Json]:
    """The runtime and the TrainJob of a TFJob."""
    source = open_source(root)
    replica_sets = take_replica_sets(source.spec, FRAMEWORK)
    all_workers = source.spec.take("successPolicy") == "AllWorkers"
    if source.spec.peek("enableDynamicWorker"):
        source.spec.report_unmapped("enableDynamicWorker", DYNAMIC)
    source.spec.take("enableDynamicWorker")
    follow_pods(source, replica_sets, lambda role, index: (role.lower(), index))
    if sum(replica_set.replicas for replica_set in replica_sets.values()) != 1:
        _add_tf_config(source, replica_sets)
    jobs = {role.lower(): replica_set for role, replica_set in replica_sets.items()}
    chief = next((role.lower() for role in CHIEFS if role in replica_sets), "")
    success = [chief or (WORKER.lower() if WORKER in replica_sets else next(iter(jobs)))]
    if all_succeed := source.all_succeed and not FRAMEWORK.serving_roles & set(replica_sets):
        success = list(jobs)
    first_pod_decides = "" if chief or all_workers or all_succeed else WORKER.lower()
    return several_roles_job(source, jobs, success, first_pod_decides)


def _add_tf_config(source: JobSource, replica_sets: dict[str, ReplicaSet]) -> None:
    """Add TF_CONFIG to the main containers of the templates, which are copies."""
    cluster = {
        role.lower(): [
            f"{address(source.name, role.lower(), index)}:{port_of(FRAMEWORK, replica_set.template)}"
            for index in range(replica_set.replicas)
        ]
        for role, replica_set in sorted(replica_sets.items())
    }
    text = json.dumps(cluster, separators=(",", ":"))
    for role, replica_set in replica_sets.items():
        # Kubernetes replaces $(TASK_INDEX) by the value of that variable.
        task = f'{{"type":"{role.lower()}","index":$({INDEX})}}'
        config = f'{{"cluster":{text},"task":{task},"environment":"cloud"}}'
        container = main_container(replica_set.template, FRAMEWORK.container)
        add_variables(container, [index_variable(INDEX), variable("TF_CONFIG", config)])
