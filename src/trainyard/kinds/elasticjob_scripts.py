"""The ElasticJob of a script: torch with its launcher, JAX and plain programs without a rendezvous."""

from __future__ import annotations

from trainyard.core.scripts import JobOptions, ProgramCommand, ScriptFramework
from trainyard.kinds.script_templates import job_object, pod_template
from trainyard.objects import Json

PYTHON = "python"
"""The interpreter, resolved by PATH: that of the image on a cluster, that of --python on this machine."""
MASTER_PORT = 29500
"""The default of torch.distributed."""
MAX_RESTARTS = 3
"""--max_restarts of an elastic job: how often it survives the loss of a worker. The default of torchelastic."""
COORDINATOR_PORT = 8476
"""The port that JAX's own cluster detection uses."""


def _elastic_job(options: JobOptions, spec: Json, template: Json, restart: str = "Never") -> Json:
    elastic_spec = {"cleanPodPolicy": "Running", **spec}
    worker_spec = {"replicas": options.workers, "restartPolicy": restart, "template": template}
    return job_object(
        "elastic.pytorch.org/v1alpha1", "ElasticJob", options, {**elastic_spec, "replicaSpecs": {"Worker": worker_spec}}
    )


def _torch_job(program: ProgramCommand, options: JobOptions) -> Json:
    command = (PYTHON, "-m", "torch.distributed.run")
    # A worker that loses a peer fails, too: without restarts the loss of one worker would end all of them.
    restart_args = (f"--max_restarts={MAX_RESTARTS}",) if options.worker_bounds else ()
    args = (f"--nproc_per_node={options.processes}", *restart_args, *program.torchrun_args)
    template = pod_template(options, "elasticjob-worker", command, args=args)
    min_replicas, max_replicas = options.worker_bounds or (options.workers, options.workers)
    spec = {"rdzvBackend": "c10d", "minReplicas": min_replicas, "maxReplicas": max_replicas}
    # A job with bounds continues with fewer workers, so a killed worker may be restarted.
    return _elastic_job(options, spec, template, "ExitCode" if options.worker_bounds else "Never")


def _plain_job(program: ProgramCommand, options: JobOptions) -> Json:
    env = {
        "RANK": _replica_index(),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(options.workers),
        "MASTER_ADDR": f"{options.name}-worker-0",
        "MASTER_PORT": str(MASTER_PORT),
    }
    template = pod_template(options, "elasticjob-worker", program.command, env=env)
    return _elastic_job(options, {"rdzvBackend": "none"}, template)


def _jax_job(program: ProgramCommand, options: JobOptions) -> Json:
    env = {
        "JAX_COORDINATOR_ADDRESS": f"{options.name}-worker-0:{COORDINATOR_PORT}",
        "JAX_NUM_PROCESSES": str(options.workers),
        "JAX_PROCESS_ID": _replica_index(),
    }
    template = pod_template(options, "elasticjob-worker", program.command, env=env)
    return _elastic_job(options, {"rdzvBackend": "none"}, template)


def _replica_index() -> Json:
    """The env source (downward API) of the worker's index, a pod label that the operator sets."""
    return {"valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['replica-index']"}}}


_TORCH_MODULES = (
    "torch", "torchvision", "torchaudio", "lightning", "pytorch_lightning", "accelerate", "deepspeed", "fastai",
    "timm", "ignite", "transformers", "sentence_transformers",
)  # fmt: skip
SCRIPTS = (
    ScriptFramework("jax", _jax_job, ("jax", "flax", "optax", "haiku", "equinox"), 4),
    ScriptFramework("torch", _torch_job, _TORCH_MODULES, 5, starts_processes=True, is_elastic=True),
    ScriptFramework("plain", _plain_job, (), 7),
)
