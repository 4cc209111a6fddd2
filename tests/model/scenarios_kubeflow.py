"""What the explorations of the kinds of `kubeflow.org/v1` start with. Every replica is a Pod; see scenarios.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.model.scenarios import Edit, Scenario
from tests.support.samples import KUBEFLOW_ROLES, kubeflow_job
from trainyard import kinds
from trainyard.core import Slot
from trainyard.kinds.kubeflow_v1.mpijob_v2beta1 import MPIJOB_V2BETA1
from trainyard.objects import Json

KINDS = {kind.gvk.kind: kind for kind in kinds.KINDS}
RESTART_SCOPE = "trainyard.dev/restart-scope"
ENDS = ((1, "Error"), (137, "Error"))


def replicated(kind: str, policy: str = "ExitCode", most: int = 0, scope: str = "", **fields: Any) -> Scenario:
    """A job whose replicas have that restartPolicy. `fields`: numbers of replicas by role, further fields of the spec,
    and of the Scenario what it cannot know: deciding, gang and so on. `most`: to how many its workers may be scaled.
    `scope`: the annotation for what restarts with a replica."""
    own = {name: fields.pop(name) for name in list(fields) if name in Scenario.__dataclass_fields__}
    replicas_field = KUBEFLOW_ROLES[kind][0]
    roles = {name: fields.pop(name) for name in list(fields) if name in ("Launcher", "Master", "Chief", "PS", "Worker")}
    sets: dict[str, Any] = {role: {"replicas": count, "restartPolicy": policy} for role, count in roles.items()}
    slots = tuple(
        Slot(role, index)
        for role, count in sorted(roles.items())
        for index in range(max(count, most if role == "Worker" else 0))
    )
    scaling = Edit("wants one worker more", lambda spec: _scaled(spec, replicas_field, 1, most))
    shrinking = Edit("wants one worker less", lambda spec: _scaled(spec, replicas_field, -1, most))

    def wants(spec: Json) -> frozenset[int]:
        sizes = {role: replica_spec["replicas"] for role, replica_spec in spec[replicas_field].items()}
        return frozenset(place for place, slot in enumerate(slots) if slot.index < sizes[slot.role])

    return Scenario(
        kind=KINDS[kind],
        spec=kubeflow_job(kind, **sets, **fields)["spec"],
        slots=slots,
        styles=("alone",) * len(slots),
        edits=(scaling, shrinking) if most else (),
        ends=ENDS,
        permanent=(lambda code, reason: code != 137) if policy == "ExitCode" else (lambda code, reason: True),
        reasons={f"{kind}Succeeded": "JobSucceeded"},
        wants=wants,
        in_place=lambda spec, slot: policy == "OnFailure",
        annotations={RESTART_SCOPE: scope} if scope else {},
        **own,
    )


def _scaled(spec: Json, replicas_field: str, by: int, most: int) -> Json | None:
    worker = spec[replicas_field]["Worker"]
    count = worker["replicas"] + by
    sets = {**spec[replicas_field], "Worker": {**worker, "replicas": count}}
    return {**spec, replicas_field: sets} if 1 <= count <= most else None


def pytorch(policy: str = "ExitCode", scope: str = "", workers: int = 1) -> Scenario:
    """A master and a worker, which restart together."""
    return replicated("PyTorchJob", policy, scope=scope, Master=1, Worker=workers, gang=scope != "replica")


def elastic_pytorch(workers: int = 2, most: int = 3, policy: str = "ExitCode") -> Scenario:
    """Workers that restart alone. The first success is the job's."""
    return replicated(
        "PyTorchJob",
        policy,
        most,
        Worker=workers,
        elasticPolicy={"minReplicas": 1, "maxReplicas": most},
        deciding=frozenset(range(most)),
        any_decides=True,
    )


def jax(policy: str = "ExitCode", most: int = 0) -> Scenario:
    """Two workers, which restart together and all decide."""
    return replicated("JAXJob", policy, most, Worker=2, gang=True, deciding=frozenset(range(max(2, most))))


def xgboost(policy: str = "Never") -> Scenario:
    """A master, the tracker, and a worker, which restart together."""
    return replicated("XGBoostJob", policy, Master=1, Worker=1, gang=True)


def paddle(policy: str = "ExitCode") -> Scenario:
    """A parameter server and a trainer, each of which restarts alone."""
    return replicated("PaddleJob", policy, Master=1, Worker=1)


def tensorflow(policy: str = "ExitCode", scope: str = "") -> Scenario:
    """A chief and a worker, each of which restarts alone."""
    return replicated("TFJob", policy, scope=scope, Chief=1, Worker=1, gang=scope == "gang")


def dynamic_tensorflow() -> Scenario:
    """A chief and a worker under Never: the worker may fail, and the job goes on."""
    return replicated("TFJob", "Never", Chief=1, Worker=1, enableDynamicWorker=True, ignored=frozenset({1}))


def all_workers(policy: str = "Never") -> Scenario:
    """Two workers without a chief: the first decides."""
    return replicated("TFJob", policy, Worker=2, deciding=frozenset({0}))


def mpi(policy: str = "ExitCode") -> Scenario:
    """A launcher, which decides, and a worker, each of which restarts alone."""
    return replicated("MPIJob", policy, Launcher=1, Worker=1)


def ssh_mpi() -> Scenario:
    """An MPIJob of v2beta1: a launcher in a batch Job, which tries again by itself, and a worker, which may fail."""
    scenario = replicated("MPIJob", "Never", Launcher=1, Worker=1, ignored=frozenset({1}))
    return replace(scenario, kind=MPIJOB_V2BETA1, styles=("retrying", "alone"), clean="None", limits_stop=False)
