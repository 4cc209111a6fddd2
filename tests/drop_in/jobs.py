"""Manifests of the drop-in scenarios: jobs called `j`, from a few words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.drop_in.scenario import MPI, SCHEDULER_PLUGINS, TRAINING, VOLCANO, Scenario, merged
from trainyard.objects import Json

IMAGE = "example.com/train:1"
CAMEL = ("Master", "Worker", "Chief", "PS", "Evaluator", "Launcher")


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of job: what its scenarios are made of. `roles` are the replicas of an ordinary job."""

    kind: str
    field: str
    container: str
    port: str
    roles: Mapping[str, Any]  # how many of each
    version: str = "v1"

    @property
    def folder(self) -> str:
        return self.kind.lower() + ("-" + self.version if self.version != "v1" else "")

    @property
    def operator(self) -> str:
        return MPI if self.version == "v2beta1" else TRAINING

    def replicas(self, count: int | None, change: Json | None = None, container: Json | None = None) -> Json:
        """A ReplicaSpec. `change` is merged into it, `container` into its container."""
        base: Json = {} if count is None else {"replicas": count}
        main = merged({"name": self.container, "image": IMAGE}, container or {})
        return merged({**base, "template": {"spec": {"containers": [main]}}}, change or {})

    def job(self, spec: Json | None = None, name: str = "j", metadata: Json | None = None, **roles: Any) -> Json:
        """A job. Each role is a number of replicas or a ReplicaSpec; without any, those of an ordinary job. `spec` is
        merged into the job's spec."""
        given = {role: value if isinstance(value, dict) else self.replicas(value) for role, value in roles.items()}
        specs = given or {role: self.replicas(count) for role, count in self.roles.items()}
        return {
            "apiVersion": f"kubeflow.org/{self.version}",
            "kind": self.kind,
            "metadata": {"name": name, **(metadata or {})},
            "spec": merged({self.field: specs}, spec or {}),
        }

    def with_roles(self, roles: Mapping[str, Any]) -> Json:
        return self.job(**dict[str, Any](roles))

    def everywhere(self, change: Json | None = None, container: Json | None = None, spec: Json | None = None) -> Json:
        """An ordinary job with this change in every role."""
        roles: Json = {role: self.replicas(count, change, container) for role, count in self.roles.items()}
        return self.job(spec, **roles)

    def scenario(
        self, name: str, manifest: Json, *steps: Json, gang: str = "", objects: Iterable[Json] = ()
    ) -> Scenario:
        return Scenario(self.folder, name, manifest, steps, self.operator, gang, tuple(objects))

    def with_policy(self, **run_policy: Any) -> Json:
        """An ordinary job with this runPolicy."""
        return self.job({"runPolicy": run_policy})


TFJOB = JobKind("TFJob", "tfReplicaSpecs", "tensorflow", "tfjob-port", {"Chief": 1, "PS": 1, "Worker": 2})
PYTORCHJOB = JobKind("PyTorchJob", "pytorchReplicaSpecs", "pytorch", "pytorchjob-port", {"Master": 1, "Worker": 2})
XGBOOSTJOB = JobKind("XGBoostJob", "xgbReplicaSpecs", "xgboost", "xgboostjob-port", {"Master": 1, "Worker": 2})
PADDLEJOB = JobKind("PaddleJob", "paddleReplicaSpecs", "paddle", "master", {"Master": 1, "Worker": 2})
JAXJOB = JobKind("JAXJob", "jaxReplicaSpecs", "jax", "jaxjob-port", {"Worker": 2})
MPIJOB = JobKind("MPIJob", "mpiReplicaSpecs", "mpi", "", {"Launcher": 1, "Worker": 2})
MPIJOB2 = JobKind("MPIJob", "mpiReplicaSpecs", "mpi", "", {"Launcher": 1, "Worker": 2}, "v2beta1")
KINDS = (TFJOB, PYTORCHJOB, XGBOOSTJOB, PADDLEJOB, JAXJOB, MPIJOB, MPIJOB2)
GANGS = (VOLCANO, SCHEDULER_PLUGINS)
