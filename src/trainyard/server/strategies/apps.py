"""apps/v1: Deployments, ReplicaSets, StatefulSets. What they do is a controller's business; here they are objects."""

from __future__ import annotations

from typing import Any

from trainyard.objects import Json, Problem
from trainyard.objects.labels import matches
from trainyard.schema.checks import shown
from trainyard.server.resources import Column, Resource, Scaled
from trainyard.server.same import same
from trainyard.server.scale import selector_of
from trainyard.server.site import Site
from trainyard.server.strategies.jobs import containers, images, selector_text
from trainyard.server.strategies.pod_rules import template_problems
from trainyard.server.strategies.shapes import BOOLEAN, COUNT, FREE, STRING, fill, many, needed, obj, whole
from trainyard.server.strategies.templates import SELECTOR, TEMPLATE, default_pod_spec
from trainyard.server.tables import AGE, NAME

_SPEC = obj(
    ("selector", "template"),
    selector=needed(SELECTOR),
    template=needed(TEMPLATE),
    replicas=COUNT,
    minReadySeconds=COUNT,
    revisionHistoryLimit=COUNT,
    progressDeadlineSeconds=COUNT,
    paused=BOOLEAN,
    strategy=FREE,
)
_SET_SPEC = obj(
    ("selector", "template"),
    selector=needed(SELECTOR),
    template=needed(TEMPLATE),
    replicas=COUNT,
    serviceName=STRING,
    podManagementPolicy=STRING,
    updateStrategy=obj(type=STRING, rollingUpdate=obj(partition=COUNT)),
    revisionHistoryLimit=COUNT,
    minReadySeconds=COUNT,
    ordinals=obj(start=COUNT),
    persistentVolumeClaimRetentionPolicy=obj(whenDeleted=STRING, whenScaled=STRING),
    volumeClaimTemplates=many(FREE),
)
SET_FIXED = ("serviceName", "podManagementPolicy", "selector")
_SET_MAY_CHANGE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_SCALED = Scaled(selector=selector_of)


def _workload(new: Json) -> Json:
    spec: Json = new["spec"]
    fill(spec, replicas=1)
    fill(spec["template"], metadata={})
    default_pod_spec(spec["template"]["spec"], at_home=False)
    return spec


