"""ElasticJob to PyTorchJob: the rendezvous moves to `elasticPolicy`, from arguments to variables of torchrun."""

from __future__ import annotations

import re
from typing import Any

from trainyard.conversion.fields import Fields, take_metadata
from trainyard.conversion.kubeflow.run_policy import take_run_policy, with_run_policy
from trainyard.conversion.programs import runs_torchrun
from trainyard.conversion.template_edits import main_container, take_restart_policy, with_main_container
from trainyard.kinds.elasticjob.kind import STORE_TIMEOUT
from trainyard.kinds.elasticjob.spec import C10D_BACKEND, CONTAINER, EXIT_CODE, NO_RENDEZVOUS, RUN_POLICIES, WORKER
from trainyard.kinds.kubeflow_v1.pods import JOB_NAME, REPLICA_INDEX, REPLICA_TYPE
from trainyard.objects import Json

MAIN = "pytorch"
ETCD_PORT = 2379
LABELS = {"replica-index": REPLICA_INDEX, "replica-type": REPLICA_TYPE, "job-name": JOB_NAME}
"""Labels of the workers' Pods -> those of a PyTorchJob, which programs read through the downward API."""
ARGUMENTS = ("rdzv_backend", "rdzv_endpoint", "rdzv_id", "nnodes", "rdzv_conf")


def convert(source: Fields) -> Json:
    """The PyTorchJob of an ElasticJob."""
    metadata = take_metadata(source)
    spec = source.child("spec")
    policies = take_run_policy(spec, *(spec.child(name) for name in RUN_POLICIES))
    scheduling = spec.child("schedulingPolicy").take_known(("minAvailable",))
    policies |= {"schedulingPolicy": scheduling} if scheduling else {}
    worker = spec.child("replicaSpecs").child(WORKER)
    replicas = worker.take("replicas", 1)
    elastic = _elastic_policy(spec, metadata.get("name"), replicas)
    template = with_main_container(worker.take("template"), CONTAINER, MAIN)
    take_restart_policy(template)  # that of the replica set overrides it
    container = main_container(template, MAIN)
    _rename_labels(worker, template)
    if elastic and not runs_torchrun(container):
        # Other launchers, and the unknown program of the image, get the rendezvous as arguments, as before.
        names = [name for name in ARGUMENTS if name != "rdzv_conf" or elastic.get("rdzvConf")]
        arguments = [f"--{name}=$(PET_{name.upper()})" for name in names]
        container["args"] = [*arguments, *(container.get("args") or ())]
    policy = worker.take("restartPolicy", "Never")
    if policy == EXIT_CODE:
        worker.note("restartPolicy", "ExitCode of a PyTorchJob retries every code from 128 on, not four of them")
    if elastic:
        source.note("spec", "an elastic PyTorchJob succeeds with its first worker, an ElasticJob with all of them")
    replica_spec = {"replicas": replicas, "restartPolicy": policy, "template": template}
    # The launcher of torch starts one process by default; the Training Operator tells it auto.
    new_spec: Json = {"nprocPerNode": "1", **({"elasticPolicy": elastic} if elastic else {})}
    new_spec["pytorchReplicaSpecs"] = {WORKER: replica_spec}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": metadata,
        "spec": with_run_policy(new_spec, policies),
    }


def _elastic_policy(spec: Fields, name: str | None, replicas: int) -> Json:
    """`elasticPolicy`; {} without a rendezvous."""
    backend = spec.take("rdzvBackend", "etcd")
    low, high = spec.take("minReplicas"), spec.take("maxReplicas")
    endpoint = spec.take("rdzvEndpoint")
    if backend == NO_RENDEZVOUS:
        for field, value in (("minReplicas", low), ("maxReplicas", high), ("rdzvEndpoint", endpoint)):
            if value is not None:
                spec.report_unmapped(field, "without a rendezvous a PyTorchJob has no elasticPolicy; leave it out")
        return {}
    policy: Json = {
        "minReplicas": low or replicas,
        "maxReplicas": high or replicas,
        "rdzvBackend": backend,
        **({"rdzvId": name} if name else {}),
    }
    if endpoint:
        host, port = re.fullmatch(r"(\[.*\]|[^:]*)(?::(\d+))?", endpoint).groups()  # type: ignore[union-attr]  # valid
        return {**policy, "rdzvHost": host, "rdzvPort": int(port or ETCD_PORT)}
    if backend == C10D_BACKEND:
        # Without it torch gives up after a minute, while Worker 0 may still pull its image.
        policy["rdzvConf"] = [{"key": "read_timeout", "value": str(STORE_TIMEOUT)}]
    return policy


def _rename_labels(worker: Fields, value: Any) -> None:
    """Rename the labels in `fieldPath`s of the template; change it in place."""
    if isinstance(value, list):
        for item in value:
            _rename_labels(worker, item)
    elif isinstance(value, dict):
        path = value.get("fieldPath")
        for old, new in LABELS.items():
            if path == f"metadata.labels['{old}']":
                value["fieldPath"] = f"metadata.labels['{new}']"
        if path == "metadata.labels['group-name']":
            worker.report_unmapped("template", "a Pod of a PyTorchJob has no label group-name; leave the variable out")
        for item in value.values():
            _rename_labels(worker, item)
