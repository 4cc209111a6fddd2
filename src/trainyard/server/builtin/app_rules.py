"""Validation of Deployments, ReplicaSets and StatefulSets, after type checks and defaulting."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainyard.api_types.pod_rules import template_problems
from trainyard.api_types.validators import NOT_NEGATIVE, selector_problems, validate_enum, validate_name
from trainyard.objects import Json, Problem
from trainyard.objects.json_equal import json_equal
from trainyard.objects.labels import parse_selector
from trainyard.schema.checks import json_text
from trainyard.server.builtin.claim_rules import claim_problems
from trainyard.server.registry.scale import selector_of

_IMMUTABLE = ("serviceName", "podManagementPolicy", "selector")
_NUMBERS = ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
_SET_NUMBERS = ("replicas", "minReadySeconds")
_SET_MUTABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_PERCENT = re.compile(r"[0-9]+%")
_PERCENT_TEXT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)


def validate_deployment(new: Json, old: Json | None) -> list[Problem]:
    """The problems of a Deployment, with the texts of kube-apiserver."""
    spec = new["spec"]
    problems = [*check_replica_set(new, old), *_deployment_strategy(spec["strategy"])]
    if (progress_deadline := spec["progressDeadlineSeconds"]) <= (spec.get("minReadySeconds") or 0):
        text = f"Invalid value: {progress_deadline}: must be greater than minReadySeconds"
        problems.append(Problem("spec.progressDeadlineSeconds", text))
    return problems


def check_replica_set(new: Json, old: Json | None) -> list[Problem]:
    """The problems of a ReplicaSet; a Deployment has them as well."""
    return [
        *_non_negative(new["spec"], _NUMBERS),
        *_selector_problems(new),
        *_template_problems(new["spec"], "ReplicaSet"),
    ]


def check_stateful_set(new: Json, old: Json | None) -> list[Problem]:
    """Problems of a StatefulSet. On update, all fields of its spec outside `_SET_MUTABLE` are immutable."""
    spec = new["spec"]
    problems = [
        *_non_negative(spec, _SET_NUMBERS),
        *_selector_problems(new),
        *_volume_claim_templates(spec),
        *_update_strategy(spec["updateStrategy"]),
    ]
    problems += _template_problems({**spec, "template": _template_with_claim_volumes(spec)}, "StatefulSet")
    if old is None and "." in (new["metadata"].get("name") or ""):
        text = f"Invalid value: {json_text(new['metadata']['name'])}: must not contain dots"
        problems.append(Problem("metadata.name", text))
    if name := spec.get("serviceName"):
        problems += validate_name(name, "spec.serviceName")
    for field in ("whenDeleted", "whenScaled"):
        path = f"spec.persistentVolumeClaimRetentionPolicy.{field}"
        problems += validate_enum(spec["persistentVolumeClaimRetentionPolicy"][field], ("Delete", "Retain"), path)
    problems += _non_negative(spec.get("ordinals") or {}, ("start",), "spec.ordinals")
    if old is not None and not json_equal(_set_fixed(spec), _set_fixed(old["spec"])):
        listed = ", ".join(f"'{name}'" for name in _SET_MUTABLE[:-1])
        text = f"updates to statefulset spec for fields other than {listed} and '{_SET_MUTABLE[-1]}' are forbidden"
        problems.append(Problem("spec", f"Forbidden: {text}"))
    return problems


def _set_fixed(spec: Json) -> Json:
    return {field: value for field, value in spec.items() if field not in (*_SET_MUTABLE, *_IMMUTABLE)}


def _non_negative(values: Json, names: tuple[str, ...], path: str = "spec") -> Iterator[Problem]:
    for field in names:
        if (number := values.get(field) or 0) < 0:
            yield Problem(f"{path}.{field}", f"Invalid value: {number}: {NOT_NEGATIVE}")


def _selector_problems(new: Json) -> Iterator[Problem]:
    """The selector is required, must be valid and not empty, and must match the labels of the pod template."""
    label_selector, path = new["spec"].get("selector"), "spec.selector"
    labels = (new["spec"]["template"].get("metadata") or {}).get("labels")
    selector_errors = list(selector_problems(label_selector or {}, path))
    yield from selector_errors
    if selector_errors:
        yield Problem(path, f"Invalid value: {json_text(label_selector)}: invalid label selector")
        return
    elif (
        label_selector is not None
        and not label_selector.get("matchLabels")
        and not label_selector.get("matchExpressions")
    ):
        yield Problem(path, f"Invalid value: {{}}: empty selector is invalid for {new['kind'].lower()}")
        return
    if label_selector is None or not parse_selector(selector_of(new))(labels or {}):
        text = f"Invalid value: {json_text(labels)}: `selector` does not match template `labels`"
        yield Problem("spec.template.metadata.labels", text)


def _template_problems(spec: Json, kind: str) -> Iterator[Problem]:
    yield from template_problems(spec["template"], "spec.template")
    pod = spec["template"]["spec"]
    if (policy := pod.get("restartPolicy")) != "Always":
        yield from validate_enum(policy, ("Always",), "spec.template.spec.restartPolicy")
    if pod.get("activeDeadlineSeconds") is not None:
        text = f"Forbidden: activeDeadlineSeconds in {kind} is not Supported"
        yield Problem("spec.template.spec.activeDeadlineSeconds", text)


def _deployment_strategy(strategy: Json) -> Iterator[Problem]:
    """Problems of a Deployment's `strategy`."""
    path = "spec.strategy.rollingUpdate"
    if strategy["type"] == "Recreate" and strategy.get("rollingUpdate") is not None:
        yield Problem(path, "Forbidden: may not be specified when strategy `type` is 'Recreate'")
    if strategy["type"] == "RollingUpdate":
        limits = {name: strategy["rollingUpdate"][name] for name in ("maxUnavailable", "maxSurge")}
        for name, limit in limits.items():
            yield from _int_or_percent(limit, f"{path}.{name}")
        if not any(_int_or_percent_value(limit) for limit in limits.values()):
            yield Problem(f"{path}.maxUnavailable", "Invalid value: 0: may not be 0 when `maxSurge` is 0")
        yield from _at_most_100_percent(limits["maxUnavailable"], f"{path}.maxUnavailable")


