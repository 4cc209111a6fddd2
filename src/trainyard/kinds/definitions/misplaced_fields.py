"""The right place of a known field that stands in the wrong one: `spec.suspend` of a PyTorchJob."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.objects import Json

ROLE = "ROLE"  # in a path: the name of a role, or the index in a list of them


def warning_text(schema: Json, spec: Json, path: str) -> str:
    """What to do about the unknown field of the spec at `path`, which begins with `spec`. `schema`: of the spec."""
    field, value = _last_field(path), _value_at(spec, path)
    if place := right_place(schema, path, field):
        return f"is unknown here and ignored; write {place}"
    below = [right_place(schema, path, name) for name in value] if isinstance(value, dict) else []
    if places := list(dict.fromkeys(filter(None, below))):
        return f"is unknown and ignored, with all below it; write {', '.join(places)}"
    return "is unknown and ignored; check its spelling"


def right_place(schema: Json, path: str, field: str) -> str:
    """The path at which the schema has the field, "" when it has none of this name. The shortest of several, with the
    role under which the field stands now."""
    places = [place for place in _places(schema, "spec", field) if place != path]
    return _with_role(min(places, key=lambda place: place.count("."), default=""), path)


def _places(schema: Json, path: str, field: str) -> Iterator[str]:
    """The paths of all fields with this name; of a pod template those of its pod spec and of its first level."""
    properties: Json = schema.get("properties") or {}
    for name, node in properties.items():
        place = f"{path}.{name}"
        if name == field:
            yield place
        if name == "template":
            pod_spec = (node.get("properties") or {}).get("spec") or {}
            yield from (f"{place}.spec.{name}" for name in pod_spec.get("properties") or {} if name == field)
        else:
            yield from _places(node, place, field)
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            yield from _places(inner, f"{path}.{ROLE}", field)


def _with_role(place: str, path: str) -> str:
    """The place in the role of the path, if both stand in one map or list of roles."""
    roles, marker, rest = place.partition(f".{ROLE}.")
    if not marker:
        return place
    for separator, end in ((".", "."), ("[", "]")):
        if path.startswith(f"{roles}{separator}"):
            role = path[len(roles) + 1 :].partition(end)[0]
            return f"{roles}{separator}{role}{']' if end == ']' else ''}.{rest}"
    return place


def _last_field(path: str) -> str:
    return path.rpartition(".")[2]


def _value_at(spec: Json, path: str) -> object:
    """The value of a field directly below the spec; None for others, whose fields are not searched."""
    return spec.get(path.removeprefix("spec."))
