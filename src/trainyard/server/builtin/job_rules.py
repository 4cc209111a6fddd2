"""Validation of Jobs without their pod template: names, numbers, policies.

It runs after type checks and defaulting. Paths and the first words of messages are those of kube-apiserver.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from trainyard.objects import Json, Problem
from trainyard.schema.checks import json_text
from trainyard.server.builtin.templates import containers_of
from trainyard.server.builtin.validators import NOT_NEGATIVE, too_many, validate_enum
from trainyard.server.registry.metadata import key_texts, name_problem

ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
OPERATORS = ("In", "NotIn")
STATUSES = ("False", "True", "Unknown")
REPLACEMENTS = ("Failed", "TerminatingOrFailed")
NON_NEGATIVE_FIELDS = (
    *("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"),
    *("backoffLimitPerIndex", "maxFailedIndexes"),
)
STATUS_COUNTERS = ("active", "succeeded", "failed", "ready", "terminating")
MAX_RULES, MOST_CODES, MOST_INDEXED, LONGEST_MANAGER = 20, 255, 100_000, 63
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


def number_problems(spec: Json) -> Iterator[Problem]:
    for name in NON_NEGATIVE_FIELDS:
        if (number := spec.get(name)) is not None and number < 0:
            yield Problem(f"spec.{name}", f"Invalid value: {number}: {NOT_NEGATIVE}")
    for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
        if (number := spec.get(name)) is not None and spec["completionMode"] != "Indexed":
            yield Problem(f"spec.{name}", f"Invalid value: {number}: requires indexed completion mode")
    if spec["completionMode"] == "Indexed" and (number := spec["parallelism"]) > MOST_INDEXED:
        text = f"must be less than or equal to {MOST_INDEXED} when completion mode is Indexed"
        yield Problem("spec.parallelism", f"Invalid value: {number}: {text}")
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield Problem("spec.backoffLimitPerIndex", "Required value: when maxFailedIndexes is specified")


def name_problems(new: Json) -> Iterator[Problem]:
    """The name of an indexed Job's last pod must be a valid DNS label."""
    spec, name = new["spec"], new["metadata"].get("name") or ""
    if spec["completionMode"] == "Indexed" and (spec.get("completions") or 0) > 0:
        last = f"{name}-{spec['completions'] - 1}"
        if name_problem(last, "label"):
            text = f"will not able to create pod with invalid DNS label: {last}"
            yield Problem("metadata.name", f"Invalid value: {json_text(name)}: {text}")


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


def success_problems(spec: Json) -> Iterator[Problem]:
    """Problems of `successPolicy`."""
    policy, path = spec.get("successPolicy"), "spec.successPolicy"
    if policy is None:
        return
    if spec["completionMode"] != "Indexed":
        yield Problem(path, f"Invalid value: {json_text(policy)}: requires indexed completion mode")
        return
    rules = policy.get("rules") or ()
    if not rules:
        text = "at least one rules must be specified when the successPolicy is specified"
        yield Problem(f"{path}.rules", f"Required value: {text}")
    if len(rules) > MAX_RULES:
        yield too_many(rules, MAX_RULES, f"{path}.rules")
    for index, rule in enumerate(rules[:MAX_RULES]):
        yield from _success_rule(rule, spec.get("completions") or 0, f"{path}.rules[{index}]")


def _success_rule(rule: Json, completions: int, path: str) -> Iterator[Problem]:
    count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
    if count is None and indexes is None:
        text = "at least one of succeededCount or succeededIndexes must be specified"
        yield Problem(path, f"Required value: {text}")
    named_indexes = 0
    if indexes is not None:
        named_indexes, error = _count_indexes(indexes, completions)
        if error:
            text = f"error parsing succeededIndexes: {error}"
            yield Problem(f"{path}.succeededIndexes", f"Invalid value: {json_text(indexes)}: {text}")
    if count is None:
        return
    if count < 0:
        yield Problem(f"{path}.succeededCount", f"Invalid value: {count}: {NOT_NEGATIVE}")
    for limit, limit_text in (
        (completions, "specified completions"),
        (named_indexes, "indexes in the specified succeededIndexes field"),
    ):
        if count > limit and (limit is completions or indexes is not None):
            text = f"must be less than or equal to {limit} (the number of {limit_text})"
            yield Problem(f"{path}.succeededCount", f"Invalid value: {count}: {text}")


def _count_indexes(text: str, completions: int) -> tuple[int, str]:
    """(number of indexes in a text such as `0,2-4`, error or "")."""
    count, previous = 0, -1
    for fragment in text.split(",") if text else ():
        ends = fragment.split("-")
        if len(ends) > 2:
            return 0, f"the fragment {json_text(fragment)} has more than two parts separated by '-'"
        for end in ends:
            if not re.fullmatch("[+]?[0-9]{1,18}", end):
                return 0, f"cannot convert string to integer for index: {json_text(end)}"
            if int(end) >= completions:
                return 0, f"too large index: {json_text(end)}"
        first, final = int(ends[0]), int(ends[-1])
        if first <= previous or (len(ends) == 2 and final <= first):
            return 0, f"non-increasing order, previous: {max(first, previous)}, current: {final}"
        count, previous = count + final - first + 1, final
    return count, ""


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
    if not action:
        yield _required(ACTIONS, f"{path}.action")
    yield from validate_enum(action or ACTIONS[0], ACTIONS, f"{path}.action")
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
    if not operator:
        yield _required(OPERATORS, f"{path}.operator")
    yield from validate_enum(operator or OPERATORS[0], OPERATORS, f"{path}.operator")
    pod = spec["template"]["spec"]
    names = [
        container.get("name") for group in ("initContainers", "containers") for container in containers_of(pod, group)
    ]
    if container_name is not None and container_name not in names:
        text = "must be one of the container or initContainer names in the pod template"
        yield Problem(f"{path}.containerName", f"Invalid value: {json_text(container_name)}: {text}")
    if not values:
        yield Problem(
            f"{path}.values", f"Invalid value: {json_text(codes.get('values'))}: at least one value is required"
        )
    if len(values) > MOST_CODES:
        yield too_many(values, MOST_CODES, f"{path}.values")
        return
    seen: set[int] = set()
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            yield Problem(f"{path}.values[{index}]", "Invalid value: 0: must not be 0 for the In operator")
        if value in seen:
            yield Problem(f"{path}.values[{index}]", f"Duplicate value: {value}")
        seen.add(value)
    if any(code > next_code for code, next_code in pairwise(values)):
        yield Problem(f"{path}.values", f"Invalid value: {json_text(values)}: must be ordered")


def status_problems(new: Json, old: Json) -> Iterator[Problem]:
    """Problems of a Job's status: counters of finished pods cannot decrease."""
    status, old_status = new.get("status") or {}, old.get("status") or {}
    for name in STATUS_COUNTERS:
        if (status.get(name) or 0) < 0:
            yield Problem(f"status.{name}", f"Invalid value: {status[name]}: {NOT_NEGATIVE}")
    for name in ("succeeded", "failed"):
        if (number := status.get(name) or 0) < (old_status.get(name) or 0):
            yield Problem(f"status.{name}", f"Invalid value: {number}: cannot decrease the {name} counter")
    ready = status.get("ready")
    if ready is not None and ready > (status.get("active") or 0):
        yield Problem("status.ready", f"Invalid value: {ready}: cannot set more ready pods than active")


def _required(supported: Sequence[str], path: str) -> Problem:
    listed = " ".join(f'"{value}"' for value in supported)
    return Problem(path, f"Required value: valid values: [{listed}]")
