"""Pod templates: user property. They are merged, never modelled."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from trainyard.core.status import MOST_REPLICAS
from trainyard.kinds.pod_templates import pod_template
from trainyard.objects import Json, decode, encode

KEEP = {"x-kubernetes-preserve-unknown-fields": True}
NULL = {"nullable": True}
MAX_REPLICAS = MOST_REPLICAS

PodTemplate = Annotated[
    dict[str, Any],
    Meta(
        extra_json_schema=pod_template(
            {"properties": {"name": {"type": "string", "minLength": 1, "maxLength": 63}}},
            **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        )
    ),
]
"""A PodTemplateSpec, each of whose containers has a name of its own."""


def containers_of(template: object) -> list[Json]:
    """The containers of a template, malformed ones left out."""
    spec = template.get("spec") if isinstance(template, dict) else None
    found = spec.get("containers") if isinstance(spec, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def has_container(template: object, name: str) -> bool:
    return any(one.get("name") == name for one in containers_of(template))


def copied(template: Json) -> Json:
    """A template of our own to change: the user's object is never touched."""
    fresh: Json = decode(encode(template))
    spec = fresh.get("spec")
    fresh["spec"] = spec if isinstance(spec, dict) else {}
    fresh["spec"]["containers"] = containers_of(fresh)
    return fresh


def whole(value: object) -> int | None:
    """A whole number, None for anything else. To a schema 2.0 is one, too."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def spec_of(template: object) -> Json:
    """The pod spec of a template, {} when it has none."""
    found = template.get("spec") if isinstance(template, dict) else None
    return found if isinstance(found, dict) else {}


def append(within: Json, name: str, *items: Any, first: bool = False) -> None:
    """Adds to a list of the user's, after it or before. What is no list stays: the API server says so and where."""
    given = within.get(name)
    if given is None or isinstance(given, list):
        within[name] = [*items, *(given or [])] if first else [*(given or []), *items]


def append_env(container: Json, *pairs: tuple[str, str]) -> None:
    """Adds variables after the user's own; of two with one name Kubernetes takes the later."""
    append(container, "env", *({"name": name, "value": value} for name, value in pairs))


def append_volume(template: Json, volume: Json) -> None:
    append(template["spec"], "volumes", volume)
