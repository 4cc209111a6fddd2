"""Strategic merge patch: merges lists by key or as sets, according to the schema; for built-in resources only.

    {"spec": {"containers": [{"name": "b", "image": "x"}]}}       the item with that name, or a new one
    {"$patch": "replace" | "delete"}                              of this object; in an item: of the list or the item
    {"$retainKeys": [...]}                                        fields that are not listed are removed
    {"$deleteFromPrimitiveList/finalizers": [...]}                these items are removed
    {"$setElementOrder/containers": [{"name": "b"}, ...]}         in this order

Rules for this file:
- Neither the object nor the patch is modified.
- A field without a patch strategy is merged when it is an object, and replaced when it is a list.
- Items in the patch have the order of the patch, and come before other items, unless these preceded them already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from trainyard.api_types.schemas import ANY, TypeSchema
from trainyard.objects import Json, encode
from trainyard.schema import MAX_DEPTH

DIRECTIVE, RETAIN = "$patch", "$retainKeys"
_DELETED = object()
ORDER, DELETE = "$setElementOrder/", "$deleteFromPrimitiveList/"


class MalformedPatch(ValueError):
    """The patch is malformed."""


class MergeFailed(ValueError):
    """The patch is well formed, but cannot be applied to this object."""


def merge(original: Any, patch: Any, shape: TypeSchema, level: int = 0) -> Json:
    """The patched object. Raises MalformedPatch for a malformed patch, MergeFailed for one that cannot be applied."""
    if level > MAX_DEPTH:
        raise MalformedPatch(f"the patch is nested deeper than {MAX_DEPTH} levels")
    if patch is None and not level:
        return dict(original)
    if not isinstance(patch, dict):
        raise MalformedPatch("Invalid JSON document: a strategic merge patch is an object")
    if DIRECTIVE in patch:
        return _apply_directive(patch)
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
            result[name] = without_directives(part)
        else:
            result[name] = _merged_value(result[name], part, shape.child(name) or ANY, level)
    return result


def without_directives(value: Any) -> Any:
    """A patch as a new value: without directives and null fields."""
    if isinstance(value, dict):
        return {
            name: without_directives(value_of_field)
            for name, value_of_field in value.items()
            if value_of_field is not None and name not in (DIRECTIVE, RETAIN) and not name.startswith((ORDER, DELETE))
        }
    if isinstance(value, list):
        return [without_directives(item) for item in value if not (isinstance(item, dict) and DIRECTIVE in item)]
    return value


def _apply_directive(patch: Json) -> Json:
    directive = patch[DIRECTIVE]
    if directive == "replace":
        return {name: value_of_field for name, value_of_field in patch.items() if name != DIRECTIVE}
    if directive == "delete":
        return {}
    raise MergeFailed(f"unknown patch type {encode(directive).decode()[:80]} in map; write replace or delete")


def _retained(original: Json, patch: Json) -> Json:
    if RETAIN not in patch:
        return dict(original)
    retained = patch[RETAIN]
    if not isinstance(retained, list) or not all(isinstance(name, str) for name in retained):
        raise MalformedPatch("invalid patch format of retainKeys: it must be a list of names")
    extra = [
        name
        for name, value_of_field in patch.items()
        if value_of_field is not None and name[0:1] != "$" and name not in retained
    ]
    if extra:
        raise MalformedPatch(
            f"invalid patch format of retainKeys: {extra[0][:80]!r} is in the patch, but not in the list"
        )
    return {name: value_of_field for name, value_of_field in original.items() if name in retained}


def _merged_value(value: Any, part: Any, shape: TypeSchema, level: int) -> Any:
    """The merged value of a field that is in object and patch, with values of the same type."""
    if isinstance(part, dict):
        return without_directives(part) if "replace" in shape.strategy else merge(value, part, shape, level + 1)
    if isinstance(part, list) and "merge" in shape.strategy:
        return _merged_list(value, part, shape, level)
    return part


def _take_out(result: Json, name: str, removed: Any) -> None:
    if not isinstance(removed, list):
        raise MalformedPatch(f"invalid patch format of primitive list: {DELETE}{name[:80]} must be a list")
    if isinstance(result.get(name), list):
        removed_values = _first_positions(removed)
        result[name] = [item for item in result[name] if encode(item) not in removed_values]


def _merged_list(items: list[Any], patch: list[Any], shape: TypeSchema, level: int) -> list[Any]:
    if not all(isinstance(item, dict) for item in [*items, *patch]):
        if any(isinstance(item, dict | list) for item in [*items, *patch]):
            raise MergeFailed("merging lists of different types is not supported; replace the list")
        combined = list(dict.fromkeys([*items, *patch]))
        return _in_order(combined, list(dict.fromkeys(patch)), items, lambda item: item)
    key = shape.merge_key
    if not key:
        raise MergeFailed("cannot merge lists without merge key; replace the list")
    if any(item.get(DIRECTIVE) == "replace" for item in patch):
        return [without_directives(item) for item in patch if DIRECTIVE not in item]
    result: list[Any] = list(items)
    patched_keys: list[Any] = []
    positions_by_key: dict[bytes, list[int]] = {}
    for position, item in enumerate(items):
        positions_by_key.setdefault(encode(item.get(key)), []).append(position)
    for item in patch:
        directive, item_key = item.get(DIRECTIVE), _key_value(item, key)
        positions = positions_by_key.get(encode(item_key), [])
        if directive == "delete":
            for position in positions_by_key.pop(encode(item_key), []):
                result[position] = _DELETED
        elif directive is not None:
            raise MergeFailed(
                f"unknown patch type {encode(directive).decode()[:80]} in a list; write replace or delete"
            )
        elif positions:
            result[positions[0]] = merge(result[positions[0]], item, shape.item or ANY, level + 1)
            patched_keys.append(item_key)
        else:
            positions_by_key[encode(item_key)] = [len(result)]
            result.append(without_directives(item))
            patched_keys.append(item_key)
    remaining = [item for item in result if item is not _DELETED]
    return _in_order(remaining, patched_keys, [item.get(key) for item in items], lambda item: item.get(key))


def _key_value(item: Any, key: str) -> Any:
    if not isinstance(item, dict) or key not in item:  # null is a valid key value
        raise MergeFailed(f"map: {encode(item).decode()[:200]} does not contain declared merge key: {key}")
    return item[key]


def _set_order(result: Json, patch: Json, name: str, shape: TypeSchema, level: int) -> None:
    """Merge the list `name` and sort it by the $setElementOrder of the patch."""
    requested, current, patch_list = patch[ORDER + name], result.get(name), patch.get(name)
    if not isinstance(requested, list):
        raise MalformedPatch(f"invalid patch format of setElementOrder list: {ORDER}{name[:80]} must be a list")
    if patch_list is None and name in patch:
        result.pop(name, None)
        return
    if (
        not isinstance(current, list | None)
        or not isinstance(patch_list, list | None)
        or (current is None and patch_list is None)
    ):
        return
    list_shape = shape.child(name) or ANY
    key = list_shape.merge_key

    def key_of(item: Any) -> Any:
        return _key_value(item, key) if key else item

    order = [key_of(item) for item in requested]
    patched_keys = [key_of(item) for item in patch_list or () if not (isinstance(item, dict) and DIRECTIVE in item)]
    patched = _first_positions(patched_keys)
    if [item for item in order if encode(item) in patched] != patched_keys:
        raise MalformedPatch(
            f"invalid patch format of setElementOrder list: the order of {name[:80]} in the patch differs"
        )
    if current is None:
        merged_list: list[Any] = without_directives(patch_list)
    else:
        merged_list = current if patch_list is None else _merged_value(current, patch_list, list_shape, level)
    result[name] = _in_order(merged_list, order, [key_of(item) for item in current or ()], key_of)


def _in_order(
    items: list[Any], ordered_keys: list[Any], previous_keys: list[Any], key_of: Callable[[Any], Any]
) -> list[Any]:
    """`items` with the ordered keys in that order; other items keep their place, but follow new items."""
    order, previous = _first_positions(ordered_keys), _first_positions(previous_keys)
    keyed = [(encode(key_of(entry)), entry) for entry in items]
    ordered = deque(sorted((entry for entry in keyed if entry[0] in order), key=lambda entry: order[entry[0]]))
    unordered = deque(
        sorted(
            (entry for entry in keyed if entry[0] not in order),
            key=lambda entry: previous.get(entry[0], len(previous_keys)),
        )
    )
    result: list[Any] = []
    while ordered and unordered:
        unordered_key, ordered_key = unordered[0][0], ordered[0][0]
        unordered_first = (
            unordered_key in previous and ordered_key in previous and previous[unordered_key] < previous[ordered_key]
        )
        result.append((unordered if unordered_first else ordered).popleft()[1])
    return [*result, *(entry for _, entry in (*ordered, *unordered))]


def _first_positions(names: list[Any]) -> dict[bytes, int]:
    """The index of the first occurrence of each name. A linear search per name would take hours for very long
    lists."""
    return {encode(name): position for position, name in reversed(list(enumerate(names)))}
