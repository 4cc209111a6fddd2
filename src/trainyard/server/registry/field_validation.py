"""Field validation: unknown and duplicate fields in a request (the query parameter fieldValidation).

Strict refuses them. Warn (the default) drops them and adds a Warning for each unknown field, Ignore drops them
silently. Unknown fields that the stored object already has are not reported for a patch. A write of /status without the
parameter is not checked: it comes from a controller, whose warnings nobody reads (this saves a tenth of the time of
such a patch).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

from trainyard.objects import Json
from trainyard.schema import MAX_DEPTH
from trainyard.server import errors, schemas
from trainyard.server.http.requests import JSON, Request
from trainyard.server.registry.decoding import is_canonical, normalize
from trainyard.server.registry.resources import Resource
from trainyard.server.schemas import ANY, TypeSchema

MODES = ("", "Ignore", "Strict", "Warn")
MAX_REPORTED = 100  # maximum number of reported fields


def field_warnings(
    resource: Resource, request: Request, sent: Any, old: Json | None = None, *, plain: bool
) -> tuple[str, ...]:
    """The field validation warnings about an object in a request. With Strict raises Refused 400, for a patch 422.

    `plain`: the caller has already checked that every field is known.
    """
    validation = request.query.get("fieldValidation", "")
    if resource.definition and isinstance(sent, dict) and sent.get("kind") != resource.kind:
        return ()  # another kind: its fields are unknown
    if validation == "Ignore" or not isinstance(sent, dict) or (not validation and request.path.endswith("/status")):
        return ()
    texts = _found(resource, request, sent, old, plain)
    if validation == "Strict" and texts:
        listed = f"strict decoding error: {', '.join(texts)}"
        if request.method == "PATCH":
            raise errors.patch_invalid(listed)
        kind = resource.kind
        raise errors.DecodingError(f'{kind} in version "{resource.version}" cannot be handled as a {kind}: {listed}')
    return tuple(texts)


def schema_warnings(shape: TypeSchema, request: Request, sent: Any) -> tuple[str, ...]:
    """The field validation warnings about a value of that schema. With Strict raises Refused 400, for a patch 422."""
    validation = request.query.get("fieldValidation", "")
    if validation == "Ignore" or not isinstance(sent, dict):
        return ()
    texts = [errors.printable(text) for text in islice(_walk(sent, shape, ""), MAX_REPORTED)]
    if texts and validation == "Strict":
        listed = f"strict decoding error: {', '.join(texts)}"
        raise errors.patch_invalid(listed) if request.method == "PATCH" else errors.DecodingError(listed)
    return tuple(texts)


def _found(resource: Resource, request: Request, sent: Json, old: Json | None, all_known: bool) -> list[str]:
    shape = ANY if resource.definition and not resource.prune else schemas.schema_of(resource)
    is_strict_json = request.query.get("fieldValidation") == "Strict" and request.content_type in ("", JSON)
    duplicates = _duplicates(request.body) if is_strict_json and request.method != "PATCH" else []
    # Nearly every object has only known fields. That test is fast; a walk that builds paths is much slower.
    if all_known or is_canonical(sent, shape) or _pruned(sent, shape) is sent:
        return duplicates
    unknown = list(islice(_walk(sent, shape, ""), MAX_REPORTED))
    unknown.sort()
    if unknown and old is not None:
        stored_unknown = set(_walk(old, shape, ""))
        unknown = [text for text in unknown if text not in stored_unknown]
    return [*duplicates, *(errors.printable(text) for text in unknown)]


class _WithDuplicates(dict[str, Any]):
    """A JSON object with the names that occurred more than once."""

    twice: frozenset[str] = frozenset()


def _object_from_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    obj = _WithDuplicates(pairs)
    if len(obj) < len(pairs):
        names = Counter(name for name, _ in pairs)
        obj.twice = frozenset(name for name, count in names.items() if count > 1)
    return obj


def _duplicates(body: bytes) -> list[str]:
    """The names that occur twice in an object of a JSON body."""
    texts = _walk(json.loads(body, object_pairs_hook=_object_from_pairs), ANY, "")
    return [errors.printable(text) for text in islice(texts, MAX_REPORTED)]


def _walk(value: Any, shape: TypeSchema, path: str, level: int = 0) -> Iterator[str]:
    if level > MAX_DEPTH:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                yield from _walk(item, shape.item or ANY, f"{path}[{index}]", level + 1)
        return
    duplicates = value.twice if isinstance(value, _WithDuplicates) else ()
    for name, part in value.items():
        field_path = f"{path}.{name[:80]}" if path else name[:80]
        if name in duplicates:
            yield f'duplicate field "{field_path}"'
        field_shape = shape.child(name)
        if field_shape is None:
            yield f'unknown field "{field_path}"'
        elif isinstance(part, dict | list):
            yield from _walk(part, field_shape, field_path, level + 1)


def without_unknown_fields(resource: Resource, obj: Json) -> Json:
    """The object as it is stored: without null fields and fields unknown to its built-in type. (Custom objects are
    pruned by their schema; only their metadata is handled here.)
    """
    if resource.openapi_schema is not None:
        return {**obj, "metadata": _normalized(obj["metadata"], schemas.built_in(f"{schemas.META}ObjectMeta"))}
    return obj if resource.to_storage else _normalized(obj, schemas.schema_of(resource))  # to_storage normalizes


def _normalized(obj: Json, shape: TypeSchema) -> Json:
    return obj if is_canonical(obj, shape) else dict(normalize(_pruned(obj, shape), shape))


def _pruned(value: Any, shape: TypeSchema) -> Any:
    """The value without unknown fields; the same object when there are none."""
    if shape.kind == "any":
        return value
    if isinstance(value, list):
        item_shape = shape.item or ANY
        items = [_pruned(item, item_shape) if isinstance(item, dict | list) else item for item in value]
        return items if any(new is not item for new, item in zip(items, value, strict=True)) else value
    obj: Json = {}
    changed = False
    for name, part in value.items():
        field_shape = shape.child(name)
        if field_shape is None:
            changed = True
            continue
        obj[name] = _pruned(part, field_shape) if isinstance(part, dict | list) else part
        changed = changed or obj[name] is not part
    return obj if changed else value
