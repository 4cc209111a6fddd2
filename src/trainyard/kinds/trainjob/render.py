"""A TrainJob and its runtime as the document of a JobSet, with the objects beside it: as Trainer 2.3 renders them.

The runtime is that of the job's snapshot. Both are valid: admission has refused what cannot be rendered.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from trainyard.api_types.schemas import META, STRING, TypeSchema, built_in
from trainyard.api_types.strategic_merge import merge
from trainyard.kinds.pods.templates import whole_number
from trainyard.kinds.trainjob import ml_policies, mpi, pod_groups
from trainyard.kinds.trainjob.pod_sets import (
    DATASET,
    MODEL,
    NODE,
    TRAINER,
    PodSet,
    Rendered,
    set_variables,
    variable,
)
from trainyard.objects import Json, decode, encode
from trainyard.objects.quantities import canonical

INITIALIZERS = {DATASET: "dataset", MODEL: "model"}
"""Ancestor -> the field of `spec.initializer` that is for it. Its container has the name of the ancestor."""
STORAGE_URI = "STORAGE_URI"


def _object(**fields: TypeSchema) -> TypeSchema:
    return TypeSchema("object", own_fields=fields)


_METADATA = built_in(f"{META}ObjectMeta")
_JOB_TEMPLATE = _object(metadata=_METADATA, spec=_object(template=built_in("api.core.v1.PodTemplateSpec")))
_REPLICATED_JOB = _object(name=STRING, template=_JOB_TEMPLATE)
_JOB_SET = _object(
    replicatedJobs=TypeSchema("list", item=_REPLICATED_JOB, strategy=("merge",), merge_key="name"),
)
"""The parts of a JobSet that patches change, with the keys by which their lists are merged."""


class Rendering(msgspec.Struct, frozen=True):
    """All objects of a TrainJob, without owners and namespaces. `hostfile`: the text in the ConfigMap of MPI, "" for
    another policy."""

    job_set: Json
    pod_groups: tuple[Json, ...] = ()
    hostfile: str = ""


def render(job: Json, runtime: Json) -> Rendering:
    """What Trainer makes of the TrainJob. `runtime`: the TrainingRuntime or ClusterTrainingRuntime."""
    rendered = open_rendering(job, runtime)
    ml_policies.enforce(rendered)
    pod_groups.name_group_in_pods(rendered)
    for pod_set in rendered.sets:
        pod_set.job_spec["parallelism"] = pod_set.job_spec["completions"] = pod_set.count
        _set_initializer(rendered, pod_set)
        _set_trainer(rendered, pod_set)
    metadata = {"labels": rendered.labels, "annotations": rendered.annotations}
    job_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": rendered.name, **{field: values for field, values in metadata.items() if values}},
        "spec": {**rendered.spec, "suspend": job["spec"].get("suspend") is True},
    }
    has_mpi = rendered.policy.get("mpi") is not None
    return Rendering(
        with_defaults(job_set),
        tuple(pod_groups.pod_groups(rendered)),
        mpi.hostfile(rendered) if has_mpi else "",
    )


def open_rendering(job: Json, runtime: Json) -> Rendered:
    """The runtime with the job's patches and resources, before its policy is enforced. All documents are copies."""
    template, policy = runtime["spec"].get("template") or {}, runtime["spec"].get("mlPolicy")
    metadata, spec = _patched(job, template)
    rendered = Rendered(
        job=job,
        policy=policy or {},
        pod_groups=runtime["spec"].get("podGroupPolicy") or {},
        labels=metadata["labels"],
        annotations=metadata["annotations"],
        spec=spec,
        sets=[_pod_set(document, policy) for document in spec.get("replicatedJobs") or ()],
    )
    if policy is not None:
        _merge_resources(rendered)
    return rendered


def _patched(job: Json, template: Json) -> tuple[Json, Json]:
    """The metadata and the spec of the JobSet after the job's runtimePatches, as copies. Labels and annotations of the
    TrainJob itself are in neither."""
    stored = template.get("metadata") or {}
    metadata = {field: dict(stored.get(field) or {}) for field in ("labels", "annotations")}
    spec: Json = decode(encode(template.get("spec") or {}))
    order = [replicated_job["name"] for replicated_job in spec.get("replicatedJobs") or ()]
    for patch in _patches(job):
        for field, values in metadata.items():
            values.update((patch.get("metadata") or {}).get(field) or {})
        if patch.get("spec"):
            spec = merge(spec, decode(encode(patch["spec"])), _JOB_SET)
    jobs = {replicated_job["name"]: replicated_job for replicated_job in spec.get("replicatedJobs") or ()}
    return metadata, {**spec, "replicatedJobs": [jobs[name] for name in order]}


