"""What is refused of TrainJobs and runtimes beyond their definitions, in the words of Trainer's webhooks.

`refusals` needs the runtime, which a rule of a definition cannot read. Trainer validates the runtime with the job's
patches merged into it, so that it accepts a patch for a replicated job or container that the runtime does not have, and
then renders no job; ours is refused with the text that Trainer has for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainyard.kinds.pods.templates import whole_number
from trainyard.kinds.trainjob import torchtune
from trainyard.kinds.trainjob.definitions import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME
from trainyard.kinds.trainjob.ml_policies import processes_per_node
from trainyard.kinds.trainjob.mpi import launcher_is_node
from trainyard.kinds.trainjob.pod_groups import VOLCANO_QUEUE
from trainyard.kinds.trainjob.pod_sets import DATASET, LAUNCHER, MODEL, NODE, TRAINER, PodSet, Rendered
from trainyard.kinds.trainjob.render import INITIALIZERS, open_rendering
from trainyard.kinds.trainjob.spec import GROUP
from trainyard.objects import Json, Problem, labels_of
from trainyard.objects.patterns import lazy_pattern

TORCH_RESERVED = ("PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE")
XGBOOST_RESERVED = ("DMLC_NUM_WORKER", "DMLC_TASK_ID", "DMLC_TRACKER_PORT", "DMLC_TRACKER_URI")
MPI_RESERVED = (
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_orte_keep_fqdn_hostnames",
    "OMPI_MCA_orte_set_default_slots",
    "OMPI_MCA_plm_rsh_args",
)
MODELS = ("llama3_2/1B", "llama3_2/3B", "llama3_3/70B", "qwen2_5/1.5B")
QWEN, LARGEST = "qwen2_5/1.5B", "llama3_3/70B"
INITIALIZER_VOLUME = "initializer"
VALIDATION = f"{GROUP}/webhook-validation"
"""The label of a runtime by whose value `disabled` the runtime is not checked."""
POLICY_URL = "https://trainer.kubeflow.org/en/latest/operator-guides/runtime.html#runtime-deprecation-policy"
DEPRECATED = (
    "is deprecated and will be removed in a future release of Kubeflow Trainer. See runtime deprecation policy: "
    + POLICY_URL
)
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_MANAGER = lazy_pattern(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


def unsupported_runtime(reference: Json) -> str:
    """Why there can be no such runtime, "" if there can be."""
    kind, group = reference.get("kind", CLUSTER_TRAINING_RUNTIME.kind), reference.get("apiGroup", GROUP)
    known = group == GROUP and kind in (CLUSTER_TRAINING_RUNTIME.kind, TRAINING_RUNTIME.kind)
    return "" if known else f"unsupported runtime: {kind}.{group}" if group else f"unsupported runtime: {kind}"


def missing_runtime(reference: Json) -> Problem:
    """The refusal of a job whose runtime does not exist."""
    kind, name = reference.get("kind", CLUSTER_TRAINING_RUNTIME.kind), reference["name"]
    field = "RuntimeRef" if kind == CLUSTER_TRAINING_RUNTIME.kind else "runtimeRef"  # as Trainer spells it
    text = "must be created before the TrainJob is created"
    return Problem(f"spec.{field}", f'{kind}.{GROUP} "{name}" not found: specified {kind[0].lower()}{kind[1:]} {text}')


def warnings(runtime: Json) -> list[str]:
    """The warnings of an accepted job."""
    labels = runtime["metadata"].get("labels") or {}
    is_old = runtime["kind"] == CLUSTER_TRAINING_RUNTIME.kind and labels.get(f"{GROUP}/support") == "deprecated"
    name = runtime["metadata"]["name"]
    return [f'Referenced ClusterTrainingRuntime "{name}" {DEPRECATED}'] if is_old else []


def refusals(job: Json, runtime: Json, old: Json | None = None, active: frozenset[str] = frozenset()) -> list[Problem]:
    """Why the job cannot be stored. `old`: the stored job, None for a new one; `active`: the replicated jobs of which
    pods run."""
    rendered = open_rendering(job, runtime)
    unpatched = open_rendering({**job, "spec": {**job["spec"], "runtimePatches": []}}, runtime)
    problems = [*_initializers(rendered), *_changed_patches(job, old, active), *_patches(job, unpatched)]
    policy = rendered.policy
    if policy.get("torch") is not None:
        problems += _torch(rendered)
    if policy.get("mpi") is not None:
        problems += _mpi(rendered)
    if policy.get("xgboost") is not None:
        problems += _xgboost(rendered)
    if rendered.pod_groups.get("volcano") is not None:
        problems += _volcano(rendered)
    return problems


def runtime_refusals(runtime: Json) -> list[Problem]:
    """Why a runtime cannot be stored. Trainer does not check an updated TrainingRuntime; ours is checked."""
    problems = []
    containers = {TRAINER: NODE, DATASET: DATASET, MODEL: MODEL}
    jobs = ((runtime["spec"].get("template") or {}).get("spec") or {}).get("replicatedJobs") or ()
    for index, document in enumerate(jobs):
        pod_set, path = PodSet(document, 1), f"spec.template.spec.replicatedJobs[{index}]"
        if pod_set.ancestor not in containers:
            continue
        if document.get("replicas", 1) != 1:
            problems.append(Problem(f"{path}.replicas", "always must be 1"))
        if pod_set.container(containers[pod_set.ancestor]) is None:
            text = f"must contain the required container for the ancestor: {pod_set.ancestor}"
            problems.append(Problem(f"{path}.template.spec.template.spec.containers", text))
    return problems


def unusable_runtime(runtime: Json) -> list[Problem]:
    """Why no job can have this runtime, as problems of the job. A label of the runtime switches that off."""
    if labels_of(runtime).get(VALIDATION) == "disabled":
        return []
    name = f"{runtime['kind']} {runtime['metadata']['name']}"
    return [Problem("spec.runtimeRef", f"{name}: {problem}") for problem in runtime_refusals(runtime)]


def _initializers(rendered: Rendered) -> Iterator[Problem]:
    """A replicated job, container and mount for each initializer of the job. They are looked up by name; what they get
    goes by the label."""
    stated = rendered.job["spec"].get("initializer") or {}
    for name, field in INITIALIZERS.items():
        if stated.get(field) is None:
            continue
        pod_set = rendered.named(name)
        container = pod_set.container(name) if pod_set else None
        in_init = pod_set.container(name, with_init=True) if pod_set else None
        if pod_set is None:
            text = f"must have {name} job when trainJob is configured with input {field}Config"
        elif in_init is None:
            text = f"must have container with name - {name} in the {name} job"
        elif INITIALIZER_VOLUME not in [mount.get("name") for mount in (container or {}).get("volumeMounts") or ()]:
            text = f"must have volumeMount with name - {INITIALIZER_VOLUME} in container {name} of the {name} job"
        else:
            continue
        yield Problem("spec.runtimeRef", text)


def _changed_patches(job: Json, old: Json | None, active: frozenset[str]) -> Iterator[Problem]:
    if old is None or job["spec"].get("runtimePatches") == old["spec"].get("runtimePatches"):
        return
    if not any(version["spec"].get("suspend") is True for version in (old, job)):
        text = "RuntimePatches can only be modified when the TrainJob is suspended before or after the update"
        yield Problem("spec.runtimePatches", f"Forbidden: {text}")
        return
    for name in sorted(active):
        text = f"RuntimePatches cannot be modified when the JobSet's ReplicatedJob {name} is still active"
        yield Problem("spec.runtimePatches", f"Forbidden: {text}")


def _patches(job: Json, unpatched: Rendered) -> Iterator[Problem]:
    for patch in job["spec"].get("runtimePatches") or ():
        if _MANAGER.fullmatch(patch["manager"]) is None:
            yield Problem("spec.runtimePatches.manager", _manager_text(patch["manager"]))
        spec = ((patch.get("trainingRuntimeSpec") or {}).get("template") or {}).get("spec") or {}
        for replicated_job in spec.get("replicatedJobs") or ():
            for text in _patch_texts(unpatched, replicated_job):
                yield Problem("spec.runtimePatches", text)


def invalid_managers(job: Json) -> list[str]:
    """The managers of patches that are no domains with a path, in their order."""
    managers: list[str] = [patch["manager"] for patch in job["spec"].get("runtimePatches") or ()]
    return [manager for manager in managers if _MANAGER.fullmatch(manager) is None]


def _manager_text(manager: str) -> str:
    """Why it is no domain with a path."""
    domain, slash, path = manager.partition("/")
    if not slash or not domain or not path:
        return 'must be a domain-prefixed path (such as "acme.io/foo")'
    if re.fullmatch(rf"{_DNS_LABEL}(\.{_DNS_LABEL})*", domain) is None:
        return (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
            "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
            f"'{_DNS_LABEL}(\\.{_DNS_LABEL})*')"
        )
    return "Invalid path"


def _patch_texts(unpatched: Rendered, replicated_job: Json) -> Iterator[str]:
    name = replicated_job["name"]
    pod_set = unpatched.named(name)
    if pod_set is None:
        yield "must not have replicated job that doesn't exist in the runtime job template"
        return
    pod = PodSet(replicated_job, 1).pod_spec if replicated_job.get("template") else {}
    for field, word in (("initContainers", "initContainer"), ("containers", "container")):
        for container in pod.get(field) or ():
            if pod_set.container(container["name"], with_init=True) is None:
                yield f"must not have {word} that doesn't exist in the runtime job {name}"
            elif field == "containers" and container.get("env") and container["name"] in (DATASET, MODEL, NODE):
                yield f"must not have envs for the {DATASET}, {MODEL}, {NODE} containers"


def _reserved(rendered: Rendered, names: tuple[str, ...]) -> list[Problem]:
    used = sorted({item["name"] for item in rendered.trainer.get("env") or ()} & set(names))
    text = f"must not have reserved envs, invalid envs configured: [{' '.join(used)}]"
    return [Problem("spec.trainer.env", text)] if used else []


def _torch(rendered: Rendered) -> list[Problem]:
    problems = []
    for target in (rendered.policy["torch"].get("envInjection") or {}).get("targets") or ():
        pod_set = rendered.named(target["jobName"])
        for name in target["containerNames"]:
            if pod_set is None or pod_set.container(name, with_init=True) is None:
                where = f'podSet "{target["jobName"]}" container "{name}"'
                text = f"envInjection target {where} not found in runtime template"
                problems.append(Problem("spec.runtimeRef", text))
    problems += _reserved(rendered, TORCH_RESERVED)
    return [*problems, *_tune(rendered)] if torchtune.is_used(rendered.trainer) else problems


def _tune(rendered: Rendered) -> Iterator[Problem]:
    trainer, name = rendered.trainer, rendered.job["spec"]["runtimeRef"]["name"]
    args, model = trainer.get("args") or [], torchtune.model_of(name)
    stated = whole_number(trainer.get("numNodes"))
    nodes = 1 if stated is None else stated
    if model not in MODELS:
        yield Problem(
            "spec.runtimeRef.name", f"must have a supported pretrained model, invalid model configured: {model}"
        )
    if nodes > 1 and model != LARGEST:
        yield Problem("spec.trainer.numNodes", f"must be 1 for {model} model")
    processes: Any = trainer.get("numProcPerNode") or processes_per_node(rendered)
    config = torchtune.recipe_and_config(rendered, nodes, processes)[1]
    if "_qlora" in config and model == QWEN:
        yield Problem("spec.runtimeRef.name", f"QLoRA is not supported for {model} model")
    if "_qlora" in config and "_single_device" not in config and model in ("llama3_2/1B", "llama3_2/3B"):
        yield Problem("spec.trainer.numProcPerNode", f"must be auto or 1 for {model} model when using QLoRA")
        text = f"must have gpu resource with value 1 for {model} model when using QLoRA"
        yield Problem("spec.trainer.resourcesPerNode", text)
    if nodes > 1 and torchtune.method(args) != "full":
        text = "LoRA fine-tuning is not supported for multi-node training in TorchTune"
        yield Problem("spec.trainer.numNodes", text)
    for index, arg in enumerate(args):
        if (key := arg.partition("=")[0]) in torchtune.FIXED:
            text = f'must not set immutable config "{key}" in trainer args; it is managed by the runtime'
            yield Problem(f"spec.trainer.args[{index}]", text)


def _mpi(rendered: Rendered) -> list[Problem]:
    problems = []
    has_both = rendered.named(LAUNCHER) is not None and rendered.named(NODE) is not None
    if (rendered.num_nodes or 1) >= 2 and launcher_is_node(rendered.policy) and not has_both:
        text = (
            "must have 1 when MPI trainingRuntime with enabled runLauncherAsNode does not have either launcher and node"
        )
        problems.append(Problem("spec.trainer.numNodes", text))
    return problems + _reserved(rendered, MPI_RESERVED)


def _xgboost(rendered: Rendered) -> Iterator[Problem]:
    for index, item in enumerate(rendered.trainer.get("env") or ()):
        if item["name"] in XGBOOST_RESERVED:
            text = f"Forbidden: {item['name']} is reserved for the XGBoost runtime"
            yield Problem(f"spec.trainer.env[{index}]", text)


def _volcano(rendered: Rendered) -> Iterator[Problem]:
    """Whether a PriorityClass exists is left to the scheduler: a rule reads the job and its runtime alone."""
    if rendered.annotations.get(VOLCANO_QUEUE) == "":
        path = f"spec.annotations[{VOLCANO_QUEUE}]"
        yield Problem(path, "Volcano queue name must not be empty")
