"""A PATCH: which kind of patch it is, and what the object becomes.

application/json-patch+json              operations, one by one
application/merge-patch+json             null takes away, objects merge, the rest replaces
application/strategic-merge-patch+json   the same with lists that are maps; built-in resources only
application/apply-patch+yaml             server-side apply
"""

from __future__ import annotations

from typing import Any

from trainyard.objects import Json, Problem, decode
from trainyard.schema import DEPTH
from trainyard.server import apply, errors, patches, strategic, types
from trainyard.server.requests import Request, body_of
from trainyard.server.resources import Resource

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = strategic.PATCH
APPLY = apply.APPLY


def who(request: Request, subresource: str, stamp: str) -> apply.Who:
    """Who writes."""
    name = request.query.get("fieldManager") or request.agent.partition("/")[0][: apply.LONGEST_NAME]
    return apply.Who(errors.printable(name) or "unknown", subresource, stamp, request.flag("force"))


def writer_problems(request: Request) -> list[Problem]:
    """What is wrong with the parameters that say who writes: an apply must name him, and nothing else may force."""
    manager, applied = request.query.get("fieldManager", ""), request.content_type == APPLY
    found = []
    if "force" in request.query and request.method == "PATCH" and not applied:
        found.append(Problem("force", "Forbidden: may not be specified for non-apply patch"))
    if not manager and request.method == "PATCH" and applied:
        found.append(Problem("fieldManager", "Required value: is required for apply patch"))
    if len(manager.encode("utf-8", "surrogateescape")) > apply.LONGEST_NAME:
        found.append(Problem("fieldManager", f"Too long: may not be more than {apply.LONGEST_NAME} bytes"))
    for at, char in enumerate(manager):
        if not char.isprintable():
            where = len(manager[:at].encode("utf-8", "surrogateescape"))
            text = f"Invalid value: {_escaped(manager)}: invalid character U+{ord(char):04X} (at position {where})"
            found.append(Problem("fieldManager", text))
    return found


def _escaped(text: str) -> str:
    """In quotes, with what cannot be printed as its number, as the real server quotes it."""
    return f'"{repr(text)[1:-1]}"'


def must_be_served(resource: Resource, request: Request) -> None:
    """Raises Refused 415 for a kind of patch that this resource does not take."""
    strategic_too = () if resource.custom else (STRATEGIC,)
    served = (JSON_PATCH, MERGE, *strategic_too, APPLY)
    if request.content_type not in served:
        refused = errors.unsupported_media_type(served, request.content_type)
        refused.details = None if resource.custom else {}
        raise refused


def applies(request: Request, subresource: str) -> bool:
    """Whether this request makes the object that is not there yet."""
    return request.method == "PATCH" and request.content_type == APPLY and not subresource


def config(resource: Resource, request: Request) -> Json:
    """What an apply sends. Raises Refused 400."""
    sent = apply.read_config(request.body)
    if (sent.get("apiVersion"), sent.get("kind")) != (resource.api_version, resource.kind):
        got = f"{sent.get('apiVersion')}, Kind={sent.get('kind')}"
        text = f"invalid object type: {got}; expected {resource.api_version}, Kind={resource.kind}"
        raise errors.bad_request(errors.printable(text))
    if not isinstance(sent.get("metadata"), dict | None):
        raise errors.bad_request("metadata: must be an object")
    return {**sent, "metadata": sent.get("metadata") or {}}


def patched(resource: Resource, stored: bytes, request: Request, writer: apply.Who) -> Any:
    """What the stored object becomes, in this version's form. Raises Refused."""
    current: Json = decode(stored)
    current = resource.read(current) if resource.read else current
    if request.content_type == APPLY:
        return apply.applied(resource, current, config(resource, request), writer)
    return changed(current, request, None if resource.custom else types.shape_of(resource))


def changed(current: Json, request: Request, shape: types.Shape | None) -> Any:
    """What `current` becomes. Without a shape there is no strategic merge. Raises Refused."""
    kind = request.content_type
    try:
        if kind == MERGE:
            return patches.merge(current, _an_object(body_of(request, MERGE), request))
        if kind == JSON_PATCH:
            return _still_one(patches.apply(current, body_of(request, JSON_PATCH)))
        if kind == STRATEGIC and shape is not None:
            made = strategic.merge(current, body_of(request, STRATEGIC), shape)
            return {
                **made,
                **{word: current[word] for word in ("apiVersion", "kind") if isinstance(made.get(word), str)},
            }
    except patches.BadPatch as error:
        raise errors.bad_request(errors.printable(str(error))) from None
    except patches.PatchFailed as error:
        text = errors.printable(str(error))
        raise (
            errors.Refused(500, "", text) if kind == STRATEGIC else errors.Refused(422, "Invalid", text, {})
        ) from None
    except (RecursionError, ValueError):  # the limit of the JSON library, when it reads again what it has written
        raise errors.bad_request(f"the patch is nested deeper than {DEPTH} levels; flatten it") from None
    if shape is None and kind == STRATEGIC:
        raise errors.unsupported_media_type((JSON_PATCH, MERGE, APPLY), kind)
    raise errors.unsupported_media_type((JSON_PATCH, MERGE, STRATEGIC, APPLY), kind)


def _still_one(made: Any) -> Any:
    if not isinstance(made, dict | list):
        raise patches.PatchFailed("the patch leaves no object")
    if not isinstance(made, dict):
        raise errors.patch_invalid("the patch leaves no object")
    return made


def _an_object(sent: Any, request: Request) -> Any:
    if (
        isinstance(sent, list) and request.query.get("fieldValidation") == "Ignore"
    ):  # the only way that looks no further
        raise errors.patch_invalid("the patch leaves no object")
    if not isinstance(sent, dict):
        raise patches.BadPatch("error decoding patch: a merge patch is an object")
    return sent
