"""fieldValidation: what is said about fields that nobody knows, and about fields that are there twice.

Strict refuses them, Warn (also when nothing is asked for) stores what it can and adds a warning for each, Ignore says
nothing. A field that the stored object has already is nobody's news, and a status that is written without a word about
validation comes from a program that nobody watches: it is not looked through (a tenth of the time of such a patch).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from trainyard.objects import Json, decode, encode
from trainyard.schema import DEPTH
from trainyard.server import errors, metadata, types
from trainyard.server.decoding import plain, settled
from trainyard.server.requests import JSON, Request
from trainyard.server.resources import Resource
from trainyard.server.types import ANY, Shape

WAYS = ("", "Ignore", "Strict", "Warn")
MOST = 100  # fields that are told of


class _Twice(dict[str, Any]):
    """A JSON object that knows which of its names came more than once."""

    twice: Sequence[str] = ()


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = dict(pairs)
    if len(made) == len(pairs):
        return made
    seen: set[str] = set()
    known = _Twice(made)
    known.twice = [name for name, _ in pairs if name in seen or seen.add(name)]  # type: ignore[func-returns-value]  # adds
    return known


def owned_twice(request: Request, sent: Json) -> tuple[str, ...]:
    """The warning about owners that are named more than once."""
    owners = (sent.get("metadata") or {}).get("ownerReferences") or ()
    if len(owners) < 2 or not (again := metadata.owners(sent["metadata"])[1]):
        return ()
    when = " after mutating admission happens" if request.method == "PATCH" else ""
    text = (
        f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and "
        "may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
    )
    return (errors.printable(text + ", ".join(again[:MOST])),)


def said(resource: Resource, request: Request, sent: Any, old: Json | None = None, *, plain: bool) -> tuple[str, ...]:
    """The warnings about an object that a client wrote. Raises Refused 422, and 400 when it wants it strict.

    `plain`: somebody has seen that every field of it is known.
    """
    way = request.query.get("fieldValidation", "")
    if resource.custom and isinstance(sent, dict) and sent.get("kind") != resource.kind:
        return ()  # nobody knows its fields
    if way == "Ignore" or not isinstance(sent, dict) or (not way and request.path.endswith("/status")):
        return ()
    found = _found(resource, request, sent, old, plain)
    if way == "Strict" and found:
        listed = f"strict decoding error: {', '.join(found)}"
        if request.method == "PATCH":
            raise errors.patch_invalid(listed)
        kind = resource.kind
        raise errors.Unreadable(f'{kind} in version "{resource.version}" cannot be handled as a {kind}: {listed}')
    return tuple(found)


def of_shape(shape: Shape, request: Request, sent: Any) -> tuple[str, ...]:
    """The warnings about what was sent, or patched, of that shape. Raises Refused when it is wanted strict."""
    way = request.query.get("fieldValidation", "")
    if way == "Ignore" or not isinstance(sent, dict):
        return ()
    found = [errors.printable(text) for text in islice(_walk(sent, shape, ""), MOST)]
    if found and way == "Strict":
        listed = f"strict decoding error: {', '.join(found)}"
        raise errors.patch_invalid(listed) if request.method == "PATCH" else errors.Unreadable(listed)
    return tuple(found)


def _found(resource: Resource, request: Request, sent: Json, old: Json | None, sure: bool) -> list[str]:
    shape = ANY if resource.custom and not resource.prune else types.shape_of(resource)
    texts: list[str] = []
    if repeats := _may_repeat(request, sent):
        again = json.loads(request.body, object_pairs_hook=_pairs)
        if request.method == "PATCH":
            texts += (text for text in _walk(again, ANY, "") if text.startswith("duplicate"))
        else:
            sent = again
    # Nearly every object has only known fields, which is soon seen. To walk one with its paths takes far longer.
    walked = repeats and request.method != "PATCH"
    quiet = not walked and (sure or plain(sent, shape) or _kept(sent, shape) is sent)
    unknown = [] if quiet else list(islice(_walk(sent, shape, ""), MOST))
    if unknown and (resource.custom or request.method == "PATCH"):
        inside = _inside(resource, sent)
        unknown.sort(key=lambda text: (text.startswith(inside), text))
    if unknown and old is not None and request.method == "PATCH":
        known = set(_walk(old, shape, ""))
        unknown = [text for text in unknown if text not in known]
    texts += unknown
    return [errors.printable(text) for text in texts[:MOST]]


def _inside(resource: Resource, sent: Json) -> tuple[str, ...]:
    """How texts about the metadata of objects inside this one begin: they are told last."""
    embedded = resource.schema.embedded(sent) if resource.custom and resource.schema else ()
    return tuple(f'unknown field "{path}.metadata.' for path, _ in embedded)


def _may_repeat(request: Request, sent: Json) -> bool:
    """Whether a name may be there twice. What is written again with as many colons as it came has each of them once,
    where no colon can hide behind a backslash.
    """
    if request.content_type not in (JSON, "") and not request.content_type.endswith("+json"):
        return False
    body = decode(request.body) if request.method == "PATCH" else sent
    written = encode(body)
    if b"\\" in request.body:
        return written != request.body.rstrip()
    return written.count(b":") != request.body.count(b":")


def _walk(value: Any, shape: Shape, path: str, level: int = 0) -> Iterator[str]:
    if level > DEPTH:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, dict | list):
                yield from _walk(item, shape.item or ANY, f"{path}[{index}]", level + 1)
        return
    twice = value.twice if isinstance(value, _Twice) else ()
    for name, part in value.items():
        where = f"{path}.{name[:80]}" if path else name[:80]
        if name in twice:
            yield f'duplicate field "{where}"'
        below = shape.below(name)
        if below is None:
            yield f'unknown field "{where}"'
        elif isinstance(part, dict | list):
            yield from _walk(part, below, where, level + 1)


def known(resource: Resource, obj: Json) -> Json:
    """The object as it is stored: without nulls and the fields that its built-in type does not have. (Custom ones are
    pruned by their schema.)
    """
    if resource.write and not resource.custom:  # what is stored in other words is not of this type any more
        return obj
    if resource.custom:
        return {**obj, "metadata": _of_type(obj["metadata"], types.built_in(f"{types.META}ObjectMeta"))}
    return _of_type(obj, types.shape_of(resource))


def _of_type(obj: Json, shape: Shape) -> Json:
    return obj if plain(obj, shape) else dict(settled(_kept(obj, shape), shape))


def _kept(value: Any, shape: Shape) -> Any:
    """The same value where nothing has to go."""
    if shape.kind == "any":
        return value
    if isinstance(value, list):
        inside = shape.item or ANY
        items = [_kept(one, inside) if isinstance(one, dict | list) else one for one in value]
        return items if any(new is not one for new, one in zip(items, value, strict=True)) else value
    made: Json = {}
    changed = False
    for name, part in value.items():
        below = shape.below(name)
        if below is None:
            changed = True
            continue
        made[name] = _kept(part, below) if isinstance(part, dict | list) else part
        changed = changed or made[name] is not part
    return made if changed else value
