"""What the real server refuses of Deployments, ReplicaSets and StatefulSets. Types are checked, defaults are in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trainyard.objects import Json, Problem
from trainyard.objects.labels import selector
from trainyard.schema.checks import shown
from trainyard.server.same import same
from trainyard.server.scale import selector_of
from trainyard.server.strategies.claim_rules import claim_problems
from trainyard.server.strategies.pod_rules import template_problems
from trainyard.server.strategies.refusing import NOT_NEGATIVE, named, one_of, selector_problems

STRATEGIES = ("Recreate", "RollingUpdate")
UPDATES = ("RollingUpdate", "OnDelete")
POLICIES = ("OrderedReady", "Parallel")
RETENTIONS = ("Delete", "Retain")
SET_FIXED = ("serviceName", "podManagementPolicy", "selector")
_NUMBERS = ("replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
_SET_NUMBERS = ("replicas", "minReadySeconds")
_SET_MAY_CHANGE = (
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


def check_deployment(new: Json, old: Json | None) -> list[Problem]:
    spec = new["spec"]
    found = [*check_replica_set(new, old), *_strategy(spec["strategy"])]
    if (most := spec["progressDeadlineSeconds"]) <= (spec.get("minReadySeconds") or 0):
        text = f"Invalid value: {most}: must be greater than minReadySeconds"
        found.append(Problem("spec.progressDeadlineSeconds", text))
    return found


def check_replica_set(new: Json, old: Json | None) -> list[Problem]:
    return [*_numbers(new["spec"], _NUMBERS), *_selector(new), *_template(new["spec"], "ReplicaSet")]


def check_stateful_set(new: Json, old: Json | None) -> list[Problem]:
    """As other workloads; beside the fields that may change, its spec stays as it was made."""
    spec = new["spec"]
    found = [*_numbers(spec, _SET_NUMBERS), *_selector(new), *_claims(spec), *_updates(spec["updateStrategy"])]
    found += _template({**spec, "template": _with_claims(spec)}, "StatefulSet")
    if old is None and "." in (new["metadata"].get("name") or ""):
        text = f"Invalid value: {shown(new['metadata']['name'])}: must not contain dots"
        found.append(Problem("metadata.name", text))
    if name := spec.get("serviceName"):
        found += named(name, "spec.serviceName")
    if spec["podManagementPolicy"] not in POLICIES:
        text = f"Invalid value: {shown(spec['podManagementPolicy'])}: must be 'OrderedReady' or 'Parallel'"
        found.append(Problem("spec.podManagementPolicy", text))
    for word in ("whenDeleted", "whenScaled"):
        path = f"spec.persistentVolumeClaimRetentionPolicy.{word}"
        found += one_of(spec["persistentVolumeClaimRetentionPolicy"][word], RETENTIONS, path)
    found += _numbers(spec.get("ordinals") or {}, ("start",), "spec.ordinals")
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


def _numbers(part: Json, names: tuple[str, ...], path: str = "spec") -> Iterator[Problem]:
    for name in names:
        if (number := part.get(name) or 0) < 0:
            yield Problem(f"{path}.{name}", f"Invalid value: {number}: {NOT_NEGATIVE}")


def _selector(new: Json) -> Iterator[Problem]:
    """It has to be there, to be one, and to find the pods of the template."""
    wanted, path = new["spec"].get("selector"), "spec.selector"
    labels = (new["spec"]["template"].get("metadata") or {}).get("labels")
    inside = list(selector_problems(wanted or {}, path))
    yield from inside
    if wanted is None:
        yield Problem(path, "Required value")
    elif inside:
        yield Problem(path, f"Invalid value: {shown(wanted)}: invalid label selector")
        return
    elif not wanted.get("matchLabels") and not wanted.get("matchExpressions"):
        yield Problem(path, f"Invalid value: {{}}: empty selector is invalid for {new['kind'].lower()}")
        return
    if wanted is None or not selector(selector_of(new))(labels or {}):
        text = f"Invalid value: {shown(labels)}: `selector` does not match template `labels`"
        yield Problem("spec.template.metadata.labels", text)


def _template(spec: Json, kind: str) -> Iterator[Problem]:
    yield from template_problems(spec["template"], "spec.template")
    pod = spec["template"]["spec"]
    if (policy := pod.get("restartPolicy")) != "Always":
        yield from one_of(policy, ("Always",), "spec.template.spec.restartPolicy")
    if pod.get("activeDeadlineSeconds") is not None:
        text = f"Forbidden: activeDeadlineSeconds in {kind} is not Supported"
        yield Problem("spec.template.spec.activeDeadlineSeconds", text)


def _strategy(strategy: Json) -> Iterator[Problem]:
    """How a Deployment replaces its pods."""
    kind, rolling, path = strategy["type"], strategy.get("rollingUpdate") or {}, "spec.strategy.rollingUpdate"
    yield from one_of(kind, STRATEGIES, "spec.strategy")
    if kind == "Recreate" and strategy.get("rollingUpdate") is not None:
        yield Problem(path, "Forbidden: may not be specified when strategy `type` is 'Recreate'")
    if kind != "RollingUpdate":
        return
    fewer, more = rolling["maxUnavailable"], rolling["maxSurge"]
    yield from _part(fewer, f"{path}.maxUnavailable")
    yield from _part(more, f"{path}.maxSurge")
    if not _number(fewer) and not _number(more):
        yield Problem(f"{path}.maxUnavailable", f"Invalid value: {shown(fewer)}: may not be 0 when `maxSurge` is 0")
    yield from _not_more_than_all(fewer, f"{path}.maxUnavailable")


def _updates(strategy: Json) -> Iterator[Problem]:
    """How a StatefulSet replaces its pods."""
    kind, rolling, path = strategy["type"], strategy.get("rollingUpdate") or {}, "spec.updateStrategy.rollingUpdate"
    if kind not in UPDATES:
        yield Problem("spec.updateStrategy", f"Invalid value: {shown(kind)}: must be 'RollingUpdate' or 'OnDelete'")
    elif kind == "OnDelete" and strategy.get("rollingUpdate") is not None:
        yield Problem(path, "Invalid value: only allowed for updateStrategy 'RollingUpdate'")
    elif kind == "RollingUpdate":
        yield from _numbers(rolling, ("partition",), path)
        yield from _part(fewer := rolling["maxUnavailable"], f"{path}.maxUnavailable")
        if not _number(fewer):
            yield Problem(f"{path}.maxUnavailable", f"Invalid value: {shown(fewer)}: cannot be 0")
        yield from _not_more_than_all(fewer, f"{path}.maxUnavailable")


def _part(value: Any, path: str) -> Iterator[Problem]:
    """A number of pods, or a part of them all in percent."""
    if isinstance(value, str) and not _PERCENT.fullmatch(value):
        yield Problem(path, f"Invalid value: {shown(value)}: {_PERCENT_TEXT}")
    elif not isinstance(value, str) and value < 0:
        yield Problem(path, f"Invalid value: {value}: {NOT_NEGATIVE}")


def _number(value: Any) -> int:
    if isinstance(value, str):
        return int(value[:-1][:9]) if _PERCENT.fullmatch(value) else 0
    return int(value)


def _not_more_than_all(value: Any, path: str) -> Iterator[Problem]:
    if isinstance(value, str) and _number(value) > 100:
        yield Problem(path, f"Invalid value: {shown(value)}: must not be greater than 100%")


def _claims(spec: Json) -> Iterator[Problem]:
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        for one in claim_problems(claim, None):
            yield Problem(f"spec.volumeClaimTemplates[{index}].{one.path}", one.text)


def _with_claims(spec: Json) -> Json:
    """The template with a volume for each claim, as its pods have it."""
    template = spec["template"]
    if not (claims := spec.get("volumeClaimTemplates")):
        return dict(template)
    names = [(claim.get("metadata") or {}).get("name") or "" for claim in claims]
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in dict.fromkeys(names)]
    kept = [one for one in template["spec"].get("volumes") or () if one.get("name") not in names]
    return {**template, "spec": {**template["spec"], "volumes": [*volumes, *kept]}}
