"""What is judged before anybody looks whether the object is there, in the real server's order.

kind of patch (415) -> form of the answer (406) -> options (422) -> then the body (400), the object (404), its rules
"""

from __future__ import annotations

from collections.abc import Callable

from trainyard.objects import Problem
from trainyard.server import admission, errors, lists, patching, strictness
from trainyard.server.errors import Refused
from trainyard.server.paths import Target
from trainyard.server.requests import Request, body_of, dry_run_problems, options_kind
from trainyard.server.resources import Resource
from trainyard.server.strictness import WAYS


def first(resource: Resource, target: Target, request: Request, clock: Callable[[], float]) -> None:
    """Raises Refused."""
    if target.subresource not in ("", "status", "scale") or (target.subresource == "scale" and not resource.scale):
        return
    if request.method == "PATCH":
        patching.must_be_served(resource, request)
    if target.subresource != "scale":
        many = not target.name and request.method in ("GET", "DELETE")
        lists.form(resource, request, clock, None if many and request.flag("watch") else many)
    if request.method in ("POST", "PUT", "PATCH", "DELETE"):
        # A delete with a body says everything there.
        found = [] if request.method == "DELETE" and request.body else dry_run_problems(request)
        if request.method != "DELETE":
            found = [*patching.writer_problems(request), *found, *_validation_problems(request)]
        if found:
            raise errors.options_invalid(options_kind(request), found)


def body(resource: Resource, target: Target, request: Request) -> None:
    """A body that cannot be an object, or not this one, is refused whether the object is there or not."""
    sent = body_of(request)
    obj = admission.read_object(resource, sent, target.namespace, target.name)
    if not target.subresource and request.query.get("fieldValidation") == "Strict":
        strictness.said(resource, request, sent)
    if not (sent.get("metadata") or {}).get("name") or not obj["metadata"].get("name"):
        text = f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        raise errors.bad_request(errors.printable(text))


def warnings(resource: Resource, request: Request, refused: Refused) -> tuple[str, ...]:
    """Who sent unknown fields hears of them, also when the object is refused for something else."""
    if request.method not in ("POST", "PUT") or refused.code in (400, 405, 406, 415):
        return ()
    try:
        return strictness.said(resource, request, body_of(request))
    except Refused:
        return ()


def _validation_problems(request: Request) -> list[Problem]:
    way = request.query.get("fieldValidation", "")
    if way in WAYS:
        return []
    supported = ", ".join(f'"{one}"' for one in WAYS)
    text = f'Unsupported value: "{errors.printable(way[:80])}": supported values: {supported}'
    return [Problem("fieldValidation", text)]
