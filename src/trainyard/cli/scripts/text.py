"""A manifest as a person reads it: YAML with a comment above each field that one may want to change. Pure.

What is printed says the same as the object: `tests/cli/test_script_manifests.py` reads it back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import wrap
from typing import Any

from trainyard.cli.scripts.manifest import LOCAL_IMAGE
from trainyard.objects import Json
from trainyard.objects.yaml_text import as_flow

_WIDTH = 100
_TEMPLATE = "spec.*.template.spec"
# Field by field; `*` is anything between. A comment stands above the first field that it fits, and there only.
_COMMENTS: dict[str, str | dict[str, str]] = {
    "metadata.name": "The name of the job, and the first part of the names of what it makes.",
    "metadata.annotations": "The folder on this machine in which the program runs. A cluster does not look at "
    "it: there it is the WORKDIR of the image.",
    "spec.cleanPodPolicy": "What still runs when the job has ended is stopped.",
    "spec.backoffLimit": "How many failed attempts the job survives. 0: the first failure is the end. Pods that a "
    "cluster takes away are replaced all the same, and do not count.",
    "spec.rdzvBackend": {
        "c10d": "Where the workers meet: a store in worker 0. The operator adds the --rdzv_* arguments.",
        "none": "The workers find each other by the variables below, not by the launcher of torch.",
    },
    "spec.minReplicas": "The job is elastic between these two: more or fewer workers while it runs "
    "(trainyard scale). Equal: it waits for all.",
    "spec.masterTaskType": "What TF_CONFIG calls the MASTER. The strategies of TensorFlow 2 know it as the chief.",
    "spec.tfImage": "The image of the parameter servers: standard servers of its TensorFlow.",
    "spec.jobMode": {
        "local": "One process. For more, write dist, with a SCHEDULER, SERVERs and WORKERs.",
        "dist": "A SCHEDULER, SERVERs that hold the parameters, and WORKERs run the same program.",
    },
    "spec.master": "The master runs mpiexec, and is itself the first worker.",
    "spec.workerSets": "Workers wait for the master, which starts the processes in them.",
    "spec.*.mpiConfig": "Processes in each pod of this set. Their sum is the number behind mpiexec -n.",
    "spec.replicaSpecs.tfReplicaType": "Exactly one MASTER: its end is the end of the job. WORKER and PS: as many as "
    "you want.",
    "spec.replicaSpecs.mxReplicaType": {
        "SCHEDULER": "Exactly one SCHEDULER. SERVER and WORKER: as many as you want.",
    },
    "spec.replicaSpecs.Worker.replicas": "How many workers.",
    "spec.workerSets.*.replicas": "How many workers beside the master.",
    "spec.replicaSpecs.Worker.restartPolicy": {
        "Never": "A worker that fails ends the job. ExitCode: one that is killed comes back.",
        "ExitCode": "A worker that is killed (130, 137, 138, 143) comes back; any other failure ends the job.",
    },
    f"{_TEMPLATE}.containers.image": f"On a cluster: an image that holds the program and what it imports. "
    f"{LOCAL_IMAGE} is this machine's Python and files; no cluster can pull it.",
    f"{_TEMPLATE}.containers.command": "Files are named relative to the working directory: the folder of the program "
    "here, the WORKDIR of the image on a cluster.",
    f"{_TEMPLATE}.containers.args": "The launcher's arguments, the program, and its own arguments.",
    f"{_TEMPLATE}.containers.env": {
        "RANK": "RANK is the number in the name of the pod. WORLD_SIZE must be that of replicas above.",
        "JAX_COORDINATOR_ADDRESS": "For jax.distributed.initialize. JAX_NUM_PROCESSES must be that of replicas above.",
        "OMPI_ALLOW_RUN_AS_ROOT": "Open MPI: root may start it, as in most images, and more processes than cores.",
        "": "Variables of the program.",
    },
    f"{_TEMPLATE}.volumes": "Folders of the machine. On a cluster, write a persistentVolumeClaim instead of hostPath.",
}
_RESOURCES = (
    "What each pod asks of a cluster, if it needs it:",
    "resources:",
    '  limits: {cpu: "4", memory: 8Gi, nvidia.com/gpu: 1}',
)


def commented(job: Json, heading: list[str]) -> str:
    """The manifest with comments, `heading` at its top."""
    lines = [f"# {line}".rstrip() for line in heading]
    return "\n".join([*lines, *_Printer().lines(job)]) + "\n"


class _Printer:
    """Walks over a manifest once; it remembers which comments have been written."""

    def __init__(self) -> None:
        self._left = dict(_COMMENTS)
        self._resources = True

    def lines(self, value: Json, path: str = "", indent: str = "") -> Iterator[str]:
        for key, below in value.items():
            place = f"{path}.{key}".lstrip(".")
            yield from (f"{indent}# {line}" for line in self._comment(place, below, len(indent)))
            if isinstance(below, dict) and below and (key == "metadata" or not _is_short(below)):
                yield f"{indent}{as_flow(key)}:"
                yield from self.lines(below, place, f"{indent}  ")
            elif isinstance(below, list) and any(isinstance(one, dict) for one in below):
                yield f"{indent}{as_flow(key)}:"
                for one in below:
                    yield from self._item(one, place, indent)
            else:
                yield f"{indent}{as_flow(key)}: {as_flow(below)}"
        if self._resources and path.endswith("containers"):
            self._resources = False
            yield from (f"{indent}# {line}" for line in _RESOURCES)

    def _item(self, value: Any, path: str, indent: str) -> Iterator[str]:
        if not isinstance(value, dict) or _is_short(value):
            yield f"{indent}- {as_flow(value)}"
            return
        begun = False
        for line in self.lines(value, path, f"{indent}  "):
            # The dash belongs to the first field, below the comment about it.
            if not begun and not line.lstrip().startswith("#"):
                line, begun = f"{indent}- {line.removeprefix(indent + '  ')}", True
            yield line

    def _comment(self, place: str, value: Any, indent: int) -> list[str]:
        pattern = next((one for one in self._left if _fits(place, one)), None)
        if pattern is None:
            return []
        comment = self._left.pop(pattern)
        text = comment if isinstance(comment, str) else comment.get(_key(value), comment.get("", ""))
        return wrap(text, max(40, _WIDTH - indent - 2), break_on_hyphens=False)


def _key(value: Any) -> str:
    """What the comment depends on: a scalar itself, the first name of a list."""
    return str(value[0].get("name")) if isinstance(value, list) else str(value)


def _fits(place: str, pattern: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".+"), place) is not None


def _is_short(value: Json) -> bool:
    """A variable, a mount: one line says it all."""
    return len(as_flow(value)) <= 72 and set(value) <= {"name", "value", "mountPath", "slots", "path", "type"}
