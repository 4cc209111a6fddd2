"""Pruning and defaulting of objects: `prune` removes unknown fields, `default` sets defaults for missing ones.

Rules for this file:
- A compile function returns None when its schema changes no value, so that such subschemas cost nothing at run time.
- A value that does not change is returned as the same Python object, not as a copy.
- As in Kubernetes, a null where null is not allowed is replaced by the default, and removed when there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainyard.objects import Json

Transform = Callable[[Any], Any]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
RESOURCE_FIELDS = ("apiVersion", "kind", "metadata")
METADATA_FIELDS = frozenset((
    *("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "ownerReferences", "finalizers"),
    "managedFields",
))  # fmt: skip


def compile_prune(schema: Json, resource: bool = False) -> Transform | None:
    """A function that removes unknown fields. `resource`: apiVersion, kind and metadata are known fields."""
    if "items" in schema:
        return _each_item(compile_prune(schema["items"]))
    if isinstance(schema.get("additionalProperties"), dict):
        return _each_value(compile_prune(schema["additionalProperties"]), True)
    properties: Json = schema.get("properties") or {}
    resource = resource or schema.get(EMBEDDED) is True
    prune_field = {name: compile_prune(field) for name, field in properties.items()}
    if resource:
        prune_field.update(dict.fromkeys(RESOURCE_FIELDS))
    if schema.get(EMBEDDED) is True:
        prune_field["metadata"] = _prune_embedded_metadata
    preserves_unknown = schema.get(PRESERVE) is True or schema.get("additionalProperties") is True
    if schema.get("type") != "object" and not properties:
        return None
    if preserves_unknown and not any(prune_field.values()):
        return None

    def prune(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        pruned: Json = {}
        unchanged = True
        for name, field_value in value.items():
            if name in prune_field:
                shape = prune_field[name]
                new_value = field_value if shape is None else shape(field_value)
                unchanged = unchanged and new_value is field_value
                pruned[name] = new_value
            elif preserves_unknown:
                pruned[name] = field_value
            else:
                unchanged = False
        return value if unchanged else pruned

    return prune


def _prune_embedded_metadata(meta: Any) -> Any:
    """Remove unknown and empty fields from the metadata of an embedded object."""
    if meta is None:
        return {}
    if not isinstance(meta, dict):
        return meta
    pruned = {name: value for name, value in meta.items() if name in METADATA_FIELDS and not _is_empty(name, value)}
    for name in ("labels", "annotations"):
        if isinstance(pairs := pruned.get(name), dict) and None in pairs.values():
            pruned[name] = {key: "" if value is None else value for key, value in pairs.items()}
    return meta if pruned == meta else pruned


def _is_empty(name: str, value: Any) -> bool:
    """Whether the metadata field has its zero value, which Kubernetes does not store."""
    return value in (None, "", {}, []) or (name == "generation" and value == 0)


def compile_default(schema: Json, empties: bool = False) -> Transform | None:
    """A function that sets defaults below this schema. The parent sets the default of the schema itself.

    `empties`: also drops map entries whose value is null but may not be, as a real API server does before it stores the
    object. `lint` does not, so that it can report them.
    """
    if schema.get("type") == "integer":
        return _as_integer
    if "items" in schema:
        return _each_item(compile_default(schema["items"], empties))
    if isinstance(schema.get("additionalProperties"), dict):
        additional: Json = schema["additionalProperties"]
        return _each_value(compile_default(additional, empties), not empties or additional.get("nullable") is True)
    properties: Json = schema.get("properties") or {}
    shapes = {
        name: shape for name, field in properties.items() if (shape := compile_default(field, empties)) is not None
    }
    defaults = {name: field["default"] for name, field in properties.items() if "default" in field}
    not_nullable = {name for name, field in properties.items() if field.get("nullable") is not True}
    if not properties:
        return None

    def default(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        defaulted: Json | None = None  # a copy, made at the first change
        for name in not_nullable:
            if name in value and value[name] is None:
                defaulted = dict(value) if defaulted is None else defaulted
                del defaulted[name]
        for name, default_value in defaults.items():
            if name not in (value if defaulted is None else defaulted):
                defaulted = dict(value) if defaulted is None else defaulted
                defaulted[name] = copy_default(default_value)
        fields = value if defaulted is None else defaulted
        for name, field_value in fields.items():
            shape = shapes.get(name)
            if shape is not None and (new_value := shape(field_value)) is not field_value:
                defaulted = dict(value) if defaulted is None else defaulted
                fields = defaulted
                defaulted[name] = new_value
        return value if defaulted is None else defaulted

    return default


def _as_integer(value: Any) -> Any:
    """2.0 becomes 2 where the schema has an integer, as in the storage of a real API server."""
    if isinstance(value, float) and value.is_integer() and -(2**63) <= value < 2**63:
        return int(value)
    return value


def copy_default(value: Any) -> Any:
    """A deep copy of a default, which is part of the schema. The recursion is at most as deep as the schema."""
    if isinstance(value, dict):
        return {name: copy_default(field_value) for name, field_value in value.items()}
    if isinstance(value, list):
        return [copy_default(item) for item in value]
    return value


def _each_item(shape: Transform | None) -> Transform | None:
    if shape is None:
        return None

    def shape_items(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        items: list[Any] | None = None  # a copy, made at the first change
        for index, item in enumerate(value):
            if (new_item := shape(item)) is not item:
                items = list(value) if items is None else items
                items[index] = new_item
        return value if items is None else items

    return shape_items


def _each_value(shape: Transform | None, keep_nulls: bool) -> Transform | None:
    """Apply `shape` to each value of a map. Without `keep_nulls`, entries with a null value are removed."""
    if shape is None and keep_nulls:
        return None

    def shape_values(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        shaped = {
            key: shape(entry) if shape else entry for key, entry in value.items() if keep_nulls or entry is not None
        }
        unchanged = len(shaped) == len(value) and all(shaped[key] is entry for key, entry in value.items())
        return value if unchanged else shaped

    return shape_values
