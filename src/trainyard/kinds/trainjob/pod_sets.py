"""The replicated jobs of a runtime while a TrainJob is rendered, each a pod set: its pods have one template.

Documents are changed in place; `render` has copied them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from trainyard.kinds.pods.templates import whole_number
from trainyard.objects import Json
from trainyard.objects.quantities import number

ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
"""The label of a Job template that says which part of a TrainJob it takes: trainer, or one of the initializers."""
TRAINER, DATASET, MODEL = "trainer", "dataset-initializer", "model-initializer"
NODE, LAUNCHER = "node", "launcher"
PORT = 29500
INDEX_PATH = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


class PodSet(msgspec.Struct):
    """One replicated job. `document` is it in the JobSet, `count` the number of its pods."""

    document: Json
    count: int

    @property
    def name(self) -> str:
        """Of the replicated job."""
        return str(self.document.get("name", ""))

    @property
    def ancestor(self) -> str:
        """The value of the label, "" without one."""
        return str((self.job_template.get("metadata") or {}).get("labels", {}).get(ANCESTOR, ""))

    @property
    def job_template(self) -> Json:
        """The template of the Job."""
        template: Json = self.document.setdefault("template", {})
        return template

    @property
    def job_spec(self) -> Json:
        """The spec in it."""
        spec: Json = self.job_template.setdefault("spec", {})
        return spec

    @property
    def pod_template(self) -> Json:
        """The template of the pods."""
        template: Json = self.job_spec.setdefault("template", {})
        return template

    @property
    def pod_spec(self) -> Json:
        """The spec in it."""
        spec: Json = self.pod_template.setdefault("spec", {})
        return spec

    def container(self, name: str, *, with_init: bool = False) -> Json | None:
        """The container of that name, None if there is none. `with_init`: or an init container."""
        fields = ("containers", "initContainers") if with_init else ("containers",)
        containers = (container for field in fields for container in self.pod_spec.get(field) or ())
        return next((container for container in containers if container.get("name") == name), None)


class Rendered(msgspec.Struct):
    """A TrainJob with its runtime, while it is rendered. `job` is the TrainJob; `policy` the runtime's mlPolicy, {} for
    none; `sets` its replicated jobs, in their order; `labels` and `annotations` those of the JobSet, whose other fields
    are in `spec`."""

    job: Json
    policy: Json
    pod_groups: Json
    labels: Json
    annotations: Json
    spec: Json
    sets: list[PodSet]

    @property
    def name(self) -> str:
        """Of the TrainJob."""
        return str(self.job["metadata"]["name"])

    @property
    def trainer(self) -> Json:
        """`spec.trainer`, {} without one."""
        return self.job["spec"].get("trainer") or {}

    @property
    def num_nodes(self) -> int | None:
        """As the job says."""
        return whole_number(self.trainer.get("numNodes"))

    def trainer_set(self) -> PodSet | None:
        """The pod set that trains."""
        return next((pod_set for pod_set in self.sets if pod_set.ancestor == TRAINER), None)

    def named(self, name: str) -> PodSet | None:
        """The pod set of that name."""
        return next((pod_set for pod_set in self.sets if pod_set.name == name), None)

    def node_container(self) -> Json | None:
        """The container that trains."""
        pod_set = self.trainer_set()
        return pod_set.container(NODE) if pod_set else None

    def subdomain(self) -> str:
        """The last part of the pods' host names: the name of their Service."""
        return str((self.spec.get("network") or {}).get("subdomain") or self.name)

    def address(self) -> str:
        """The host name of the first pod that trains. Trainer's is right for a replicated job called `node` without a
        subdomain of its own."""
        trainer_set = self.trainer_set()
        return f"{self.name}-{trainer_set.name if trainer_set else NODE}-0-0.{self.subdomain()}"

    def resources_per_node(self) -> Json:
        """Those by which processes are counted: of the TrainJob alone, if it has any, else of the runtime."""
        if (own := self.trainer.get("resourcesPerNode")) is not None:
            return dict(own)
        for pod_set in self.sets:
            if pod_set.name == NODE or pod_set.ancestor == TRAINER:
                container = pod_set.container(NODE)
                if container and container.get("resources"):
                    return dict(container["resources"])
        return {}

    def gpus_per_node(self) -> int:
        """Of the first resource with `gpu` in its name; requests come before limits."""
        resources = self.resources_per_node()
        return _gpus(resources.get("requests")) or _gpus(resources.get("limits"))

    def cpus_per_node(self) -> int:
        """Whole CPUs, rounded up: those requested, else the limit."""
        resources = self.resources_per_node()
        amounts = ((resources.get(kind) or {}).get("cpu", 0) for kind in ("requests", "limits"))
        return next((count for count in map(rounded_up, amounts) if count), 0)


def _gpus(amounts: Json | None) -> int:
    return next((rounded_up(amount) for name, amount in (amounts or {}).items() if "gpu" in name.lower()), 0)


def rounded_up(amount: Any) -> int:
    """A quantity as a whole number."""
    value = number(str(amount))
    return -(-value.numerator // value.denominator)


def variable(name: str, value: object) -> Json:
    """A variable of the environment with this text."""
    return {"name": name, "value": str(value)}


def index_variable(name: str) -> Json:
    """A variable with the index of the pod in its replicated job."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": INDEX_PATH}}}


def set_variables(container: Json, *variables: Json) -> None:
    """Put variables into `env`: one of the same name is replaced in its place."""
    upsert(container, "env", variables, lambda item: item.get("name"))


def open_port(container: Json) -> None:
    """Add the port of the training. One of its number is replaced; Trainer replaces any that has no name."""
    upsert(container, "ports", ({"containerPort": PORT},), lambda item: item.get("containerPort"))


def set_volumes(pod_spec: Json, *volumes: Json) -> None:
    """Put volumes into the pod spec, by name."""
    upsert(pod_spec, "volumes", volumes, lambda item: item.get("name"))


def mount(container: Json, *mounts: Json) -> None:
    """Put mounts into the container, by path."""
    upsert(container, "volumeMounts", mounts, lambda item: item.get("mountPath"))


def upsert(owner: Json, field: str, items: tuple[Json, ...], key: Callable[[Json], Any]) -> None:
    """Put items into the list: the first of the same key is replaced in its place."""
    if not items:
        return
    listed: list[Json] = list(owner.get(field) or ())
    for item in items:
        positions: Iterator[int] = (place for place, present in enumerate(listed) if key(present) == key(item))
        place = next(positions, None)
        if place is None:
            listed.append(item)
        else:
            listed[place] = item
    owner[field] = listed
