"""Sets of fields: what a manager of server-side apply owns, and how `metadata.managedFields` writes it.

A path is a tuple of steps, each written as in FieldsV1: `f:name` a field or a key, `k:{"name":"a"}` an item of a list
whose items have keys, `v:"a"` an item of a set. A set of fields is a dict from such paths to the values there; a value
that has parts of its own which are owned one by one is `INSIDE`.

Rules for this file:
- Nothing here knows managers. It walks an object along its shape, and never deeper than `DEPTH`.
- What has no shape (preserved fields) is walked as it comes: maps apart, lists whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from trainyard.objects import Json
from trainyard.schema import DEPTH
from trainyard.server.same import same
from trainyard.server.types import ANY, Shape

Path = tuple[str, ...]
Fields = dict[Path, Any]
INSIDE = object()
"""The value of a path that has paths below it."""
NOBODYS = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        ("f:metadata",),
        *(
            ("f:metadata", f"f:{name}")
            for name in ("name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation")
        ),
        ("f:metadata", "f:managedFields"),
        ("f:metadata", "f:resourceVersion"),
    }
)
"""Paths that no manager owns."""


class NotTyped(ValueError):
    """An object does not fit its shape; the text begins with the path."""


def fields_of(obj: Json, shape: Shape, strict: bool = False) -> Fields:
    """Every field of an object that somebody may own. `strict` raises NotTyped for what the shape does not know, where
    it is not free: an object without any described fields is, and all below one that keeps what it does not know, save
    for what is of a built-in type there.
    """
    found = dict(_walk(obj, shape, (), strict))
    managed = ("f:metadata", "f:managedFields")
    return {path: value for path, value in found.items() if path not in NOBODYS and path[:2] != managed}


def _walk(value: Any, shape: Shape, path: Path, strict: bool, free: bool = False) -> Iterator[tuple[Path, Any]]:
    if len(path) > DEPTH:
        raise NotTyped(f"{dotted(path)[:200]}: nested deeper than {DEPTH} levels")
    if strict:
        _must_fit(value, shape, path)
    free = (free or shape.keeps) and not shape.of
    if isinstance(value, dict) and divided(shape):
        for name, part in value.items():
            below = shape.below(name)
            if below is None:
                if strict and not free and shape.fields:
                    raise NotTyped(f"{dotted((*path, f'f:{name}'))}: field not declared in schema")
                below = ANY
            step = (*path, f"f:{name}")
            if part is None or part == {}:
                if strict:
                    _must_fit(part, below, step)
                yield step, part
                continue
            if isinstance(part, dict) and divided(below) and (shape.kind != "object" or name not in shape.fields):
                yield step, INSIDE
            yield from _walk(part, below, step, strict, free)
    elif isinstance(value, list) and listed(shape):
        seen: set[str] = set()
        for item in value:
            step = (*path, name := step_of(item, shape, path))
            if strict and name in seen:
                raise NotTyped(f"{dotted(path)}: duplicate entries for key {dotted((name,))}")
            seen.add(name)
            yield step, INSIDE if isinstance(item, dict) else item
            if isinstance(item, dict):
                yield from _walk(item, shape.item or ANY, step, strict, free)
    elif path:
        if strict:
            _must_be_known(value, shape, path, free)
        yield path, value


def _must_be_known(value: Any, shape: Shape, path: Path, free: bool) -> None:
    """The same for what has one owner as a whole."""
    if len(path) > DEPTH:
        raise NotTyped(f"{dotted(path)[:200]}: nested deeper than {DEPTH} levels")
    free = (free or shape.keeps) and not shape.of
    for name, part in value.items() if isinstance(value, dict) else ():
        step, below = (*path, f"f:{name}"), shape.below(name)
        if below is None and not free and shape.fields:
            raise NotTyped(f"{dotted(step)}: field not declared in schema")
        _must_fit(part, below or ANY, step)
        _must_be_known(part, below or ANY, step, free)
    for index, item in enumerate(value) if isinstance(value, list) else ():
        _must_fit(item, shape.item or ANY, (*path, f"i:{index}"))
        _must_be_known(item, shape.item or ANY, (*path, f"i:{index}"), free)


def divided(shape: Shape) -> bool:
    """Whether the parts of an object belong to their managers one by one."""
    return shape.kind in ("object", "map", "any") and not shape.atomic


def listed(shape: Shape) -> bool:
    """Whether the items of a list belong to their managers one by one."""
    return shape.kind == "list" and shape.list_type in ("map", "set")


_WORDS = {
    "string": ("string", (str,)),
    "boolean": ("boolean", (bool,)),
    "integer": ("numeric (int)", (int, float)),
    "number": ("numeric (int or float)", (int, float)),
    "object": ("map", (dict,)),
    "map": ("map", (dict,)),
    "list": ("list", (list,)),
}


_ANY_SCALAR = ("any scalar", (str, int, float, bool))
"""What a text with a format is taken for."""


def _must_fit(value: Any, shape: Shape, path: Path) -> None:
    wanted = _ANY_SCALAR if shape.kind == "string" and shape.format not in ("", "byte") else _WORDS.get(shape.kind)
    if wanted is None or value is None:
        return
    word, kinds = wanted
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise NotTyped(f"{dotted(path)}: expected {word}, got {json.dumps(value)[:100]}")


def step_of(item: Any, shape: Shape, path: Path = ()) -> str:
    """How an item of a list is told from the others. Raises NotTyped when it lacks its keys."""
    if shape.list_type == "set":
        return f"v:{json.dumps(item, separators=(',', ':'), ensure_ascii=False)}"
    if not isinstance(item, dict):
        raise NotTyped(f"{dotted(path)}: expected map, got {json.dumps(item)[:100]}")
    keys: Json = {}
    for name in sorted(shape.keys):
        value = item[name] if name in item else _missing(shape.item or ANY, name)
        if value is None and name not in item:
            text = f"associative list with keys has an element that omits key field {json.dumps(name)}"
            raise NotTyped(f"{dotted(path)}: element: {text} (and doesn't have default value)")
        keys[name] = value
    return f"k:{json.dumps(keys, separators=(',', ':'), ensure_ascii=False)}"


def _missing(item: Shape, name: str) -> Any:
    """What a key is that is not there. Those of built-in types are empty then."""
    below = item.below(name)
    if below is None or below.default is not None:
        return below and below.default
    return _EMPTY.get(below.kind) if item.of else None


_EMPTY = {"string": "", "integer": 0}


def differing(before: Fields, after: Fields) -> set[Path]:
    """The paths of `after` that are new there, or have another value."""
    return {path for path, value in after.items() if path not in before or not _alike(before[path], value)}


def _alike(a: Any, b: Any) -> bool:
    return a is b or (a is not INSIDE and b is not INSIDE and same(a, b))


def at(value: Any, shape: Shape, path: Path) -> Any:
    """What is at that path, None when nothing is."""
    for step in path:
        if isinstance(value, dict):
            name = step[2:]
            value, shape = value.get(name), shape.below(name) or ANY
        elif isinstance(value, list) and listed(shape):
            value = next((item for item in value if step_of(item, shape) == step), None)
            shape = shape.item or ANY
        else:
            return None
    return value


def merged(live: Any, config: Any, shape: Shape) -> Any:
    """What `live` becomes when `config` is laid over it: maps and lists by their parts, anything else replaced."""
    parts = (isinstance(live, dict) and divided(shape)) or (isinstance(live, list) and listed(shape))
    if config is None and live and parts:
        return live
    if isinstance(live, dict) and isinstance(config, dict) and divided(shape):
        below = {name: merged(live.get(name), part, shape.below(name) or ANY) for name, part in config.items()}
        return {**live, **below}
    if isinstance(live, list) and isinstance(config, list) and listed(shape):
        return _merged_list(live, config, shape)
    return config


def _merged_list(live: list[Any], config: list[Any], shape: Shape) -> list[Any]:
    """Items in the order of `config`; those of `live` alone stay between the same neighbours as far as possible."""
    old = {step_of(item, shape): item for item in live}
    new = {step_of(item, shape): item for item in config}
    result: dict[str, Any] = {}
    waiting = list(old)
    for step, item in new.items():
        while waiting and waiting[0] not in new:
            result[waiting[0]] = old[waiting[0]]
            waiting.pop(0)
        if step in old:
            waiting.remove(step)
            result[step] = merged(old[step], item, shape.item or ANY)
        else:
            result[step] = item
    return [*result.values(), *(old[step] for step in waiting)]


def removed(value: Any, shape: Shape, gone: Iterable[Path], kept: Callable[[Path], bool], here: Path = ()) -> Any:
    """`value` without what is at these paths. What gets empty by that goes, too (None), unless it is to be `kept`."""
    heads: dict[str, list[Path]] = {}
    for path in gone:
        heads.setdefault(path[0], []).append(path[1:])
    left: Any
    if isinstance(value, dict):
        fields: Json = {}
        for name, part in value.items():
            step = f"f:{name}"
            tails, below = heads.get(step), shape.below(name) or ANY
            if tails is None:
                fields[name] = part
            elif () not in tails and (left := removed(part, below, tails, kept, (*here, step))) is not None:
                fields[name] = left
        return fields if fields or kept(here) else None
    if isinstance(value, list) and listed(shape):
        items: list[Any] = []
        for item in value:
            step = step_of(item, shape)
            tails, below = heads.get(step), shape.item or ANY
            if tails is None:
                items.append(item)
            elif () not in tails and (left := removed(item, below, tails, kept, (*here, step))) is not None:
                items.append(left)
        return items if items or kept(here) else None
    return value


def read(written: Any) -> set[Path]:
    """The paths of a FieldsV1 object; what nobody can read is left out."""
    found: set[Path] = set()
    due: list[tuple[Path, Any]] = [((), written)]
    while due:
        path, node = due.pop()
        if not isinstance(node, dict) or len(path) > DEPTH:
            continue
        if path and not node:
            found.add(path)
        for step, below in node.items():
            if step == ".":
                found.add(path)
            elif isinstance(step, str) and step[:2] in ("f:", "k:", "v:", "i:"):
                due.append(((*path, step), below))
    return found


def write(paths: Iterable[Path]) -> Json:
    """The FieldsV1 object of a set of paths."""
    root: Json = {}
    members = set(paths)
    for path in sorted(members):
        node = root
        for step in path:
            node = node.setdefault(step, {})
    for path in members:
        node = root
        for step in path:
            node = node[step]
        if node:
            node["."] = {}
    return _sorted(root)


def _sorted(node: Json) -> Json:
    return {name: _sorted(node[name]) for name in sorted(node)}


def dotted(path: Path) -> str:
    """A path as messages write it: .spec.containers[name="a"].image"""
    text = ""
    for step in path:
        word = step[2:]
        if step.startswith("f:"):
            text += f".{word}"
        elif step.startswith("k:"):
            keys: Json = json.loads(word)
            text += "[" + ",".join(f"{name}={json.dumps(value)}" for name, value in keys.items()) + "]"
        else:
            text += f"[={word}]" if step.startswith("v:") else f"[{word}]"
    return text
