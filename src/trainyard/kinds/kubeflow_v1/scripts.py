"""The jobs of scripts: torch as PyTorchJob, TensorFlow as TFJob, JAX as JAXJob, XGBoost and LightGBM as XGBoostJob, and
mpi4py and Horovod as MPIJob."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainyard.core.scripts import JobOptions, ProgramCommand, ScriptFramework, SourcePattern
from trainyard.kinds.default_ps import SERVER_PROGRAM
from trainyard.kinds.kubeflow_v1.lifecycle import ALL_REPLICAS, SUCCESS_GRACE, SUCCESS_POLICY
from trainyard.kinds.kubeflow_v1.pods import REPLICA_INDEX
from trainyard.kinds.mpi_variables import MPI_ENV, ONE_POD_ENV, WAIT_FOR_COMMANDS
from trainyard.kinds.script_templates import job_object, pod_template
from trainyard.objects import Json

PYTHON = "python"
"""The interpreter, resolved by PATH: that of the image on a cluster, that of --python on this machine."""
TORCHRUN = (PYTHON, "-m", "torch.distributed.run")
JAX_INITIALIZE = (
    'jax.distributed.initialize(os.environ["JAX_COORDINATOR_ADDRESS"], int(os.environ["JAX_NUM_PROCESSES"]), '
    'int(os.environ["JAX_PROCESS_ID"]))'
)
"""How a program joins the other processes of a generated JAXJob."""
MAX_RESTARTS = 3
"""maxRestarts of an elastic job: how often it survives the loss of a worker. The default of torchelastic."""
STORE_TIMEOUT = "900"
"""Seconds that elastic workers wait for the store in Worker 0, which may still pull its image; torch waits 60."""
TENSORFLOW_PORT, JAX_PORT = 2222, 6666  # of the kinds
WORKER_COMMAND = ("sh", "-c", WAIT_FOR_COMMANDS)
"""Of an MPI worker, in which the launcher executes: that of the kind for a worker without a command."""
RUN_POLICY: Json = {"cleanPodPolicy": "Running"}
"""The first failure stops all. Parameter servers and their workers never exit by themselves."""
AGENT_GRACE = "30"
"""Seconds in which the agents of an elastic job end after the first: two, on a loaded machine."""
ALL_SUCCEED = {SUCCESS_POLICY: ALL_REPLICAS}
"""The annotation of a job whose replicas all end by themselves: none is stopped because its leader has ended."""
INDEX_SOURCE: Json = {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{REPLICA_INDEX}']"}}}
"""The env source (downward API) of the replica's index in its role."""


def _replica_set(replicas: int, template: Json, restart_policy: str = "Never") -> Json:
    return {"replicas": replicas, "restartPolicy": restart_policy, "template": template}


def _leader_and_workers(leader: str, options: JobOptions, template: Json) -> Json:
    """One leader, and the rest of `options.workers` as Worker."""
    sets = {leader: _replica_set(1, template)}
    return {**sets, "Worker": _replica_set(options.workers - 1, template)} if options.workers > 1 else sets


def _training_job(
    kind: str, options: JobOptions, spec: Json, all_succeed: bool = False, annotations: Mapping[str, str] | None = None
) -> Json:
    if all_succeed and options.workers > 1:
        annotations = ALL_SUCCEED
    return job_object("kubeflow.org/v1", kind, options, {"runPolicy": RUN_POLICY, **spec}, annotations)


def _torch_job(program: ProgramCommand, options: JobOptions) -> Json:
    template = (
        pod_template(options, "pytorch", program.command)
        if program.has_launcher
        else pod_template(options, "pytorch", TORCHRUN, args=program.torchrun_args)
    )
    spec: Json = {"nprocPerNode": str(options.processes)}
    if options.worker_bounds is None:
        spec["pytorchReplicaSpecs"] = _leader_and_workers("Master", options, template)
        return _training_job("PyTorchJob", options, spec, all_succeed=True)
    low, high = options.worker_bounds
    # A worker that loses a peer fails, too: without restarts the loss of one worker would end all of them.
    spec["elasticPolicy"] = {
        "minReplicas": low,
        "maxReplicas": high,
        "rdzvBackend": "c10d",
        "rdzvConf": [{"key": "read_timeout", "value": STORE_TIMEOUT}],
        "maxRestarts": MAX_RESTARTS,
    }
    # A job with bounds continues with fewer workers, so a killed worker may be restarted.
    spec["pytorchReplicaSpecs"] = {"Worker": _replica_set(options.workers, template, "ExitCode")}
    return _training_job("PyTorchJob", options, spec, annotations={SUCCESS_GRACE: AGENT_GRACE})


