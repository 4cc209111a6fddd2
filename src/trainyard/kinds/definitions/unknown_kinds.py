"""Messages for objects of a kind that Trainyard does not run: the system that runs it, and what to write instead.

Rules for this file:
- The most similar kind is not suggested, except for an obvious misspelling of one of Trainyard's kinds.
- A kind is looked up by group and name, not by version.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trainyard.core import Kind
from trainyard.kinds.definitions.misspellings import most_similar_name


class ForeignKind(msgspec.Struct, frozen=True):
    """The system that runs a kind, and the kind of Trainyard for the same programs ("" when there is none)."""

    system: str
    replacement: str = ""


TRAINING_OPERATOR = "the Kubeflow Training Operator"
# Workload kinds, by (group, kind), that users may submit as if Trainyard ran them.
WORKLOADS = {
    ("kubeflow.org", "MXJob"): ForeignKind(TRAINING_OPERATOR, "MxJob"),
    ("kubeflow.org", "Experiment"): ForeignKind("Kubeflow Katib"),
    ("kubeflow.org", "Notebook"): ForeignKind("Kubeflow Notebooks"),
    ("batch.volcano.sh", "Job"): ForeignKind("Volcano"),
    ("flow.volcano.sh", "JobFlow"): ForeignKind("Volcano"),
    ("ray.io", "RayJob"): ForeignKind("KubeRay"),
    ("ray.io", "RayCluster"): ForeignKind("KubeRay"),
    ("ray.io", "RayService"): ForeignKind("KubeRay"),
    ("argoproj.io", "Workflow"): ForeignKind("Argo Workflows"),
    ("argoproj.io", "CronWorkflow"): ForeignKind("Argo Workflows"),
    ("argoproj.io", "WorkflowTemplate"): ForeignKind("Argo Workflows"),
    ("tekton.dev", "PipelineRun"): ForeignKind("Tekton"),
    ("jobset.x-k8s.io", "JobSet"): ForeignKind("JobSet"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): ForeignKind("LeaderWorkerSet"),
    ("serving.kserve.io", "InferenceService"): ForeignKind("KServe"),
    ("serving.knative.dev", "Service"): ForeignKind("Knative"),
    ("sparkoperator.k8s.io", "SparkApplication"): ForeignKind("the Spark Operator"),
}
BUILT_IN = {
    "": "Pod Service ConfigMap Secret Namespace Node Event Endpoints ServiceAccount PersistentVolume"
    " PersistentVolumeClaim ResourceQuota LimitRange ReplicationController PodTemplate",
    "apps": "Deployment StatefulSet DaemonSet ReplicaSet ControllerRevision",
    "batch": "Job CronJob",
    "autoscaling": "HorizontalPodAutoscaler",
    "policy": "PodDisruptionBudget",
    "networking.k8s.io": "Ingress IngressClass NetworkPolicy",
    "rbac.authorization.k8s.io": "Role RoleBinding ClusterRole ClusterRoleBinding",
    "storage.k8s.io": "StorageClass VolumeAttachment CSIDriver CSINode",
    "scheduling.k8s.io": "PriorityClass",
    "coordination.k8s.io": "Lease",
    "apiextensions.k8s.io": "CustomResourceDefinition",
}
"""The built-in kinds of Kubernetes by API group."""


def unknown_kind_message(api_version: str, kind: str, kinds: Iterable[Kind]) -> str:
    """The message for an object that was probably meant as a job, "" for any other. `kinds`: those that run here."""
    group = api_version.rpartition("/")[0]
    known = tuple(kinds)
    templates = {item.gvk for entry in known if entry.template_source for item in entry.template_source.kinds}
    if any((gvk.api_version, gvk.kind) == (api_version, kind) for gvk in templates):
        return ""
    type_name = f"{api_version} {kind}"
    if other := WORKLOADS.get((group, kind)):
        replacement = next((entry for entry in known if entry.gvk.kind == other.replacement), None)
        instead = (
            f"write it as {_with_article(replacement.gvk.kind)} ({replacement.gvk.api_version}), or "
            if replacement
            else ""
        )
        text = f"{type_name} is a kind of {other.system}, which Trainyard does not run yet"
        return f"{text}; {instead}apply it with kubectl to a cluster that has its operator; {kinds_that_run(known)}"
    if meant := _misspelt_kind(group, kind, known):
        return f"{type_name} is not known; write {_manifest_fields(meant)}"
    if same_name := [entry for entry in known if entry.gvk.kind == kind]:
        return f"{type_name} is not known; write {' or '.join(map(_manifest_fields, same_name))}"
    if any((entry.gvk.group, entry.gvk.kind + "List") == (group, kind) for entry in known):
        return f"{type_name} has no items; write items, a list with the jobs"
    kinds_of_group = dict.fromkeys(entry.gvk.kind for entry in known if entry.gvk.group == group)  # not each version
    if kinds_of_group:
        return f"{type_name} is not known; of {group} runs here: {', '.join(kinds_of_group)}; {kinds_that_run(known)}"
    return ""


def describe_kind(api_version: str, kind: str) -> str:
    """A description of a kind that is no job: `Deployment (apps/v1), a built-in kind of Kubernetes`."""
    group = api_version.rpartition("/")[0]
    if kind.endswith("List") and len(kind) > len("List"):
        return f"{kind} ({api_version}) without items"
    if kind == "List":
        return "a List without items"
    built_in = kind in BUILT_IN.get(group, "").split()
    return f"{kind} ({api_version})" + (", a built-in kind of Kubernetes" if built_in else "")


def kinds_that_run(ours: Iterable[Kind]) -> str:
    """The kinds with their API versions, as a part of a message."""
    versions: dict[str, list[str]] = {}
    for kind in ours:
        versions.setdefault(kind.gvk.kind, []).append(kind.gvk.api_version)
    return "kinds that run here: " + ", ".join(
        f"{name} ({' or '.join(api_versions)})" for name, api_versions in versions.items()
    )


def _misspelt_kind(group: str, kind: str, known: tuple[Kind, ...]) -> Kind | None:
    """The kind of Trainyard whose name is misspelt, under its own (perhaps misspelt) group."""
    groups = {entry.gvk.group for entry in known}
    meant_group = group if group in groups else most_similar_name(group, sorted(groups))
    candidates = {entry.gvk.kind: entry for entry in known if entry.gvk.group == meant_group}
    for written in (kind, kind.removesuffix("s")):
        if name := written if written in candidates else most_similar_name(written, sorted(candidates)):
            return candidates[name]
    return None


def _manifest_fields(kind: Kind) -> str:
    return f"apiVersion: {kind.gvk.api_version} and kind: {kind.gvk.kind}"


def _with_article(name: str) -> str:
    return f"{'an' if name.startswith(('A', 'E', 'I', 'O', 'U', 'Mx')) else 'a'} {name}"