def _patches(job: Json) -> Iterator[Json]:
    """The patches of the runtime's template, in their order."""
    for patch in job["spec"].get("runtimePatches") or ():
        yield (patch.get("trainingRuntimeSpec") or {}).get("template") or {}


def _pod_set(document: Json, policy: Json | None) -> PodSet:
    pod_set = PodSet(document, 1)
    stated = pod_set.job_spec.get("parallelism")
    if pod_set.ancestor == TRAINER and policy is not None:
        stated = policy.get("numNodes")
    count = whole_number(stated)
    pod_set.count = max(1 if count is None else count, 1)
    return pod_set


def _merge_resources(rendered: Rendered) -> None:
    """Lay `resourcesPerNode` over the resources of the containers that train, resource by resource."""
    stated = rendered.trainer.get("resourcesPerNode") or {}
    for pod_set in rendered.sets if stated else ():
        if not _trains(rendered, pod_set) or (container := pod_set.container(NODE)) is None:
            continue
        resources = container["resources"] = dict(container.get("resources") or {})
        for kind in ("limits", "requests"):
            if amounts := {**(resources.get(kind) or {}), **(stated.get(kind) or {})}:
                resources[kind] = {name: canonical(str(amount)) for name, amount in amounts.items()}


def _trains(rendered: Rendered, pod_set: PodSet) -> bool:
    """Whether the pods of the set train: with MPI those of the launcher's nodes do, if it is a node itself."""
    is_mpi_node = mpi.launcher_is_node(rendered.policy) and pod_set.name == NODE
    return pod_set.ancestor == TRAINER or is_mpi_node


def _set_initializer(rendered: Rendered, pod_set: PodSet) -> None:
    """Give an initializer what `spec.initializer` says."""
    ancestor = pod_set.ancestor
    if ancestor not in INITIALIZERS:
        return
    pod_set.document["replicas"] = 1
    stated = (rendered.job["spec"].get("initializer") or {}).get(INITIALIZERS[ancestor])
    container = pod_set.container(ancestor)
    if stated is None or container is None:
        return
    if stated.get("storageUri") is not None:
        set_variables(container, variable(STORAGE_URI, stated["storageUri"]))
    set_variables(container, *stated.get("env") or ())
    if stated.get("secretRef") is not None:
        source = {"secretRef": {"name": stated["secretRef"].get("name", "")}}
        container["envFrom"] = [*(container.get("envFrom") or ()), source]


def _set_trainer(rendered: Rendered, pod_set: PodSet) -> None:
    """Give the containers that train what `spec.trainer` says."""
    if pod_set.ancestor == TRAINER:
        pod_set.document["replicas"] = 1
        for container in pod_set.pod_spec.get("containers") or ():
            if container.get("name") == NODE:
                fields = {name: rendered.trainer.get(name) for name in ("image", "command", "args")}
                container.update({name: value for name, value in fields.items() if value is not None})
    if _trains(rendered, pod_set) and (container := pod_set.container(NODE)):
        set_variables(container, *rendered.trainer.get("env") or ())


def with_defaults(job_set: Json) -> Json:
    """A JobSet with the defaults of JobSet's definition and webhook."""
    spec = job_set["spec"]
    jobs = [_with_job_defaults(replicated_job) for replicated_job in spec["replicatedJobs"]]
    network = {"enableDNSHostnames": True, "publishNotReadyAddresses": True, **(spec.get("network") or {})}
    defaults: Json = {"successPolicy": {"operator": "All"}, "startupPolicy": {"startupPolicyOrder": "AnyOrder"}}
    spec = {**defaults, **spec, "replicatedJobs": jobs, "network": network}
    if spec.get("failurePolicy") is not None:
        rules = spec["failurePolicy"].get("rules") or ()
        named = [{**rule, "name": rule.get("name") or f"failurePolicyRule{i}"} for i, rule in enumerate(rules)]
        named_rules = {"rules": named} if named else {}
        spec["failurePolicy"] = {"restartStrategy": "Recreate", **spec["failurePolicy"], **named_rules}
    if spec.get("volumeClaimPolicies"):
        retained = {"retentionPolicy": {"whenDeleted": "Delete"}}
        spec["volumeClaimPolicies"] = [{**retained, **policy} for policy in spec["volumeClaimPolicies"]]
    return {**job_set, "spec": spec}


def _with_job_defaults(replicated_job: Json) -> Json:
    pod_set = PodSet({"replicas": 1, "groupName": "default", **replicated_job}, 1)
    pod_set.job_spec.setdefault("completionMode", "Indexed")
    pod_set.pod_spec["restartPolicy"] = pod_set.pod_spec.get("restartPolicy") or "OnFailure"
    for container in (*pod_set.pod_spec["containers"], *(pod_set.pod_spec.get("initContainers") or ())):
        if container.get("ports"):
            container["ports"] = [{"protocol": "TCP", **port} for port in container["ports"]]
    return pod_set.document
