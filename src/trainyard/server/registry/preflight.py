"""Checks of a request before its object is looked up, in kube-apiserver's order.

patch content type (415) -> Accept header (406) -> options (422) -> body (400); then existence (404) and validation
"""

from __future__ import annotations

from collections.abc import Callable

from trainyard.objects import Json, Problem, decode
from trainyard.server.model import errors
from trainyard.server.model.paths import Target
from trainyard.server.model.requests import Request, decode_body, dry_run_problems, is_shallow, options_kind
from trainyard.server.model.resources import Resource
from trainyard.server.patch import dispatch
from trainyard.server.registry import admission, field_validation, lists, scale
from trainyard.server.registry.admission import Decoded
from trainyard.server.registry.field_validation import MODES


def check_request(resource: Resource, target: Target, request: Request, clock: Callable[[], float]) -> None:
    """Check content type, Accept header and options. Raises StatusError 406, 415 or 422."""
    if target.subresource not in ("", "status", "scale") or (target.subresource == "scale" and not resource.scale):
        return
    if request.method == "PATCH":
        dispatch.require_supported(resource, request)
    is_collection = not target.name and request.method in ("GET", "DELETE")
    lists.representation(resource, request, clock, None if is_collection and request.flag("watch") else is_collection)
    if request.method in ("POST", "PUT", "PATCH", "DELETE"):
        # The options of a DELETE with a body are in the body only.
        problems = [] if request.method == "DELETE" and request.body else dry_run_problems(request)
        if request.method != "DELETE":
            problems = [*dispatch.manager_problems(request), *problems, *_validation_problems(request)]
        if problems:
            raise errors.options_invalid(options_kind(request), problems)


def decode_object(resource: Resource, target: Target, request: Request) -> Decoded:
    """The object in the body of a POST or a PUT. Raises StatusError 400 for a body that is no such object or has
    another name, whether the object exists or not."""
    # An update is compared with the stored object, so all of it is decoded.
    sent = decode_body(request, decode_json=resource.decode_new if request.method == "POST" else decode)
    plain = admission.require_decodable(resource, sent, is_shallow(request))
    warnings = field_validation.field_warnings(resource, request, sent, plain=plain)
    if request.method == "PUT":
        require_name(target, sent)
    obj = admission.with_identity(resource, sent, target.namespace, target.name if request.method == "PUT" else "")
    return Decoded(obj if plain else field_validation.without_unknown_fields(resource, obj), plain, warnings)


def decode_scale(target: Target, request: Request) -> tuple[Json, tuple[str, ...]]:
    """The Scale in the body of a PUT, and the Warnings of the field validation. Raises StatusError 400."""
    sent = decode_body(request)
    scale.require_decodable(sent, target.name)
    require_name(target, sent)
    return sent, field_validation.schema_warnings(scale.SHAPE, request, sent)


def require_name(target: Target, sent: Json) -> None:
    """Raises StatusError 400 for an object without a name, or with another namespace than the URL."""
    meta = sent.get("metadata") or {}
    if (meta.get("namespace") or target.namespace) != target.namespace:
        raise errors.namespace_mismatch()
    if not meta.get("name"):
        text = f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        raise errors.bad_request(errors.printable(text))


def _validation_problems(request: Request) -> list[Problem]:
    validation = request.query.get("fieldValidation", "")
    if validation in MODES:
        return []
    supported = ", ".join(f'"{value}"' for value in MODES)
    text = f'Unsupported value: "{errors.printable(validation[:80])}": supported values: {supported}'
    return [Problem("fieldValidation", text)]
