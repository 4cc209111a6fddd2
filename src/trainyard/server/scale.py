"""/scale: any resource that has a number of replicas, seen as an autoscaling/v1 Scale.

object --view--> Scale --a client's change--> wanted --applied--> object, which is admitted as any update
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainyard.objects import Json, Problem
from trainyard.objects.values import replace
from trainyard.schema.checks import shown
from trainyard.server import decoding, errors
from trainyard.server.resources import Column, Resource, Scaled
from trainyard.server.tables import AGE, NAME
from trainyard.server.types import META, STRING, Shape, built_in

GROUP = "autoscaling"
MOST = 2**31 - 1
UNSET = -(2**31)
_KINDS = {"kind": "Scale", "apiVersion": f"{GROUP}/v1"}
_NUMBER = Shape("integer", format="int32")
SHAPE = Shape(
    "object",
    own={
        "apiVersion": STRING,
        "kind": STRING,
        "metadata": built_in(f"{META}ObjectMeta"),
        "spec": Shape("object", own={"replicas": _NUMBER}),
        "status": Shape("object", own={"replicas": _NUMBER, "selector": STRING}),
    },
)
_WISHED = Column("Desired", lambda obj, now: obj["spec"].get("replicas"), "integer", description="Wished for.")
_THERE = Column("Available", lambda obj, now: obj["status"]["replicas"], "integer", description="There.")


def form(resource: Resource) -> Resource:
    """A Scale in the forms that a client may want: nothing of it is stored."""
    return _OF_CUSTOM if resource.custom else _OF_BUILT_IN


_OF_CUSTOM = Resource(
    group=GROUP, kind="Scale", plural="scales", columns=(NAME, _WISHED, _THERE, AGE._replace(type="date"))
)
_ZERO_TOO = _WISHED._replace(cell=lambda obj, now: obj["spec"].get("replicas", 0))
_OF_BUILT_IN = replace(_OF_CUSTOM, columns=(NAME._replace(format=""), _ZERO_TOO, _THERE, AGE))


def view(resource: Resource, scaled: Scaled, obj: Json) -> Json:
    """The Scale of an object. Raises Refused 500, as the real server, when it does not say how many it wants."""
    meta = obj["metadata"]
    wanted = _number(obj, scaled.wanted)
    if wanted is None:
        path = "." + ".".join(scaled.wanted)
        text = f'Internal error occurred: the spec replicas field "{path}" does not exist'
        raise errors.Refused(500, "InternalError", text)
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Json = {"replicas": _number(obj, scaled.actual) or 0}
    if selector := scaled.selector(obj):
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": f"{GROUP}/v1",
        "metadata": {name: meta[name] for name in kept if name in meta},
        "spec": {"replicas": wanted} if wanted else {},
        "status": status,
    }


def start(resource: Resource, scaled: Scaled, obj: Json) -> Json:
    """What a patch is applied to: the Scale, with a number that nobody wants where the object has none yet."""
    if _number(obj, scaled.wanted) is not None:
        return view(resource, scaled, obj)
    return {**view(resource, scaled, applied(scaled, obj, 0)), "spec": {"replicas": UNSET}}


def must_still_be_one(sent: Any) -> None:
    """Raises Refused 422 when a patch has left no Scale."""
    why = next((f"{word} must be {said}" for word, said in _KINDS.items() if (sent.get(word) or said) != said), "")
    if why := why or decoding.unreadable(sent, SHAPE):
        raise errors.patch_invalid(errors.printable(why))


def problems(scaled: Scaled, obj: Json, *, status_only: bool = False) -> Iterator[Problem]:
    """What a custom object has wrong where /scale looks for its numbers, beside what its schema says of that."""
    for steps in (scaled.actual,) if status_only else (scaled.wanted, scaled.actual):
        number, path = at(obj, steps), "." + ".".join(steps)
        if _broken(obj, steps) or (number is not None and type(number) is not int):
            yield Problem(path, f"Invalid value: 0: {path} is no whole number: {shown(number)}")
        elif number is not None and number < 0:
            yield Problem(path, f"Invalid value: {number}: should be a non-negative integer")
        elif number is not None and number > MOST:
            yield Problem(path, f"Invalid value: {number}: should be less than or equal to {MOST}")
    if scaled.labels:
        text, path = at(obj, scaled.labels), "." + ".".join(scaled.labels)
        if _broken(obj, scaled.labels) or not isinstance(text, str | None):
            yield Problem(path, f'Invalid value: "": {path} is no text: {shown(text)}')


def _broken(obj: Any, steps: tuple[str, ...]) -> bool:
    """Whether something on the way there is no object."""
    for step in steps[:-1]:
        obj = obj.get(step)
        if obj is None:
            return False
        if not isinstance(obj, dict):
            return True
    return False


def must_be_readable(sent: Any, name: str) -> None:
    """Raises Refused 400 for a body that is no Scale, or not the one on the URL."""
    if isinstance(sent, dict) and sent.get("kind") is not None and (why := decoding.unreadable(sent, SHAPE)):
        raise errors.Unreadable(errors.printable(f"the body must be a Scale of {GROUP}/v1: {why}"))
    wanted(sent, name, None, custom=True)


def wanted(sent: Any, name: str, scaled: Scaled | None, *, custom: bool = False) -> int:
    """The number that a client writes. Raises Refused. A custom object itself says that it is no good number."""
    if not isinstance(sent, dict) or any((sent.get(name) or word) != word for name, word in _KINDS.items()):
        raise errors.bad_request(f"the body must be a Scale of {GROUP}/v1, got {shown(sent)}")
    if not isinstance(meta := sent.get("metadata") or {}, dict) or (meta.get("name") or name) != name:
        raise errors.bad_request(f"metadata: must be an object with the name on the URL ({name})")
    for word in ("resourceVersion", "uid"):
        if not isinstance(meta.get(word) or "", str):
            raise errors.bad_request(f"metadata.{word}: must be a string, got {shown(meta[word])}")
    spec = sent.get("spec") or {}
    number = spec.get("replicas", 0) if isinstance(spec, dict) else spec
    number = 0 if number is None else number
    if isinstance(number, bool) or not isinstance(number, int) or number > MOST:
        raise errors.bad_request(f"spec.replicas: must be a whole number up to {MOST}, got {shown(number)}")
    if number == UNSET and scaled is not None:
        raise errors.bad_request(f'the spec replicas field ".{".".join(scaled.wanted)}" cannot be empty')
    if number < 0 and not custom:
        problem = Problem("spec.replicas", f"Invalid value: {number}: must be greater than or equal to 0")
        raise errors.invalid("Scale", GROUP, name, [problem])
    return int(number)


def applied(scaled: Scaled, obj: Json, number: int) -> Json:
    """The object with that number. `obj` stays as it is."""
    return dict(_with(obj, scaled.wanted, number))


def _with(value: Any, steps: tuple[str, ...], number: int) -> Any:
    if not steps:
        return number
    inside = value if isinstance(value, dict) else {}
    return {**inside, steps[0]: _with(inside.get(steps[0]), steps[1:], number)}


def _number(obj: Any, steps: tuple[str, ...]) -> int | None:
    found = at(obj, steps)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def at(obj: Any, steps: tuple[str, ...]) -> Any:
    for step in steps:
        obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def selector_of(obj: Json) -> str:
    """spec.selector as text, as selectors in URLs are written."""
    selector = at(obj, ("spec", "selector")) or {}
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for one in selector.get("matchExpressions") or ():
        key, values = one.get("key"), ",".join(sorted(one.get("values") or ()))
        terms.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": f"{key}",
                "DoesNotExist": f"!{key}",
            }.get(one.get("operator"), "")
        )
    return ",".join(term for term in terms if term)
