"""The fields of TrainingRuntime and ClusterTrainingRuntime, as Trainer 2.3 defines them with the JobSet of 0.12."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from trainyard.kinds.pods.pod_templates import pod_template_schema
from trainyard.kinds.trainjob.spec import ATOMIC, ATOMIC_MAP, BY_NAME, Int32, Int64, ObjectName, PatchedMetadata
from trainyard.objects import Json

_KEEP: Json = {"x-kubernetes-preserve-unknown-fields": True}
_WITH_RULES: Json = {"required": ["rules"], **_KEEP}


def one_of(*values: str) -> Meta:
    """An enumeration in this order, in which an API server lists it; msgspec sorts the values of a Literal."""
    return Meta(extra_json_schema={"enum": list(values)})


class InjectionTarget(msgspec.Struct, kw_only=True):
    """Containers of one replicated job that get torchrun's variables, too."""

    jobName: ObjectName
    containerNames: Annotated[
        list[Annotated[str, Meta(max_length=63)]],
        Meta(min_length=1, max_length=8, extra_json_schema={"x-kubernetes-list-type": "set"}),
    ]


class EnvInjection(msgspec.Struct, kw_only=True):
    """Further containers with torchrun's variables."""

    targets: (
        Annotated[
            list[InjectionTarget],
            Meta(
                max_length=16,
                extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["jobName"]},
            ),
        ]
        | None
    ) = None


class TorchPolicy(msgspec.Struct, kw_only=True):
    """The variables of torchrun."""

    envInjection: EnvInjection | None = None


class MpiPolicy(msgspec.Struct, kw_only=True):
    """A launcher that reaches the nodes by ssh."""

    numProcPerNode: Int32 = 1
    mpiImplementation: Annotated[str, one_of("OpenMPI", "")] = "OpenMPI"
    sshAuthMountPath: Annotated[str, Meta(max_length=4096)] = "/root/.ssh"
    runLauncherAsNode: bool = False


class FluxPolicy(msgspec.Struct, kw_only=True):
    """Flux, which this operator does not run."""

    numProcPerNode: Int32 = 1


class Nothing(msgspec.Struct, kw_only=True):
    """A policy without fields."""


class MlPolicy(msgspec.Struct, kw_only=True):
    """How many nodes there are by default, and how their processes find each other."""

    numNodes: Int32 | None = None
    torch: TorchPolicy | None = None
    mpi: MpiPolicy | None = None
    flux: FluxPolicy | None = None
    jax: Nothing | None = None
    xgboost: Nothing | None = None


class Coscheduling(msgspec.Struct, kw_only=True):
    """A gang of scheduler-plugins."""

    scheduleTimeoutSeconds: Int32 = 60


class NetworkTopology(msgspec.Struct, kw_only=True):
    """How near to each other Volcano places the pods."""

    mode: Annotated[str, one_of("hard", "soft")] = "hard"
    highestTierAllowed: int = 1


class Volcano(msgspec.Struct, kw_only=True):
    """A gang of Volcano."""

    networkTopology: NetworkTopology | None = None


class PodGroupPolicy(msgspec.Struct, kw_only=True):
    """The scheduler of gangs."""

    coscheduling: Coscheduling | None = None
    volcano: Volcano | None = None


class JobSpec(msgspec.Struct, kw_only=True):
    """The spec of a batch Job. This operator reads its backoffLimit, its numbers of pods and its template."""

    template: Annotated[dict[str, Any], Meta(extra_json_schema=pod_template_schema({}, **BY_NAME))]
    parallelism: Int32 | None = None
    completions: Int32 | None = None
    completionMode: str | None = None
    backoffLimit: Int32 | None = None
    backoffLimitPerIndex: Int32 | None = None
    maxFailedIndexes: Int32 | None = None
    activeDeadlineSeconds: Int64 | None = None
    ttlSecondsAfterFinished: Int32 | None = None
    suspend: bool | None = None
    managedBy: str | None = None
    manualSelector: bool | None = None
    podReplacementPolicy: str | None = None
    podFailurePolicy: Annotated[dict[str, Any], Meta(extra_json_schema=_WITH_RULES)] | None = None
    selector: Annotated[dict[str, Any], Meta(extra_json_schema={**ATOMIC_MAP, **_KEEP})] | None = None
    successPolicy: Annotated[dict[str, Any], Meta(extra_json_schema=_WITH_RULES)] | None = None


class JobTemplate(msgspec.Struct, kw_only=True):
    """The template of the Jobs of a replicated job."""

    metadata: PatchedMetadata | None = None
    spec: JobSpec | None = None


