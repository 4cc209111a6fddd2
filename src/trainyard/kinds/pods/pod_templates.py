"""The schema of a pod template with the types of Kubernetes, so that a value of a wrong type is rejected with its path.

Rules for this file:
- Unknown fields are preserved on every level: a newer Kubernetes has more fields (S30).
- The schema has no defaults, and null is kept: the template is stored, and its digest computed, as the user wrote it.
- Subschemas are shared between many places: callers must not change them.
"""

from __future__ import annotations

from functools import lru_cache

from trainyard.kinds.pods.pod_types import TYPES
from trainyard.objects import Json

KEEP = "x-kubernetes-preserve-unknown-fields"
_STRING_MAP: Json = {"type": "object", "additionalProperties": {"type": "string"}, "nullable": True}
METADATA: Json = {
    "type": "object",
    "properties": {"labels": _STRING_MAP, "annotations": _STRING_MAP},
    KEEP: True,
    "nullable": True,
}
"""Trainyard adds labels and annotations to the template, so the schema requires maps of strings."""


def pod_template_schema(container: Json, **containers_keywords: object) -> Json:
    """The schema of a PodTemplateSpec.

    `container` has further keywords and properties for the schema of a container, `containers_keywords` further
    keywords for that of the list of containers.
    """
    core = type_schema("Container")
    item = {**core, **container, "properties": {**core["properties"], **container.get("properties", {})}}
    spec = type_schema("PodSpec")
    containers = {"type": "array", "items": item, **containers_keywords}
    return {
        "description": "A PodTemplateSpec.",
        "properties": {
            "metadata": METADATA,
            "spec": {
                "description": "The pods of a replica.",
                **spec,
                "properties": {**spec["properties"], "containers": containers},
                "required": ["containers"],
            },
        },
        "required": ["spec"],
        KEEP: True,
    }


@lru_cache(maxsize=1)
def fields_of_types() -> dict[str, dict[str, str]]:
    """Type -> field -> type, parsed from `pod_types.TYPES`. Names of required fields end with `!`."""
    lines = TYPES.strip().replace("\n    ", " ").splitlines()
    return {
        name: {field: kind for field, _, kind in (declaration.partition(":") for declaration in fields.split())}
        for name, _, fields in (line.partition(" ") for line in lines)
    }


@lru_cache(maxsize=256)
def type_schema(name: str) -> Json:
    """The schema of a type in the notation of `pod_types.TYPES`."""
    if name in ("string", "integer", "boolean"):
        return {"type": name}
    if name == "int-or-string":
        return {"x-kubernetes-int-or-string": True}
    if name == "any":
        return {KEEP: True}
    if name == "{any}":
        return {"type": "object", KEEP: True}
    if name.startswith("["):
        return {"type": "array", "items": type_schema(name[1:-1])}
    if name.startswith("{"):
        return {"type": "object", "additionalProperties": {**type_schema(name[1:-1]), "nullable": True}}
    fields = fields_of_types()[name]
    required = [field.removesuffix("!") for field in fields if field.endswith("!")]
    return {
        "type": "object",
        "properties": {field.removesuffix("!"): _field_schema(field, kind) for field, kind in fields.items()},
        **({"required": required} if required else {}),
        KEEP: True,
    }


def _field_schema(field: str, kind: str) -> Json:
    schema = type_schema(kind)
    return schema if field.endswith("!") or kind == "any" else {**schema, "nullable": True}
