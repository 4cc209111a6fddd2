"""The schema of a ChainerJob: its structs and CEL rules (docs/rules.md 1.2, 1.3, S2, S21)."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from trainyard.core import Rule
from trainyard.core.names import is_dns_label
from trainyard.core.status import MAX_REPLICAS
from trainyard.kinds.definitions.immutability import IS_FIXED_CEL, is_immutable
from trainyard.kinds.pods.pod_templates import pod_template_schema
from trainyard.kinds.pods.templates import (
    MAX_CONTAINERS,
    NULLABLE,
    PRESERVE_UNKNOWN,
    containers_of,
    restart_policy_rule,
)
from trainyard.kinds.policies import Policies, Seconds
from trainyard.objects import Json

MASTER = "master"
CONTAINER = "chainer"
MPI = "mpi"
GPU = "nvidia.com/gpu"
SET_NAME_MAX = 52
"""Longest name of a StatefulSet: its pods have a label with its name and a hash of ten letters (63 characters)."""
_WORKER_SET = "-workerset-"
"""Separates the names of job and worker set in the name of a StatefulSet. Names of sets do not contain it, so its last
occurrence ends the job's name: pods of two jobs never have the same name. RBAC rules list pods by name."""


class MpiConfig(msgspec.Struct, kw_only=True):
    """How MPI uses a pod."""

    slots: Annotated[
        Annotated[int, Meta(ge=1, le=65536)] | None,
        Meta(description="Processes in each pod; by default the number of GPUs of the container chainer, or 1."),
    ] = None


# The name of a container is optional: a single container without a name is named chainer (S21).
_OPTIONAL = {"properties": {"name": {"type": "string", "maxLength": 63}}, "required": []}
_POD_TEMPLATE = pod_template_schema(_OPTIONAL, maxItems=MAX_CONTAINERS)
Template = Annotated[dict[str, Any] | None, Meta(extra_json_schema={**_POD_TEMPLATE, **NULLABLE})]
Mpi = Annotated[MpiConfig | None, Meta(extra_json_schema={**PRESERVE_UNKNOWN, **NULLABLE})]


class Master(msgspec.Struct, kw_only=True):
    """The pod that starts the job; its batch Job retries it."""

    activeDeadlineSeconds: Annotated[Seconds | None, Meta(description="Of the master Job.")] = None
    backoffLimit: Annotated[
        Annotated[int, Meta(ge=0, le=2147483647)] | None, Meta(description="Of the master Job.")
    ] = None
    mpiConfig: Mpi = None
    template: Template = None


class WorkerSet(msgspec.Struct, kw_only=True):
    """Workers with the same template; a worker that exits is restarted."""

    replicas: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_REPLICAS)] | None,
        Meta(description="Number of workers, by default 1. Can change while the job runs."),
    ] = None
    mpiConfig: Mpi = None
    template: Template = None


class ChainerJobSpec(Policies, kw_only=True):
    """A Chainer job: one master, and any number of worker sets."""

    backend: Annotated[str, Meta(max_length=63, description="The communication backend: mpi.")] | None = None
    master: Annotated[Master | None, Meta(extra_json_schema={**PRESERVE_UNKNOWN, **NULLABLE})] = None
    workerSets: Annotated[
        dict[str, Annotated[WorkerSet, Meta(extra_json_schema=PRESERVE_UNKNOWN)]] | None,
        Meta(description="Worker sets by name.", extra_json_schema={"maxProperties": 64}),
    ] = None


def worker_sets_of(spec: Json) -> dict[str, Json]:
    """The worker sets by name, in the order of their names; malformed ones are left out."""
    sets = spec.get("workerSets")
    items = sets.items() if isinstance(sets, dict) else ()
    return {str(name): worker_set for name, worker_set in sorted(items) if isinstance(worker_set, dict)}


def with_container_names(containers: list[Json]) -> list[Json]:
    """The containers; a single container without a name is named chainer (S21)."""
    is_unnamed = len(containers) == 1 and not containers[0].get("name")
    return [{**containers[0], "name": CONTAINER}] if is_unnamed else containers


def has_chainer(template: object) -> bool:
    """Whether a pod template has the container `chainer`."""
    return any(container.get("name") == CONTAINER for container in with_container_names(containers_of(template)))


