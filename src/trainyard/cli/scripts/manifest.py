"""Job objects for each framework: manifests that run on this machine and, with another image, on a cluster. Pure.

Rules:
- One failure ends the job: a script is run once, because a retry of a broken script hides the first failure. Disrupted
  pods (their node is drained) are replaced and do not count as failures.
- The command names files relative to the working directory, so that the same manifest is valid with an image.
- The addresses and indexes of the replicas come from the operator or the downward API, never from this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from trainyard.cli.scripts.frameworks import PLAIN
from trainyard.cli.scripts.program import PYTHON, Program
from trainyard.objects import Json
from trainyard.objects.labels import WORKING_DIRECTORY

LOCAL_IMAGE = "trainyard/local"
"""Image name that the shipped catalogue maps to this machine's own Python and files; no cluster can pull it."""
MULTI_PROCESS_FRAMEWORKS = ("torch", "chainer", "mpi4py")
"""The frameworks whose launchers start several processes in one worker."""
PARAMETER_SERVER_FRAMEWORKS = ("tensorflow", "mxnet")
MASTER_PORT = 29500
"""The default of torch.distributed."""
MAX_RESTARTS = 3
"""--max_restarts of an elastic job: how often it survives the loss of a worker. The default of torchelastic."""
COORDINATOR_PORT = 8476
"""The port that JAX's own cluster detection uses."""
_WORKER_SET = "worker"
_WORKER_SET_SHELL = "trap exit TERM; while true; do sleep 60 & wait $!; done"


class JobOptions(msgspec.Struct, frozen=True):
    """The values of the options for a job."""

    name: str
    workers: int = 1
    servers: int = 0
    processes: int = 1
    worker_bounds: tuple[int, int] | None = None  # (minimum, maximum) number of workers of an elastic job
    image: str = LOCAL_IMAGE
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    mounts: tuple[tuple[str, str], ...] = ()  # (host path, path in the container)
    working_directory: str = ""  # "": the directory of the manifest, or the WORKDIR of the image


def job_of(framework: str, program: Program, shape: JobOptions) -> Json:
    """The job object for a program; `framework` is a key of FRAMEWORKS."""
    return _BUILDERS[framework](program, shape)


def _job_object(api_version: str, kind: str, shape: JobOptions, spec: Json) -> Json:
    metadata: Json = {"name": shape.name}
    if shape.working_directory:
        metadata["annotations"] = {WORKING_DIRECTORY: shape.working_directory}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _pod_template(
    shape: JobOptions,
    container: str,
    command: tuple[str, ...],
    *,
    args: tuple[str, ...] = (),
    env: Mapping[str, Any] | None = None,
    restart: str = "",
) -> Json:
    """A pod template with one container. A variable in `shape.env` replaces one of the same name in `env`."""
    variables = {**(env or {}), **shape.env}
    env_vars = [{"name": name, **_env_value(value)} for name, value in variables.items()]
    mounts = [{"name": f"mount-{index}", "mountPath": path} for index, (_, path) in enumerate(shape.mounts)]
    volumes = [
        {"name": f"mount-{index}", "hostPath": {"path": folder, "type": "Directory"}}
        for index, (folder, _) in enumerate(shape.mounts)
    ]
    container_spec: Json = {"name": container, "image": shape.image, "command": list(map(_escape_expansion, command))}
    container_spec |= {"args": list(map(_escape_expansion, args))} if args else {}
    container_spec |= {"env": env_vars} if env_vars else {}
    container_spec |= {"volumeMounts": mounts} if mounts else {}
    spec: Json = {"restartPolicy": restart} if restart else {}
    return {"spec": {**spec, "containers": [container_spec], **({"volumes": volumes} if volumes else {})}}


def _env_value(value: Any) -> Json:
    return {"value": _escape_expansion(value)} if isinstance(value, str) else value


