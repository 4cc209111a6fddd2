"""Scenarios that TFJob, XGBoostJob, PaddleJob and JAXJob have alone: addresses, success policies, elastic jobs."""

from __future__ import annotations

from collections.abc import Iterator

from tests.drop_in.jobs import JAXJOB, PADDLEJOB, TFJOB, XGBOOSTJOB
from tests.drop_in.scenario import FINISH, START, Scenario, deleted, failed, patch, scale, succeeded
from tests.drop_in.scenarios_pytorch import METRICS
from trainyard.objects import Json


def tensorflow() -> Iterator[Scenario]:
    make, job = TFJOB.scenario, TFJOB.job
    every: Json = {"Chief": 1, "PS": 2, "Worker": 2, "Evaluator": 1}
    yield make("cluster-every-role", job(**every), START, succeeded("j-chief-0"), FINISH)
    yield make("cluster-master", job(Master=1, Worker=1), START, succeeded("j-master-0"))
    yield make("cluster-chief-and-master", job(Chief=1, Master=1, Worker=1))
    yield make("cluster-one-replica", job(Worker=1), START, FINISH)
    yield make("cluster-one-chief", job(Chief=1), START, FINISH)
    yield make("cluster-evaluator-only", job(Evaluator=1), START, FINISH)
    yield make("cluster-ps-only", job(PS=2), START, FINISH)
    ports: Json = {role: TFJOB.replicas(1, container={"ports": [{"name": TFJOB.port, "containerPort": port}]})
             for role, port in (("PS", 3001), ("Worker", 3002))}  # fmt: skip
    yield make("cluster-port-per-role", job(**ports))
    dynamic = job({"enableDynamicWorker": True}, PS=1, Worker=2)
    yield make("dynamic-worker", dynamic, START, FINISH)
    yield make("dynamic-worker-with-chief", job({"enableDynamicWorker": True}, Chief=1, PS=2, Worker=2))
    never: Json = {
        role: TFJOB.replicas(count, {"restartPolicy": "Never"}) for role, count in (("PS", 1), ("Worker", 2))
    }
    yield make(
        "dynamic-worker-fails", job({"enableDynamicWorker": True}, **never), START, failed("j-worker-1", 1), FINISH
    )
    yield make("dynamic-ps-fails", job({"enableDynamicWorker": True}, **never), START, failed("j-ps-0", 1))
    more = patch(tfReplicaSpecs={"Worker": {"replicas": 3}})
    yield make("dynamic-scale-up", dynamic, START, more, START)
    for name in ("", "AllWorkers", "ChiefOnly"):
        role_counts: tuple[Json, ...] = ({"Worker": 2, "PS": 1}, {"Chief": 1, "Worker": 2})
        for roles in role_counts:
            title = f"success-policy-{name or 'default'}-{'chief' if 'Chief' in roles else 'workers'}".lower()
            manifest = job({"successPolicy": name}, **roles)
            yield make(title, manifest, START, succeeded("j-worker-1"), succeeded("j-worker-0"), FINISH)
    first = job(Worker=2)
    yield make("success-worker-0-exits-1", first, START, failed("j-worker-0", 1), START, FINISH)
    yield make("success-worker-0-deleted-after", first, START, succeeded("j-worker-0"), deleted("j-worker-0"))
    for role in ("PS", "Evaluator", "Worker"):
        failing = TFJOB.with_roles(
            {name: TFJOB.replicas(count, {"restartPolicy": "Never"}) for name, count in every.items()}
        )
        yield make(f"failure-{role}-with-chief".lower(), failing, START, failed(f"j-{role}-0".lower(), 1))


def xgboost() -> Iterator[Scenario]:
    make, job = XGBOOSTJOB.scenario, XGBOOSTJOB.job
    yield make("addresses-three-workers", job(Master=1, Worker=3))
    yield make("success-workers-first", job(), START, succeeded("j-worker-*"), FINISH)
    ports: Json = {role: XGBOOSTJOB.replicas(1, container={"ports": [{"name": XGBOOSTJOB.port, "containerPort": port}]})
             for role, port in (("Master", 3001), ("Worker", 3002))}  # fmt: skip
    yield make("addresses-port-per-role", job(**ports))


def paddle() -> Iterator[Scenario]:
    make, job = PADDLEJOB.scenario, PADDLEJOB.job
    yield make("collective", job(Worker=3), START, succeeded("j-worker-0"), FINISH)
    yield make("parameter-servers", job(Master=2, Worker=2), START, FINISH)
    never = PADDLEJOB.replicas(2, {"restartPolicy": "Never"})
    yield make("collective-one-fails", job(Worker=never), START, failed("j-worker-1", 1))
    for name, value in {
        "empty": {},
        "min-and-max": {"minReplicas": 1, "maxReplicas": 3},
        "max-restarts": {"maxRestarts": 2},
        "metrics": {"minReplicas": 1, "maxReplicas": 3, "metrics": METRICS},
    }.items():
        yield make(f"elastic-{name}", job({"elasticPolicy": value}, Worker=2), START, succeeded("j-worker-1"))
    yield make(
        "elastic-scale-up", job({"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3}}, Worker=2), START, scale(3)
    )
    ports = {"ports": [{"name": "master", "containerPort": 7777}]}
    yield make("collective-own-port", job(Worker=PADDLEJOB.replicas(2, container=ports)))


def jax() -> Iterator[Scenario]:
    make, job = JAXJOB.scenario, JAXJOB.job
    yield make("processes-three", job(Worker=3), START, succeeded("j-worker-0"), FINISH)
    yield make("processes-one", job(Worker=1), START, FINISH)
    yield make("scale-up-by-subresource", job(), START, scale(3), START)
