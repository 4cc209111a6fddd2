"""The job that a program becomes, for each framework: a manifest that runs here and, with an image, on a cluster. Pure.

Rules:
- One failure ends the job: a script is run once, and a second run of a broken one hides the first. Pods that the
  cluster takes away (a node that is drained) are replaced all the same, and do not count.
- The command names files relative to the working directory, so that the same manifest holds in an image.
- What a replica must know of the others comes from the operator or the downward API, never from this machine.
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
"""The shipped catalogue's name for this machine's own Python and files; no cluster can pull it."""
LOCAL_PROCESSES = ("torch", "chainer", "mpi4py")
"""The frameworks whose launchers start several processes in one worker."""
WITH_SERVERS = ("tensorflow", "mxnet")
MASTER_PORT = 29500
"""What torch takes when nobody says anything."""
RESTARTS = 3
"""How often an elastic job survives the loss of a worker: what torchelastic took."""
COORDINATOR_PORT = 8476
"""The port that JAX's own cluster detection uses."""
_WORKER_SET = "worker"
_WAIT = "trap exit TERM; while true; do sleep 60 & wait $!; done"


class Shape(msgspec.Struct, frozen=True):
    """What the options say about a job."""

    name: str
    workers: int = 1
    servers: int = 0
    processes: int = 1
    bounds: tuple[int, int] | None = None  # how many workers an elastic job may have
    image: str = LOCAL_IMAGE
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    mounts: tuple[tuple[str, str], ...] = ()  # (folder of the machine, path in the container)
    working_directory: str = ""  # "": the manifest's own folder, or the image's


def job_of(framework: str, program: Program, shape: Shape) -> Json:
    """The manifest."""
    return _BUILDERS[framework](program, shape)


def _job(api_version: str, kind: str, shape: Shape, spec: Json) -> Json:
    metadata: Json = {"name": shape.name}
    if shape.working_directory:
        metadata["annotations"] = {WORKING_DIRECTORY: shape.working_directory}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _template(
    shape: Shape,
    container: str,
    command: tuple[str, ...],
    *,
    args: tuple[str, ...] = (),
    env: Mapping[str, Any] | None = None,
    restart: str = "",
) -> Json:
    """A pod template. A variable of the user's replaces one of ours of the same name."""
    variables = {**(env or {}), **shape.env}
    listed = [{"name": name, **_value(value)} for name, value in variables.items()]
    mounts = [{"name": f"mount-{at}", "mountPath": path} for at, (_, path) in enumerate(shape.mounts)]
    volumes = [
        {"name": f"mount-{at}", "hostPath": {"path": folder, "type": "Directory"}}
        for at, (folder, _) in enumerate(shape.mounts)
    ]
    main: Json = {"name": container, "image": shape.image, "command": list(map(_literal, command))}
    main |= {"args": list(map(_literal, args))} if args else {}
    main |= {"env": listed} if listed else {}
    main |= {"volumeMounts": mounts} if mounts else {}
    spec: Json = {"restartPolicy": restart} if restart else {}
    return {"spec": {**spec, "containers": [main], **({"volumes": volumes} if volumes else {})}}


def _value(value: Any) -> Json:
    return {"value": _literal(value)} if isinstance(value, str) else value