def _update_strategy(strategy: Json) -> Iterator[Problem]:
    """Problems of a StatefulSet's `updateStrategy`."""
    rolling_update: Any = strategy.get("rollingUpdate")
    path = "spec.updateStrategy.rollingUpdate"
    if strategy["type"] not in ("RollingUpdate", "OnDelete"):  # the type table has one that is not enabled
        text = f"Invalid value: {json_text(strategy['type'])}: must be 'RollingUpdate' or 'OnDelete'"
        yield Problem("spec.updateStrategy.type", text)
    elif strategy["type"] == "OnDelete" and rolling_update is not None:
        yield Problem(path, "Invalid value: only allowed for updateStrategy 'RollingUpdate'")
    elif strategy["type"] == "RollingUpdate":
        yield from _non_negative(rolling_update, ("partition",), path)
        yield from _int_or_percent(max_unavailable := rolling_update["maxUnavailable"], f"{path}.maxUnavailable")
        if not _int_or_percent_value(max_unavailable):
            yield Problem(f"{path}.maxUnavailable", f"Invalid value: {json_text(max_unavailable)}: cannot be 0")
        yield from _at_most_100_percent(max_unavailable, f"{path}.maxUnavailable")


def _int_or_percent(value: Any, path: str) -> Iterator[Problem]:
    """Problems of an IntOrString: a number of pods, or a percentage of all pods."""
    if isinstance(value, str) and not _PERCENT.fullmatch(value):
        yield Problem(path, f"Invalid value: {json_text(value)}: {_PERCENT_TEXT}")
    elif not isinstance(value, str) and value < 0:
        yield Problem(path, f"Invalid value: {value}: {NOT_NEGATIVE}")


def _int_or_percent_value(value: Any) -> int:
    if isinstance(value, str):
        return int(value[:-1][:9]) if _PERCENT.fullmatch(value) else 0
    return int(value)


def _at_most_100_percent(value: Any, path: str) -> Iterator[Problem]:
    if isinstance(value, str) and _int_or_percent_value(value) > 100:
        yield Problem(path, f"Invalid value: {json_text(value)}: must not be greater than 100%")


def _volume_claim_templates(spec: Json) -> Iterator[Problem]:
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        for problem in claim_problems(claim):
            yield Problem(f"spec.volumeClaimTemplates[{index}].{problem.path}", problem.text)


def _template_with_claim_volumes(spec: Json) -> Json:
    """The pod template with a volume for each volumeClaimTemplate, as the pods of the StatefulSet have it."""
    template = spec["template"]
    if not (claims := spec.get("volumeClaimTemplates")):
        return dict(template)
    names = [(claim.get("metadata") or {}).get("name") or "" for claim in claims]
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in dict.fromkeys(names)]
    other_volumes = [volume for volume in template["spec"].get("volumes") or () if volume.get("name") not in names]
    return {**template, "spec": {**template["spec"], "volumes": [*volumes, *other_volumes]}}
