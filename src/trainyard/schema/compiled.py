"""A schema, compiled once: prune, default, validate, unknown.

Whether it is a schema is asked at once; each of the four is compiled when it is first wanted.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from trainyard.objects import Json, Problem
from trainyard.schema.checks import DEPTH, MOST, Check, below, compile_check
from trainyard.schema.embedding import Found, Look, compile_embedded
from trainyard.schema.examining import examine
from trainyard.schema.fitting import Fit, compile_fit
from trainyard.schema.shaping import EMBEDDED, PRESERVE, RESOURCE_FIELDS, Shape, compile_default, compile_prune


class Schema:
    """A structural schema of a whole object: apiVersion, kind and metadata are always known.

    `empties`: `default` also takes away nulls in maps, where none may be. Raises ValueError when the schema is wrong,
    unless it is known to be right (`examined`).
    """

    def __init__(self, schema: Json, empties: bool = False, examined: bool = False) -> None:
        self.document, self._empties = schema, empties
        try:
            if not examined:
                examine(schema)
        except (AttributeError, TypeError) as error:  # `properties: 5` and the like, in a schema that anybody posted
            raise ValueError(f"the schema is malformed: {error}") from None

    @classmethod
    def ours(cls, schema: Json) -> Schema:
        """A schema of this program: a test examines all of them, so that a start does not."""
        return cls(schema, examined=True)

    @cached_property
    def _check(self) -> Check:
        return compile_check(self.document)

    @cached_property
    def _fit(self) -> Fit:
        return compile_fit(self.document)

    @cached_property
    def _prune(self) -> Shape | None:
        return compile_prune(self.document, resource=True)

    @cached_property
    def _default(self) -> Shape | None:
        return compile_default(self.document, self._empties)

    @cached_property
    def _embedded(self) -> Look | None:
        return compile_embedded(self.document)

    def embedded(self, obj: Json) -> Found:
        """The objects inside this one, with their paths."""
        return self._embedded(obj, "") if self._embedded else iter(())

    def prune(self, obj: Json) -> Json:
        """The object without the fields that the schema neither knows nor preserves."""
        pruned: Json = self._prune(obj) if self._prune else obj
        return pruned

    def default(self, obj: Json) -> Json:
        """The object with missing fields filled in."""
        defaulted: Json = self._default(obj) if self._default else obj
        return defaulted

    def validate(self, obj: Any, path: str = "", *, measured: bool = False) -> list[Problem]:
        """Every problem, none twice. Cross-field rules (CEL) are not the schema's; the server is given functions.

        `measured`: somebody has seen already that the object is not too deep.
        """
        if not measured and too_deep(obj):
            text = f"Invalid value: nested deeper than {DEPTH} levels; flatten it"
            return [Problem(path or "(the whole object)", text)]
        if self._fit(obj):
            return []
        problems: list[Problem] = []
        self._check(obj, path, problems)
        problems = list(dict.fromkeys(problems))
        if len(problems) >= MOST:
            problems = [*problems[:MOST], Problem(path, f"Too many: {MOST} problems and more; the rest is not shown")]
        return problems

    def unknown(self, obj: Any, but: str = "") -> list[str]:
        """The paths of fields that the schema does not name, also where they are preserved.

        What stands under a field that is preserved without any named fields is free, so nothing there is unknown; nor
        is what stands under a known field named `but`, or under the metadata of a resource.
        """
        return [] if too_deep(obj) else list(_unknown(self.document, obj, "", but, True))


_NESTING = frozenset({dict, list})


def too_deep(value: Any, limit: int = DEPTH) -> bool:
    """Whether lists and objects are nested deeper than `limit`. Without recursion: the input is anybody's."""
    layer = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        # By identity: what a person's file names twice (a YAML alias) is looked at once.
        found: dict[int, Any] = {}
        for one in layer:
            for part in one.values() if one.__class__ is dict else one:
                if part.__class__ in _NESTING:
                    found[id(part)] = part
        layer = list(found.values())
        if not layer:
            return False
    return True


def _unknown(schema: Json, value: Any, path: str, but: str, resource: bool = False) -> Iterator[str]:
    if isinstance(value, list):
        if isinstance(schema.get("items"), dict):
            for index, part in enumerate(value):
                yield from _unknown(schema["items"], part, f"{path}[{index}]", but)
        return
    if not isinstance(value, dict):
        return
    properties: Json = schema.get("properties") or {}
    more = schema.get("additionalProperties")
    free = not properties and (schema.get(PRESERVE) is True or more is True)
    known = RESOURCE_FIELDS if resource or schema.get(EMBEDDED) is True else ()
    for name, part in value.items():
        if name in known or (name == but and name in properties):
            continue
        if name in properties:
            yield from _unknown(properties[name], part, below(path, name), but)
        elif isinstance(more, dict):
            yield from _unknown(more, part, below(path, name), but)
        elif not free:
            yield below(path, name)
