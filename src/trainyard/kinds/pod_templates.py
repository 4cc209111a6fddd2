"""The schema of a pod template: Kubernetes' own types below ours, so that a wrong one is answered with its path.

Rules for this file:
- Every field that is not known is kept, on every level: a newer Kubernetes has more of them (S30).
- Nothing is filled in, and a null stays a null: what a person wrote is what is stored, and what a digest is made of.
- The same parts stand in many places; nobody may change one.
"""

from __future__ import annotations

from functools import lru_cache

from trainyard.kinds.pod_types import TYPES
from trainyard.objects import Json

KEEP = "x-kubernetes-preserve-unknown-fields"
_TEXTS: Json = {"type": "object", "additionalProperties": {"type": "string"}, "nullable": True}
METADATA: Json = {
    "type": "object",
    "properties": {"labels": _TEXTS, "annotations": _TEXTS},
    KEEP: True,
    "nullable": True,
}
"""Ours are added to the labels and annotations, so these have to be what they should."""


def pod_template(container: Json, **listed: object) -> Json:
    """A PodTemplateSpec. `container` is what is said of a container beside its type, `listed` of the list of them."""
    item = _type("Container")
    item = {**item, **container, "properties": {**item["properties"], **container.get("properties", {})}}
    spec = _type("PodSpec")
    containers = {"type": "array", "items": item, **listed}
    return {
        "description": "A PodTemplateSpec.",
        "properties": {
            "metadata": METADATA,
            "spec": {
                "description": "The pods of a replica.",
                **spec,
                "properties": {**spec["properties"], "containers": containers},
            },
        },
        KEEP: True,
    }


@lru_cache(maxsize=1)
def fields_of_types() -> dict[str, dict[str, str]]:
    """Type -> field -> type, as the lines say."""
    lines = TYPES.strip().replace("\n    ", " ").splitlines()
    return {
        name: {field: kind for field, _, kind in (part.partition(":") for part in fields.split())}
        for name, _, fields in (line.partition(" ") for line in lines)
    }


@lru_cache(maxsize=256)
def _type(name: str) -> Json:
    """The schema of a type, as the line that tells it says."""
    if name in ("string", "integer", "boolean"):
        return {"type": name}
    if name == "int-or-string":
        return {"x-kubernetes-int-or-string": True}
    if name == "any":
        return {KEEP: True}
    if name == "{any}":
        return {"type": "object", KEEP: True}
    if name.startswith("["):
        return {"type": "array", "items": _type(name[1:-1])}
    if name.startswith("{"):
        return {"type": "object", "additionalProperties": {**_type(name[1:-1]), "nullable": True}}
    fields = fields_of_types()[name]
    required = [field.removesuffix("!") for field in fields if field.endswith("!")]
    return {
        "type": "object",
        "properties": {field.removesuffix("!"): _field(field, kind) for field, kind in fields.items()},
        **({"required": required} if required else {}),
        KEEP: True,
    }


def _field(field: str, kind: str) -> Json:
    return _type(kind) if field.endswith("!") or kind == "any" else {**_type(kind), "nullable": True}
