"""A schema with its compiled functions: prune, default, validate, unknown.

The constructor checks that the schema is valid; each function is compiled when it is first called.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from trainyard.objects import Json, Problem, decode
from trainyard.schema.checks import MAX_DEPTH, MAX_PROBLEMS, Check, compile_check, field_path
from trainyard.schema.embedded_resources import EmbeddedObjects, FindEmbedded, compile_embedded
from trainyard.schema.fast_path import IsValid, compile_is_valid
from trainyard.schema.pruning_and_defaulting import (
    EMBEDDED,
    PRESERVE,
    RESOURCE_FIELDS,
    Transform,
    compile_default,
    compile_prune,
)
from trainyard.schema.schema_validity import check_schema


class Schema:
    """A structural schema of a whole object: apiVersion, kind and metadata are always known fields.

    `schema`: also as JSON, which is decoded when it is first used. `drop_nulls`: `default` also drops map entries whose
    value is null but may not be. Raises ValueError when the schema is invalid; with `is_valid` the schema is not
    checked.
    """

    def __init__(self, schema: Json | bytes, drop_nulls: bool = False, is_valid: bool = False) -> None:
        self._schema, self._empties = schema, drop_nulls
        try:
            if not is_valid:
                check_schema(self.document)
        except (AttributeError, TypeError) as error:  # such as `properties: 5`, in a schema from a client
            raise ValueError(f"the schema is malformed: {error}") from None

    @classmethod
    def trusted(cls, schema: Json) -> Schema:
        """A schema that is part of Trainyard: not checked at run time, because a test checks all of them."""
        return cls(schema, is_valid=True)

    @cached_property
    def document(self) -> Json:
        """The schema as it was given."""
        schema: Json = decode(self._schema) if isinstance(self._schema, bytes) else self._schema
        return schema

    @cached_property
    def _check(self) -> Check:
        return compile_check(self.document)

    @cached_property
    def _fit(self) -> IsValid:
        return compile_is_valid(self.document)

    @cached_property
    def _prune(self) -> Transform | None:
        return compile_prune(self.document, resource=True)

    @cached_property
    def _default(self) -> Transform | None:
        return compile_default(self.document, self._empties)

    @cached_property
    def _embedded(self) -> FindEmbedded | None:
        return compile_embedded(self.document)

    def embedded(self, obj: Json) -> EmbeddedObjects:
        """The embedded objects (x-kubernetes-embedded-resource) of this object, with their paths."""
        return self._embedded(obj, "") if self._embedded else iter(())

    def prune(self, obj: Json) -> Json:
        """The object without the fields that the schema neither specifies nor preserves."""
        pruned: Json = self._prune(obj) if self._prune else obj
        return pruned

    def default(self, obj: Json) -> Json:
        """The object with the schema's defaults for missing fields."""
        defaulted: Json = self._default(obj) if self._default else obj
        return defaulted

    def validate(self, obj: Any, path: str = "", *, depth_checked: bool = False) -> list[Problem]:
        """Every problem once. CEL rules are not evaluated here: the server gets them as functions.

        `depth_checked`: the caller has checked with `is_too_deep` that the object is not too deep.
        """
        if not depth_checked and is_too_deep(obj):
            text = f"Invalid value: nested deeper than {MAX_DEPTH} levels; flatten it"
            return [Problem(path or "(the whole object)", text)]
        if self._fit(obj):
            return []
        problems: list[Problem] = []
        self._check(obj, path, problems)
        problems = list(dict.fromkeys(problems))
        if len(problems) >= MAX_PROBLEMS:
            problems = [
                *problems[:MAX_PROBLEMS],
                Problem(path, f"Too many: {MAX_PROBLEMS} problems and more; the others are not shown"),
            ]
        return problems

    def unknown_fields(self, obj: Any, except_below: str = "") -> list[str]:
        """The paths of fields that the schema does not specify, even where they are preserved.

        No field is unknown below an object that preserves unknown fields and specifies none, below a specified field
        with the name `except_below`, or below the metadata of a resource.
        """
        return [] if is_too_deep(obj) else list(_unknown_fields(self.document, obj, "", except_below, True))


_NESTED_TYPES = frozenset({dict, list})


def is_too_deep(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Whether lists and objects are nested deeper than `limit` levels. Not recursive: the value is untrusted."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        # By id(): a value that several fields share counts once.
        children: dict[int, Any] = {}
        for parent in level:
            for child in parent.values() if parent.__class__ is dict else parent:
                if child.__class__ in _NESTED_TYPES:
                    children[id(child)] = child
        level = list(children.values())
        if not level:
            return False
    return True


def _unknown_fields(schema: Json, value: Any, path: str, but: str, resource: bool = False) -> Iterator[str]:
    if isinstance(value, list):
        if isinstance(schema.get("items"), dict):
            for index, item in enumerate(value):
                yield from _unknown_fields(schema["items"], item, f"{path}[{index}]", but)
        return
    if not isinstance(value, dict):
        return
    properties: Json = schema.get("properties") or {}
    additional = schema.get("additionalProperties")
    allows_any_field = not properties and (schema.get(PRESERVE) is True or additional is True)
    known = RESOURCE_FIELDS if resource or schema.get(EMBEDDED) is True else ()
    for name, field_value in value.items():
        if name in known or (name == but and name in properties):
            continue
        if name in properties:
            yield from _unknown_fields(properties[name], field_value, field_path(path, name), but)
        elif isinstance(additional, dict):
            yield from _unknown_fields(additional, field_value, field_path(path, name), but)
        elif not allows_any_field:
            yield field_path(path, name)
