"""YAML of a manifest with a comment above each field that a user may want to change. Pure.

The YAML parses to the same object: `tests/cli/test_script_manifests.py` verifies that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from trainyard.core.scripts import LOCAL_IMAGE
from trainyard.kinds.kubeflow_v1.lifecycle import SUCCESS_GRACE, SUCCESS_POLICY
from trainyard.objects import Json
from trainyard.objects.labels import WORKING_DIRECTORY
from trainyard.objects.yaml_text import as_flow, as_yaml

_WIDTH = 100
_TEMPLATE = "spec.*.template.spec"
# Comments by field path; `*` matches any part of a path. A comment is written once, above the first field that matches.
# A dict has the comments by the value of the field (see `_comment_key`); "" is the default.
_COMMENTS: dict[str, str | dict[str, str]] = {
    "metadata.name": "The name of the job, and the first part of the names of what it makes.",
    f"metadata.annotations.{WORKING_DIRECTORY}": "The folder on this machine in which the program runs. A cluster does "
    "not look at it: there it is the WORKDIR of the image.",
    f"metadata.annotations.{SUCCESS_POLICY}": "The job succeeds once all replicas have; without it, with "
    "its leader, and what then still runs is stopped. Only Trainyard reads this.",
    f"metadata.annotations.{SUCCESS_GRACE}": "How long workers may still run after the first has "
    "succeeded, before they are stopped: they end a moment after each other. Only Trainyard reads this.",
    "spec.runPolicy": "What still runs when the job has ended is stopped.",
    "spec.nprocPerNode": "Processes in each replica. torchrun learns this, the number of replicas and the master's "
    "address from variables of the operator.",
    "spec.elasticPolicy": "The job is elastic: more or fewer workers while it runs (trainyard scale). They meet at a "
    "store in worker 0, and survive the loss of a worker maxRestarts times.",
    "spec.cleanPodPolicy": "What still runs when the job has ended is stopped.",
    "spec.backoffLimit": "How many failed attempts the job survives. 0: the first failure is the end. Pods that a "
    "cluster takes away are replaced all the same, and do not count.",
    "spec.rdzvBackend": "The workers find each other by the variables below, not by the launcher of torch.",
    "spec.jobMode": {
        "local": "One process. For more, write dist, with a SCHEDULER, SERVERs and WORKERs.",
        "dist": "A SCHEDULER, SERVERs that hold the parameters, and WORKERs run the same program.",
    },
    "spec.master": "The master runs mpiexec, and is itself the first worker.",
    "spec.workerSets": "Workers wait for the master, which starts the processes in them.",
    "spec.*.mpiConfig": "Processes in each pod of this set. Their sum is the number behind mpiexec -n.",
    "spec.pytorchReplicaSpecs": "Worker alone: elastic. Else one Master, and as many as you want of Worker.",
    "spec.tfReplicaSpecs": "One Chief, and as many as you want of Worker and PS. A job with PS ends with its Chief.",
    "spec.xgbReplicaSpecs": "One Master, and as many as you want of Worker.",
    "spec.jaxReplicaSpecs.Worker.replicas": "How many processes.",
    "spec.replicaSpecs.mxReplicaType": {
        "SCHEDULER": "Exactly one SCHEDULER. SERVER and WORKER: as many as you want.",
    },
    "spec.replicaSpecs.Worker.replicas": "How many workers.",
    "spec.workerSets.*.replicas": "How many workers beside the master.",
    "spec.replicaSpecs.Worker.restartPolicy": "A worker that fails ends the job. ExitCode: one that is killed comes "
    "back.",
    "spec.*ReplicaSpecs.*.restartPolicy": {
        "Never": "A replica that fails ends the job. ExitCode: one that is killed comes back.",
        "ExitCode": "A worker that is killed (an exit code from 128 on) comes back; any other failure ends the job.",
    },
    "spec.template.spec.replicatedJobs.template.spec.backoffLimit": "How many failed attempts the job survives. 0: the "
    "first failure is the end.",
    "spec.runtimeRef": "The runtime above, or one that the cluster has (kubectl get clustertrainingruntimes).",
    "spec.trainer.numNodes": "How many pods.",
    "spec.trainer.numProcPerNode": "Processes in each pod. torchrun learns all numbers from variables of the operator.",
    "spec.trainer.image": f"On a cluster: an image that holds the program and what it imports. {LOCAL_IMAGE} is this "
    "machine's Python and files; no cluster can pull it.",
    f"{_TEMPLATE}.containers.image": f"On a cluster: an image that holds the program and what it imports. "
    f"{LOCAL_IMAGE} is this machine's Python and files; no cluster can pull it.",
    f"{_TEMPLATE}.containers.command": "Files are named relative to the working directory: the folder of the program "
    "here, the WORKDIR of the image on a cluster.",
    f"{_TEMPLATE}.containers.args": "The launcher's arguments, the program, and its own arguments.",
    f"{_TEMPLATE}.containers.env": {
        "RANK": "RANK is the number in the name of the pod. WORLD_SIZE must be that of replicas above.",
        "TF_CONFIG": "A job of one replica has no TF_CONFIG but this. With more replicas the operator's replaces it.",
        "JAX_COORDINATOR_ADDRESS": "For jax.distributed.initialize. JAX_NUM_PROCESSES must be that of replicas above.",
        "OMPI_ALLOW_RUN_AS_ROOT": "Open MPI: root may start it, as in most images, and more processes than cores.",
        "": "Variables of the program.",
    },
    f"{_TEMPLATE}.containers.resources": "GPUs of each replica, here and on a cluster. Where a machine has none, the "
    "program runs on the CPU.",
    f"{_TEMPLATE}.volumes": "Folders of the machine. On a cluster, write a persistentVolumeClaim instead of hostPath.",
}
_RESOURCES_COMMENT = (
    "What each pod asks of a cluster, if it needs it:",
    "resources:",
    '  limits: {cpu: "4", memory: 8Gi, nvidia.com/gpu: 1}',
)


def yaml_with_comments(job: Json, heading: list[str]) -> str:
    """The YAML with comments; the lines of `heading` come first, as comments."""
    lines = [f"# {line}".rstrip() for line in heading]
    return "\n".join([*lines, *_Printer().lines(job)]) + "\n"


class _Printer:
    """Formats one manifest; it keeps the comments that are not written yet."""

    def __init__(self) -> None:
        self._unwritten_comments = dict(_COMMENTS)
        self._resources_unwritten = True

    def lines(self, value: Json, path: str = "", indent: str = "") -> Iterator[str]:
        for key, child in value.items():
            field_path = f"{path}.{key}".lstrip(".")
            yield from (f"{indent}# {line}" for line in self._comment(field_path, child, len(indent)))
            if isinstance(child, dict) and child and (key == "metadata" or not _fits_one_line(child)):
                yield f"{indent}{as_flow(key)}:"
                yield from self.lines(child, field_path, f"{indent}  ")
            elif isinstance(child, list) and any(isinstance(item, dict) for item in child):
                yield f"{indent}{as_flow(key)}:"
                for item in child:
                    yield from self._item(item, field_path, indent)
            elif isinstance(child, list) and any("\n" in str(item) for item in child):
                yield f"{indent}{as_flow(key)}:"
                yield from (f"{indent}{line}" for line in as_yaml(child).splitlines())
            else:
                yield from _scalar_lines(f"{indent}{as_flow(key)}:", child, indent)
        if self._resources_unwritten and path.endswith("containers"):
            self._resources_unwritten = False
            if "resources" in value:
                return
            yield from (f"{indent}# {line}" for line in _RESOURCES_COMMENT)

    def _item(self, value: Any, path: str, indent: str) -> Iterator[str]:
        if not isinstance(value, dict) or _fits_one_line(value):
            yield f"{indent}- {as_flow(value)}"
            return
        has_dash = False
        for line in self.lines(value, path, f"{indent}  "):
            # The dash is on the line of the first field, below the field's comment.
            if not has_dash and not line.lstrip().startswith("#"):
                line, has_dash = f"{indent}- {line.removeprefix(indent + '  ')}", True
            yield line

    def _comment(self, field_path: str, value: Any, indent: int) -> list[str]:
        pattern = next((candidate for candidate in self._unwritten_comments if _matches(field_path, candidate)), None)
        if pattern is None:
            return []
        comment = self._unwritten_comments.pop(pattern)
        text = comment if isinstance(comment, str) else comment.get(_comment_key(value), comment.get("", ""))
        return wrap(text, max(40, _WIDTH - indent - 2), break_on_hyphens=False)


def _scalar_lines(key: str, value: Any, indent: str) -> list[str]:
    """`key: value`; a string that does not fit the line is in the line below."""
    line = f"{key} {as_flow(value)}"
    is_foldable = isinstance(value, str) and value.isprintable() and value == value.strip()
    return [f"{key} >-", f"{indent}  {value}"] if len(line) > _WIDTH and is_foldable else [line]


def _comment_key(value: Any) -> str:
    """The key of a comment in a dict of comments: the value of a scalar, the `name` of the first item of a list."""
    return str(value[0].get("name")) if isinstance(value, list) else str(value)


def _matches(field_path: str, pattern: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".+"), field_path) is not None


def _fits_one_line(value: Json) -> bool:
    """True for a small object such as a variable or a mount, which is written in flow style on one line."""
    return len(as_flow(value)) <= 72 and set(value) <= {"name", "value", "mountPath", "slots", "path", "type"}
