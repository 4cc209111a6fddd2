"""/scale: an object with replicas as an autoscaling/v1 Scale.

object --view--> Scale --change by the client--> wanted --applied--> object, which is then admitted like any update
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainyard.api_types import decoding
from trainyard.api_types.schemas import META, STRING, TypeSchema, built_in
from trainyard.objects import Json, Problem
from trainyard.schema.checks import json_text
from trainyard.server.model import errors
from trainyard.server.model.resources import Column, Resource, ScalePaths
from trainyard.server.registry.tables import AGE, NAME

GROUP = "autoscaling"
MOST = 2**31 - 1
_KINDS = {"kind": "Scale", "apiVersion": f"{GROUP}/v1"}
_NUMBER = TypeSchema("integer", format="int32")
SHAPE = TypeSchema(
    "object",
    own_fields={
        "apiVersion": STRING,
        "kind": STRING,
        "metadata": built_in(f"{META}ObjectMeta"),
        "spec": TypeSchema("object", own_fields={"replicas": _NUMBER}),
        "status": TypeSchema("object", own_fields={"replicas": _NUMBER, "selector": STRING}),
    },
)
_DESIRED = Column("Desired", lambda obj, now: obj["spec"].get("replicas"), "integer", description="Wished for.")
_AVAILABLE = Column("Available", lambda obj, now: obj["status"]["replicas"], "integer", description="There.")


RESOURCE = Resource(
    group=GROUP, kind="Scale", plural="scales", columns=(NAME, _DESIRED, _AVAILABLE, AGE._replace(type="date"))
)
"""The resource of Scale objects, for their representation (Table, ...). They are not stored."""


def view(scaled: ScalePaths, obj: Json) -> Json:
    """The Scale of an object. Raises StatusError 500, as kube-apiserver does, when the spec replicas field is
    missing."""
    meta = obj["metadata"]
    replicas = _number(obj, scaled.spec_replicas)
    if replicas is None:
        path = "." + ".".join(scaled.spec_replicas)
        text = f'Internal error occurred: the spec replicas field "{path}" does not exist'
        raise errors.StatusError(500, "InternalError", text)
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Json = {"replicas": _number(obj, scaled.status_replicas) or 0}
    if selector := scaled.selector(obj):
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": f"{GROUP}/v1",
        "metadata": {name: meta[name] for name in kept if name in meta},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def patch_base(scaled: ScalePaths, obj: Json) -> Json:
    """The Scale that a patch is applied to; an object that names no number of replicas has 0."""
    return view(scaled, obj if _number(obj, scaled.spec_replicas) is not None else with_replicas(scaled, obj, 0))


def require_scale(sent: Any) -> None:
    """Raises StatusError 422 when the patched object is no Scale."""
    reason = next(
        (
            f"{field} must be {expected}"
            for field, expected in _KINDS.items()
            if (sent.get(field) or expected) != expected
        ),
        "",
    )
    if reason := reason or decoding.decoding_error(sent, SHAPE):
        raise errors.patch_invalid(errors.printable(reason))


def problems(scaled: ScalePaths, obj: Json, *, status_only: bool = False) -> Iterator[Problem]:
    """Problems of a custom object at the scale paths, in addition to those of its schema."""
    for steps in (scaled.status_replicas,) if status_only else (scaled.spec_replicas, scaled.status_replicas):
        number, path = value_at(obj, steps), "." + ".".join(steps)
        if _has_non_object(obj, steps) or (number is not None and type(number) is not int):
            yield Problem(path, f"Invalid value: 0: {path} is no whole number: {json_text(number)}")
        elif number is not None and number < 0:
            yield Problem(path, f"Invalid value: {number}: should be a non-negative integer")
        elif number is not None and number > MOST:
            yield Problem(path, f"Invalid value: {number}: should be less than or equal to {MOST}")
    if scaled.selector_path:
        text, path = value_at(obj, scaled.selector_path), "." + ".".join(scaled.selector_path)
        if _has_non_object(obj, scaled.selector_path) or not isinstance(text, str | None):
            yield Problem(path, f'Invalid value: "": {path} is no text: {json_text(text)}')


def _has_non_object(obj: Any, steps: tuple[str, ...]) -> bool:
    """Whether a value on the path is not an object."""
    for step in steps[:-1]:
        obj = obj.get(step)
        if obj is None:
            return False
        if not isinstance(obj, dict):
            return True
    return False


def require_decodable(sent: Any, name: str) -> None:
    """Raises StatusError 400 for a body that is no Scale, or has another name than the URL."""
    if reason := decoding.decoding_error(sent, SHAPE):
        raise errors.DecodingError(errors.printable(f"the body must be a Scale of {GROUP}/v1: {reason}"))
    requested_replicas(sent, name)


def requested_replicas(sent: Any, name: str) -> int:
    """The replicas of a Scale that a client sent. Raises StatusError 400 or 422."""
    if not isinstance(sent, dict) or any((sent.get(name) or field) != field for name, field in _KINDS.items()):
        raise errors.bad_request(f"the body must be a Scale of {GROUP}/v1, got {json_text(sent)}")
    if not isinstance(meta := sent.get("metadata") or {}, dict) or (meta.get("name") or name) != name:
        raise errors.bad_request(f"metadata: must be an object with the name on the URL ({name})")
    for field in ("resourceVersion", "uid"):
        if not isinstance(meta.get(field) or "", str):
            raise errors.bad_request(f"metadata.{field}: must be a string, got {json_text(meta[field])}")
    spec = sent.get("spec") or {}
    number = spec.get("replicas", 0) if isinstance(spec, dict) else spec
    number = 0 if number is None else number
    if isinstance(number, bool) or not isinstance(number, int) or number > MOST:
        raise errors.bad_request(f"spec.replicas: must be a whole number up to {MOST}, got {json_text(number)}")
    if number < 0:
        problem = Problem("spec.replicas", f"Invalid value: {number}: must be greater than or equal to 0")
        raise errors.invalid("Scale", GROUP, name, [problem])
    return int(number)


def with_replicas(scaled: ScalePaths, obj: Json, number: int) -> Json:
    """A copy of the object with that number of replicas."""
    return dict(_with_number(obj, scaled.spec_replicas, number))


def _with_number(value: Any, steps: tuple[str, ...], number: int) -> Any:
    if not steps:
        return number
    fields = value if isinstance(value, dict) else {}
    return {**fields, steps[0]: _with_number(fields.get(steps[0]), steps[1:], number)}


def _number(obj: Any, steps: tuple[str, ...]) -> int | None:
    value = value_at(obj, steps)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def value_at(obj: Any, steps: tuple[str, ...]) -> Any:
    """The value at the end of the steps, None when one of them is missing."""
    for step in steps:
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def selector_of(obj: Json) -> str:
    """spec.selector in the syntax of selectors in URLs."""
    selector = value_at(obj, ("spec", "selector")) or {}
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for requirement in selector.get("matchExpressions") or ():
        key, values = requirement.get("key"), ",".join(sorted(requirement.get("values") or ()))
        terms.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": f"{key}",
                "DoesNotExist": f"!{key}",
            }.get(requirement.get("operator"), "")
        )
    return ",".join(term for term in terms if term)
