"""What refused a write: the API server's validation of an invalid object, or a cluster policy, which may change; and
when the write is retried.

A Status from validation has fields in its `details.causes`; a Status from a policy has none. But admission can also
mutate the object, so that validation refuses a field that the operator did not send: a LimitRange adds a limit to a
request, a webhook adds a container. So each field in the causes is looked up in the body that was sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainyard.core.model import Refusal
from trainyard.objects import Json, exponential_delay
from trainyard.objects.patterns import lazy_pattern
from trainyard.objects.writes import Verb

POLICY_MESSAGES = (
    ("ValidatingAdmissionPolicy", "AdmissionPolicy"),
    ("admission webhook", "AdmissionWebhook"),
    ("exceeded quota", "QuotaExceeded"),
    ("failed quota", "QuotaExceeded"),
    ("violates PodSecurity", "PodSecurity"),
    (" usage per ", "LimitRange"),
    ("limit to request ratio per ", "LimitRange"),
)
"""Text in the message of a policy's refusal, and the policy that `refusing_policy` returns for it."""

_EXCEEDED_LIMIT = re.compile(r"must be less than or equal to (?P<name>\S+) limit")
_PATH_STEP = lazy_pattern(r"\[(?P<key>[^\]]*)\]|(?P<name>[^.\[]+)")


def refusing_policy(code: int, message: str, causes: object, sent: Json | None) -> str:
    """The policy that refused a write, "" if none did. `causes` are the Status' `details.causes`, `sent` is the body of
    the write."""
    if code not in (400, 403, 422):
        return ""
    for fragment, reason in POLICY_MESSAGES:
        if fragment in message:
            return reason
    if code != 422:
        return ""
    cause_list = [cause for cause in causes if isinstance(cause, dict)] if isinstance(causes, list) else []
    policies = [policy for cause in cause_list if (policy := _policy_of_cause(cause, sent or {}))]
    return policies[0] if policies and len(policies) == len(cause_list) else ""


def _policy_of_cause(cause: Json, sent: Json) -> str:
    """The policy that added the field of this cause, "" if the field was sent."""
    path, text = str(cause.get("field") or ""), str(cause.get("message") or "")
    if not path:
        return "AdmissionPolicy"
    steps = list(_path_steps(path))
    limited = _EXCEEDED_LIMIT.search(text)
    if limited and steps[-1:] == ["requests"]:
        limits = _value_at(sent, [*steps[:-1], "limits"])
        sent_limit = limits.get(limited["name"]) if isinstance(limits, dict) else None
        return "LimitRange" if sent_limit is None else ""
    if cause.get("reason") == "FieldValueRequired":
        steps = steps[:-1]
    return "AdmissionWebhook" if _has_index(steps) and _value_at(sent, steps) is None else ""


def _path_steps(path: str) -> Iterator[str | int]:
    """The keys and indices of a field path such as spec.containers[0].image."""
    for part in _PATH_STEP.finditer(path):
        key = part["key"]
        yield part["name"] if key is None else int(key) if key.isdecimal() else key


def _has_index(steps: list[str | int]) -> bool:
    return any(isinstance(step, int) for step in steps)


def _value_at(value: object, steps: list[str | int]) -> object:
    """The value at a path, None if there is none."""
    for step in steps:
        if isinstance(value, dict):
            value = value.get(str(step))
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


BASE_DELAY, MAX_DELAY = 10.0, 300.0  # seconds from a refused write to its retry, doubling


def write_due_at(refusal: Refusal | None, verb: Verb, now: float) -> float:
    """When a write is due: now, or after the back-off of its refusal. A refusal in the future was recorded with a wrong
    clock and is ignored."""
    if refusal is None or refusal.verb != verb or refusal.at > now:
        return now
    return refusal.at + exponential_delay(refusal.attempts, BASE_DELAY, MAX_DELAY)
