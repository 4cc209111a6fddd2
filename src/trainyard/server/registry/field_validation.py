"""Field validation: unknown and duplicate fields in a request (the query parameter fieldValidation).

Strict refuses them. Warn (the default) drops them and adds a Warning for each unknown field, Ignore drops them
silently. Unknown fields that the stored object already has are not reported for a patch. A write of /status without the
parameter is not checked: it comes from a controller, whose warnings nobody reads (this saves a tenth of the time of
such a patch).
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from typing import Any

from trainyard.api_types.decoding import ObjectWithDuplicates, examine, is_canonical, normalize
from trainyard.api_types.schemas import ANY, META, TypeSchema, built_in
from trainyard.objects import Json
from trainyard.server.model import errors, schemas
from trainyard.server.model.requests import JSON, Request
from trainyard.server.model.resources import Resource

MODES = ("", "Ignore", "Strict", "Warn")
MAX_REPORTED = 100  # maximum number of reported fields


def field_warnings(
    resource: Resource, request: Request, sent: Any, old: Json | None = None, *, plain: bool
) -> tuple[str, ...]:
    """The Warnings about the fields of an object in a request. With Strict raises StatusError 400, for a patch 422.

    `plain`: the caller has already checked that every field is known.
    """
    validation = request.query.get("fieldValidation", "")
    if resource.definition and isinstance(sent, dict) and sent.get("kind") != resource.kind:
        return ()  # another kind: its fields are unknown
    if validation == "Ignore" or not isinstance(sent, dict) or (not validation and request.path.endswith("/status")):
        return ()
    texts = _reported_fields(resource, request, sent, old, plain)
    if validation == "Strict" and texts:
        listed = f"strict decoding error: {', '.join(texts)}"
        if request.method == "PATCH":
            raise errors.patch_invalid(listed)
        kind = resource.kind
        raise errors.DecodingError(f'{kind} in version "{resource.version}" cannot be handled as a {kind}: {listed}')
    return tuple(texts)


def schema_warnings(shape: TypeSchema, request: Request, sent: Any) -> tuple[str, ...]:
    """The Warnings about a value of that schema. With Strict raises StatusError 400, for a patch 422."""
    validation = request.query.get("fieldValidation", "")
    if validation == "Ignore" or not isinstance(sent, dict):
        return ()
    texts = _unknown_fields(sent, shape)
    if texts and validation == "Strict":
        listed = f"strict decoding error: {', '.join(texts)}"
        raise errors.patch_invalid(listed) if request.method == "PATCH" else errors.DecodingError(listed)
    return tuple(texts)


def _reported_fields(resource: Resource, request: Request, sent: Json, old: Json | None, all_known: bool) -> list[str]:
    shape = ANY if resource.definition and not resource.prune else schemas.schema_of(resource)
    is_strict_json = request.query.get("fieldValidation") == "Strict" and request.content_type in ("", JSON)
    duplicates = _duplicate_fields(request.body) if is_strict_json and request.method != "PATCH" else []
    if all_known or is_canonical(sent, shape):
        return duplicates
    unknown = sorted(_unknown_fields(sent, shape))
    stored_unknown = _unknown_fields(old, shape) if unknown and old is not None else ()
    return duplicates + [text for text in unknown if text not in stored_unknown]


def _unknown_fields(value: Any, shape: TypeSchema) -> list[str]:
    texts = (finding.text for finding in examine(value, shape) if finding.kind == "unknown")
    return [errors.printable(text) for text in islice(texts, MAX_REPORTED)]


def _duplicate_fields(body: bytes) -> list[str]:
    """The names that occur twice in an object of a JSON body."""
    value = json.loads(body, object_pairs_hook=_object_from_pairs)
    texts = (finding.text for finding in examine(value, ANY) if finding.kind == "duplicate")
    return [errors.printable(text) for text in islice(texts, MAX_REPORTED)]


def _object_from_pairs(pairs: list[tuple[str, Any]]) -> ObjectWithDuplicates:
    obj = ObjectWithDuplicates(pairs)
    if len(obj) < len(pairs):
        names = Counter(name for name, _ in pairs)
        obj.duplicates = frozenset(name for name, count in names.items() if count > 1)
    return obj


def without_unknown_fields(resource: Resource, obj: Json) -> Json:
    """The object as it is stored: without null fields and fields unknown to its built-in type. Custom objects are
    pruned by their schema; only their metadata is handled here.
    """
    if resource.definition:
        meta_shape = built_in(f"{META}ObjectMeta")
        is_stored_form = is_canonical(obj["metadata"], meta_shape)
        return obj if is_stored_form else {**obj, "metadata": normalize(obj["metadata"], meta_shape)}
    return obj if resource.to_storage else dict(normalize(obj, schemas.schema_of(resource)))  # to_storage normalizes
