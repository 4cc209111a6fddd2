"""The options of a list and of a watch: which go together, and what they mean. The rules are the real server's.

resourceVersion        none: the newest; "0": whatever is at hand; N: not older than N, or exactly N
resourceVersionMatch   Exact or NotOlderThan, only beside a resourceVersion, never beside a continue
sendInitialEvents      for watches, only with NotOlderThan; a watch without a version has it by default
"""

from __future__ import annotations

import re

from trainyard.objects import Problem
from trainyard.server import errors
from trainyard.server.requests import Request

_NUMBER = re.compile(r"-?[0-9]{1,18}")
MATCHES = ("Exact", "NotOlderThan")


def must_be_right(request: Request) -> None:
    """Raises Refused 422 with everything that does not go together, 400 for what is no number."""
    query = request.query
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    number(request, "limit")
    number(request, "timeoutSeconds")
    found = _watching(query.get("sendInitialEvents"), match) if request.flag("watch") else []
    if not request.flag("watch"):
        if match and not version:
            found.append(_forbidden(f"{_MATCH} is forbidden unless resourceVersion is provided"))
        if match and query.get("continue"):
            found.append(_forbidden(f"{_MATCH} is forbidden when continue is provided"))
        if match not in ("", *MATCHES):
            found.append(_unsupported(match, '"Exact", "NotOlderThan", ""'))
        if match == "Exact" and version == "0":
            found.append(_forbidden(f'{_MATCH} "exact" is forbidden for resourceVersion "0"'))
        if "sendInitialEvents" in query:
            text = "Forbidden: sendInitialEvents is forbidden for list"
            found.append(Problem("sendInitialEvents", text))
    elif query.get("continue"):
        found.append(_forbidden(f"{_MATCH} is forbidden when continue is provided"))
    if found:
        raise errors.options_invalid("ListOptions", found)


_MATCH = "resourceVersionMatch"


def _watching(initial: str | None, match: str) -> list[Problem]:
    found = []
    if initial is not None and match != "NotOlderThan":
        found.append(_forbidden(f"sendInitialEvents requires setting {_MATCH} to NotOlderThan"))
    if initial is None and match:
        found.append(_forbidden(f"{_MATCH} is forbidden for watch unless sendInitialEvents is provided"))
    if match not in ("", "NotOlderThan"):
        found.append(_unsupported(match, '"NotOlderThan"'))
    return found


def _forbidden(text: str) -> Problem:
    return Problem(_MATCH, f"Forbidden: {text}")


def _unsupported(match: str, known: str) -> Problem:
    return Problem(_MATCH, f'Unsupported value: "{errors.printable(match)}": supported values: {known}')


def number(request: Request, name: str) -> int:
    """That parameter; 0 when it is absent or negative. Raises Refused 400."""
    text = request.query.get(name, "0")
    if not _NUMBER.fullmatch(text):
        raise errors.bad_request(f"{name}: must be a number, 0 or more, got {errors.printable(text[:40])!r}")
    return max(0, int(text))


def revision_of(request: Request) -> int:
    """The resourceVersion parameter; 0 when it is absent or "0". Raises Refused 400."""
    text = request.query.get("resourceVersion") or "0"
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        why = f'resourceVersion: Invalid value: "{errors.printable(text[:40])}": must be a number'
        raise errors.bad_request(f"invalid resource version: {why}")
    return int(text)


def initial(request: Request) -> tuple[bool, bool]:
    """Whether a watch sends the objects that are there first, and whether it says where they end."""
    send = request.flag("sendInitialEvents") if "sendInitialEvents" in request.query else not revision_of(request)
    return send, send and request.flag("allowWatchBookmarks")
