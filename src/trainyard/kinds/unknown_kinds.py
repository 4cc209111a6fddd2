"""What an object is whose kind does not run here: a sentence that says whose kind it is, and what to write instead.

Rules for this file:
- The string that looks nearest is never offered, except for an obvious misspelling of the name of a kind of ours.
- A kind is looked up by group and name, whatever its version.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from trainyard.core import Kind
from trainyard.kinds.misspelt import nearest


class Other(NamedTuple):
    """Whose kind it is, and the kind of ours that runs such a program ("" where none does)."""

    system: str
    instead: str = ""


TRAINING_OPERATOR = "the Kubeflow Training Operator"
# (group, kind) of workloads that a person may take for a job of ours.
WORKLOADS = {
    ("kubeflow.org", "PyTorchJob"): Other(TRAINING_OPERATOR, "ElasticJob"),
    ("kubeflow.org", "TFJob"): Other(TRAINING_OPERATOR, "TfJob"),
    ("kubeflow.org", "MXJob"): Other(TRAINING_OPERATOR, "MxJob"),
    ("kubeflow.org", "MPIJob"): Other("the MPI Operator of Kubeflow"),
    ("kubeflow.org", "XGBoostJob"): Other(TRAINING_OPERATOR),
    ("kubeflow.org", "PaddleJob"): Other(TRAINING_OPERATOR),
    ("kubeflow.org", "JAXJob"): Other(TRAINING_OPERATOR),
    ("kubeflow.org", "Experiment"): Other("Kubeflow Katib"),
    ("kubeflow.org", "Notebook"): Other("Kubeflow Notebooks"),
    ("trainer.kubeflow.org", "TrainJob"): Other("the Kubeflow Trainer"),
    ("trainer.kubeflow.org", "TrainingRuntime"): Other("the Kubeflow Trainer"),
    ("trainer.kubeflow.org", "ClusterTrainingRuntime"): Other("the Kubeflow Trainer"),
    ("batch.volcano.sh", "Job"): Other("Volcano"),
    ("flow.volcano.sh", "JobFlow"): Other("Volcano"),
    ("ray.io", "RayJob"): Other("KubeRay"),
    ("ray.io", "RayCluster"): Other("KubeRay"),
    ("ray.io", "RayService"): Other("KubeRay"),
    ("argoproj.io", "Workflow"): Other("Argo Workflows"),
    ("argoproj.io", "CronWorkflow"): Other("Argo Workflows"),
    ("argoproj.io", "WorkflowTemplate"): Other("Argo Workflows"),
    ("tekton.dev", "PipelineRun"): Other("Tekton"),
    ("jobset.x-k8s.io", "JobSet"): Other("JobSet"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): Other("LeaderWorkerSet"),
    ("serving.kserve.io", "InferenceService"): Other("KServe"),
    ("serving.knative.dev", "Service"): Other("Knative"),
    ("sparkoperator.k8s.io", "SparkApplication"): Other("the Spark Operator"),
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
"""By group: the kinds of Kubernetes itself."""


def explain(api_version: str, kind: str, ours: Iterable[Kind]) -> str:
    """The sentence for an object that is probably meant as a job, "" for any other: what it needs, or is not ours."""
    group = api_version.rpartition("/")[0]
    known = tuple(ours)
    called = f"{api_version} {kind}"
    if other := WORKLOADS.get((group, kind)):
        same = next((one for one in known if one.gvk.kind == other.instead), None)
        instead = f"write it as {_a(same.gvk.kind)} ({same.gvk.api_version}), or " if same else ""
        text = f"{called} is a kind of {other.system}, which Trainyard does not run yet"
        return f"{text}; {instead}apply it with kubectl to a cluster that has its operator; {kinds_that_run(known)}"
    if named := [one for one in known if one.gvk.kind == kind]:
        return f"{called} is not known; write {' or '.join(map(_written, named))}"
    if meant := _misspelt(group, kind, known):
        return f"{called} is not known; write {_written(meant)}"
    if any((one.gvk.group, one.gvk.kind + "List") == (group, kind) for one in known):
        return f"{called} has no items; write items, a list with the jobs"
    here = [one.gvk.kind for one in known if one.gvk.group == group]
    if here:
        return f"{called} is not known; of {group} runs here: {', '.join(here)}; {kinds_that_run(known)}"
    return ""


def what_it_is(api_version: str, kind: str) -> str:
    """A few words about a kind that is no job: `Deployment (apps/v1), a built-in kind of Kubernetes`."""
    group = api_version.rpartition("/")[0]
    if kind.endswith("List") and len(kind) > len("List"):
        return f"{kind} ({api_version}) without items"
    if kind == "List":
        return "a List without items"
    built_in = kind in BUILT_IN.get(group, "").split()
    return f"{kind} ({api_version})" + (", a built-in kind of Kubernetes" if built_in else "")


def kinds_that_run(ours: Iterable[Kind]) -> str:
    versions: dict[str, list[str]] = {}
    for one in ours:
        versions.setdefault(one.gvk.kind, []).append(one.gvk.api_version)
    return "kinds that run here: " + ", ".join(f"{kind} ({' or '.join(each)})" for kind, each in versions.items())


def _misspelt(group: str, kind: str, known: tuple[Kind, ...]) -> Kind | None:
    """The kind of ours that is written almost so: under its own group, or under one that nobody has."""
    for word in (kind, kind.removesuffix("s")):
        if name := nearest(word, sorted({one.gvk.kind for one in known})):
            near = [one for one in known if one.gvk.kind == name]
            same = [one for one in near if one.gvk.group == group]
            if same or nearest(group, [one.gvk.group for one in near]):
                return (same or near)[0]
            exact = name.lower() == word.lower()
            owned = any(group == other for other, _ in WORKLOADS) or group in BUILT_IN
            return near[0] if exact and not owned else None
    return None


def _written(kind: Kind) -> str:
    return f"apiVersion: {kind.gvk.api_version} and kind: {kind.gvk.kind}"


def _a(word: str) -> str:
    return f"{'an' if word.startswith(('A', 'E', 'I', 'O', 'U', 'Mx')) else 'a'} {word}"