def _escape_expansion(text: str) -> str:
    """Escapes $ so that Kubernetes keeps the text as it is: it expands $(NAME) to the variable's value, and $$ to $."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def _elastic_job(shape: JobOptions, spec: Json, template: Json, restart: str = "Never") -> Json:
    elastic_spec = {"cleanPodPolicy": "Running", **spec}
    worker_spec = {"replicas": shape.workers, "restartPolicy": restart, "template": template}
    return _job_object(
        "elastic.pytorch.org/v1alpha1", "ElasticJob", shape, {**elastic_spec, "replicaSpecs": {"Worker": worker_spec}}
    )


def _torch_job(program: Program, shape: JobOptions) -> Json:
    command = (PYTHON, "-m", "torch.distributed.run")
    # A worker that loses a peer fails, too: without restarts the loss of one worker would end all of them.
    restart_args = (f"--max_restarts={MAX_RESTARTS}",) if shape.worker_bounds else ()
    args = (f"--nproc_per_node={shape.processes}", *restart_args, *program.torchrun_args)
    template = _pod_template(shape, "elasticjob-worker", command, args=args)
    min_replicas, max_replicas = shape.worker_bounds or (shape.workers, shape.workers)
    spec = {"rdzvBackend": "c10d", "minReplicas": min_replicas, "maxReplicas": max_replicas}
    # A job with bounds continues with fewer workers, so a killed worker may be restarted.
    return _elastic_job(shape, spec, template, "ExitCode" if shape.worker_bounds else "Never")


def _plain_job(program: Program, shape: JobOptions) -> Json:
    env = {
        "RANK": _replica_index(),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(shape.workers),
        "MASTER_ADDR": f"{shape.name}-worker-0",
        "MASTER_PORT": str(MASTER_PORT),
    }
    template = _pod_template(shape, "elasticjob-worker", program.command, env=env)
    return _elastic_job(shape, {"rdzvBackend": "none"}, template)


def _jax_job(program: Program, shape: JobOptions) -> Json:
    env = {
        "JAX_COORDINATOR_ADDRESS": f"{shape.name}-worker-0:{COORDINATOR_PORT}",
        "JAX_NUM_PROCESSES": str(shape.workers),
        "JAX_PROCESS_ID": _replica_index(),
    }
    template = _pod_template(shape, "elasticjob-worker", program.command, env=env)
    return _elastic_job(shape, {"rdzvBackend": "none"}, template)


def _replica_index() -> Json:
    """The env source (downward API) of the worker's index, a pod label that the operator sets."""
    return {"valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['replica-index']"}}}


def _tensorflow_job(program: Program, shape: JobOptions) -> Json:
    template = _pod_template(shape, "tensorflow", program.command, restart="Never")
    items = [{"tfReplicaType": "MASTER", "replicas": 1, "template": template}]
    if shape.workers > 1:
        items.append({"tfReplicaType": "WORKER", "replicas": shape.workers - 1, "template": template})
    spec: Json = {"masterTaskType": "chief", "backoffLimit": 0}
    if shape.servers:  # they and the workers of a ParameterServerStrategy never exit by themselves
        items.append({"tfReplicaType": "PS", "replicas": shape.servers})
        spec |= {"cleanPodPolicy": "Running", "tfImage": shape.image}
    return _job_object("tensorflow.org/v1alpha1", "TfJob", shape, {**spec, "replicaSpecs": items})


def _mxnet_job(program: Program, shape: JobOptions) -> Json:
    template = _pod_template(shape, "mxnet", program.command, restart="Never")

    def replicas(kind: str, count: int) -> Json:
        return {"mxReplicaType": kind, "replicas": count, "template": template}

    if shape.workers == 1 and not shape.servers:
        spec: Json = {"jobMode": "local", "backoffLimit": 0, "replicaSpecs": [replicas("WORKER", 1)]}
    else:
        items = [replicas("SCHEDULER", 1), replicas("SERVER", max(1, shape.servers)), replicas("WORKER", shape.workers)]
        spec = {"jobMode": "dist", "backoffLimit": 0, "replicaSpecs": items}
    return _job_object("mlkube.io/v1beta1", "MxJob", shape, spec)


def _mpi_job(program: Program, shape: JobOptions) -> Json:
    processes = shape.workers * shape.processes
    # Open MPI refuses to run as root, the user of most images, unless both variables allow it. The third allows more
    # processes than cores.
    env = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    command = ("mpiexec", "-n", str(processes), *program.command) if processes > 1 else program.command
    master_template = _pod_template(shape, "chainer", command, env=env if processes > 1 else None, restart="Never")
    spec: Json = {"backend": "mpi", "backoffLimit": 0}
    spec["master"] = {"mpiConfig": {"slots": shape.processes}, "template": master_template}
    if shape.workers > 1:
        worker_template = _pod_template(shape, "chainer", ("sh", "-c", _WORKER_SET_SHELL), env=env)
        spec["workerSets"] = {
            _WORKER_SET: {
                "replicas": shape.workers - 1,
                "mpiConfig": {"slots": shape.processes},
                "template": worker_template,
            }
        }
    return _job_object("kubeflow.org/v1alpha1", "ChainerJob", shape, spec)


_BUILDERS: dict[str, Callable[[Program, JobOptions], Json]] = {
    "torch": _torch_job,
    "tensorflow": _tensorflow_job,
    "jax": _jax_job,
    "mxnet": _mxnet_job,
    "chainer": _mpi_job,
    "mpi4py": _mpi_job,
    PLAIN: _plain_job,
}
