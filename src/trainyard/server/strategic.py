"""Strategic merge patch: a merge patch that knows which lists are sets and maps, for built-in resources only.

    {"spec": {"containers": [{"name": "b", "image": "x"}]}}       the item with that name, or a new one
    {"$patch": "replace" | "delete"}                              this object, or this list when an item says it
    {"$retainKeys": [...]}                                        what is not named here goes
    {"$deleteFromPrimitiveList/finalizers": [...]}                these go
    {"$setElementOrder/containers": [{"name": "b"}, ...]}         in this order

Rules for this file:
- Neither the object nor the patch is changed.
- A field without a patch strategy is merged when it is an object, and replaced when it is a list.
- What the patch names comes in its order, and before what it does not name, unless that stood before it already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from trainyard.objects import Json, encode
from trainyard.schema import DEPTH
from trainyard.server.patches import BadPatch, PatchFailed
from trainyard.server.types import ANY, Shape

PATCH = "application/strategic-merge-patch+json"
DIRECTIVE, RETAIN = "$patch", "$retainKeys"
_GONE = object()
ORDER, DELETE = "$setElementOrder/", "$deleteFromPrimitiveList/"


def merge(original: Any, patch: Any, shape: Shape, level: int = 0) -> Json:
    """What the object becomes. Raises BadPatch for a malformed patch, PatchFailed for one that does not fit."""
    if level > DEPTH:
        raise BadPatch(f"the patch is nested deeper than {DEPTH} levels")
    if patch is None and not level:
        return dict(original)
    if not isinstance(patch, dict):
        raise BadPatch("Invalid JSON document: a strategic merge patch is an object")
    if DIRECTIVE in patch:
        return _directed(patch)
    result: Json = _retained(original if isinstance(original, dict) else {}, patch)
    ordered = [name for name in patch if name.startswith(ORDER)]
    done = {name.removeprefix(ORDER) for name in ordered}
    for name in ordered:
        _set_order(result, patch, name.removeprefix(ORDER), shape, level)
    for name, part in patch.items():
        if name == RETAIN or name in done or name.startswith(ORDER):
            continue
        if name.startswith(DELETE):
            _take_out(result, name.removeprefix(DELETE), part)
        elif part is None:
            result.pop(name, None)
        elif name not in result or type(result[name]) is not type(part):
            result[name] = undirected(part)
        else:
            result[name] = _below(result[name], part, shape.below(name) or ANY, level)
    return result


def undirected(value: Any) -> Any:
    """What a patch says about something that is not there: itself, without directives and nulls."""
    if isinstance(value, dict):
        return {
            name: undirected(part)
            for name, part in value.items()
            if part is not None and name not in (DIRECTIVE, RETAIN) and not name.startswith((ORDER, DELETE))
        }
    if isinstance(value, list):
        return [undirected(one) for one in value if not (isinstance(one, dict) and DIRECTIVE in one)]
    return value


def _directed(patch: Json) -> Json:
    how = patch[DIRECTIVE]
    if how == "replace":
        return {name: part for name, part in patch.items() if name != DIRECTIVE}
    if how == "delete":
        return {}
    raise PatchFailed(f"unknown patch type {encode(how).decode()[:80]} in map; write replace or delete")


def _retained(original: Json, patch: Json) -> Json:
    if RETAIN not in patch:
        return dict(original)
    kept = patch[RETAIN]
    if not isinstance(kept, list) or not all(isinstance(one, str) for one in kept):
        raise BadPatch("invalid patch format of retainKeys: it must be a list of names")
    extra = [name for name, part in patch.items() if part is not None and name[0:1] != "$" and name not in kept]
    if extra:
        raise BadPatch(f"invalid patch format of retainKeys: {extra[0][:80]!r} is in the patch, but not in the list")
    return {name: part for name, part in original.items() if name in kept}


def _below(value: Any, part: Any, shape: Shape, level: int) -> Any:
    """A field that both have, with values of one type."""
    if isinstance(part, dict):
        return undirected(part) if "replace" in shape.strategy else merge(value, part, shape, level + 1)
    if isinstance(part, list) and "merge" in shape.strategy:
        return _merged_list(value, part, shape, level)
    return part


def _take_out(result: Json, name: str, gone: Any) -> None:
    if not isinstance(gone, list):
        raise BadPatch(f"invalid patch format of primitive list: {DELETE}{name[:80]} must be a list")
    if isinstance(result.get(name), list):
        taken = _places(gone)
        result[name] = [one for one in result[name] if encode(one) not in taken]


def _merged_list(old: list[Any], patch: list[Any], shape: Shape, level: int) -> list[Any]:
    if not all(isinstance(one, dict) for one in [*old, *patch]):
        if any(isinstance(one, dict | list) for one in [*old, *patch]):
            raise PatchFailed("merging lists of different types is not supported; replace the list")
        both = list(dict.fromkeys([*old, *patch]))
        return _in_order(both, list(dict.fromkeys(patch)), old, lambda one: one)
    key = shape.merge_key
    if not key:
        raise PatchFailed("cannot merge lists without merge key; replace the list")
    if any(one.get(DIRECTIVE) == "replace" for one in patch):
        return [undirected(one) for one in patch if DIRECTIVE not in one]
    result: list[Any] = list(old)
    said: list[Any] = []
    places: dict[bytes, list[int]] = {}
    for at, item in enumerate(old):
        places.setdefault(encode(item.get(key)), []).append(at)
    for one in patch:
        how, name = one.get(DIRECTIVE), _keyed(one, key)
        there = places.get(encode(name), [])
        if how == "delete":
            for at in places.pop(encode(name), []):
                result[at] = _GONE
        elif how is not None:
            raise PatchFailed(f"unknown patch type {encode(how).decode()[:80]} in a list; write replace or delete")
        elif there:
            result[there[0]] = merge(result[there[0]], one, shape.item or ANY, level + 1)
            said.append(name)
        else:
            places[encode(name)] = [len(result)]
            result.append(undirected(one))
            said.append(name)
    left = [one for one in result if one is not _GONE]
    return _in_order(left, said, [item.get(key) for item in old], lambda one: one.get(key))


def _keyed(item: Any, key: str) -> Any:
    if not isinstance(item, dict) or key not in item:  # null is a key like any other
        raise PatchFailed(f"map: {encode(item).decode()[:200]} does not contain declared merge key: {key}")
    return item[key]


def _set_order(result: Json, patch: Json, name: str, shape: Shape, level: int) -> None:
    """Merges the list `name` and puts it in the order that the patch asks for."""
    wanted, old, new = patch[ORDER + name], result.get(name), patch.get(name)
    if not isinstance(wanted, list):
        raise BadPatch(f"invalid patch format of setElementOrder list: {ORDER}{name[:80]} must be a list")
    if new is None and name in patch:
        result.pop(name, None)
        return
    if not isinstance(old, list | None) or not isinstance(new, list | None) or (old is None and new is None):
        return
    below = shape.below(name) or ANY
    key = below.merge_key

    def of(one: Any) -> Any:
        return _keyed(one, key) if key else one

    order = [of(one) for one in wanted]
    said = [of(one) for one in new or () if not (isinstance(one, dict) and DIRECTIVE in one)]
    mentioned = _places(said)
    if [one for one in order if encode(one) in mentioned] != said:
        raise BadPatch(f"invalid patch format of setElementOrder list: the order of {name[:80]} in the patch differs")
    if old is None:
        merged_list: list[Any] = undirected(new)
    else:
        merged_list = old if new is None else _below(old, new, below, level)
    result[name] = _in_order(merged_list, order, [of(one) for one in old or ()], of)


def _in_order(items: list[Any], named: list[Any], before: list[Any], of: Callable[[Any], Any]) -> list[Any]:
    """The named ones in that order; the others where they stood, but behind what is new."""
    wanted, stood = _places(named), _places(before)
    marked = [(encode(of(one)), one) for one in items]
    mine = deque(sorted((one for one in marked if one[0] in wanted), key=lambda one: wanted[one[0]]))
    others = deque(
        sorted((one for one in marked if one[0] not in wanted), key=lambda one: stood.get(one[0], len(before)))
    )
    result: list[Any] = []
    while mine and others:
        first, second = others[0][0], mine[0][0]
        ahead = first in stood and second in stood and stood[first] < stood[second]
        result.append((others if ahead else mine).popleft()[1])
    return [*result, *(one for _, one in (*mine, *others))]


def _places(names: list[Any]) -> dict[bytes, int]:
    """Where each name stands first. (To look for each among all the others takes hours where somebody sends many.)"""
    return {encode(name): at for at, name in reversed(list(enumerate(names)))}
