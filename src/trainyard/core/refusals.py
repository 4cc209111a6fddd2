"""Who refused a write: the API server's validation, for an invalid object, or a cluster policy, which may change.

The Status of the API server's validation names fields in its causes; that of a policy does not. But admission can also
mutate the object, so that validation refuses a field that nobody sent: a LimitRange adds a limit to a request, a
webhook adds a container. So each field in the causes is looked up in the body that was sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainyard.core.model import Refusal
from trainyard.objects import Json

WORDS = (
    ("ValidatingAdmissionPolicy", "AdmissionPolicy"),
    ("admission webhook", "AdmissionWebhook"),
    ("exceeded quota", "QuotaExceeded"),
    ("failed quota", "QuotaExceeded"),
    ("violates PodSecurity", "PodSecurity"),
    (" usage per ", "LimitRange"),
    ("limit to request ratio per ", "LimitRange"),
)
"""What the messages of policies hold, and the reason that is given for it."""

_LIMITED = re.compile(r"must be less than or equal to (?P<name>\S+) limit")
_PART = re.compile(r"\[(?P<key>[^\]]*)\]|(?P<name>[^.\[]+)")


def policy_of(code: int, message: str, causes: object, sent: Json | None) -> str:
    """The policy by which a write was refused, "" where none did. `causes` are the Status' `details.causes`, `sent` is
    the body of the write."""
    if code not in (400, 403, 422):
        return ""
    for words, reason in WORDS:
        if words in message:
            return reason
    if code != 422:
        return ""
    listed = [one for one in causes if isinstance(one, dict)] if isinstance(causes, list) else []
    foreign = [reason for one in listed if (reason := _foreign(one, sent or {}))]
    return foreign[0] if foreign and len(foreign) == len(listed) else ""


def _foreign(cause: Json, sent: Json) -> str:
    """The policy that added the field of this cause, "" when the field was sent."""
    path, text = str(cause.get("field") or ""), str(cause.get("message") or "")
    if not path:
        return "AdmissionPolicy"
    steps = list(_steps(path))
    limited = _LIMITED.search(text)
    if limited and steps[-1:] == ["requests"]:
        limits = _at(sent, [*steps[:-1], "limits"])
        given = limits.get(limited["name"]) if isinstance(limits, dict) else None
        return "LimitRange" if given is None else ""
    if cause.get("reason") == "FieldValueRequired":
        steps = steps[:-1]
    return "AdmissionWebhook" if _inside_a_list(steps) and _at(sent, steps) is None else ""


def _steps(path: str) -> Iterator[str | int]:
    for part in _PART.finditer(path):
        key = part["key"]
        yield part["name"] if key is None else int(key) if key.isdecimal() else key


def _inside_a_list(steps: list[str | int]) -> bool:
    return any(isinstance(step, int) for step in steps)


def _at(value: object, steps: list[str | int]) -> object:
    """What stands at a path, None for nothing. A list is only entered by an index that it has."""
    for step in steps:
        if isinstance(value, dict):
            value = value.get(str(step))
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


FIRST_PAUSE, LONGEST_PAUSE = 10.0, 300.0  # seconds between a refused write and the next try; doubling


def write_due_at(refusal: Refusal | None, verb: str, now: float) -> float:
    """When a write that may have been refused is due. A refusal in the future is of a clock that was wrong."""
    if refusal is None or refusal.verb != verb or refusal.at > now:
        return now
    return refusal.at + min(FIRST_PAUSE * 2 ** float(max(0, min(refusal.tries, 10) - 1)), LONGEST_PAUSE)
