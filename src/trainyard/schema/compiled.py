"""A schema, compiled once: prune, default, validate, unknown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainyard.objects import Json, Problem
from trainyard.schema.checks import DEPTH, MOST, below, compile_check
from trainyard.schema.shaping import EMBEDDED, PRESERVE, RESOURCE_FIELDS, compile_default, compile_prune


class Schema:
    """A structural schema of a whole object: apiVersion, kind and metadata are always known.

    Raises ValueError when the schema itself is wrong.
    """

    def __init__(self, schema: Json) -> None:
        self._schema = schema
        try:
            self._check = compile_check(schema)  # first: it refuses what is nested too deep
            self._prune = compile_prune(schema, resource=True)
            self._default = compile_default(schema)
        except (AttributeError, TypeError) as error:  # `properties: 5` and the like, in a schema that anybody posted
            raise ValueError(f"the schema is malformed: {error}") from None

    def prune(self, obj: Json) -> Json:
        """The object without the fields that the schema neither knows nor preserves."""
        pruned: Json = self._prune(obj) if self._prune else obj
        return pruned

    def default(self, obj: Json) -> Json:
        """The object with missing fields filled in."""
        defaulted: Json = self._default(obj) if self._default else obj
        return defaulted

    def validate(self, obj: Any, path: str = "") -> list[Problem]:
        """Every problem, none twice. Cross-field rules (CEL) are not the schema's; the server is given functions."""
        deep = too_deep(obj)
        if deep:
            text = f"Invalid value: nested deeper than {DEPTH} levels; flatten it"
            return [Problem(path or "(the whole object)", text)]
        problems: list[Problem] = []
        self._check(obj, path, problems)
        problems = list(dict.fromkeys(problems))
        if len(problems) >= MOST:
            problems = [*problems[:MOST], Problem(path, f"Too many: {MOST} problems and more; the rest is not shown")]
        return problems

    def unknown(self, obj: Any) -> list[str]:
        """The paths of fields that the schema does not name, also where they are preserved.

        What stands under a field that is preserved without any named fields is free, so nothing there is unknown.
        """
        return [] if too_deep(obj) else list(_unknown(self._schema, obj, "", True))


def too_deep(value: Any, limit: int = DEPTH) -> bool:
    """Whether lists and objects are nested deeper than `limit`. Without recursion: the input is anybody's."""
    layer = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        # By identity: what a person's file names twice (a YAML alias) is looked at once.
        found: dict[int, Any] = {
            id(part): part
            for one in layer
            for part in (one.values() if isinstance(one, dict) else one)
            if isinstance(part, dict | list)
        }
        layer = list(found.values())
        if not layer:
            return False
    return True


def _unknown(schema: Json, value: Any, path: str, resource: bool) -> Iterator[str]:
    if isinstance(value, list):
        if isinstance(schema.get("items"), dict):
            for index, part in enumerate(value):
                yield from _unknown(schema["items"], part, f"{path}[{index}]", False)
        return
    if not isinstance(value, dict):
        return
    properties: Json = schema.get("properties") or {}
    more = schema.get("additionalProperties")
    free = not properties and (schema.get(PRESERVE) is True or more is True)
    known = RESOURCE_FIELDS if resource or schema.get(EMBEDDED) is True else ()
    for name, part in value.items():
        if name in properties:
            yield from _unknown(properties[name], part, below(path, name), False)
        elif isinstance(more, dict):
            yield from _unknown(more, part, below(path, name), False)
        elif name not in known and not free:
            yield below(path, name)
