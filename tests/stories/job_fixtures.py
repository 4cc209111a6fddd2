"""The usual job of each kind, run by controlled pods, and its expected values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.stories.controlled_pods import controlled_container
from tests.stories.harness import ALL_RUN, Harness, tally, tf_job
from tests.support.samples import KUBEFLOW_ROLES
from trainyard import kinds
from trainyard.core import Kind
from trainyard.kinds.policies import Policies
from trainyard.objects import Json, is_condition_true


def template(container: str, *containers: Json, **pod: Any) -> Json:
    """A pod template with one controlled container, and the given others."""
    return {"spec": {"containers": [controlled_container(name=container), *containers], **pod}}


def job_of(kind: Kind, spec: Json, name: str) -> Json:
    return {"apiVersion": kind.gvk.api_version, "kind": kind.gvk.kind, "metadata": {"name": name}, "spec": spec}


def mx_set(role: str, count: int = 1, **pod: Any) -> Json:
    return {"mxReplicaType": role, "replicas": count, "template": template("mxnet", restartPolicy="OnFailure", **pod)}


def mx_job(*sets: Json, name: str = "story", **spec: Any) -> Json:
    """An MxJob; without sets: a scheduler, a server and two workers."""
    replica_sets = sets or (mx_set("SCHEDULER"), mx_set("SERVER"), mx_set("WORKER", 2))
    return job_of(kinds.MXJOB, {"jobMode": "dist", "replicaSpecs": list(replica_sets), **spec}, name)


def mx_local(name: str = "story", **spec: Any) -> Json:
    return mx_job(mx_set("WORKER"), name=name, **{"jobMode": "local", **spec})


def worker_set(count: int = 2, **more: Any) -> Json:
    return {"replicas": count, "template": template("chainer"), **more}


def chainer_job(name: str = "story", sets: Json | None = None, **spec: Any) -> Json:
    """A ChainerJob; without sets: a master, and two workers in one set."""
    worker_sets = {"ws": worker_set()} if sets is None else sets
    return job_of(
        kinds.CHAINERJOB,
        {"backend": "mpi", "master": {"template": template("chainer")}, "workerSets": worker_sets, **spec},
        name,
    )


def chainer_alone(name: str = "story", **spec: Any) -> Json:
    return chainer_job(name, {}, **spec)


def elastic_job(count: int = 2, name: str = "story", policy: str | None = "ExitCode", **spec: Any) -> Json:
    """An ElasticJob of two workers, between one and four."""
    worker = {"replicas": count, "template": template("elasticjob-worker"), "restartPolicy": policy}
    whole = {
        "rdzvEndpoint": "etcd:2379",
        "minReplicas": 1,
        "maxReplicas": 4,
        "replicaSpecs": {"Worker": worker},
        **spec,
    }
    return job_of(kinds.ELASTICJOB, whole, name)


def kubeflow_job(
    kind: Kind, roles: dict[str, int], name: str = "story", policy: str | None = None, **spec: Any
) -> Json:
    """A job of `kubeflow.org/v1` with these replicas. Policies stand in its runPolicy."""
    replicas_field, container, _ = KUBEFLOW_ROLES[kind.gvk.kind]
    sets = {
        role: {"replicas": count, "template": template(container), **({"restartPolicy": policy} if policy else {})}
        for role, count in roles.items()
    }
    run_policy = {field: spec.pop(field) for field in list(spec) if field in Policies.__struct_fields__}
    return job_of(kind, {replicas_field: sets, **({"runPolicy": run_policy} if run_policy else {}), **spec}, name)


@dataclass(frozen=True)
class JobFixture:
    """A usual job. `last`: those whose success is the job's; `all_run`: its status counts every replica as running."""

    make: Callable[..., Json]
    cast: dict[str, int]
    last: tuple[tuple[str, int], ...]
    all_run: Callable[[Json], object]
    objects: int  # objects that the operator makes

    @property
    def slots(self) -> list[tuple[str, int]]:
        return [(role, index) for role, count in self.cast.items() for index in range(count)]

    async def begin(self, harness: Harness, **spec: Any) -> Json:
        """Submit it, and wait until the status counts every replica as running."""
        await harness.submit(self.make(**spec))
        return await self.runs(harness)

    async def runs(self, harness: Harness) -> Json:
        await harness.every_replica_runs(**self.cast)
        return await harness.until(lambda job: "status" in job and self.all_run(job))

    async def succeed(self, harness: Harness) -> None:
        for role, index in self.last:
            await (await harness.controlled_pod(role, index)).exit(0)
        await harness.condition("Succeeded")