def _literal(text: str) -> str:
    """Kubernetes puts a variable's value in place of $(NAME), and $ in place of $$; here nothing is."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def _elastic(shape: Shape, spec: Json, template: Json, restart: str = "Never") -> Json:
    body = {"cleanPodPolicy": "Running", **spec}
    worker = {"replicas": shape.workers, "restartPolicy": restart, "template": template}
    return _job("elastic.pytorch.org/v1alpha1", "ElasticJob", shape, {**body, "replicaSpecs": {"Worker": worker}})


def _torch(program: Program, shape: Shape) -> Json:
    command = (PYTHON, "-m", "torch.distributed.run")
    # Who loses a peer fails, too: without restarts the loss of one worker would be the end of all.
    restarts = (f"--max_restarts={RESTARTS}",) if shape.bounds else ()
    args = (f"--nproc_per_node={shape.processes}", *restarts, *program.torchrun)
    template = _template(shape, "elasticjob-worker", command, args=args)
    least, most = shape.bounds or (shape.workers, shape.workers)
    spec = {"rdzvBackend": "c10d", "minReplicas": least, "maxReplicas": most}
    # Bounds are a wish to go on with fewer: then a worker that is killed may come back.
    return _elastic(shape, spec, template, "ExitCode" if shape.bounds else "Never")


def _plain(program: Program, shape: Shape) -> Json:
    env = {
        "RANK": _index(),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(shape.workers),
        "MASTER_ADDR": f"{shape.name}-worker-0",
        "MASTER_PORT": str(MASTER_PORT),
    }
    template = _template(shape, "elasticjob-worker", program.command, env=env)
    return _elastic(shape, {"rdzvBackend": "none"}, template)


def _jax(program: Program, shape: Shape) -> Json:
    env = {
        "JAX_COORDINATOR_ADDRESS": f"{shape.name}-worker-0:{COORDINATOR_PORT}",
        "JAX_NUM_PROCESSES": str(shape.workers),
        "JAX_PROCESS_ID": _index(),
    }
    template = _template(shape, "elasticjob-worker", program.command, env=env)
    return _elastic(shape, {"rdzvBackend": "none"}, template)


def _index() -> Json:
    """The number of the worker, which the operator writes into a label of its pod."""
    return {"valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['replica-index']"}}}


def _tensorflow(program: Program, shape: Shape) -> Json:
    template = _template(shape, "tensorflow", program.command, restart="Never")
    items = [{"tfReplicaType": "MASTER", "replicas": 1, "template": template}]
    if shape.workers > 1:
        items.append({"tfReplicaType": "WORKER", "replicas": shape.workers - 1, "template": template})
    spec: Json = {"masterTaskType": "chief", "backoffLimit": 0}
    if shape.servers:  # they and the workers of a ParameterServerStrategy serve for ever
        items.append({"tfReplicaType": "PS", "replicas": shape.servers})
        spec |= {"cleanPodPolicy": "Running", "tfImage": shape.image}
    return _job("tensorflow.org/v1alpha1", "TfJob", shape, {**spec, "replicaSpecs": items})


def _mxnet(program: Program, shape: Shape) -> Json:
    template = _template(shape, "mxnet", program.command, restart="Never")

    def replicas(kind: str, count: int) -> Json:
        return {"mxReplicaType": kind, "replicas": count, "template": template}

    if shape.workers == 1 and not shape.servers:
        spec: Json = {"jobMode": "local", "backoffLimit": 0, "replicaSpecs": [replicas("WORKER", 1)]}
    else:
        items = [replicas("SCHEDULER", 1), replicas("SERVER", max(1, shape.servers)), replicas("WORKER", shape.workers)]
        spec = {"jobMode": "dist", "backoffLimit": 0, "replicaSpecs": items}
    return _job("mlkube.io/v1beta1", "MxJob", shape, spec)


def _mpi(program: Program, shape: Shape) -> Json:
    total = shape.workers * shape.processes
    # Open MPI refuses root, which is the user of most images, unless both say otherwise; and more processes than cores.
    env = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    command = ("mpiexec", "-n", str(total), *program.command) if total > 1 else program.command
    master = _template(shape, "chainer", command, env=env if total > 1 else None, restart="Never")
    spec: Json = {"backend": "mpi", "backoffLimit": 0}
    spec["master"] = {"mpiConfig": {"slots": shape.processes}, "template": master}
    if shape.workers > 1:
        waiting = _template(shape, "chainer", ("sh", "-c", _WAIT), env=env)
        spec["workerSets"] = {
            _WORKER_SET: {
                "replicas": shape.workers - 1,
                "mpiConfig": {"slots": shape.processes},
                "template": waiting,
            }
        }
    return _job("kubeflow.org/v1alpha1", "ChainerJob", shape, spec)


_BUILDERS: dict[str, Callable[[Program, Shape], Json]] = {
    "torch": _torch,
    "tensorflow": _tensorflow,
    "jax": _jax,
    "mxnet": _mxnet,
    "chainer": _mpi,
    "mpi4py": _mpi,
    PLAIN: _plain,
}
