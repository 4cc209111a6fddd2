"""A replica set as a replicated job of JobSet."""

from __future__ import annotations

import msgspec

from trainyard.conversion.fields import Fields, take_metadata
from trainyard.conversion.template_edits import take_restart_policy, with_main_container
from trainyard.conversion.trainjob.job_policies import DEFAULT_BACKOFF_LIMIT, JobPolicies, take_run_policy
from trainyard.kinds.kubeflow_v1.framework import Framework
from trainyard.kinds.kubeflow_v1.lifecycle import (
    ALL_REPLICAS,
    FIRST_RETRYABLE_CODE,
    SUCCESS_GRACE,
    SUCCESS_POLICY,
)
from trainyard.objects import Json, Problem

INDEX_PATH = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
NODE = "node"
"""The replicated job that trains, and the container of it that Trainer changes."""


class JobSource(msgspec.Struct, frozen=True):
    """A job that is being converted: the fields of its spec that are left, and what every TrainJob takes of it.
    `all_succeed`: all its replicas have to succeed, by the annotation SUCCESS_POLICY."""

    spec: Fields
    metadata: Json
    name: str
    policy: JobPolicies
    all_succeed: bool = False


def open_source(root: Fields) -> JobSource:
    """Take the metadata and `runPolicy`. The name is part of addresses, and that of the job's own runtime. Annotations
    about the success are left out: the JobSet has a success policy, and stops the rest at the success."""
    metadata = take_metadata(root)
    annotations = metadata.pop("annotations", {})
    all_succeed = annotations.get(SUCCESS_POLICY) == ALL_REPLICAS
    kept = {name: value for name, value in annotations.items() if name not in (SUCCESS_POLICY, SUCCESS_GRACE)}
    metadata |= {"annotations": kept} if kept else {}
    name = str(metadata.get("name") or "")
    if not name:
        root.report_unmapped("metadata.generateName", "the name is part of addresses: write metadata.name")
        name = str(metadata.pop("generateName", "")).rstrip("-")
        metadata = {"name": name, **metadata}
    spec = root.child("spec")
    return JobSource(spec, metadata, name, take_run_policy(spec.child("runPolicy")), all_succeed)


class ReplicaSet(msgspec.Struct, frozen=True):
    """One role of the source. `template` has no restartPolicy; `container`: the name of its main container."""

    path: str
    replicas: int
    restart_policy: str
    template: Json
    container: str


def take_replica_sets(spec: Fields, framework: Framework, new_container: str = "") -> dict[str, ReplicaSet]:
    """The replica sets by role; those with replicas: 0 are left out. The main container is called `new_container` in
    the result, if that is given."""
    container, default_policy = framework.container, framework.restart_policy
    sets = spec.child(framework.replicas_field)
    names = {name.lower(): name for name in sets.names}
    replica_sets: dict[str, ReplicaSet] = {}
    for role in framework.roles:
        if role.lower() not in names:
            continue
        replica_set = sets.child(names[role.lower()])
        template = with_main_container(replica_set.take("template"), container, new_container or container)
        if take_restart_policy(template) not in ("", (replica_set.peek("restartPolicy") or default_policy)):
            replica_set.note("template.spec.restartPolicy", "the replica set's restartPolicy overrides it, as before")
        policy = replica_set.take("restartPolicy", default_policy)
        if policy == "Always":
            replica_set.report_unmapped("restartPolicy", "the Pods of a Job take OnFailure, which is used, or Never")
            policy = "OnFailure"
        replicas = replica_set.take("replicas", 1)
        if replicas:
            name = new_container or container
            replica_sets[role] = ReplicaSet(replica_set.path, replicas, policy, template, name)
    return replica_sets


def has_default_restarts(replica_set: ReplicaSet) -> bool:
    """Whether Pods of Jobs restart as this replica set does, without further fields."""
    return replica_set.restart_policy == "OnFailure"


def job_spec(replica_set: ReplicaSet, backoff_limit: int | None) -> Json:
    """The spec of the Job, without its numbers of Pods."""
    pod_spec = replica_set.template["spec"]
    spec: Json = {}
    if replica_set.restart_policy == "Never":
        spec["backoffLimit"] = 0
    elif backoff_limit is not None:
        spec["backoffLimit"] = backoff_limit
    if replica_set.restart_policy == "ExitCode":
        codes = {
            "containerName": replica_set.container,
            "operator": "In",
            "values": list(range(1, FIRST_RETRYABLE_CODE)),
        }
        spec["podFailurePolicy"] = {"rules": [{"action": "FailJob", "onExitCodes": codes}]}
    restarts = "OnFailure" if replica_set.restart_policy == "OnFailure" else "Never"
    return {**spec, "template": {**replica_set.template, "spec": {"restartPolicy": restarts, **pod_spec}}}


def note_backoff(source: JobSource, replica_sets: dict[str, ReplicaSet]) -> None:
    """Report that JobSet's Jobs give up where the Training Operator does not."""
    if source.policy.backoff_limit is None and any(item.restart_policy != "Never" for item in replica_sets.values()):
        limit = DEFAULT_BACKOFF_LIMIT
        source.spec.note(
            "runPolicy.backoffLimit", f"is unset: a TrainJob fails after {limit} failed attempts, not never"
        )


def index_variable(name: str) -> Json:
    """A variable with the index of the Pod in its replicated job."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": INDEX_PATH}}}


def address(job_name: str, replicated_job: str, index: int | str) -> str:
    """The host name of a Pod of a TrainJob in its namespace."""
    return f"{job_name}-{replicated_job}-0-{index}.{job_name}"


LONGEST_POD_NAME = 63


def check_name(source: JobSource, counts: dict[str, int]) -> None:
    """Report a name with which JobSet refuses the Pods NAME-REPLICATED_JOB-0-INDEX-ABCDE. `counts`: Pods by
    replicated job."""
    longest = max(len(f"{source.name}-{job}-0-{count - 1}-abcde") for job, count in counts.items())
    if longest > LONGEST_POD_NAME:
        text = (
            f"is too long: its Pods' names would have {longest} characters, of at most {LONGEST_POD_NAME}; shorten it"
        )
        source.spec.report.unmapped.append(Problem("metadata.name", text))
