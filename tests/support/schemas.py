"""Schemas that the tests of server-side apply share."""

from __future__ import annotations

from trainyard.objects import Json

LIST_BY_NAME: Json = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
    "items": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "v": {"type": "integer"}},
    },
}
