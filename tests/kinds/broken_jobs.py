"""For every rule of every kind a job that breaks it: (the new object, the stored one or None), by kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.builders import replicas, tfjob
from tests.support.samples import (
    KUBEFLOW_ROLES,
    chainerjob,
    elasticjob,
    kubeflow_job,
    mx_set,
    mxjob,
    pods,
    worker_set,
)
from trainyard.conversion.kubeflow.run_policy import TRAINING_OPERATOR
from trainyard.kinds.kubeflow_v1.spec import MULTIKUEUE
from trainyard.objects import Json

Pair = tuple[Json, Json | None]


def without(item: Json, *names: str) -> Json:
    return {key: value for key, value in item.items() if key not in names}


def edited(job: Json, **spec: Any) -> Pair:
    """An edit of a job that has started."""
    stored = {**job, "status": {"roles": {"any": {}}}}
    return {**stored, "spec": {**job["spec"], **spec}}, stored


def in_both_spellings(job: Json, *lists: list[Any]) -> Iterator[Pair]:
    for name in ("replicaSpecs", "replica_specs"):
        for items in lists:
            yield {**job, "spec": {**without(job["spec"], "replicaSpecs"), name: items}}, None


def tf_jobs() -> Iterator[Pair]:
    job, good, worker = tfjob(), replicas("MASTER", tfPort=2222), replicas("WORKER")
    yield from in_both_spellings(
        job,
        [],
        [None],
        [good, {**worker, "template": pods("tensorflow", restartPolicy="Sometimes")}],
        [{**good, "template": None}],
        [without(good, "template")],
        [{**good, "replicas": 2}],
        [{**good, "tfReplicaType": "Chief"}],
        [{**good, "template": pods("other")}],
        [good, good],
        [good, worker, worker],
    )
    for board in ("tensorboard", "tensorBoard"):
        yield tfjob(**{board: {"logDir": ""}}), None
    both: dict[str, Any] = {"replica_specs": [good], "tensorboard": {}, "tensorBoard": {}}
    long = tfjob(good, **both)
    yield {**long, "metadata": {"name": "x" * 64}}, None
    yield edited(tfjob(good), replicaSpecs=[{**good, "tfPort": 3333}], RuntimeId="zzzz")
    other = tfjob(good)
    other["spec"] = {**without(other["spec"], "replicaSpecs"), "replica_specs": [good]}
    yield edited(other, replica_specs=[{**good, "tfPort": 3333}])


def mx_jobs() -> Iterator[Pair]:
    job, worker = mxjob(), mx_set("WORKER")
    scheduler, server = mx_set("SCHEDULER"), mx_set("SERVER")
    rest = [server, worker]
    yield from in_both_spellings(
        job,
        [],
        [None],
        [scheduler, server, {**worker, "template": pods("mxnet", restartPolicy="Sometimes")}],
        [worker],
        [scheduler, {**worker, "template": None}],
        [{**scheduler, "replicas": 2}, *rest],
        [scheduler, server, {**worker, "mxReplicaType": "worker"}],
        [scheduler, server, {**worker, "template": pods("main")}],
        [scheduler, worker, worker],
    )
    for replica_set in (scheduler, {**worker, "replicas": 2}):
        yield from in_both_spellings(mxjob(jobMode="local"), [replica_set])
    yield mxjob(jobMode="Dist"), None
    yield mxjob(replica_specs=rest), None
    yield mxjob(name="x" * 64), None
    yield mxjob(name="Upper"), None
    yield edited(job, RuntimeId="zzzz", jobMode="local")
    yield edited(job, replicaSpecs=[{**scheduler, "PsRootPort": 1}, server, {**worker, "replicas": 2}])
    other = mxjob()
    other["spec"] = {**without(other["spec"], "replicaSpecs"), "replica_specs": [scheduler, *rest]}
    yield edited(other, replica_specs=[scheduler, server, {**worker, "replicas": 3}])


def chainer_jobs() -> Iterator[Pair]:
    sidecar = pods("sidecar")
    yield chainerjob(name="x" * 60), None
    yield chainerjob({"a-very-long-name-of-a-worker-set-indeed": worker_set()}, name="example-of-a-job"), None
    yield chainerjob({"UPPER": worker_set()}), None
    yield chainerjob({"master": worker_set()}), None
    yield chainerjob({"workerset-x": worker_set()}), None
    yield chainerjob({"ws0": worker_set(template=sidecar)}), None
    yield chainerjob({"ws0": worker_set(template=None)}), None
    yield chainerjob(master={"template": sidecar}), None
    yield chainerjob(master={"template": None}), None
    yield chainerjob(backend="nccl"), None
    yield chainerjob({"ws0": worker_set(template=pods("chainer", restartPolicy="never"))}), None
    yield chainerjob(master={"template": pods("chainer", restartPolicy="never")}), None
    job = chainerjob()
    yield {**job, "spec": without(job["spec"], "master")}, None
    yield {**job, "spec": {**job["spec"], "master": None}}, None
    yield edited(job, master={"template": pods("chainer", "another:2")})


def elastic_jobs() -> Iterator[Pair]:
    job = elasticjob()
    yield elasticjob(name="1abc"), None
    yield elasticjob(name="a-workerset-b"), None
    yield elasticjob(name="x" * 60), None
    yield elasticjob(rdzvEndpoint=""), None
    yield elasticjob(rdzvEndpoint="etcd service"), None
    yield elasticjob(rdzvEndpoint="http://etcd:2379"), None
    yield {**job, "spec": without(job["spec"], "rdzvEndpoint")}, None
    yield {**job, "spec": without(job["spec"], "replicaSpecs")}, None
    yield elasticjob(replicaSpecs={}), None
    yield elasticjob(replicaSpecs={"worker": {"template": pods("x")}}), None
    yield elasticjob(worker={"template": None}), None
    yield elasticjob(worker={"template": {"spec": {"containers": []}}}), None
    yield elasticjob(worker={"template": pods("elasticjob-worker", restartPolicy="Sometimes")}), None
    yield elasticjob(minReplicas=3, maxReplicas=2), None
    yield elasticjob(2, minReplicas=3), None
    yield elasticjob(2, maxReplicas=1), None


def kubeflow_jobs(kind: str) -> Iterator[Pair]:
    """Jobs that break the rules of all kinds of `kubeflow.org/v1`."""
    field, container, roles = KUBEFLOW_ROLES[kind]
    job, role = kubeflow_job(kind), next(iter(roles))
    if kind != "MPIJob":  # no Service has its name, and any container may be the first
        yield kubeflow_job(kind, name="1abc"), None
        other: dict[str, Any] = {role: {"template": pods("other")}}
        yield kubeflow_job(kind, **other), None
    yield kubeflow_job(kind, name="x" * 60), None
    yield {**job, "spec": {field: {}}}, None
    yield {**job, "spec": {field: {"Servant": job["spec"][field][role]}}}, None
    yield {**job, "spec": {field: dict.fromkeys((role, role.lower()), job["spec"][field][role])}}, None
    bad_pods = pods(container, image=""), pods(container, restartPolicy="Sometimes")
    templates: list[Json | None] = [*bad_pods, None, {"spec": {}}]
    for template in templates:
        sets: dict[str, Any] = {role: {"template": template}}
        yield kubeflow_job(kind, **sets), None
    yield kubeflow_job(kind, run_policy={"managedBy": "somebody"}), None
    yield edited(job, runPolicy={"managedBy": MULTIKUEUE})
    queued = kubeflow_job(kind, run_policy={"managedBy": TRAINING_OPERATOR, "schedulingPolicy": {"queue": "a"}})
    yield edited(queued, runPolicy={"suspend": True})
    yield edited(queued, runPolicy={"managedBy": MULTIKUEUE, "schedulingPolicy": {"queue": "b"}})


def kubeflow_broken() -> Iterator[tuple[str, list[Pair]]]:
    for kind in KUBEFLOW_ROLES:
        yield kind, list(kubeflow_jobs(kind))


OF_ONE_KIND: dict[str, list[Pair]] = {
    "TFJob": [(kubeflow_job("TFJob", Chief=1, Master=1), None)],
    "PyTorchJob": [
        (kubeflow_job("PyTorchJob", Master=2), None),
        (kubeflow_job("PyTorchJob", Master=1, elasticPolicy={}), None),
        (kubeflow_job("PyTorchJob", nprocPerNode="2", elasticPolicy={"nProcPerNode": 2}), None),
    ],
    "MPIJob": [
        (kubeflow_job("MPIJob", Launcher={"replicas": 2}), None),
        (kubeflow_job("MPIJob", Launcher={"template": {"spec": {"containers": []}}}), None),
    ],
    "XGBoostJob": [(kubeflow_job("XGBoostJob", Master=2), None), (kubeflow_job("XGBoostJob", Worker=2), None)],
}

OF_V2BETA1: list[Pair] = [(kubeflow_job("MPIJob", Launcher={"restartPolicy": "ExitCode"}), None)]
"""Jobs that break rules which v1 does not have."""
BROKEN: dict[str, list[Pair]] = {
    "TfJob": list(tf_jobs()),
    "MxJob": list(mx_jobs()),
    "ChainerJob": list(chainer_jobs()),
    "ElasticJob": list(elastic_jobs()),
    **{kind: [*pairs, *OF_ONE_KIND.get(kind, ())] for kind, pairs in kubeflow_broken()},
}
