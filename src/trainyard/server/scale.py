"""/scale: any resource that has a number of replicas, seen as an autoscaling/v1 Scale.

object --view--> Scale --a client's change--> wanted --applied--> object, which is admitted as any update
"""

from __future__ import annotations

from typing import Any

from trainyard.objects import Json, Problem
from trainyard.schema.checks import shown
from trainyard.server import errors
from trainyard.server.resources import Resource, Scaled

GROUP = "autoscaling"
MOST = 2**31 - 1


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
        "spec": {"replicas": wanted},
        "status": status,
    }


def blank(obj: Json) -> Json:
    """What a change is applied to when the object has no number yet."""
    meta = {name: obj["metadata"][name] for name in ("name", "namespace") if name in obj["metadata"]}
    return {"kind": "Scale", "apiVersion": f"{GROUP}/v1", "metadata": meta, "spec": {}}


def wanted(sent: Any, name: str) -> int:
    """The number that a client writes. Raises Refused."""
    if not isinstance(sent, dict) or sent.get("kind") != "Scale" or sent.get("apiVersion") != f"{GROUP}/v1":
        raise errors.bad_request(f"the body must be a Scale of {GROUP}/v1, got {shown(sent)}")
    if not isinstance(meta := sent.get("metadata") or {}, dict) or (meta.get("name") or name) != name:
        raise errors.bad_request(f"metadata: must be an object with the name on the URL ({name})")
    spec = sent.get("spec") or {}
    number = spec.get("replicas", 0) if isinstance(spec, dict) else spec
    number = 0 if number is None else number
    if isinstance(number, bool) or not isinstance(number, int) or number > MOST:
        raise errors.bad_request(f"spec.replicas: must be a whole number up to {MOST}, got {shown(number)}")
    if number < 0:
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