class Dependency(msgspec.Struct, kw_only=True):
    """A replicated job that must be ready, or complete, before this one is started."""

    name: str
    status: Annotated[str, one_of("Ready", "Complete")]


class ReplicatedJob(msgspec.Struct, kw_only=True):
    """Pods with one template."""

    name: str
    template: JobTemplate
    replicas: Int32 = 1
    groupName: str = "default"
    dependsOn: (
        Annotated[
            list[Dependency],
            Meta(
                max_length=5,
                extra_json_schema=BY_NAME,
            ),
        ]
        | None
    ) = None


class Network(msgspec.Struct, kw_only=True):
    """Names of the pods in DNS."""

    enableDNSHostnames: bool | None = None
    subdomain: str | None = None
    publishNotReadyAddresses: bool | None = None


class SuccessPolicy(msgspec.Struct, kw_only=True):
    """The replicated jobs that must succeed."""

    operator: Annotated[str, one_of("All", "Any")]
    targetReplicatedJobs: Annotated[list[str], Meta(extra_json_schema=ATOMIC)] | None = None


ACTIONS = (
    "FailJobSet",
    "RestartJobSet",
    "RestartJobSetAndIgnoreMaxRestarts",
    "RestartJob",
    "RestartJobAndIgnoreMaxRestarts",
)


class FailureRule(msgspec.Struct, kw_only=True):
    """What is done after a failure; the first rule that matches counts."""

    name: str
    action: Annotated[str, one_of(*ACTIONS)]
    onJobFailureReasons: list[str] | None = None
    onJobFailureMessagePatterns: list[str] | None = None
    targetReplicatedJobs: Annotated[list[str], Meta(extra_json_schema=ATOMIC)] | None = None


class FailurePolicy(msgspec.Struct, kw_only=True):
    """How often all replicated jobs are restarted."""

    maxRestarts: Int32 | None = None
    restartStrategy: Annotated[str, one_of("Recreate", "BlockingRecreate", "InPlaceRestart")] = "Recreate"
    rules: list[FailureRule] | None = None


class StartupPolicy(msgspec.Struct, kw_only=True):
    """The order in which the replicated jobs start."""

    startupPolicyOrder: Annotated[str, one_of("AnyOrder", "InOrder")]


class Coordinator(msgspec.Struct, kw_only=True):
    """The pod whose address is in a label of all pods."""

    replicatedJob: str
    jobIndex: int | None = None
    podIndex: int | None = None


class Retention(msgspec.Struct, kw_only=True):
    """What becomes of the claims."""

    whenDeleted: Annotated[str, one_of("Delete", "Retain")] = "Delete"


class ClaimTemplate(msgspec.Struct, kw_only=True):
    """A PersistentVolumeClaim, called NAME-JOB."""

    apiVersion: str | None = None
    kind: str | None = None
    metadata: PatchedMetadata | None = None
    spec: Annotated[dict[str, Any], Meta(extra_json_schema=_KEEP)] | None = None
    status: Annotated[dict[str, Any], Meta(extra_json_schema=_KEEP)] | None = None


class VolumeClaimPolicy(msgspec.Struct, kw_only=True):
    """Claims that the pods share."""

    templates: Annotated[list[ClaimTemplate], Meta(max_length=50, extra_json_schema=ATOMIC)] | None = None
    retentionPolicy: Retention | None = None


class JobSetSpec(msgspec.Struct, kw_only=True):
    """The spec of a JobSet."""

    replicatedJobs: Annotated[list[ReplicatedJob], Meta(extra_json_schema=BY_NAME)] | None = None
    network: Network | None = None
    successPolicy: SuccessPolicy | None = None
    failurePolicy: FailurePolicy | None = None
    startupPolicy: StartupPolicy | None = None
    suspend: bool | None = None
    coordinator: Coordinator | None = None
    managedBy: str | None = None
    ttlSecondsAfterFinished: Annotated[int, Meta(ge=0, extra_json_schema={"format": "int32"})] | None = None
    volumeClaimPolicies: Annotated[list[VolumeClaimPolicy], Meta(max_length=50, extra_json_schema=ATOMIC)] | None = None


class JobSetTemplate(msgspec.Struct, kw_only=True):
    """The JobSet of a TrainJob."""

    metadata: PatchedMetadata | None = None
    spec: JobSetSpec | None = None


class RuntimeSpec(msgspec.Struct, kw_only=True):
    """What TrainJobs run on."""

    mlPolicy: MlPolicy | None = None
    podGroupPolicy: PodGroupPolicy | None = None
    template: Annotated[JobSetTemplate | None, Meta(extra_json_schema={"minProperties": 1})] = None
