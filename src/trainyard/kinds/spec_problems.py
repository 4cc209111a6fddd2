"""What every kind reports of a spec: the problems that an API server with our CRD finds, and unknown fields."""

from __future__ import annotations

from functools import cache

from trainyard.core import Rule, violations
from trainyard.kinds.pods.templates import PRESERVE_UNKNOWN
from trainyard.objects import Json, Problem
from trainyard.schema import Schema, from_struct


@cache
def _schema(spec_type: type) -> Schema:
    return Schema.trusted({**from_struct(spec_type), **PRESERVE_UNKNOWN})


def spec_problems(spec_type: type, rules: tuple[Rule, ...], spec: Json, name: str) -> tuple[Problem, ...]:
    """The problems of types and bounds, then those of the rules, in their order; a job has this `name`."""
    schema = _schema(spec_type)
    stored = schema.default(spec)  # as it would be stored: without null where the old operators' Go structs have nil
    job = {"metadata": {"name": name}, "spec": stored}
    return (*schema.validate(stored, "spec"), *violations(rules, job, None))


def unknown_fields(spec_type: type, spec: Json) -> tuple[str, ...]:
    """The paths of fields that the type does not have, those of pod templates left out."""
    return tuple(f"spec.{path}" for path in _schema(spec_type).unknown_fields(spec, except_below="template"))
