"""The fields of a TrainJob, as Trainer 2.3 defines them. Numbers of nodes and processes have the bounds of its next
version: a job of fewer than zero nodes ends at once there, and fails to render."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from trainyard.kinds.pods.pod_templates import type_schema
from trainyard.objects import Json

GROUP = "trainer.kubeflow.org"
CONTROLLER, MULTIKUEUE = f"{GROUP}/trainjob-controller", "kueue.x-k8s.io/multikueue"
BY_NAME: Json = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
ATOMIC: Json = {"x-kubernetes-list-type": "atomic"}
ATOMIC_MAP: Json = {"x-kubernetes-map-type": "atomic"}
Int32 = Annotated[int, Meta(extra_json_schema={"format": "int32"})]
Count = Annotated[int, Meta(ge=0, extra_json_schema={"format": "int32"})]
Int64 = Annotated[int, Meta(extra_json_schema={"format": "int64"})]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
ObjectName = Annotated[str, Meta(min_length=1, max_length=253)]
Word = Annotated[str, Meta(max_length=1048576)]
Words = Annotated[list[Word], Meta(max_length=128, extra_json_schema=ATOMIC)]
_KEEP: Json = {"x-kubernetes-preserve-unknown-fields": True}


def pod_type(name: str, **keywords: object) -> Json:
    """The schema of a type of pods, as extra_json_schema."""
    return {**type_schema(name), **keywords}


Variables = Annotated[
    list[Annotated[dict[str, Any], Meta(extra_json_schema=pod_type("EnvVar", **_KEEP))]],
    Meta(max_length=128, extra_json_schema=BY_NAME),
]
Resources = Annotated[dict[str, Any], Meta(extra_json_schema=pod_type("ResourceRequirements", **_KEEP))]


class LocalReference(msgspec.Struct, kw_only=True):
    """An object in the job's namespace."""

    name: str = ""


class RuntimeReference(msgspec.Struct, kw_only=True):
    """The runtime of the job: a ClusterTrainingRuntime, or a TrainingRuntime of the job's namespace."""

    name: ObjectName
    apiGroup: Annotated[str, Meta(max_length=253)] = GROUP
    kind: Annotated[str, Meta(max_length=253)] = "ClusterTrainingRuntime"


class InitializerSource(msgspec.Struct, kw_only=True):
    """What is downloaded before the training begins."""

    storageUri: Annotated[
        Annotated[str, Meta(max_length=2048)] | None, Meta(description="Its source, such as hf://user/repository.")
    ] = None
    env: Annotated[Variables | None, Meta(description="Variables of the initializer.")] = None
    secretRef: Annotated[LocalReference | None, Meta(extra_json_schema=ATOMIC_MAP)] = None


class Initializer(msgspec.Struct, kw_only=True):
    """Dataset and model, each downloaded by a replicated job of its own."""

    dataset: InitializerSource | None = None
    model: InitializerSource | None = None


class Trainer(msgspec.Struct, kw_only=True):
    """What the container that trains runs, and on how many nodes."""

    image: Annotated[str, Meta(max_length=500)] | None = None
    command: Words | None = None
    args: Words | None = None
    env: Variables | None = None
    numNodes: Annotated[Count | None, Meta(description="Number of pods that train.")] = None
    resourcesPerNode: Annotated[Resources | None, Meta(description="Laid over the resources of the runtime.")] = None
    numProcPerNode: Annotated[
        Int32 | None,
        Meta(description="Processes in each pod; by default one for each GPU, or for each CPU."),
    ] = None


class PatchedMetadata(msgspec.Struct, kw_only=True):
    """Labels and annotations that are added. Other fields have no effect."""

    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    finalizers: list[str] | None = None
    name: str | None = None
    namespace: str | None = None


class PatchedMount(msgspec.Struct, kw_only=True):
    """A mount that is added to a container."""

    name: str
    mountPath: str
    mountPropagation: str | None = None
    readOnly: bool | None = None
    recursiveReadOnly: str | None = None
    subPath: str | None = None
    subPathExpr: str | None = None


class PatchedContainer(msgspec.Struct, kw_only=True):
    """Changes of one container of the runtime."""

    name: ObjectName
    env: Variables | None = None
    volumeMounts: Annotated[list[PatchedMount], Meta(max_length=128, extra_json_schema=BY_NAME)] | None = None
    securityContext: Annotated[dict[str, Any], Meta(extra_json_schema=pod_type("SecurityContext", **_KEEP))] | None = (
        None
    )


class SchedulingGate(msgspec.Struct, kw_only=True):
    """A gate that must be removed before the pod is scheduled."""

    name: str


PatchedContainers = Annotated[list[PatchedContainer], Meta(max_length=64, extra_json_schema=BY_NAME)]


