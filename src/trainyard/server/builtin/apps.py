"""apps/v1: defaults and columns of Deployments, ReplicaSets and StatefulSets. Their controllers are elsewhere."""

from __future__ import annotations

from typing import Any

from trainyard.api_types.defaults import set_defaults, set_defaults_for_zero
from trainyard.api_types.pod_defaults import default_pod_spec
from trainyard.objects import Json
from trainyard.server.builtin.app_rules import check_replica_set, check_stateful_set, validate_deployment
from trainyard.server.builtin.jobs import containers, images, selector_text
from trainyard.server.builtin.pod_warnings import template_warnings
from trainyard.server.model.context import RequestContext
from trainyard.server.model.resources import Column, Resource, ScalePaths
from trainyard.server.registry.scale import selector_of
from trainyard.server.registry.tables import AGE, NAME


def _default_workload(new: Json, old: Json | None, context: RequestContext) -> Json:
    set_defaults(new, spec={})
    spec: Json = new["spec"]
    set_defaults(spec, replicas=1, template={})
    set_defaults(spec["template"], metadata={}, spec={})
    default_pod_spec(spec["template"]["spec"], is_pod=False)
    return spec


def _prepare_deployment(new: Json, old: Json | None, context: RequestContext) -> None:
    spec = _default_workload(new, old, context)
    set_defaults(spec, revisionHistoryLimit=10, progressDeadlineSeconds=600, strategy={})
    set_defaults_for_zero(spec["strategy"], type="RollingUpdate")
    if spec["strategy"]["type"] == "RollingUpdate":
        set_defaults(spec["strategy"], rollingUpdate={})
        set_defaults(spec["strategy"]["rollingUpdate"], maxSurge="25%", maxUnavailable="25%")
    if old is None:
        new["status"] = {}


def _prepare_replica_set(new: Json, old: Json | None, context: RequestContext) -> None:
    _default_workload(new, old, context)
    if old is None:
        new["status"] = {"replicas": 0}


def _prepare_stateful_set(new: Json, old: Json | None, context: RequestContext) -> None:
    spec = _default_workload(new, old, context)
    set_defaults_for_zero(spec, podManagementPolicy="OrderedReady")
    set_defaults(
        spec, revisionHistoryLimit=10, serviceName="", updateStrategy={}, persistentVolumeClaimRetentionPolicy={}
    )
    set_defaults_for_zero(spec["persistentVolumeClaimRetentionPolicy"], whenDeleted="Retain", whenScaled="Retain")
    set_defaults_for_zero(spec["updateStrategy"], type="RollingUpdate")
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        set_defaults(spec["updateStrategy"], rollingUpdate={})
        set_defaults(spec["updateStrategy"]["rollingUpdate"], partition=0, maxUnavailable=1)
    if spec.get("ordinals") is not None:
        set_defaults(spec["ordinals"], start=0)
    for claim in spec.get("volumeClaimTemplates") or ():
        set_defaults(claim, apiVersion="v1", kind="PersistentVolumeClaim", spec={}, status={"phase": "Pending"})
        set_defaults(claim["spec"], volumeMode="Filesystem")
    if old is None:
        new["status"] = {"replicas": 0, "availableReplicas": 0}


def _count(obj: Json, field: str) -> Any:
    return (obj.get("status") or {}).get(field) or 0


def _ready(obj: Json, now: float) -> str:
    return f"{_count(obj, 'readyReplicas')}/{obj['spec'].get('replicas')}"


_WIDE = (
    Column("Containers", containers, priority=1),
    Column("Images", images, priority=1),
    Column("Selector", selector_text, priority=1),
)

_WORKLOAD: Json = {
    "group": "apps",
    "categories": ("all",),
    "status": True,
    "scale": ScalePaths(selector=selector_of),
    "generation": True,
    "warnings": template_warnings,
}

RESOURCES = (
    Resource(
        **_WORKLOAD,
        kind="Deployment",
        plural="deployments",
        short=("deploy",),
        immutable=("spec.selector",),
        prepare=_prepare_deployment,
        check=validate_deployment,
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
        **_WORKLOAD,
        kind="ReplicaSet",
        plural="replicasets",
        short=("rs",),
        immutable=("spec.selector",),
        prepare=_prepare_replica_set,
        check=check_replica_set,
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
        **_WORKLOAD,
        kind="StatefulSet",
        plural="statefulsets",
        short=("sts",),
        immutable=("spec.serviceName", "spec.podManagementPolicy", "spec.selector"),
        prepare=_prepare_stateful_set,
        check=check_stateful_set,
        columns=(NAME, Column("Ready", _ready), AGE, *_WIDE[:2]),
    ),
)