def _runs(job: Json) -> bool:
    return is_condition_true(job["status"].get("conditions"), "Running")


def all_ready(job: Json) -> bool:
    """The column of `kubectl get` shows every replica as running."""
    running, _, wanted = job["status"].get("ready", "").partition("/")
    return bool(running) and running == wanted


def mx_tally(job: Json) -> dict[str, Json]:
    """How many replicas are in which state, by role, as the status of an MxJob says."""
    return {
        replica_status["Mx_replica_type"]: replica_status["ReplicasStates"]
        for replica_status in job["status"]["replicaStatuses"]
    }


def workers(job: Json) -> Json:
    """The counts in the status of an ElasticJob."""
    counts: Json = job["status"].get("replicaStatuses", {}).get("Worker", {})
    return counts


def argument(name: str) -> str:
    """An expression for the value of the option --NAME of the launcher."""
    return f"[argument.partition('=')[2] for argument in sys.argv if argument.startswith('--{name}=')][0]"


_GANG = {"SCHEDULER": {"Running": 1}, "SERVER": {"Running": 1}, "WORKER": {"Running": 2}}
PLAYS = {
    "TfJob": JobFixture(
        tf_job, {"master": 1, "worker": 2, "ps": 1}, (("master", 0),), lambda job: tally(job) == ALL_RUN, 5
    ),
    "MxJob": JobFixture(
        mx_job,
        {"scheduler": 1, "server": 1, "worker": 2},
        (("scheduler", 0),),
        lambda job: mx_tally(job) == _GANG,
        5,
    ),
    "MxJob-local": JobFixture(
        mx_local, {"worker": 1}, (("worker", 0),), lambda job: mx_tally(job) == {"WORKER": {"Running": 1}}, 1
    ),
    "ChainerJob": JobFixture(
        chainer_job,
        {"master": 1, "ws": 2},
        (("master", 0),),
        lambda job: _runs(job) and all_ready(job),
        6,
    ),
    "ChainerJob-alone": JobFixture(
        chainer_alone, {"master": 1}, (("master", 0),), lambda job: job["status"].get("active") == 1 and _runs(job), 4
    ),
    "ElasticJob": JobFixture(
        elastic_job, {"worker": 2}, (("worker", 0), ("worker", 1)), lambda job: workers(job) == {"active": 2}, 4
    ),
}


def _kubeflow(kind: Kind, roles: dict[str, int], *last: tuple[str, int], auxiliary: int | None = None) -> JobFixture:
    """`auxiliary`: how many objects the job has besides its replicas, by default a Service for each replica."""
    cast = {role.lower(): count for role, count in roles.items()}
    return JobFixture(
        partial(kubeflow_job, kind, roles),
        cast,
        last,
        lambda job: _runs(job) and all_ready(job),
        2 * sum(cast.values()) if auxiliary is None else sum(cast.values()) + auxiliary,
    )


KUBEFLOW = {
    "TFJob": _kubeflow(kinds.KUBEFLOW_TFJOB, {"Chief": 1, "PS": 1, "Worker": 2}, ("chief", 0)),
    "PyTorchJob": _kubeflow(kinds.PYTORCHJOB, {"Master": 1, "Worker": 2}, ("master", 0)),
    "XGBoostJob": _kubeflow(kinds.XGBOOSTJOB, {"Master": 1, "Worker": 1}, ("master", 0)),
    "PaddleJob": _kubeflow(kinds.PADDLEJOB, {"Worker": 2}, ("worker", 0), ("worker", 1)),
    "JAXJob": _kubeflow(kinds.JAXJOB, {"Worker": 2}, ("worker", 0), ("worker", 1)),
    # ConfigMap, ServiceAccount, Role and RoleBinding; in v2beta1 Secret, ConfigMap and Service.
    "MPIJob": _kubeflow(kinds.MPIJOB, {"Launcher": 1, "Worker": 2}, ("launcher", 0), auxiliary=4),
    "MPIJob-v2beta1": _kubeflow(
        kinds.MPIJOB.further_versions[0], {"Launcher": 1, "Worker": 2}, ("launcher", 0), auxiliary=3
    ),
}
PLAYS |= KUBEFLOW
NEW = {name: job_fixture for name, job_fixture in PLAYS.items() if name != "TfJob"}
"""Of TfJob each story is told in a file of its own."""
LIMITED_BY_OPERATOR = {name: job_fixture for name, job_fixture in NEW.items() if name != "MPIJob-v2beta1"}
"""Those whose deadline and TTL the operator enforces. In v2beta1 they are the launcher's Job's."""
