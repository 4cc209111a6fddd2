"""The schema of an ElasticJob: its structs and CEL rules (docs/rules.md 2.2, S2, S24)."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from trainyard.core import Rule
from trainyard.core.names import MAX_LABEL_LENGTH, is_dns_label
from trainyard.core.status import MAX_REPLICAS
from trainyard.kinds.pods.templates import (
    NULLABLE,
    PRESERVE_UNKNOWN,
    PodTemplate,
    containers_of,
    restart_policy_rule,
    whole_number,
)
from trainyard.kinds.policies import Policies
from trainyard.objects import Json

WORKER = "Worker"
CONTAINER = "elasticjob-worker"
EXIT_CODE = "ExitCode"
IN_PLACE = ("OnFailure", "Always")
RUN_POLICIES = ("runPolicy", "RunPolicy")
"""Fields that may also hold the policies: the old operator read the Go field name, too (docs/rules.md 2.2)."""
C10D_BACKEND, NO_RENDEZVOUS = "c10d", "none"
LONGEST_NAME = MAX_LABEL_LENGTH - len("-worker-") - len(str(MAX_REPLICAS - 1))

Count = Annotated[int, Meta(ge=1, le=MAX_REPLICAS)]


class WorkerReplicas(msgspec.Struct, kw_only=True):
    """The nodes of an elastic job: each runs one launcher, which starts the trainers."""

    replicas: Annotated[Count, Meta(description="Number of workers; can change while the job runs.")] = 1
    template: Annotated[PodTemplate | None, Meta(extra_json_schema={**PRESERVE_UNKNOWN, **NULLABLE})] = None
    restartPolicy: Annotated[
        Literal["Always", "OnFailure", "Never", "ExitCode"] | None,
        Meta(description="ExitCode: 130, 137, 138 and 143 are retried, other codes fail the job. By default Never."),
    ] = None


class RunPolicies(Policies, kw_only=True):
    """Policies under their old field name."""


class IgnoredSchedulingPolicy(msgspec.Struct, kw_only=True):
    """Accepted for old manifests; has no effect."""

    minAvailable: int | None = None


class ElasticJobSpec(Policies, kw_only=True):
    """An elastic torch job: between minReplicas and maxReplicas nodes that meet at a rendezvous."""

    rdzvEndpoint: Annotated[
        Annotated[str, Meta(max_length=512)] | None,
        Meta(description="host:port of an etcd server; for c10d by default NAME-worker-0:29400."),
    ] = None
    rdzvBackend: Annotated[
        Literal["etcd", "etcd-v2", "c10d", "none"] | None,
        Meta(description="By default etcd. c10d: the store is in Worker 0. none: no rendezvous arguments are added."),
    ] = None
    minReplicas: Annotated[
        Count | None, Meta(description="The least number of workers with which training continues.")
    ] = None
    maxReplicas: Annotated[Count | None, Meta(description="The greatest number of workers.")] = None
    replicaSpecs: Annotated[
        dict[str, Annotated[WorkerReplicas, Meta(extra_json_schema=PRESERVE_UNKNOWN)]] | None,
        Meta(description="The replica set Worker.", extra_json_schema={"maxProperties": 8}),
    ] = None
    runPolicy: Annotated[RunPolicies | None, Meta(extra_json_schema={**PRESERVE_UNKNOWN, **NULLABLE})] = None
    RunPolicy: Annotated[RunPolicies | None, Meta(extra_json_schema={**PRESERVE_UNKNOWN, **NULLABLE})] = None
    schedulingPolicy: Annotated[
        IgnoredSchedulingPolicy | None, Meta(extra_json_schema={**PRESERVE_UNKNOWN, **NULLABLE})
    ] = None


def worker_of(spec: Json) -> Json:
    """The replica set Worker of a spec, {} when it is absent or malformed."""
    sets = spec.get("replicaSpecs")
    worker = sets.get(WORKER) if isinstance(sets, dict) else None
    return worker if isinstance(worker, dict) else {}


def has_worker(spec: Json) -> bool:
    """Whether the spec has the replica set Worker."""
    sets = spec.get("replicaSpecs")
    return isinstance(sets, dict) and isinstance(sets.get(WORKER), dict)


def _replica_type_message(sets: Any) -> str:
    other = next((name for name in sets if name != WORKER), "")
    text = f"there is one replica type, {WORKER}"
    return f"{text}, not {other}; write {WORKER}" if other else f"{text}; write replicaSpecs.{WORKER}"


def replicas_of(spec: Json) -> int | None:
    """The number of workers: 1 when unset, None when it is not a whole number."""
    replicas = worker_of(spec).get("replicas")
    return 1 if replicas is None else whole_number(replicas)


CHAINER_SET_SEPARATOR = "-workerset-"
"""Part of the pod names of ChainerJobs: NAME-workerset-x-worker-0 could be a pod of a ChainerJob or an ElasticJob."""


def _is_valid_name(job: Any, old: Any) -> bool:
    name = job["metadata"]["name"]
    return is_dns_label(name) and name[0].isalpha() and len(name) <= LONGEST_NAME


def _is_ordered(spec: Any, low_field: str, high_field: str) -> bool:
    """Whether one of minReplicas, maxReplicas and replicas is at most another; true when either is unset."""
    values = {"minReplicas": spec.get("minReplicas"), "maxReplicas": spec.get("maxReplicas"), "replicas": None}
    if has_worker(spec):
        values["replicas"] = replicas_of(spec)
    low, high = values[low_field], values[high_field]
    return low is None or high is None or low <= high


# 1 to 65535: otherwise the launcher would fail much later, when it connects to an invalid port.
_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_ENDPOINT = rf"([A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?|\[[0-9a-fA-F:.]+\])(:{_PORT})?"
_TEMPLATE = "self.replicaSpecs['Worker'].template"
_SETS = "has(self.replicaSpecs) && 'Worker' in self.replicaSpecs"

RULES = (
    Rule(
        "",
        f"self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && self.metadata.name.size() <= {LONGEST_NAME}",
        _is_valid_name,
        "the name is part of every Pod's and Service's name: write a letter, then lower-case letters, digits and '-', "
        f"at most {LONGEST_NAME} characters",
        field="metadata.name",
    ),
    Rule(
        "",
        f"!(self.metadata.name + '-').contains('{CHAINER_SET_SEPARATOR}')",
        lambda job, old: CHAINER_SET_SEPARATOR not in f"{job['metadata']['name']}-",
        "workerset is part of the names of a ChainerJob's pods, on which it has permissions: leave it out",
        field="metadata.name",
    ),
    Rule(
        "spec",
        "has(self.rdzvBackend) && self.rdzvBackend in ['c10d', 'none']"
        " || has(self.rdzvEndpoint) && self.rdzvEndpoint.size() > 0",
        lambda spec, old: spec.get("rdzvBackend") in (C10D_BACKEND, NO_RENDEZVOUS) or bool(spec.get("rdzvEndpoint")),
        "the workers need a rendezvous: write rdzvEndpoint, host:port of an etcd server; or rdzvBackend: c10d",
        field="rdzvEndpoint",
    ),
    Rule(
        "spec",
        f"!has(self.rdzvEndpoint) || self.rdzvEndpoint.size() == 0 || self.rdzvEndpoint.matches({f'^{_ENDPOINT}$'!r})",
        lambda spec, old: not spec.get("rdzvEndpoint") or is_endpoint(spec["rdzvEndpoint"]),
        "is not an address: write host:port, for example etcd-service:2379",
        field="rdzvEndpoint",
    ),
    Rule(
        "spec",
        "has(self.replicaSpecs) && self.replicaSpecs.size() > 0",
        lambda spec, old: bool(spec.get("replicaSpecs")),
        f"a job has replicas: write replicaSpecs.{WORKER} with a template",
        field="replicaSpecs",
    ),
    Rule(
        "spec.replicaSpecs",
        "self.size() == 0 || self.all(name, name == 'Worker')",
        lambda sets, old: all(name == WORKER for name in sets),
        f"there is one replica type, {WORKER}; write {WORKER}",
        detail=_replica_type_message,
    ),
    Rule(
        "spec",
        f"!({_SETS}) || (has({_TEMPLATE}) && {_TEMPLATE} != null && has({_TEMPLATE}.spec)"
        f" && has({_TEMPLATE}.spec.containers) && {_TEMPLATE}.spec.containers.size() > 0)",
        lambda spec, old: not has_worker(spec) or bool(containers_of(worker_of(spec).get("template"))),
        f"the workers have no containers: write a template with a container named {CONTAINER}",
        field="replicaSpecs.Worker.template",
    ),
    Rule(
        "spec",
        "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
        lambda spec, old: _is_ordered(spec, "minReplicas", "maxReplicas"),
        "minReplicas must not be above maxReplicas: raise maxReplicas or lower minReplicas",
        field="minReplicas",
    ),
    Rule(
        "spec",
        f"!({_SETS}) || !has(self.minReplicas) || self.minReplicas <= self.replicaSpecs['Worker'].replicas",
        lambda spec, old: _is_ordered(spec, "minReplicas", "replicas"),
        "replicas must not be below minReplicas: raise replicas or lower minReplicas",
        field="replicaSpecs.Worker.replicas",
    ),
    Rule(
        "spec",
        f"!({_SETS}) || !has(self.maxReplicas) || self.replicaSpecs['Worker'].replicas <= self.maxReplicas",
        lambda spec, old: _is_ordered(spec, "replicas", "maxReplicas"),
        "replicas must not be above maxReplicas: lower replicas or raise maxReplicas",
        field="replicaSpecs.Worker.replicas",
    ),
    restart_policy_rule("spec.replicaSpecs{}"),
)


def is_endpoint(text: str) -> bool:
    """Whether the text is host, host:port, [v6] or [v6]:port. Without a port it means port 2379."""
    return re.fullmatch(_ENDPOINT, text) is not None
