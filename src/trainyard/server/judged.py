"""What is judged before anybody looks whether the object is there, in the real server's order.

kind of patch (415) -> form of the answer (406) -> options (422) -> then the body (400), the object (404), its rules
"""

from __future__ import annotations

from collections.abc import Callable

from trainyard.objects import Json, Problem
from trainyard.server import admission, errors, lists, patching, strictness
from trainyard.server.errors import Refused, Unreadable
from trainyard.server.paths import Target
from trainyard.server.requests import Request, body_of, dry_run_problems, options_kind, shallow
from trainyard.server.resources import Resource
from trainyard.server.strictness import WAYS


def first(resource: Resource, target: Target, request: Request, clock: Callable[[], float]) -> None:
    """Raises Refused."""
    if target.subresource not in ("", "status", "scale") or (target.subresource == "scale" and not resource.scale):
        return
    if request.method == "PATCH":
        patching.must_be_served(resource, request)
    many = not target.name and request.method in ("GET", "DELETE")
    lists.form(resource, request, clock, None if many and request.flag("watch") else many)
    if request.method in ("POST", "PUT", "PATCH", "DELETE"):
        # A delete with a body says everything there.
        found = [] if request.method == "DELETE" and request.body else dry_run_problems(request)
        if request.method != "DELETE":
            found = [*patching.writer_problems(request), *found, *_validation_problems(request)]
        if found:
            raise errors.options_invalid(options_kind(request), found)


def body(resource: Resource, target: Target, request: Request) -> tuple[Json, tuple[str, ...]]:
    """What a PUT sends, and the warnings about it. What cannot be an object, or not this one, is refused whether the
    object is there or not.
    """
    sent = body_of(request)
    plain = admission.must_be_readable(resource, sent, shallow(request))
    said = strictness.said(resource, request, sent, plain=plain)
    with telling(said):
        must_be_named(target, sent)
        obj = admission.placed(resource, sent, target.namespace, target.name)
    return obj if plain else strictness.known(resource, obj), (*said, *strictness.owned_twice(request, sent))


def must_be_named(target: Target, sent: Json) -> None:
    """Raises Refused 400 for an object that says no name, or another namespace."""
    meta = sent.get("metadata") or {}
    if (meta.get("namespace") or target.namespace) != target.namespace:
        raise errors.elsewhere()
    if not meta.get("name"):
        text = f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        raise errors.bad_request(errors.printable(text))


class telling:
    """Who sent unknown fields hears of them, also when the object is refused for something else that was read."""

    def __init__(self, warnings: tuple[str, ...]) -> None:
        self._warnings = warnings

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Refused) and not isinstance(error, Unreadable):
            error.warnings = error.warnings or self._warnings


def _validation_problems(request: Request) -> list[Problem]:
    way = request.query.get("fieldValidation", "")
    if way in WAYS:
        return []
    supported = ", ".join(f'"{one}"' for one in WAYS)
    text = f'Unsupported value: "{errors.printable(way[:80])}": supported values: {supported}'
    return [Problem("fieldValidation", text)]
