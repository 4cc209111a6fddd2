"""PATCH requests: dispatches by content type and returns the patched object.

application/json-patch+json              operations, one by one
application/merge-patch+json             null removes a field, objects are merged, other values replace
application/strategic-merge-patch+json   the same, with lists merged by key; built-in resources only
application/apply-patch+yaml             server-side apply
"""

from __future__ import annotations

from typing import Any

from trainyard.api_types.schemas import TypeSchema
from trainyard.objects import Json, Problem, decode
from trainyard.schema import MAX_DEPTH
from trainyard.server.model import errors, schemas
from trainyard.server.model.requests import Request, decode_body
from trainyard.server.model.resources import Resource
from trainyard.server.patch import apply, json_patch, strategic_merge

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = strategic_merge.PATCH
APPLY = apply.APPLY


def field_manager(request: Request, subresource: str, stamp: str) -> apply.FieldManager:
    """The field manager of a request: the parameter fieldManager, else the product of the User-Agent."""
    name = request.query.get("fieldManager") or request.agent.partition("/")[0][: apply.LONGEST_NAME]
    return apply.FieldManager(errors.printable(name) or "unknown", subresource, stamp, request.flag("force"))


def manager_problems(request: Request) -> list[Problem]:
    """Problems of the parameters fieldManager and force: an apply needs a fieldManager, only an apply may force."""
    manager, applied = request.query.get("fieldManager", ""), request.content_type == APPLY
    problems = []
    if "force" in request.query and request.method == "PATCH" and not applied:
        problems.append(Problem("force", "Forbidden: may not be specified for non-apply patch"))
    if not manager and request.method == "PATCH" and applied:
        problems.append(Problem("fieldManager", "Required value: is required for apply patch"))
    if len(manager.encode("utf-8", "surrogateescape")) > apply.LONGEST_NAME:
        problems.append(Problem("fieldManager", f"Too long: may not be more than {apply.LONGEST_NAME} bytes"))
    for index, char in enumerate(manager):
        if not char.isprintable():
            offset = len(manager[:index].encode("utf-8", "surrogateescape"))
            text = f"Invalid value: {_escaped(manager)}: invalid character U+{ord(char):04X} (at position {offset})"
            problems.append(Problem("fieldManager", text))
    return problems


def _escaped(text: str) -> str:
    """The text in quotes, with escapes for characters that are not printable, as kube-apiserver quotes it."""
    return f'"{repr(text)[1:-1]}"'


def require_supported(resource: Resource, request: Request) -> None:
    """Raises StatusError 415 for a patch type that the resource does not support."""
    strategic = (STRATEGIC,) if resource.strategic_merge else ()
    served = (JSON_PATCH, MERGE, *strategic, APPLY)
    if request.content_type not in served:
        raise errors.unsupported_media_type(served, request.content_type)


def creates_by_apply(request: Request, subresource: str) -> bool:
    """Whether this request creates the object when it does not exist (server-side apply)."""
    return request.method == "PATCH" and request.content_type == APPLY and not subresource


def apply_configuration(resource: Resource, request: Request) -> Json:
    """The apply configuration of a request, with metadata. Raises StatusError 400."""
    sent = apply.read_config(request.body)
    if (sent.get("apiVersion"), sent.get("kind")) != (resource.api_version, resource.kind):
        got = f"{sent.get('apiVersion')}, Kind={sent.get('kind')}"
        text = f"invalid object type: {got}; expected {resource.api_version}, Kind={resource.kind}"
        raise errors.bad_request(errors.printable(text))
    if not isinstance(sent.get("metadata"), dict | None):
        raise errors.bad_request("metadata: must be an object")
    return {**sent, "metadata": sent.get("metadata") or {}}


def patched_object(resource: Resource, stored: bytes, request: Request, writer: apply.FieldManager) -> Any:
    """The stored object after the patch, in the requested version. Raises StatusError 400, 409, 415, 422 or 500."""
    current: Json = decode(stored)
    current = resource.from_storage(current) if resource.from_storage else current
    if request.content_type == APPLY:
        return apply.apply(resource, current, apply_configuration(resource, request), writer)
    return apply_patch(current, request, schemas.schema_of(resource) if resource.strategic_merge else None)


def apply_patch(current: Json, request: Request, shape: TypeSchema | None) -> Any:
    """`current` after the patch. Without `shape` (custom resources) there is no strategic merge. Raises StatusError
    400, 415, 422 or 500."""
    kind = request.content_type
    try:
        if kind == MERGE:
            return json_patch.merge_patch(current, _merge_patch_object(decode_body(request, MERGE), request))
        if kind == JSON_PATCH:
            return _must_be_object(json_patch.apply_json_patch(current, decode_body(request, JSON_PATCH)))
        if kind == STRATEGIC and shape is not None:
            merged = strategic_merge.merge(current, decode_body(request, STRATEGIC), shape)
            return {
                **merged,
                **{field: current[field] for field in ("apiVersion", "kind") if isinstance(merged.get(field), str)},
            }
    except (RecursionError, ValueError):  # nesting limit of the JSON library when it decodes its own output
        raise errors.bad_request(f"the patch is nested deeper than {MAX_DEPTH} levels; flatten it") from None
    if shape is None and kind == STRATEGIC:
        raise errors.unsupported_media_type((JSON_PATCH, MERGE, APPLY), kind)
    raise errors.unsupported_media_type((JSON_PATCH, MERGE, STRATEGIC, APPLY), kind)


def _must_be_object(result: Any) -> Any:
    if not isinstance(result, dict | list):
        raise json_patch.PatchFailed("the patch leaves no object")
    if not isinstance(result, dict):
        raise errors.patch_invalid("the patch leaves no object")
    return result


def _merge_patch_object(sent: Any, request: Request) -> Any:
    # With Ignore, kube-apiserver accepts a list as the patch.
    if isinstance(sent, list) and request.query.get("fieldValidation") == "Ignore":
        raise errors.patch_invalid("the patch leaves no object")
    if not isinstance(sent, dict):
        raise json_patch.MalformedPatch("error decoding patch: a merge patch is an object")
    return sent
