"""What a TfJob may look like: its structs, and the rules across fields with the old operator's texts (contract I.4).

The rules stand in the order in which the old operator looked: defaults first, then each replica set by itself.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from trainyard.core import Rule
from trainyard.core.names import LABEL_MAX, RUNTIME_ID
from trainyard.kinds import replica_list
from trainyard.kinds.policies import Policies
from trainyard.kinds.templates import KEEP, MAX_REPLICAS, NULL, PodTemplate, has_container
from trainyard.kinds.tensorboard import TensorBoard
from trainyard.objects import Json

MASTER, WORKER, PS = "MASTER", "WORKER", "PS"
TYPES = (MASTER, PS, WORKER)
CONTAINER = "tensorflow"
IMAGE = "tensorflow/tensorflow:1.3.0"
PORT = 2222
_ORDER = ("replicas", "template", "tfPort", "tfReplicaType", "IsDefaultPS")


class Replicas(msgspec.Struct, kw_only=True):
    """A set of TensorFlow processes of one type."""

    replicas: Annotated[int, Meta(ge=0, le=MAX_REPLICAS, description="How many.")] = 1
    template: Annotated[PodTemplate | None, Meta(extra_json_schema={**KEEP, **NULL})] = None
    tfPort: Annotated[int, Meta(ge=1, le=65535, description="Where each process of the set serves.")] = PORT
    tfReplicaType: Annotated[str, Meta(description="MASTER, PS or WORKER.")] = MASTER
    IsDefaultPS: Annotated[bool, Meta(description="The set runs the standard server that is mounted into it.")] = False


class TfJobSpec(Policies, kw_only=True):
    """A TensorFlow job: one MASTER, any number of WORKERs and parameter servers."""

    RuntimeId: Annotated[
        Annotated[str, Meta(pattern=f"^$|{RUNTIME_ID}")] | None,
        Meta(description="Names the children; worked out from the uid when it is not given."),
    ] = None
    replicaSpecs: Annotated[
        list[Annotated[Replicas, Meta(extra_json_schema=KEEP)]] | None,
        Meta(description="One set for each type.", extra_json_schema={"maxItems": len(TYPES)}),
    ] = None
    replica_specs: Annotated[
        list[Annotated[Replicas, Meta(extra_json_schema=KEEP)]] | None,
        Meta(description="The same as replicaSpecs.", extra_json_schema={"maxItems": len(TYPES)}),
    ] = None
    tensorboard: Annotated[TensorBoard | None, Meta(extra_json_schema={**KEEP, **NULL})] = None
    tensorBoard: Annotated[TensorBoard | None, Meta(extra_json_schema={**KEEP, **NULL})] = None
    tfImage: Annotated[str, Meta(min_length=1, description="Image of the default PS and of TensorBoard.")] = IMAGE


SPELLINGS = {"replica_specs": "replicaSpecs", "tensorBoard": "tensorboard"}


def _missing_template(item: Any) -> str:
    return (
        "there was a problem setting defaults for job spec: "
        f"ReplicaType: {item.get('tfReplicaType') or MASTER}, Replica is missing Template; "
        f"{replica_list.as_go(item, _ORDER)}; write a template; only a PS may go without"
    )


def _wrong_type(item: Any) -> str:
    found = item["tfReplicaType"]
    return f"invalid job spec: tfReplicaSpec.TfReplicaType is {found} but must be one of [MASTER PS WORKER]"


def _no_container(item: Any) -> str:
    return (
        f"invalid job spec: Replica type {item.get('tfReplicaType') or MASTER} "
        "is missing a container named tensorflow; name the container that runs the program tensorflow"
    )


def _same_shape(new: Any, old: Any) -> bool:
    """Nothing that shapes the cluster differs, or the job may still change: not started, or suspended (S11)."""
    if not (old.get("status") or {}).get("roles") or old["spec"].get("suspend") is True:
        return True
    then, items = replica_list.items_of(old["spec"]), replica_list.items_of(new["spec"])
    before = {item.get("tfReplicaType", MASTER): item for item in then}
    now = {item.get("tfReplicaType", MASTER): item for item in items}
    same_image = new["spec"].get("tfImage", IMAGE) == old["spec"].get("tfImage", IMAGE)
    same_types = len(items) == len(then) and now.keys() == before.keys()
    return same_image and same_types and all(_same_set(now[name], before[name]) for name in now)


def _once(names: list[str]) -> bool:
    return all(names.count(name) == 1 for name in names if name != MASTER)


def _same_set(new: Json, old: Json) -> bool:
    numbers = new.get("replicas", 1) == old.get("replicas", 1) and new.get("tfPort", PORT) == old.get("tfPort", PORT)
    # A default template that `kubectl apply` takes away again is the default all the same (S29).
    given = new.get("template"), old.get("template")
    return numbers and _is_default(new) == _is_default(old) and (None in given or given[0] == given[1])


def _is_default(item: Json) -> bool:
    return item.get("IsDefaultPS") is True or item.get("template") is None


_LIST = "spec.replicaSpecs"
_ITEM = "spec.replicaSpecs[]"


def _given(item: str) -> str:
    """A template that is null counts as one that is left out."""
    return f"(has({item}.template) && {item}.template != null)"


_BOTH = "(has(self.spec.replicaSpecs) ? self.spec.replicaSpecs : self.spec.replica_specs)"
_OLD = _BOTH.replace("self.", "oldSelf.")
_STARTED = "has(oldSelf.status) && has(oldSelf.status.roles) && !(has(oldSelf.spec.suspend) && oldSelf.spec.suspend)"

RULES = (
    Rule(
        "",
        f"self.metadata.name.size() <= {LABEL_MAX}",
        lambda job, old: len(job["metadata"]["name"]) <= LABEL_MAX,
        f"the name is a label of every child: write one of at most {LABEL_MAX} characters",
        at="metadata.name",
    ),
    Rule(
        "spec",
        "(has(self.replicaSpecs) && self.replicaSpecs.size() > 0)"
        " || (has(self.replica_specs) && self.replica_specs.size() > 0)",
        lambda spec, old: bool(spec.get("replicaSpecs") or spec.get("replica_specs")),
        "a job has replicas: write replicaSpecs, a list with one MASTER and, as needed, WORKER and PS",
        at="replicaSpecs",
    ),
    Rule(
        "spec",
        "!(has(self.replicaSpecs) && has(self.replica_specs))",
        lambda spec, old: not ("replicaSpecs" in spec and "replica_specs" in spec),
        "replicaSpecs and replica_specs are the same field: write one of the two",
        at="replica_specs",
    ),
    Rule(
        "spec",
        "!(has(self.tensorboard) && has(self.tensorBoard))",
        lambda spec, old: not ("tensorboard" in spec and "tensorBoard" in spec),
        "tensorboard and tensorBoard are the same field: write one of the two",
        at="tensorBoard",
    ),
    Rule(
        _ITEM,
        f"{_given('self')} || self.tfReplicaType == 'PS'",
        lambda item, old: item.get("template") is not None or item.get("tfReplicaType") == PS,
        "Replica is missing Template; write a template; only a PS may go without",
        detail=_missing_template,
        at="template",
        early=True,
    ),
    Rule(
        _ITEM,
        "self.tfReplicaType != 'MASTER' || self.replicas == 1",
        lambda item, old: item.get("tfReplicaType", MASTER) != MASTER or int(item.get("replicas", 1)) == 1,
        "invalid job spec: The MASTER must have Replicas = 1; write replicas: 1 or leave it out",
        at="replicas",
    ),
    Rule(
        _ITEM,
        "self.tfReplicaType in ['MASTER', 'PS', 'WORKER']",
        lambda item, old: item.get("tfReplicaType", MASTER) in TYPES,
        "invalid job spec: tfReplicaSpec.TfReplicaType must be one of [MASTER PS WORKER]",
        detail=_wrong_type,
        at="tfReplicaType",
    ),
    Rule(
        _ITEM,
        f"self.tfReplicaType == 'PS' || !{_given('self')} || (has(self.template.spec)"
        " && has(self.template.spec.containers) && self.template.spec.containers.exists(c, c.name == 'tensorflow'))",
        lambda item, old: (
            item.get("tfReplicaType") == PS
            or item.get("template") is None
            or has_container(item["template"], CONTAINER)
        ),
        "invalid job spec: Replica type is missing a container named tensorflow",
        detail=_no_container,
        at="template.spec.containers",
    ),
    Rule(
        _LIST,
        "self.filter(r, r.tfReplicaType == 'MASTER').size() == 1 || self.size() == 0",
        lambda items, old: not items or sum(item.get("tfReplicaType", MASTER) == MASTER for item in items) == 1,
        "a job must have 1 and only 1 master: list the type MASTER exactly once (a type left out is MASTER)",
    ),
    Rule(
        _LIST,
        "self.all(r, r.tfReplicaType == 'MASTER' || self.filter(o, o.tfReplicaType == r.tfReplicaType).size() == 1)",
        lambda items, old: _once([item.get("tfReplicaType", MASTER) for item in items]),
        "a type may be listed only once: put its replicas into one set",
    ),
    Rule(
        "spec.tensorboard",
        "has(self.logDir) && self.logDir.size() > 0",
        lambda board, old: bool(board.get("logDir")),
        "tbReplicaSpec.LogDir must be specified; write the directory that holds the event files",
        at="logDir",
    ),
    Rule(
        "",
        f"!({_STARTED}) || ({_BOTH}.size() == {_OLD}.size()"
        " && self.spec.tfImage == oldSelf.spec.tfImage"
        f" && {_BOTH}.all(r, {_OLD}.exists(o, o.tfReplicaType == r.tfReplicaType && o.replicas == r.replicas"
        f" && o.tfPort == r.tfPort && (!{_given('r')} || !{_given('o')} || r.template == o.template)"
        f" && (r.IsDefaultPS || !{_given('r')}) == (o.IsDefaultPS || !{_given('o')}))))",
        _same_shape,
        "replicaSpecs and tfImage are fixed once the job has started: suspend it and edit it then, or make a new job",
        transition=True,
        at="spec.replicaSpecs",
    ),
    Rule(
        "",
        "!has(oldSelf.spec.RuntimeId) || oldSelf.spec.RuntimeId == '' || !has(self.spec.RuntimeId)"
        " || self.spec.RuntimeId == oldSelf.spec.RuntimeId",
        lambda job, old: (
            not old["spec"].get("RuntimeId") or job["spec"].get("RuntimeId") in (None, old["spec"]["RuntimeId"])
        ),
        "RuntimeId names the children and cannot change: leave it as it is",
        transition=True,
        at="spec.RuntimeId",
    ),
)