class PatchedPod(msgspec.Struct, kw_only=True):
    """Changes of the pods of one replicated job."""

    serviceAccountName: Annotated[str, Meta(max_length=253)] | None = None
    nodeSelector: dict[str, str] | None = None
    affinity: Annotated[dict[str, Any], Meta(extra_json_schema=pod_type("Affinity", **_KEEP))] | None = None
    tolerations: (
        Annotated[
            list[Annotated[dict[str, Any], Meta(extra_json_schema=pod_type("Toleration", **_KEEP))]],
            Meta(max_length=128, extra_json_schema=ATOMIC),
        ]
        | None
    ) = None
    volumes: (
        Annotated[
            list[Annotated[dict[str, Any], Meta(extra_json_schema=pod_type("Volume", **_KEEP))]],
            Meta(max_length=128, extra_json_schema=BY_NAME),
        ]
        | None
    ) = None
    initContainers: PatchedContainers | None = None
    containers: PatchedContainers | None = None
    schedulingGates: Annotated[list[SchedulingGate], Meta(max_length=16, extra_json_schema=BY_NAME)] | None = None
    imagePullSecrets: (
        Annotated[
            list[Annotated[LocalReference, Meta(extra_json_schema=ATOMIC_MAP)]],
            Meta(max_length=64, extra_json_schema=BY_NAME),
        ]
        | None
    ) = None
    securityContext: (
        Annotated[dict[str, Any], Meta(extra_json_schema=pod_type("PodSecurityContext", **_KEEP))] | None
    ) = None
    terminationGracePeriodSeconds: Annotated[int, Meta(ge=0, extra_json_schema={"format": "int64"})] | None = None


class PatchedPodTemplate(msgspec.Struct, kw_only=True):
    """Changes of a pod template."""

    metadata: PatchedMetadata | None = None
    spec: PatchedPod | None = None


class PatchedJobSpec(msgspec.Struct, kw_only=True):
    """Changes of the spec of a Job."""

    template: PatchedPodTemplate | None = None


class PatchedJobTemplate(msgspec.Struct, kw_only=True):
    """Changes of the template of a Job."""

    metadata: PatchedMetadata | None = None
    spec: PatchedJobSpec | None = None


class PatchedReplicatedJob(msgspec.Struct, kw_only=True):
    """Changes of one replicated job of the runtime."""

    name: ObjectName
    template: PatchedJobTemplate | None = None


class PatchedJobSetSpec(msgspec.Struct, kw_only=True):
    """Changes of the replicated jobs."""

    replicatedJobs: Annotated[list[PatchedReplicatedJob], Meta(max_length=100, extra_json_schema=BY_NAME)] | None = None


class PatchedJobSet(msgspec.Struct, kw_only=True):
    """Changes of the JobSet of a runtime."""

    metadata: PatchedMetadata | None = None
    spec: PatchedJobSetSpec | None = None


class PatchedRuntimeSpec(msgspec.Struct, kw_only=True):
    """Changes of the runtime."""

    template: PatchedJobSet | None = None


class RuntimePatch(msgspec.Struct, kw_only=True):
    """Changes of the runtime for this job, by one manager."""

    manager: Annotated[ObjectName, Meta(description="Who has written the patch: acme.io/team.")]
    time: Annotated[Time | None, Meta(description="When it was last changed; set by the API server.")] = None
    trainingRuntimeSpec: PatchedRuntimeSpec | None = None


class TrainJobSpec(msgspec.Struct, kw_only=True):
    """A training on a runtime."""

    runtimeRef: RuntimeReference
    initializer: Initializer | None = None
    trainer: Trainer | None = None
    runtimePatches: (
        Annotated[
            list[RuntimePatch],
            Meta(
                max_length=16,
                extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["manager"]},
            ),
        ]
        | None
    ) = None
    suspend: Annotated[bool, Meta(description="While true, no pod runs.")] = False
    activeDeadlineSeconds: Annotated[
        Annotated[int, Meta(ge=1, extra_json_schema={"format": "int64"})] | None,
        Meta(description="The job fails if it has not ended this many seconds after its start, or after it resumed."),
    ] = None
    managedBy: Annotated[str, Meta(max_length=253, description="The controller of the job.")] = CONTROLLER


class JobStatus(msgspec.Struct, kw_only=True):
    """Numbers of Jobs of a replicated job, not of pods."""

    name: ObjectName
    ready: Count
    succeeded: Count
    failed: Count
    active: Count
    suspended: Count


class Metric(msgspec.Struct, kw_only=True):
    """A value that the training has reported."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    value: Annotated[str, Meta(min_length=1, max_length=64)]


class TrainerStatus(msgspec.Struct, kw_only=True):
    """The progress of the training."""

    progressPercentage: Annotated[int, Meta(ge=0, le=100, extra_json_schema={"format": "int32"})] | None = None
    estimatedRemainingSeconds: Count | None = None
    metrics: Annotated[list[Metric], Meta(max_length=256, extra_json_schema=ATOMIC)] | None = None
    lastUpdatedTime: Time | None = None


CONDITION_TYPE = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)


class JobCondition(msgspec.Struct, kw_only=True):
    """A condition: Suspended, Complete or Failed."""

    type: Annotated[str, Meta(max_length=316, pattern=CONDITION_TYPE)]
    status: Annotated[str, Meta(extra_json_schema={"enum": ["True", "False", "Unknown"]})]
    reason: Annotated[str, Meta(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    message: Annotated[str, Meta(max_length=32768)]
    lastTransitionTime: Time
    observedGeneration: Annotated[int, Meta(ge=0, extra_json_schema={"format": "int64"})] | None = None


class TrainJobStatus(msgspec.Struct, kw_only=True):
    """What has become of the job. The operator's own fields are in `trainyard`."""

    conditions: (
        Annotated[
            list[JobCondition],
            Meta(
                max_length=8,
                extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
            ),
        ]
        | None
    ) = None
    jobsStatus: Annotated[list[JobStatus], Meta(max_length=100, extra_json_schema=BY_NAME)] | None = None
    trainerStatus: TrainerStatus | None = None
    trainyard: dict[str, Any] | None = None