def _has_chainer_cel(item: str) -> str:
    """`has_chainer` as a CEL expression on the template of `item`."""
    containers = f"{item}.template.spec.containers"
    return (
        f"(has({item}.template) && {item}.template != null"
        f" && ({containers}.exists(c, has(c.name) && c.name == '{CONTAINER}')"
        f" || ({containers}.size() == 1 && {containers}.all(c, !has(c.name) || c.name == ''))))"
    )


def stateful_set_name(job: str, name: str) -> str:
    """The name of the StatefulSet of a worker set."""
    return f"{job}{_WORKER_SET}{name}"


def is_unambiguous_set_name(name: str) -> bool:
    """Whether the name of a worker set keeps its StatefulSet and pods apart from those of every other job."""
    return _WORKER_SET not in f"-{name}-"


def _names_are_short(job: Any, old: Any) -> bool:
    name = job["metadata"]["name"]
    names = (job["spec"].get("workerSets") or {}).keys()
    return is_dns_label(name) and all(
        len(stateful_set_name(name, worker_set)) <= SET_NAME_MAX for worker_set in names or ("",)
    )


def _has_master_cel(job: str) -> str:
    return f"has({job}.spec.master) && {job}.spec.master != null"


_MAX_NAMES_LENGTH = SET_NAME_MAX - len(_WORKER_SET)
_NAME_PATTERN = "'^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'"

RULES = (
    Rule(
        "",
        f"self.metadata.name.matches({_NAME_PATTERN}) && self.metadata.name.size() <= {_MAX_NAMES_LENGTH}"
        " && (!has(self.spec.workerSets) ||"
        f" self.spec.workerSets.all(name, name.size() + self.metadata.name.size() <= {_MAX_NAMES_LENGTH}))",
        _names_are_short,
        "the name is part of every child's name: write lower-case letters, digits and '-', "
        f"at most {_MAX_NAMES_LENGTH} characters together with the name of a worker set",
        field="metadata.name",
    ),
    Rule(
        "spec",
        "has(self.master) && self.master != null",
        lambda spec, old: isinstance(spec.get("master"), dict),
        "a ChainerJob has one master: write master with a template whose container is named chainer",
        field="master",
    ),
    Rule(
        "spec.master",
        _has_chainer_cel("self"),
        lambda master, old: has_chainer(master.get("template")),
        "the pod must contain a container named chainer: name the one that runs the program chainer",
        field="template.spec.containers",
    ),
    Rule(
        "spec.workerSets",
        f"self.all(name, name.matches({_NAME_PATTERN}) && name != '{MASTER}')",
        lambda sets, old: all(is_dns_label(name) and name != MASTER for name in sets),
        "the name of a worker set is part of its pods' names: write lower-case letters, digits and '-', not 'master'",
    ),
    Rule(
        "spec.workerSets",
        f"self.all(name, !('-' + name + '-').contains('{_WORKER_SET}'))",
        lambda sets, old: all(map(is_unambiguous_set_name, sets)),
        "workerset separates the name of a job from that of a worker set, so that children of two jobs have different "
        "names: name the set without it",
    ),
    Rule(
        "spec.workerSets{}",
        _has_chainer_cel("self"),
        lambda worker_set, old: has_chainer(worker_set.get("template")),
        "the pods of every worker set must contain a container named chainer: name the one that runs the program so",
        field="template.spec.containers",
    ),
    Rule(
        "spec",
        "!has(self.backend) || self.backend in ['', 'mpi']",
        lambda spec, old: spec.get("backend") in (None, "", MPI),
        "the backend is not supported; write backend: mpi, or leave it out",
        detail=lambda spec: f'backend:"{spec.get("backend")}" not supported; write backend: mpi, or leave it out',
        field="backend",
    ),
    restart_policy_rule("spec.master"),
    restart_policy_rule("spec.workerSets{}"),
)
RULES_AFTER_START = (
    Rule(
        "",
        f"!({IS_FIXED_CEL}) || !({_has_master_cel('self')}) || !({_has_master_cel('oldSelf')})"
        " || self.spec.master == oldSelf.spec.master",
        lambda new, old: (
            not is_immutable(new, old)
            or None in (masters := (new["spec"].get("master"), old["spec"].get("master")))
            or masters[0] == masters[1]
        ),
        "master is fixed once the job has started: suspend it and edit it then, or make a new job",
        transition=True,
        field="spec.master",
    ),
)
