"""Scenarios of PyTorchJob alone: rendezvous, processes per node, elastic jobs."""

from __future__ import annotations

from collections.abc import Iterator

from tests.drop_in.jobs import PYTORCHJOB
from tests.drop_in.scenario import FINISH, RESUME, START, SUSPEND, Scenario, failed, patch, scale, succeeded
from trainyard.objects import Json

KIND = PYTORCHJOB
METRICS = [
    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
]
CONF = [{"key": "is_host", "value": "true"}, {"key": "timeout", "value": "60"}]
ELASTIC: dict[str, Json] = {
    "empty": {},
    "min": {"minReplicas": 1},
    "max": {"maxReplicas": 4},
    "min-and-max": {"minReplicas": 1, "maxReplicas": 3},
    "backend-c10d": {"rdzvBackend": "c10d", "rdzvPort": 29400},
    "backend-etcd": {"rdzvBackend": "etcd", "rdzvHost": "etcd-service", "rdzvPort": 2379},
    "backend-etcd-v2": {"rdzvBackend": "etcd-v2", "rdzvHost": "etcd-service"},
    "backend-unknown": {"rdzvBackend": "mine"},
    "id-and-conf": {"rdzvId": "1", "rdzvConf": CONF},
    "conf-one": {"rdzvConf": CONF[:1]},
    "standalone": {"standalone": True},
    "standalone-false": {"standalone": False},
    "max-restarts": {"maxRestarts": 3},
    "nproc": {"nProcPerNode": 2},
    "metrics": {"minReplicas": 1, "maxReplicas": 3, "metrics": METRICS},
    "metrics-only": {"metrics": METRICS},
    "everything": {
        "minReplicas": 1, "maxReplicas": 3, "rdzvBackend": "c10d", "rdzvHost": "h", "rdzvPort": 1, "rdzvId": "i",
        "rdzvConf": CONF, "maxRestarts": 5, "standalone": True, "metrics": METRICS,
    },
}  # fmt: skip
NPROC = {"auto": "auto", "cpu": "cpu", "gpu": "gpu", "4": "4", "0": "0", "text": "many", "number": 4}


def pytorch() -> Iterator[Scenario]:
    make, job = KIND.scenario, KIND.job
    for name, value in NPROC.items():
        yield make(f"nproc-{name}", job({"nprocPerNode": value}))
    for name, value in ELASTIC.items():
        yield make(f"elastic-{name}", job({"elasticPolicy": value}, Worker=2))
    yield make("elastic-with-master", job({"elasticPolicy": {"minReplicas": 1, "maxReplicas": 2}}), START, FINISH)
    yield make("elastic-master-only", job({"elasticPolicy": {}}, Master=1))
    yield make("elastic-beside-nproc", job({"elasticPolicy": {"minReplicas": 1}, "nprocPerNode": "4"}, Worker=2))
    twice = {"elasticPolicy": {"nProcPerNode": 2}, "nprocPerNode": "4"}
    yield make("elastic-beside-nproc-twice", job(twice, Worker=2))
    port = KIND.replicas(2, container={"ports": [{"name": KIND.port, "containerPort": 7777}]})
    yield make("elastic-own-port", job({"elasticPolicy": {}}, Worker=port))
    elastic = job({"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3}}, Worker=2)
    yield make("elastic-one-succeeds", elastic, START, succeeded("j-worker-1"), FINISH)
    yield make("elastic-one-fails", elastic, START, failed("j-worker-1", 1), START, FINISH)
    never = job({"elasticPolicy": {}}, Worker=KIND.replicas(2, {"restartPolicy": "Never"}))
    yield make("elastic-one-fails-never", never, START, failed("j-worker-1", 1))
    yield make("elastic-scale-up", elastic, START, scale(3), START)
    yield make("elastic-scale-down", elastic, START, scale(1))
    yield make("elastic-scale-beyond", elastic, START, scale(4))
    measured = job({"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3, "metrics": METRICS}}, Worker=2)
    yield make("elastic-metrics-suspend", measured, START, SUSPEND, RESUME)
    yield make("elastic-metrics-success", measured, START, FINISH)
    changed = patch(elasticPolicy={"maxReplicas": 5})
    yield make("elastic-metrics-changed", measured, START, changed)
    for name, first in (("worker-first", "j-worker-*"), ("master-first", "j-master-0")):
        yield make(f"success-{name}", job(), START, succeeded(first), FINISH)
    yield make("success-no-master", job(Worker=3), START, succeeded("j-worker-0"), FINISH)
    yield make(
        "failure-no-master-never", job(Worker=KIND.replicas(2, {"restartPolicy": "Never"})), START, failed("j-worker-0")
    )
    yield make("failure-no-master-restart", job(Worker=2), START, failed("j-worker-0"), START, FINISH)
    worker = KIND.replicas(
        2, {"template": {"spec": {"initContainers": [{"name": "init-pytorch", "image": "example.com/mine"}]}}}
    )
    yield make("init-container-own", job(Master=1, Worker=worker))
