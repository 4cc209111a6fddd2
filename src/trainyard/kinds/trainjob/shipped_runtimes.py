"""The ClusterTrainingRuntimes that Trainer 2.3.0 ships, and the ConfigMap by which its SDK recognises an installation.

On one machine the image catalogue says what each image of a runtime is there, so the documents are the same everywhere.
Not here: `torch-distributed-with-cache`, which needs LeaderWorkerSet and which Trainer installs on request alone.
"""

from __future__ import annotations

from typing import Any

from trainyard.kinds.trainjob.admission import VALIDATION
from trainyard.kinds.trainjob.definitions import CLUSTER_TRAINING_RUNTIME
from trainyard.kinds.trainjob.pod_sets import ANCESTOR, DATASET, LAUNCHER, MODEL, NODE, TRAINER
from trainyard.kinds.trainjob.render import STORAGE_URI
from trainyard.kinds.trainjob.spec import GROUP
from trainyard.objects import Json

VERSION = "v2.3.0"
NAMESPACE, PUBLIC = "kubeflow-system", "kubeflow-trainer-public"
FRAMEWORK = f"{GROUP}/framework"
"""The label of a runtime without which the SDK does not list it."""
_OWN_IMAGES = "ghcr.io/kubeflow/trainer"
_MPI_HOME = "/home/mpiuser"
_SSH_PORT = 2222
_WORKSPACE = "/workspace"
_VOLUME = "initializer"
_LLAMA_TOKENIZER = (f"tokenizer.path={_WORKSPACE}/model/original/tokenizer.model",)
_QWEN_TOKENIZER = (
    f"tokenizer.path={_WORKSPACE}/model/vocab.json",
    f"tokenizer.merges_file={_WORKSPACE}/model/merges.txt",
)


def shipped_runtimes() -> list[Json]:
    """All of them, by name."""
    return [
        _mpi("deepspeed"),
        _single_role("jax", "nvcr.io/nvidia/jax:25.10-py3"),
        _mpi("mlx"),
        _single_role("torch", "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"),
        _torchtune("llama3.2-1b", "llama3_2/1B", "meta-llama/Llama-3.2-1B-Instruct", _LLAMA_TOKENIZER),
        _torchtune("llama3.2-3b", "llama3_2/3B", "meta-llama/Llama-3.2-3B-Instruct", _LLAMA_TOKENIZER),
        _torchtune("qwen2.5-1.5b", "qwen2_5/1.5B", "Qwen/Qwen2.5-1.5B-Instruct", _QWEN_TOKENIZER),
        _single_role("xgboost", _own_image("xgboost-runtime")),
    ]


def public_objects() -> list[Json]:
    """The namespace of an installation, and in it the version, which every user of the cluster may read: the SDK warns
    where it cannot."""
    rbac, metadata = "rbac.authorization.k8s.io", {"name": PUBLIC, "namespace": NAMESPACE}
    rule = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [PUBLIC],
        "verbs": ["get", "list", "watch"],
    }
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {"kubeflow_trainer_version": VERSION},
        },
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": PUBLIC},
            "subjects": [{"apiGroup": rbac, "kind": "Group", "name": "system:authenticated"}],
        },
    ]


def _own_image(name: str) -> str:
    return f"{_OWN_IMAGES}/{name}:{VERSION}"


def _runtime(name: str, framework: str, policy: Json, *replicated_jobs: Json, **job_set: Any) -> Json:
    return {
        "apiVersion": CLUSTER_TRAINING_RUNTIME.api_version,
        "kind": CLUSTER_TRAINING_RUNTIME.kind,
        "metadata": {"name": name, "labels": {FRAMEWORK: framework, VALIDATION: "disabled"}},
        "spec": {
            "mlPolicy": {"numNodes": 1, **policy},
            "template": {"spec": {**job_set, "replicatedJobs": list(replicated_jobs)}},
        },
    }


def _replicated_job(name: str, ancestor: str, container: Json, pod: Json | None = None, **fields: Any) -> Json:
    template: Json = {"metadata": {"labels": {ANCESTOR: ancestor}}} if ancestor else {}
    template["spec"] = {"template": {"spec": {**(pod or {}), "containers": [container]}}}
    return {"name": name, **fields, "template": template}


def _dependencies(status: str, *names: str) -> list[Json]:
    return [{"name": name, "status": status} for name in names]


def _single_role(framework: str, image: str) -> Json:
    node = _replicated_job(NODE, TRAINER, {"name": NODE, "image": image})
    return _runtime(f"{framework}-distributed", framework, {framework: {}}, node)


def _mpi(framework: str) -> Json:
    """The launcher is a node, too; the others serve ssh."""
    container = {
        "name": NODE,
        "image": _own_image(f"{framework}-runtime"),
        "securityContext": {"runAsUser": 1000},
    }
    server = {
        **container,
        "command": ["/usr/sbin/sshd"],
        "args": ["-De", "-f", f"{_MPI_HOME}/.sshd_config"],
        "readinessProbe": {"tcpSocket": {"port": _SSH_PORT}, "initialDelaySeconds": 5},
    }
    pod = {"securityContext": {"fsGroup": 1000}}
    policy = {
        "numProcPerNode": 1,
        "mpiImplementation": "OpenMPI",
        "sshAuthMountPath": f"{_MPI_HOME}/.ssh",
        "runLauncherAsNode": True,
    }
    return _runtime(
        f"{framework}-distributed",
        framework,
        {"mpi": policy},
        _replicated_job(NODE, "", server, pod),
        _replicated_job(LAUNCHER, TRAINER, container, pod, dependsOn=_dependencies("Ready", NODE)),
        network={"publishNotReadyAddresses": True},
        successPolicy={"operator": "All", "targetReplicatedJobs": [LAUNCHER]},
    )


def _torchtune(name: str, config: str, repository: str, tokenizer: tuple[str, ...]) -> Json:
    """Dataset and model are downloaded into a claim that all pods mount, then the model is tuned."""
    mounts = [{"name": _VOLUME, "mountPath": _WORKSPACE}]

    def initializer(ancestor: str, source: str) -> Json:
        env = [{"name": STORAGE_URI, "value": f"hf://{source}"}]
        container = {"name": ancestor, "image": _own_image(ancestor), "env": env, "volumeMounts": mounts}
        return _replicated_job(ancestor, ancestor, container)

    command = [
        *("tune", "run", "--rdzv_endpoint=localhost:29500", "full_finetune_distributed", "--config", f"{config}_full"),
        *("dataset=torchtune.datasets.instruct_dataset", "dataset.source=parquet"),
        *(f"dataset.data_dir={_WORKSPACE}/dataset/data", f"output_dir={_WORKSPACE}/output"),
        *(*tokenizer, f"checkpointer.checkpoint_dir={_WORKSPACE}/model"),
    ]
    container = {
        "name": NODE,
        "image": _own_image("torchtune-trainer"),
        "command": command,
        "resources": {"limits": {"nvidia.com/gpu": "2"}},
        "volumeMounts": mounts,
    }
    claim_spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Gi"}}}
    return _runtime(
        f"torchtune-{name}",
        "torchtune",
        {"torch": {}},
        initializer(DATASET, "tatsu-lab/alpaca"),
        initializer(MODEL, repository),
        _replicated_job(NODE, TRAINER, container, dependsOn=_dependencies("Complete", DATASET, MODEL)),
        volumeClaimPolicies=[{"templates": [{"metadata": {"name": _VOLUME}, "spec": claim_spec}]}],
    )
