"""Cross-field rules of Jobs without their pod template, after decoding and defaulting.

Paths and the first words of messages are those of kube-apiserver. Indexed Jobs do not run here, so what only they have
(success policies, limits per index, names of their pods) is stored as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from trainyard.api_types.names import key_texts, name_problem
from trainyard.api_types.pod_defaults import containers_of
from trainyard.api_types.validators import NOT_NEGATIVE, too_many, validate_enum
from trainyard.objects import Json, Problem
from trainyard.schema.checks import json_text

STATUSES = ("False", "True", "Unknown")
REPLACEMENTS = ("Failed", "TerminatingOrFailed")
NON_NEGATIVE_FIELDS = (
    *("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"),
)
_INDEXED_FIELDS = ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy")
MAX_RULES, MOST_CODES, LONGEST_MANAGER = 20, 255, 63
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


def number_problems(spec: Json) -> Iterator[Problem]:
    """The problems of a Job's counts, and of those fields that need completionMode Indexed."""
    for name in NON_NEGATIVE_FIELDS:
        if (number := spec.get(name)) is not None and number < 0:
            yield Problem(f"spec.{name}", f"Invalid value: {number}: {NOT_NEGATIVE}")
    if spec["completionMode"] == "Indexed" and spec.get("completions") is None:
        yield Problem("spec.completions", "Required value: when completion mode is Indexed")
    for name in _INDEXED_FIELDS if spec["completionMode"] != "Indexed" else ():
        if (value := spec.get(name)) is not None:
            yield Problem(f"spec.{name}", f"Invalid value: {json_text(value)}: requires indexed completion mode")


def manager_problems(manager: str | None) -> Iterator[Problem]:
    """Problems of `managedBy`, which must be a domain-prefixed path."""
    path = "spec.managedBy"
    if manager is None:
        return
    domain, _, name = manager.partition("/")
    if not domain or not name:
        text = 'must be a domain-prefixed path (such as "acme.io/foo")'
        yield Problem(path, f"Invalid value: {json_text(manager)}: {text}" if manager else "Required value")
    else:
        if problem := name_problem(domain, "subdomain", path):
            yield problem
        if not _PATH.fullmatch(name):
            yield Problem(path, f"Invalid value: {json_text(name)}: Invalid path")
    if len(manager) > LONGEST_MANAGER:
        yield Problem(path, f"Too long: may not be more than {LONGEST_MANAGER} bytes")


def policy_problems(spec: Json) -> Iterator[Problem]:
    """Problems of `podFailurePolicy` and `podReplacementPolicy`."""
    policy, replacement = spec.get("podFailurePolicy"), spec["podReplacementPolicy"]
    supported = REPLACEMENTS if policy is None else REPLACEMENTS[:1]
    yield from validate_enum(replacement, supported, "spec.podReplacementPolicy")
    rules = (policy or {}).get("rules") or ()
    path = "spec.podFailurePolicy.rules"
    if len(rules) > MAX_RULES:
        yield too_many(rules, MAX_RULES, path)
    for index, rule in enumerate(rules[:MAX_RULES]):
        yield from _failure_rule(rule, spec, f"{path}[{index}]")


def _failure_rule(rule: Json, spec: Json, path: str) -> Iterator[Problem]:
    action, codes, conditions = rule.get("action"), rule.get("onExitCodes"), rule.get("onPodConditions") or ()
    if action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        text = f"Invalid value: {json_text(action)}: requires the backoffLimitPerIndex to be set"
        yield Problem(f"{path}.action", text)
    if codes is not None:
        yield from _exit_codes(codes, spec, f"{path}.onExitCodes")
    for index, condition in enumerate(conditions):
        condition_path, condition_type = f"{path}.onPodConditions[{index}]", condition.get("type") or ""
        yield from (
            Problem(f"{condition_path}.type", f"Invalid value: {json_text(condition_type)}: {text}")
            for text in key_texts(condition_type)
        )
        yield from validate_enum(condition.get("status") or "", STATUSES, f"{condition_path}.status")
    if (codes is not None) is bool(conditions):
        mistake = "specifying both OnExitCodes and OnPodConditions is not supported"
        mistake = mistake if conditions else "specifying one of OnExitCodes and OnPodConditions is required"
        yield Problem(path, f"Invalid value: {mistake}")


def _exit_codes(codes: Json, spec: Json, path: str) -> Iterator[Problem]:
    operator, values, container_name = codes.get("operator"), codes.get("values") or [], codes.get("containerName")
    pod = spec["template"]["spec"]
    names = [
        container.get("name") for group in ("initContainers", "containers") for container in containers_of(pod, group)
    ]
    if container_name is not None and container_name not in names:
        text = "must be one of the container or initContainer names in the pod template"
        yield Problem(f"{path}.containerName", f"Invalid value: {json_text(container_name)}: {text}")
    if len(values) > MOST_CODES:
        yield too_many(values, MOST_CODES, f"{path}.values")
        return
    earlier_values: set[int] = set()
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            yield Problem(f"{path}.values[{index}]", "Invalid value: 0: must not be 0 for the In operator")
        if value in earlier_values:
            yield Problem(f"{path}.values[{index}]", f"Duplicate value: {value}")
        earlier_values.add(value)
    if any(code > next_code for code, next_code in pairwise(values)):
        yield Problem(f"{path}.values", f"Invalid value: {json_text(values)}: must be ordered")
