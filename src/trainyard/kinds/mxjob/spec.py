"""The schema of an MxJob: its structs, and its CEL rules with the old operator's texts (rules.md II.3).

The rules are in the order in which the old operator checked them.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from trainyard.core import Rule
from trainyard.core.names import MAX_LABEL_LENGTH, RUNTIME_ID, is_dns_label
from trainyard.core.status import MAX_REPLICAS
from trainyard.kinds import replica_list
from trainyard.kinds.pods.templates import NULLABLE, PRESERVE_UNKNOWN, PodTemplate, has_container, restart_policy_rule
from trainyard.kinds.policies import Policies
from trainyard.kinds.replica_list import has_template_cel
from trainyard.objects import Json

SCHEDULER, SERVER, WORKER = "SCHEDULER", "SERVER", "WORKER"
TYPES = (SCHEDULER, SERVER, WORKER)
LOCAL, DIST = "local", "dist"
CONTAINER = "mxnet"
PORT = 9091
FIELD_ALIASES = {"replica_specs": "replicaSpecs"}
LONGEST_NAME = MAX_LABEL_LENGTH - len("-scheduler-") - len("-0")
"""Longest name and RuntimeId together: then `<job>-scheduler-<RuntimeId>-0` and `<job>-worker-<RuntimeId>-9999` fit."""

_PRINTED_FIELDS = ("replicas", "template", "PsRootPort", "mxReplicaType")
_REPLICA_TYPE = replica_list.ReplicaType("mxReplicaType", WORKER)
_LIST = "spec.replicaSpecs"
_ITEM = "spec.replicaSpecs[]"


class MxReplicaSpec(msgspec.Struct, kw_only=True):
    """A set of MXNet processes of one type."""

    replicas: Annotated[int, Meta(ge=0, le=MAX_REPLICAS, description="Number of replicas; 1 for the SCHEDULER.")] = 1
    template: Annotated[PodTemplate | None, Meta(extra_json_schema={**PRESERVE_UNKNOWN, **NULLABLE})] = None
    PsRootPort: Annotated[int, Meta(ge=1, le=65535, description="The port of the SCHEDULER.")] = PORT
    mxReplicaType: Annotated[str, Meta(description="SCHEDULER, SERVER or WORKER.")] = WORKER


class MxJobSpec(Policies, kw_only=True):
    """An MXNet job: one WORKER in local mode; one SCHEDULER, SERVERs and WORKERs in dist mode."""

    RuntimeId: Annotated[
        Annotated[str, Meta(pattern=f"^$|{RUNTIME_ID}")] | None,
        Meta(description="Part of the names of the children; derived from the uid by default."),
    ] = None
    jobMode: Annotated[str, Meta(description="local or dist.")] = ""
    replicaSpecs: Annotated[
        list[Annotated[MxReplicaSpec, Meta(extra_json_schema={**PRESERVE_UNKNOWN, **NULLABLE})]] | None,
        Meta(description="One replica set for each type.", extra_json_schema={"maxItems": len(TYPES)}),
    ] = None
    replica_specs: Annotated[
        list[Annotated[MxReplicaSpec, Meta(extra_json_schema={**PRESERVE_UNKNOWN, **NULLABLE})]] | None,
        Meta(description="The same as replicaSpecs.", extra_json_schema={"maxItems": len(TYPES)}),
    ] = None


def _missing_template_message(item: Any) -> str:
    return (
        "there was a problem setting defaults for job spec: Replica is missing Template; "
        f"{replica_list.printed_replica_spec(item, _PRINTED_FIELDS)}; "
        f"write a template with a container named {CONTAINER}"
    )


def _wrong_type_message(item: Any) -> str:
    replica_type = item["mxReplicaType"]
    return (
        f"invalid job spec: MxReplicaSpec.MxReplicaType is {replica_type} but must be one of [SCHEDULER SERVER WORKER]"
    )


def _no_container_message(item: Any) -> str:
    return (
        f"invalid job spec: Replica type {_REPLICA_TYPE.of_item(item)} is missing a container for mxnet; "
        "name the container that runs the program mxnet"
    )


def _for_each_list_cel(condition: str) -> str:
    """CEL: the condition on `list` holds for the list of replica sets, under either field name."""
    lists = (f"self.{name}" for name in (replica_list.REPLICA_SPECS, replica_list.REPLICA_SPECS_ALIAS))
    return " && ".join(
        f"(!has({path}) || {replica_list.has_null_cel(path)} || {condition.replace('list', path)})" for path in lists
    )


def _items(spec: Json) -> list[Json]:
    return [item for items in replica_list.lists_of(spec) for item in items]


def _missing_types(spec: Any) -> list[str]:
    lists = [{_REPLICA_TYPE.of_item(item) for item in items} for items in replica_list.lists_of(spec) if items]
    return [name for name in TYPES if spec.get("jobMode") == DIST and any(name not in types for types in lists)]


def _missing_type_message(spec: Any) -> str:
    missing = _missing_types(spec)[0]
    return f"invalid job spec: dist job mode without replica type {missing}; add a set with mxReplicaType: {missing}"


def _is_valid_name(job: Any, old: Any) -> bool:
    name, runtime_id = job["metadata"]["name"], job["spec"].get("RuntimeId")
    # A generated RuntimeId has 4 characters.
    return is_dns_label(name) and len(name) + len(runtime_id or "1kkf") <= LONGEST_NAME


_ALL_WORKERS = "list.all(r, r.mxReplicaType == 'WORKER')"
_EVERY_TYPE = "list.size() == 0 || ['SCHEDULER', 'SERVER', 'WORKER'].all(t, list.exists(r, r.mxReplicaType == t))"
_RUNTIME_ID_SIZE = "(has(self.spec.RuntimeId) && self.spec.RuntimeId.size() > 0 ? self.spec.RuntimeId.size() : 4)"
_IMMUTABLE_FIELDS = replica_list.ImmutableFields(
    spec_cel="self.spec.jobMode == oldSelf.spec.jobMode",
    is_same_spec=lambda new, old: bool(new.get("jobMode", "") == old.get("jobMode", "")),
    replica_set_cel="o.PsRootPort == r.PsRootPort",
    is_same_replica_set=lambda new, old: bool(new.get("PsRootPort", PORT) == old.get("PsRootPort", PORT)),
)

RULES = (
    Rule(
        "",
        f"self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')"
        f" && self.metadata.name.size() + {_RUNTIME_ID_SIZE} <= {LONGEST_NAME}",
        _is_valid_name,
        "the name is part of every child's name, which has at most 63 characters: write one of at most "
        f"{LONGEST_NAME - 4} lower-case letters, digits and '-' (fewer with a longer RuntimeId)",
        field="metadata.name",
    ),
    replica_list.not_empty_rule("one WORKER (local), or SCHEDULER, SERVER and WORKER (dist)"),
    replica_list.one_name_rule("replicaSpecs", "replica_specs"),
    replica_list.NO_NULL_RULE,
    Rule(
        _ITEM,
        has_template_cel("self"),
        lambda item, old: item.get("template") is not None,
        "there was a problem setting defaults for job spec: Replica is missing Template; write a template",
        detail=_missing_template_message,
        field="template",
        early=True,
    ),
    Rule(
        _ITEM,
        "self.mxReplicaType in ['SCHEDULER', 'SERVER', 'WORKER']",
        lambda item, old: _REPLICA_TYPE.of_item(item) in TYPES,
        "invalid job spec: MxReplicaSpec.MxReplicaType must be one of [SCHEDULER SERVER WORKER]",
        detail=_wrong_type_message,
        field="mxReplicaType",
    ),
    Rule(
        _ITEM,
        f"!{has_template_cel('self')} || self.template.spec.containers.exists(c, c.name == 'mxnet')",
        lambda item, old: item.get("template") is None or has_container(item["template"], CONTAINER),
        "invalid job spec: Replica type is missing a container for mxnet; name the container of the program mxnet",
        detail=_no_container_message,
        field="template.spec.containers",
    ),
    Rule(
        "spec",
        f"self.jobMode != 'local' || ({_for_each_list_cel(_ALL_WORKERS)})",
        lambda spec, old: (
            spec.get("jobMode") != LOCAL or all(_REPLICA_TYPE.of_item(item) == WORKER for item in _items(spec))
        ),
        "invalid job spec: job mode is local, but its replicas set have replicas type other than worker; "
        "write jobMode: dist, or leave only the WORKER",
        field="jobMode",
    ),
    Rule(
        "spec",
        f"self.jobMode != 'local' || ({_for_each_list_cel('list.all(r, r.replicas <= 1)')})",
        lambda spec, old: spec.get("jobMode") != LOCAL or all(item.get("replicas", 1) <= 1 for item in _items(spec)),
        "invalid job spec: job mode is local, but it has more than 1 worker; write replicas: 1, or jobMode: dist",
        field="jobMode",
    ),
    Rule(
        "spec",
        f"self.jobMode != 'dist' || ({_for_each_list_cel(_EVERY_TYPE)})",
        lambda spec, old: not _missing_types(spec),
        "invalid job spec: dist job mode without replica type SCHEDULER, SERVER or WORKER; add the set that is missing",
        detail=_missing_type_message,
        field="replicaSpecs",
    ),
    Rule(
        "spec",
        "self.jobMode in ['local', 'dist']",
        lambda spec, old: spec.get("jobMode", "") in (LOCAL, DIST),
        "invalid job spec: unkonw job mode; write jobMode: local or jobMode: dist",
        detail=lambda spec: (
            f"invalid job spec: unkonw job mode {spec.get('jobMode', '')}; write jobMode: local or jobMode: dist"
        ),
        field="jobMode",
    ),
    Rule(
        _ITEM,
        "self.mxReplicaType != 'SCHEDULER' || self.replicas == 1",
        lambda item, old: item.get("mxReplicaType") != SCHEDULER or item.get("replicas", 1) == 1,
        "The SCHEDULER must have Replicas = 1; write replicas: 1 or leave it out",
        field="replicas",
    ),
    replica_list.unique_types_rule(_REPLICA_TYPE),
    restart_policy_rule(_ITEM),
)
RULES_AFTER_START = (
    replica_list.immutable_rule(_REPLICA_TYPE, _IMMUTABLE_FIELDS, "jobMode and replicaSpecs are fixed"),
    replica_list.RUNTIME_ID_IMMUTABLE_RULE,
)