def _tensorflow_job(program: ProgramCommand, options: JobOptions) -> Json:
    env: dict[str, Any] = {}
    if options.workers == 1 and not options.servers:  # the operator sets TF_CONFIG for two and more
        cluster = {"chief": [f"{options.name}-chief-0:{TENSORFLOW_PORT}"]}
        task = {"type": "chief", "index": 0}
        env["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task}, separators=(",", ":"))
    sets = _leader_and_workers("Chief", options, pod_template(options, "tensorflow", program.command, env=env))
    if options.servers:
        server = pod_template(options, "tensorflow", (PYTHON, "-c", SERVER_PROGRAM), computes=False)
        sets["PS"] = _replica_set(options.servers, server)
    return _training_job("TFJob", options, {"tfReplicaSpecs": sets}, all_succeed=not options.servers)


def _jax_job(program: ProgramCommand, options: JobOptions) -> Json:
    # The operator's variables have no prefix; jax.distributed reads those with it.
    env = {
        "JAX_COORDINATOR_ADDRESS": f"{options.name}-worker-0:{JAX_PORT}",
        "JAX_NUM_PROCESSES": str(options.workers),
        "JAX_PROCESS_ID": INDEX_SOURCE,
    }
    template = pod_template(options, "jax", program.command, env=env)
    sets = {"Worker": _replica_set(options.workers, template)}
    return _training_job("JAXJob", options, {"jaxReplicaSpecs": sets})


def _xgboost_job(program: ProgramCommand, options: JobOptions) -> Json:
    template = pod_template(options, "xgboost", program.command)
    sets = _leader_and_workers("Master", options, template)
    return _training_job("XGBoostJob", options, {"xgbReplicaSpecs": sets}, all_succeed=True)


def _mpi_job(program: ProgramCommand, options: JobOptions) -> Json:
    processes = options.workers * options.processes
    # One worker: all processes are in the launcher.
    is_alone = options.workers == 1
    env = MPI_ENV | ONE_POD_ENV if is_alone else MPI_ENV
    if program.has_launcher:
        launcher = pod_template(options, "mpi", program.command, env=env, computes=is_alone)
    elif processes == 1:
        launcher = pod_template(options, "mpi", program.command)
    else:
        command = ("mpiexec", "-n", str(processes), *program.command)
        launcher = pod_template(options, "mpi", command, env=env, computes=is_alone)
    sets = {"Launcher": _replica_set(1, launcher)}
    if options.workers > 1:
        sets["Worker"] = _replica_set(options.workers, pod_template(options, "mpi", WORKER_COMMAND, env=MPI_ENV))
    return _training_job("MPIJob", options, {"slotsPerWorker": options.processes, "mpiReplicaSpecs": sets})


_TORCH_MODULES = (
    "torch", "torchvision", "torchaudio", "lightning", "pytorch_lightning", "accelerate", "deepspeed", "fastai",
    "timm", "ignite", "transformers", "sentence_transformers",
)  # fmt: skip
_TORCH_JOINS = SourcePattern(
    r"distributed|init_process_group|ccelerat|ightning|Trainer|deepspeed|fastai|ignite|RANK|WORLD_SIZE|DDP|FSDP",
    "torch.distributed.init_process_group, an Accelerator, a Trainer",
)
_TENSORFLOW_JOINS = SourcePattern(
    r"MultiWorkerMirrored|ParameterServer|CollectiveAllReduce|TF_CONFIG|ClusterResolver|tf\.train\.Server",
    "tf.distribute.MultiWorkerMirroredStrategy",
)
_JAX_JOINS = SourcePattern(r"distributed|multihost", "jax.distributed.initialize")
_JAX_MISTAKES = (
    SourcePattern(
        r"distributed\.initialize\(\s*\)",
        "calls jax.distributed.initialize() without arguments, but JAX reads no variables for the number of processes "
        f"and its own: write {JAX_INITIALIZE}",
    ),
)
_XGBOOST_JOINS = SourcePattern(
    r"collective|[Rr]abit|dask|spark|RANK|WORLD_SIZE|WORKER_ADDRS|machines", "xgboost.collective, machines of LightGBM"
)
_XGBOOST_MISTAKES = (
    SourcePattern(
        r"(?:collective\.init|CommunicatorContext)\(\s*\)",
        "joins without arguments, and XGBoost reads no variables DMLC_*: pass dmlc_tracker_uri and dmlc_tracker_port "
        "of the tracker that rank 0 starts, and dmlc_task_id",
    ),
)
MPI = (ScriptFramework("mpi4py", _mpi_job, ("mpi4py", "horovod"), 2, starts_processes=True),)
_JAX_MODULES = ("jax", "flax", "optax", "haiku", "equinox")
_TENSORFLOW_MODULES = ("tensorflow", "keras", "tf_keras")
_XGBOOST_MODULES = ("xgboost", "lightgbm")
JAX = (ScriptFramework("jax", _jax_job, _JAX_MODULES, 4, joins=_JAX_JOINS, mistakes=_JAX_MISTAKES),)
TORCH = (
    ScriptFramework("torch", _torch_job, _TORCH_MODULES, 5, starts_processes=True, is_elastic=True, joins=_TORCH_JOINS),
)
TENSORFLOW = (
    ScriptFramework("tensorflow", _tensorflow_job, _TENSORFLOW_MODULES, 6, has_servers=True, joins=_TENSORFLOW_JOINS),
)
XGBOOST = (
    ScriptFramework("xgboost", _xgboost_job, _XGBOOST_MODULES, 7, joins=_XGBOOST_JOINS, mistakes=_XGBOOST_MISTAKES),
)
