"""ListOptions of a list or a watch: validation and meaning, as in kube-apiserver.

resourceVersion        unset: most recent; "0": any; N: not older than N, or exactly N
resourceVersionMatch   Exact or NotOlderThan; only with a resourceVersion, never with a continue token
sendInitialEvents      for watches, only with NotOlderThan; the default for a watch without resourceVersion
"""

from __future__ import annotations

import re

from trainyard.objects import Problem
from trainyard.server.model import errors
from trainyard.server.model.requests import Request

_NUMBER = re.compile(r"-?[0-9]{1,18}")
MATCHES = ("Exact", "NotOlderThan")


def validate(request: Request) -> None:
    """Raises StatusError 422 for every invalid combination, 400 for a parameter that must be a number."""
    query = request.query
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    int_parameter(request, "limit")
    int_parameter(request, "timeoutSeconds")
    problems = _watch_problems(query.get("sendInitialEvents"), match) if request.flag("watch") else []
    if not request.flag("watch"):
        if match and not version:
            problems.append(_forbidden(f"{_MATCH} is forbidden unless resourceVersion is provided"))
        if match and query.get("continue"):
            problems.append(_forbidden(f"{_MATCH} is forbidden when continue is provided"))
        if match not in ("", *MATCHES):
            problems.append(_unsupported(match, '"Exact", "NotOlderThan", ""'))
        if match == "Exact" and version == "0":
            problems.append(_forbidden(f'{_MATCH} "exact" is forbidden for resourceVersion "0"'))
        if "sendInitialEvents" in query:
            text = "Forbidden: sendInitialEvents is forbidden for list"
            problems.append(Problem("sendInitialEvents", text))
    elif query.get("continue"):
        problems.append(_forbidden(f"{_MATCH} is forbidden when continue is provided"))
    if problems:
        raise errors.options_invalid("ListOptions", problems)


_MATCH = "resourceVersionMatch"


def _watch_problems(initial: str | None, match: str) -> list[Problem]:
    problems = []
    if initial is not None and match != "NotOlderThan":
        problems.append(_forbidden(f"sendInitialEvents requires setting {_MATCH} to NotOlderThan"))
    if initial is None and match:
        problems.append(_forbidden(f"{_MATCH} is forbidden for watch unless sendInitialEvents is provided"))
    if match not in ("", "NotOlderThan"):
        problems.append(_unsupported(match, '"NotOlderThan"'))
    return problems


def _forbidden(text: str) -> Problem:
    return Problem(_MATCH, f"Forbidden: {text}")


def _unsupported(match: str, supported: str) -> Problem:
    return Problem(_MATCH, f'Unsupported value: "{errors.printable(match)}": supported values: {supported}')


def int_parameter(request: Request, name: str) -> int:
    """A numeric query parameter; 0 when it is absent or negative. Raises StatusError 400."""
    text = request.query.get(name, "0")
    if not _NUMBER.fullmatch(text):
        raise errors.bad_request(f"{name}: must be a number, 0 or more, got {errors.printable(text[:40])!r}")
    return max(0, int(text))


def revision_of(request: Request) -> int:
    """The resourceVersion parameter; 0 when it is absent or "0". Raises StatusError 400."""
    text = request.query.get("resourceVersion") or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        text_of_problem = f'resourceVersion: Invalid value: "{errors.printable(text[:40])}": must be a number'
        raise errors.bad_request(f"invalid resource version: {text_of_problem}")
    return int(text)


def initial_events(request: Request) -> tuple[bool, bool]:
    """Whether a watch starts with the existing objects, and whether a bookmark marks their end."""
    send = request.flag("sendInitialEvents") if "sendInitialEvents" in request.query else not revision_of(request)
    return send, send and request.flag("allowWatchBookmarks")
