"""The schemas of resources: of the built-in ones those of their types, of custom resources those of their CRD."""

from __future__ import annotations

from functools import lru_cache

from trainyard.api_types.schemas import META, STRING, TypeSchema, built_in, from_openapi, name_of
from trainyard.objects import Json
from trainyard.objects.structs import replace
from trainyard.server.model.resources import Resource


@lru_cache(maxsize=256)
def schema_of(resource: Resource) -> TypeSchema:
    """The schema of a resource's objects."""
    if resource.definition and resource.schema:
        return _custom(resource.schema.document)
    return built_in(name_of(resource.group, resource.version, resource.kind))


def _custom(document: Json) -> TypeSchema:
    """The schema of a custom resource: that of the CRD, with the built-in ObjectMeta."""
    shape = from_openapi(document)
    metadata = built_in(f"{META}ObjectMeta")
    type_fields = {"apiVersion": STRING, "kind": STRING, "metadata": metadata}
    return replace(shape, kind="object", own_fields={**(shape.own_fields or {}), **type_fields})