def prepare_deployment(new: Json, old: Json | None, site: Site) -> None:
    spec = _workload(new)
    rolling = {"maxSurge": "25%", "maxUnavailable": "25%"}
    fill(spec, strategy={"type": "RollingUpdate", "rollingUpdate": rolling})
    fill(spec, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    if old is None:
        new["status"] = {}


def prepare_replica_set(new: Json, old: Json | None, site: Site) -> None:
    _workload(new)
    if old is None:
        new["status"] = {"replicas": 0}


def prepare_stateful_set(new: Json, old: Json | None, site: Site) -> None:
    spec = _workload(new)
    fill(spec, podManagementPolicy="OrderedReady", revisionHistoryLimit=10, serviceName="", updateStrategy={})
    fill(spec, persistentVolumeClaimRetentionPolicy={})
    fill(spec["persistentVolumeClaimRetentionPolicy"], whenDeleted="Retain", whenScaled="Retain")
    fill(spec["updateStrategy"], type="RollingUpdate")
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        fill(spec["updateStrategy"], rollingUpdate={})
        fill(spec["updateStrategy"]["rollingUpdate"], partition=0)
    if old is None:
        new["status"] = {"replicas": 0, "availableReplicas": 0}


def check_stateful_set(new: Json, old: Json | None) -> list[Problem]:
    """As other workloads; beside the fields that may change, its spec stays as it was made."""
    found, spec = check(new, old), new["spec"]
    if spec["podManagementPolicy"] not in ("OrderedReady", "Parallel"):
        text = f"Invalid value: {shown(spec['podManagementPolicy'])}: must be 'OrderedReady' or 'Parallel'"
        found.append(Problem("spec.podManagementPolicy", text))
    kind = spec["updateStrategy"]["type"]
    if kind not in ("RollingUpdate", "OnDelete"):
        text = f"Invalid value: {shown(kind)}: must be 'RollingUpdate' or 'OnDelete'"
        found.append(Problem("spec.updateStrategy", text))
    elif kind == "OnDelete" and spec["updateStrategy"].get("rollingUpdate") is not None:
        text = "Invalid value: only allowed for updateStrategy 'RollingUpdate'"
        found.append(Problem("spec.updateStrategy.rollingUpdate", text))
    for word in ("whenDeleted", "whenScaled"):
        said = spec["persistentVolumeClaimRetentionPolicy"][word]
        if said not in ("Retain", "Delete"):
            text = f'Unsupported value: {shown(said)}: supported values: "Retain", "Delete"'
            found.append(Problem(f"spec.persistentVolumeClaimRetentionPolicy.{word}", text))
    if spec["template"]["spec"].get("activeDeadlineSeconds") is not None:
        text = "Forbidden: activeDeadlineSeconds in StatefulSet is not Supported"
        found.append(Problem("spec.template.spec.activeDeadlineSeconds", text))
    for word in SET_FIXED:
        if old is not None and not same(spec.get(word), old["spec"].get(word)):
            found.append(Problem(f"spec.{word}", f"Invalid value: {shown(spec.get(word))}: field is immutable"))
    if old is not None and not same(_set_fixed(spec), _set_fixed(old["spec"])):
        listed = ", ".join(f"'{name}'" for name in _SET_MAY_CHANGE[:-1])
        text = f"updates to statefulset spec for fields other than {listed} and '{_SET_MAY_CHANGE[-1]}' are forbidden"
        found.append(Problem("spec", f"Forbidden: {text}"))
    return found


def _set_fixed(spec: Json) -> Json:
    return {name: part for name, part in spec.items() if name not in (*_SET_MAY_CHANGE, *SET_FIXED)}


def check(new: Json, old: Json | None) -> list[Problem]:
    spec = new["spec"]
    found = template_problems(spec["template"], "spec.template")
    wanted = spec["selector"].get("matchLabels") or {}
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    if not wanted and not spec["selector"].get("matchExpressions"):
        text = "Invalid value: {}: empty selector is invalid for " + new["kind"].lower()
        found.append(Problem("spec.selector", text))
    elif wanted and not matches(wanted, labels):
        text = f"Invalid value: {shown(labels)}: `selector` does not match template `labels`"
        found.append(Problem("spec.template.metadata.labels", text))
    if spec["template"]["spec"].get("restartPolicy") != "Always":
        policy = spec["template"]["spec"]["restartPolicy"]
        text = f'Unsupported value: {shown(policy)}: supported values: "Always"'
        found.append(Problem("spec.template.spec.restartPolicy", text))
    return found


def _count(obj: Json, field: str) -> Any:
    return (obj.get("status") or {}).get(field) or 0


def _ready(obj: Json, now: float) -> str:
    return f"{_count(obj, 'readyReplicas')}/{obj['spec'].get('replicas')}"


_WIDE = (
    Column("Containers", containers, priority=1),
    Column("Images", images, priority=1),
    Column("Selector", selector_text, priority=1),
)

RESOURCES = (
    Resource(
        group="apps",
        kind="Deployment",
        plural="deployments",
        short=("deploy",),
        categories=("all",),
        status=True,
        scale=_SCALED,
        generation=True,
        immutable=("spec.selector",),
        schema=whole(_SPEC),
        prepare=prepare_deployment,
        check=check,
        columns=(
            NAME,
            Column("Ready", _ready),
            Column("Up-to-date", lambda obj, now: _count(obj, "updatedReplicas")),
            Column("Available", lambda obj, now: _count(obj, "availableReplicas")),
            AGE,
            *_WIDE,
        ),
    ),
    Resource(
        group="apps",
        kind="ReplicaSet",
        plural="replicasets",
        short=("rs",),
        categories=("all",),
        status=True,
        scale=_SCALED,
        generation=True,
        immutable=("spec.selector",),
        schema=whole(_SPEC),
        prepare=prepare_replica_set,
        check=check,
        columns=(
            NAME,
            Column("Desired", lambda obj, now: obj["spec"].get("replicas"), type="integer"),
            Column("Current", lambda obj, now: _count(obj, "replicas"), type="integer"),
            Column("Ready", lambda obj, now: _count(obj, "readyReplicas"), type="integer"),
            AGE,
            *_WIDE,
        ),
    ),
    Resource(
        group="apps",
        kind="StatefulSet",
        plural="statefulsets",
        short=("sts",),
        categories=("all",),
        status=True,
        scale=_SCALED,
        generation=True,
        schema=whole(_SET_SPEC),
        prepare=prepare_stateful_set,
        check=check_stateful_set,
        columns=(NAME, Column("Ready", _ready), AGE, *_WIDE[:2]),
    ),
)
