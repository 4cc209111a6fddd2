"""What a schema does to an object on its way in: `prune` takes unknown fields away, `default` fills missing ones.

Rules for this file:
- Each compiler returns None when its schema changes nothing, so that whole branches cost nothing at run time.
- A part that did not change is returned as the same object, not as a copy.
- As in Kubernetes, a null where null is not allowed is replaced by the default, and taken away when there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainyard.objects import Json

Shape = Callable[[Any], Any]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
RESOURCE_FIELDS = ("apiVersion", "kind", "metadata")
METADATA_FIELDS = frozenset((
    *("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers"),
    "managedFields",
))  # fmt: skip


def compile_prune(schema: Json, resource: bool = False) -> Shape | None:
    """Takes away what the schema does not know. `resource`: apiVersion, kind and metadata are known."""
    if "items" in schema:
        return _each_item(compile_prune(schema["items"]))
    if isinstance(schema.get("additionalProperties"), dict):
        return _each_value(compile_prune(schema["additionalProperties"]), True)
    properties: Json = schema.get("properties") or {}
    resource = resource or schema.get(EMBEDDED) is True
    below = {name: compile_prune(part) for name, part in properties.items()}
    if resource:
        below.update(dict.fromkeys(RESOURCE_FIELDS))
    if schema.get(EMBEDDED) is True:
        below["metadata"] = _own_metadata
    keep_all = schema.get(PRESERVE) is True or schema.get("additionalProperties") is True
    if schema.get("type") != "object" and not properties:
        return None
    if keep_all and not any(below.values()):
        return None

    def prune(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        kept: Json = {}
        same = True
        for name, part in value.items():
            if name in below:
                shape = below[name]
                new = part if shape is None else shape(part)
                same = same and new is part
                kept[name] = new
            elif keep_all:
                kept[name] = part
            else:
                same = False
        return value if same else kept

    return prune


def _own_metadata(meta: Any) -> Any:
    """Of the metadata of an embedded object only the known fields stay, and those that say something."""
    if meta is None:
        return {}
    if not isinstance(meta, dict):
        return meta
    kept = {name: part for name, part in meta.items() if name in METADATA_FIELDS and _says_something(name, part)}
    for name in ("labels", "annotations"):
        if isinstance(pairs := kept.get(name), dict) and None in pairs.values():
            kept[name] = {key: "" if value is None else value for key, value in pairs.items()}
    return meta if kept == meta else kept


def _says_something(name: str, part: Any) -> bool:
    return part not in (None, "", {}, []) and not (name == "generation" and part == 0)


def compile_default(schema: Json, empties: bool = False) -> Shape | None:
    """Fills what is missing below this schema. A default of the schema itself is its parent's business.

    `empties`: a null in a map goes, too, where it may not be, as in the real server's storage. lint would rather tell.
    """
    if schema.get("type") == "integer":
        return _whole
    if "items" in schema:
        return _each_item(compile_default(schema["items"], empties))
    if isinstance(schema.get("additionalProperties"), dict):
        more: Json = schema["additionalProperties"]
        return _each_value(compile_default(more, empties), not empties or more.get("nullable") is True)
    properties: Json = schema.get("properties") or {}
    below = {name: shape for name, part in properties.items() if (shape := compile_default(part, empties)) is not None}
    missing = {name: part["default"] for name, part in properties.items() if "default" in part}
    strict = {name for name, part in properties.items() if part.get("nullable") is not True}
    if not properties:
        return None

    def default(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        made: Json | None = None
        for name in strict:
            if name in value and value[name] is None:
                made = dict(value) if made is None else made
                del made[name]
        for name, filling in missing.items():
            if name not in (value if made is None else made):
                made = dict(value) if made is None else made
                made[name] = copied(filling)
        now = value if made is None else made
        for name, part in now.items():
            shape = below.get(name)
            if shape is not None and (new := shape(part)) is not part:
                made = dict(value) if made is None else made
                now = made
                made[name] = new
        return value if made is None else made

    return default


def _whole(value: Any) -> Any:
    """A whole number that was written as 2.0 is 2 from here on, as in the real server's storage."""
    if isinstance(value, float) and value.is_integer() and -(2**63) <= value < 2**63:
        return int(value)
    return value


def copied(value: Any) -> Any:
    """A copy of a default, which belongs to the schema. Its depth is the schema's, so recursion is fine."""
    if isinstance(value, dict):
        return {name: copied(part) for name, part in value.items()}
    if isinstance(value, list):
        return [copied(part) for part in value]
    return value


def _each_item(shape: Shape | None) -> Shape | None:
    if shape is None:
        return None

    def each(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        made: list[Any] | None = None
        for index, part in enumerate(value):
            if (new := shape(part)) is not part:
                made = list(value) if made is None else made
                made[index] = new
        return value if made is None else made

    return each


def _each_value(shape: Shape | None, null: bool) -> Shape | None:
    """`null`: a value may be null; where it may not, it is taken away."""
    if shape is None and null:
        return None

    def each(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        new = {name: shape(part) if shape else part for name, part in value.items() if null or part is not None}
        return value if len(new) == len(value) and all(new[name] is part for name, part in value.items()) else new

    return each
