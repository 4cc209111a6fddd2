"""Variables of a pod template that tell its programs a number of processes, which does not follow when the job is
scaled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trainyard.core import Job, Slot
from trainyard.kinds.pods.templates import containers_of
from trainyard.objects import Json, Problem

_NAMES = ("WORLD_SIZE", "JAX_NUM_PROCESSES")


class SizeVariable(NamedTuple):
    """One variable of the role that the scale subresource sets. `path`: where the template has it."""

    path: str
    name: str
    processes: int
    replicas: int

    @property
    def matches(self) -> bool:
        """Whether each of the replicas has as many of the processes."""
        return self.processes % max(1, self.replicas) == 0


def size_variables(job: Job) -> list[SizeVariable]:
    """Those of a job without problems; one after which the operator sets its own has no effect, and is left out."""
    path = job.kind.api.scale.get("specReplicasPath", "").strip(".").removesuffix(".replicas")
    role = next((role for role in job.parsed.roles if role.name == path.rpartition(".")[2]), None)
    if role is None or role.template is None or job.parsed.problems:
        return []
    pod_template = job.kind.pods.mutate_pod_template(role.template, job, Slot(role.name, 0))
    own, of_pod = containers_of(role.template), containers_of(pod_template)
    return [
        SizeVariable(f"{path}.template.spec.containers[{number}].env[{index}]", name, int(value), role.replicas)
        for number, container in enumerate(own)
        for index, name, value in _variables(container)
        if value.isdecimal() and _count(own, container, name) == _count(of_pod, container, name)
    ]


def size_warnings(job: Job) -> list[Problem]:
    """A warning for each that does not fit the number of replicas."""
    text = "{0.name} is {0.processes} for {0.replicas} replicas: write {0.replicas}, or leave it out"
    return [Problem(size.path, text.format(size)) for size in size_variables(job) if not size.matches]


def _variables(container: Json) -> Iterator[tuple[int, str, str]]:
    """Index, name and value of each variable about the size."""
    for index, entry in enumerate(container.get("env") or ()):
        if isinstance(entry, dict) and entry.get("name") in _NAMES and isinstance(entry.get("value"), str):
            yield index, entry["name"], entry["value"]


def _count(containers: list[Json], same: Json, name: str) -> int:
    """How often the container of that name has the variable: the operator appends its own, and the last one counts."""
    return sum(
        name == other
        for container in containers
        if container.get("name") == same.get("name")
        for _, other, _ in _variables(container)
    )
