"""Pod templates: user property. They are merged, never modelled; only what every template needs is described."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from trainyard.core.status import MOST_REPLICAS
from trainyard.objects import Json, decode, encode

KEEP = {"x-kubernetes-preserve-unknown-fields": True}
NULL = {"nullable": True}
MAX_REPLICAS = MOST_REPLICAS
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}, **NULL}
TEMPLATE_META = {"type": "object", "properties": {"labels": _TEXTS, "annotations": _TEXTS}, **KEEP, **NULL}
"""Ours are added to the labels and annotations, so these have to be what they should."""


class Container(msgspec.Struct, kw_only=True):
    """A container of a pod; every field of Kubernetes' own type is passed on."""

    name: Annotated[str, Meta(min_length=1, max_length=63)]
    image: str | None = None


class PodSpec(msgspec.Struct, kw_only=True):
    """The pods of a replica; every field of Kubernetes' own type is passed on."""

    containers: Annotated[
        list[Annotated[Container, Meta(extra_json_schema=KEEP)]] | None,
        Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}),
    ] = None


class PodTemplate(msgspec.Struct, kw_only=True):
    """A PodTemplateSpec."""

    metadata: Annotated[dict[str, Any] | None, Meta(extra_json_schema=TEMPLATE_META)] = None
    spec: Annotated[PodSpec | None, Meta(extra_json_schema=KEEP)] = None


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
