"""The schema of a TfJob: its structs, and its CEL rules with the old operator's texts (rules.md I.4).

The rules are in the order in which the old operator checked them: defaults first, then each replica set by itself.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from trainyard.core import Rule
from trainyard.core.names import MAX_LABEL_LENGTH, RUNTIME_ID
from trainyard.core.status import MAX_REPLICAS
from trainyard.kinds import replica_list
from trainyard.kinds.pods.templates import NULLABLE, PRESERVE_UNKNOWN, PodTemplate, has_container, restart_policy_rule
from trainyard.kinds.policies import Policies
from trainyard.kinds.replica_list import has_template_cel
from trainyard.kinds.tensorboard import TensorBoard
from trainyard.objects import Json

MASTER, WORKER, PS = "MASTER", "WORKER", "PS"
CHIEF = "chief"
TYPES = (MASTER, PS, WORKER)
CONTAINER = "tensorflow"
IMAGE = "tensorflow/tensorflow:1.3.0"
PORT = 2222
_PRINTED_FIELDS = ("replicas", "template", "tfPort", "tfReplicaType", "IsDefaultPS")


class TfReplicaSpec(msgspec.Struct, kw_only=True):
    """A set of TensorFlow processes of one type."""

    replicas: Annotated[int, Meta(ge=0, le=MAX_REPLICAS, description="Number of replicas.")] = 1
    template: Annotated[PodTemplate | None, Meta(extra_json_schema={**PRESERVE_UNKNOWN, **NULLABLE})] = None
    tfPort: Annotated[int, Meta(ge=1, le=65535, description="The port of each replica.")] = PORT
    tfReplicaType: Annotated[str, Meta(description="MASTER, PS or WORKER.")] = MASTER
    IsDefaultPS: Annotated[bool, Meta(description="The set runs the standard TensorFlow server.")] = False


class TfJobSpec(Policies, kw_only=True):
    """A TensorFlow job: one MASTER, any number of WORKERs and parameter servers."""

    RuntimeId: Annotated[
        Annotated[str, Meta(pattern=f"^$|{RUNTIME_ID}")] | None,
        Meta(description="Part of the names of the children; derived from the uid by default."),
    ] = None
    replicaSpecs: Annotated[
        list[Annotated[TfReplicaSpec, Meta(extra_json_schema={**PRESERVE_UNKNOWN, **NULLABLE})]] | None,
        Meta(description="One replica set for each type.", extra_json_schema={"maxItems": len(TYPES)}),
    ] = None
    replica_specs: Annotated[
        list[Annotated[TfReplicaSpec, Meta(extra_json_schema={**PRESERVE_UNKNOWN, **NULLABLE})]] | None,
        Meta(description="The same as replicaSpecs.", extra_json_schema={"maxItems": len(TYPES)}),
    ] = None
    tensorboard: Annotated[TensorBoard | None, Meta(extra_json_schema={**PRESERVE_UNKNOWN, **NULLABLE})] = None
    tensorBoard: Annotated[TensorBoard | None, Meta(extra_json_schema={**PRESERVE_UNKNOWN, **NULLABLE})] = None
    tfImage: Annotated[str, Meta(min_length=1, description="Image of the default PS and of TensorBoard.")] = IMAGE
    masterTaskType: Annotated[
        Literal["master", "chief"] | None,
        Meta(
            description="The task type of the MASTER in TF_CONFIG: by default master; TensorFlow 2 accepts only chief."
        ),
    ] = None


FIELD_ALIASES = {"replica_specs": "replicaSpecs", "tensorBoard": "tensorboard"}


def _missing_template_message(item: Any) -> str:
    return (
        "there was a problem setting defaults for job spec: "
        f"ReplicaType: {item.get('tfReplicaType') or MASTER}, Replica is missing Template; "
        f"{replica_list.printed_replica_spec(item, _PRINTED_FIELDS)}; write a template; only a PS may go without"
    )


def _wrong_type_message(item: Any) -> str:
    replica_type = item["tfReplicaType"]
    return f"invalid job spec: tfReplicaSpec.TfReplicaType is {replica_type} but must be one of [MASTER PS WORKER]"


def _no_container_message(item: Any) -> str:
    return (
        f"invalid job spec: Replica type {item.get('tfReplicaType') or MASTER} "
        "is missing a container named tensorflow; name the container that runs the program tensorflow"
    )


def _is_default_ps(item: Json) -> bool:
    return item.get("IsDefaultPS") is True or item.get("template") is None


_LIST = "spec.replicaSpecs"
_ITEM = "spec.replicaSpecs[]"
_REPLICA_TYPE = replica_list.ReplicaType("tfReplicaType", MASTER)
_IMMUTABLE_FIELDS = replica_list.ImmutableFields(
    spec_cel="self.spec.tfImage == oldSelf.spec.tfImage"
    " && (has(self.spec.masterTaskType) && self.spec.masterTaskType == 'chief')"
    " == (has(oldSelf.spec.masterTaskType) && oldSelf.spec.masterTaskType == 'chief')",
    is_same_spec=lambda new, old: (
        new.get("tfImage", IMAGE) == old.get("tfImage", IMAGE)
        and (new.get("masterTaskType") == CHIEF) == (old.get("masterTaskType") == CHIEF)
    ),
    replica_set_cel=(
        f"o.tfPort == r.tfPort && (r.IsDefaultPS || !{has_template_cel('r')})"
        f" == (o.IsDefaultPS || !{has_template_cel('o')})"
    ),
    is_same_replica_set=lambda new, old: (
        new.get("tfPort", PORT) == old.get("tfPort", PORT) and _is_default_ps(new) == _is_default_ps(old)
    ),
)

RULES = (
    Rule(
        "",
        f"self.metadata.name.size() <= {MAX_LABEL_LENGTH}",
        lambda job, old: len(job["metadata"]["name"]) <= MAX_LABEL_LENGTH,
        f"the name is a label of every child: write one of at most {MAX_LABEL_LENGTH} characters",
        field="metadata.name",
    ),
    replica_list.not_empty_rule("one MASTER and, as needed, WORKER and PS"),
    replica_list.one_name_rule("replicaSpecs", "replica_specs"),
    replica_list.one_name_rule("tensorboard", "tensorBoard", nullable=True),
    replica_list.NO_NULL_RULE,
    Rule(
        _ITEM,
        f"{has_template_cel('self')} || self.tfReplicaType == 'PS'",
        lambda item, old: item.get("template") is not None or item.get("tfReplicaType") == PS,
        "Replica is missing Template; write a template; only a PS may go without",
        detail=_missing_template_message,
        field="template",
        early=True,
    ),
    Rule(
        _ITEM,
        "self.tfReplicaType != 'MASTER' || self.replicas == 1",
        lambda item, old: item.get("tfReplicaType", MASTER) != MASTER or item.get("replicas", 1) == 1,
        "invalid job spec: The MASTER must have Replicas = 1; write replicas: 1 or leave it out",
        field="replicas",
    ),
    Rule(
        _ITEM,
        "self.tfReplicaType in ['MASTER', 'PS', 'WORKER']",
        lambda item, old: item.get("tfReplicaType", MASTER) in TYPES,
        "invalid job spec: tfReplicaSpec.TfReplicaType must be one of [MASTER PS WORKER]",
        detail=_wrong_type_message,
        field="tfReplicaType",
    ),
    Rule(
        _ITEM,
        f"self.tfReplicaType == 'PS' || !{has_template_cel('self')}"
        " || self.template.spec.containers.exists(c, c.name == 'tensorflow')",
        lambda item, old: (
            item.get("tfReplicaType") == PS
            or item.get("template") is None
            or has_container(item["template"], CONTAINER)
        ),
        "invalid job spec: Replica type is missing a container named tensorflow",
        detail=_no_container_message,
        field="template.spec.containers",
    ),
    Rule(
        _LIST,
        f"{replica_list.has_null_cel('self')} || self.filter(r, r.tfReplicaType == 'MASTER').size() == 1"
        " || self.size() == 0",
        lambda items, old: not items or sum(item.get("tfReplicaType", MASTER) == MASTER for item in items) == 1,
        "a job must have 1 and only 1 master: list the type MASTER exactly once (a type left out is MASTER)",
    ),
    replica_list.unique_types_rule(_REPLICA_TYPE, except_type=MASTER),
    Rule(
        "spec.tensorboard",
        "has(self.logDir) && self.logDir.size() > 0",
        lambda tensorboard, old: bool(tensorboard.get("logDir")),
        "tbReplicaSpec.LogDir must be specified; write the directory that holds the event files",
        field="logDir",
    ),
    restart_policy_rule(_ITEM),
)
RULES_AFTER_START = (
    replica_list.immutable_rule(_REPLICA_TYPE, _IMMUTABLE_FIELDS, "replicaSpecs, tfImage and masterTaskType are fixed"),
    replica_list.RUNTIME_ID_IMMUTABLE_RULE,
)
