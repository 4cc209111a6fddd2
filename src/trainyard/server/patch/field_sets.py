"""Field sets of server-side apply: the paths that a manager owns, and their FieldsV1 form in `metadata.managedFields`.

A path is a tuple of steps, each written as in FieldsV1: `f:name` a field or a key, `k:{"name":"a"}` an item of a list
with map keys (x-kubernetes-list-map-keys), `v:"a"` an item of a set. `Fields` maps each path to its value; a value
whose fields or items are owned individually is `HAS_CHILDREN`.

Rules for this file:
- This file does not deal with managers. It walks an object along its schema, at most `MAX_DEPTH` levels deep.
- Values without a schema (preserved unknown fields): maps are walked key by key, lists are atomic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from trainyard.api_types.schemas import ANY, TypeSchema
from trainyard.objects import Json
from trainyard.objects.json_equal import json_equal
from trainyard.schema import MAX_DEPTH

Path = tuple[str, ...]
Fields = dict[Path, Any]
HAS_CHILDREN = object()
"""The value of a path that has paths below it."""
UNOWNED = frozenset(
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


class SchemaMismatch(ValueError):
    """An object does not fit its schema; the text begins with the path."""


def fields_of(obj: Json, shape: TypeSchema, strict: bool = False) -> Fields:
    """Every field of an object that a manager can own. With `strict`, raises SchemaMismatch for fields that the schema
    does not declare. Undeclared fields are allowed in an object without declared fields, and below an object that
    preserves unknown fields, except in values of a built-in type there.
    """
    fields = dict(_walk(obj, shape, (), strict))
    managed = ("f:metadata", "f:managedFields")
    return {path: value for path, value in fields.items() if path not in UNOWNED and path[:2] != managed}


# Longer than 40 lines: a generator for each kind of value would make each apply of a large object slower.
def _walk(  # noqa: PLR0912  (a branch for each kind of value and list type)
    value: Any, shape: TypeSchema, path: Path, strict: bool, free: bool = False
) -> Iterator[tuple[Path, Any]]:
    if len(path) > MAX_DEPTH:
        raise SchemaMismatch(f"{path_text(path)[:200]}: nested deeper than {MAX_DEPTH} levels")
    if strict:
        _must_fit(value, shape, path)
    free = (free or shape.preserves_unknown_fields) and not shape.type_name
    if isinstance(value, dict) and is_granular_map(shape):
        for name, part in value.items():
            below = shape.child(name)
            if below is None:
                if strict and not free and shape.fields:
                    raise SchemaMismatch(f"{path_text((*path, f'f:{name}'))}: field not declared in schema")
                below = ANY
            step = (*path, f"f:{name}")
            if part is None or part == {}:
                if strict:
                    _must_fit(part, below, step)
                yield step, part
                continue
            if (
                isinstance(part, dict)
                and is_granular_map(below)
                and (shape.kind != "object" or name not in shape.fields)
            ):
                yield step, HAS_CHILDREN
            yield from _walk(part, below, step, strict, free)
    elif isinstance(value, list) and is_associative_list(shape):
        steps: set[str] = set()
        for item in value:
            step = (*path, name := path_element(item, shape, path))
            if strict and name in steps:
                raise SchemaMismatch(f"{path_text(path)}: duplicate entries for key {path_text((name,))}")
            steps.add(name)
            yield step, HAS_CHILDREN if isinstance(item, dict) else item
            if isinstance(item, dict):
                yield from _walk(item, shape.item or ANY, step, strict, free)
    elif path:
        if strict:
            _must_be_declared(value, shape, path, free)
        yield path, value


def _must_be_declared(value: Any, shape: TypeSchema, path: Path, free: bool) -> None:
    """Raises SchemaMismatch for undeclared fields inside an atomic value, which has one owner as a whole."""
    if len(path) > MAX_DEPTH:
        raise SchemaMismatch(f"{path_text(path)[:200]}: nested deeper than {MAX_DEPTH} levels")
    free = (free or shape.preserves_unknown_fields) and not shape.type_name
    for name, part in value.items() if isinstance(value, dict) else ():
        step, below = (*path, f"f:{name}"), shape.child(name)
        if below is None and not free and shape.fields:
            raise SchemaMismatch(f"{path_text(step)}: field not declared in schema")
        _must_fit(part, below or ANY, step)
        _must_be_declared(part, below or ANY, step, free)
    for index, item in enumerate(value) if isinstance(value, list) else ():
        _must_fit(item, shape.item or ANY, (*path, f"i:{index}"))
        _must_be_declared(item, shape.item or ANY, (*path, f"i:{index}"), free)


def is_granular_map(shape: TypeSchema) -> bool:
    """Whether the fields of an object are owned individually (the object is not atomic)."""
    return shape.kind in ("object", "map", "any") and not shape.atomic


def is_associative_list(shape: TypeSchema) -> bool:
    """Whether the items of a list are owned individually (list type map or set)."""
    return shape.kind == "list" and shape.list_type in ("map", "set")


_TYPE_WORDS = {
    "string": ("string", (str,)),
    "boolean": ("boolean", (bool,)),
    "integer": ("numeric (int)", (int, float)),
    "number": ("numeric (int or float)", (int, float)),
    "object": ("map", (dict,)),
    "map": ("map", (dict,)),
    "list": ("list", (list,)),
}


_ANY_SCALAR = ("any scalar", (str, int, float, bool))
"""The expected type of a string with a format, as kube-apiserver treats it."""


def _must_fit(value: Any, shape: TypeSchema, path: Path) -> None:
    expected = (
        _ANY_SCALAR if shape.kind == "string" and shape.format not in ("", "byte") else _TYPE_WORDS.get(shape.kind)
    )
    if expected is None or value is None:
        return
    word, kinds = expected
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise SchemaMismatch(f"{path_text(path)}: expected {word}, got {json.dumps(value)[:100]}")


def path_element(item: Any, shape: TypeSchema, path: Path = ()) -> str:
    """The path step of a list item: its keys, or its value in a set. Raises SchemaMismatch when it lacks a key."""
    if shape.list_type == "set":
        return f"v:{json.dumps(item, separators=(',', ':'), ensure_ascii=False)}"
    if not isinstance(item, dict):
        raise SchemaMismatch(f"{path_text(path)}: expected map, got {json.dumps(item)[:100]}")
    keys: Json = {}
    for name in sorted(shape.keys):
        value = item[name] if name in item else _default_key(shape.item or ANY, name)
        if value is None and name not in item:
            text = f"associative list with keys has an element that omits key field {json.dumps(name)}"
            raise SchemaMismatch(f"{path_text(path)}: element: {text} (and doesn't have default value)")
        keys[name] = value
    return f"k:{json.dumps(keys, separators=(',', ':'), ensure_ascii=False)}"


def _default_key(item: TypeSchema, name: str) -> Any:
    """The value of an absent map key: its default; for built-in types without one, the empty value."""
    below = item.child(name)
    if below is None or below.default is not None:
        return below and below.default
    return _EMPTY.get(below.kind) if item.type_name else None


_EMPTY = {"string": "", "integer": 0}


def changed_paths(before: Fields, after: Fields) -> set[Path]:
    """The paths of `after` that are not in `before` or have another value there."""
    return {path for path, value in after.items() if path not in before or not _equal_values(before[path], value)}


def _equal_values(a: Any, b: Any) -> bool:
    return a is b or (a is not HAS_CHILDREN and b is not HAS_CHILDREN and json_equal(a, b))


def value_at(value: Any, shape: TypeSchema, path: Path) -> Any:
    """The value at that path; None when it is absent."""
    for step in path:
        if isinstance(value, dict):
            name = step[2:]
            value, shape = value.get(name), shape.child(name) or ANY
        elif isinstance(value, list) and is_associative_list(shape):
            value = next((item for item in value if path_element(item, shape) == step), None)
            shape = shape.item or ANY
        else:
            return None
    return value


def merge(live: Any, config: Any, shape: TypeSchema) -> Any:
    """`live` merged with `config`: granular maps and lists item by item, any other value is replaced."""
    parts = (isinstance(live, dict) and is_granular_map(shape)) or (
        isinstance(live, list) and is_associative_list(shape)
    )
    if config is None and live and parts:
        return live
    if isinstance(live, dict) and isinstance(config, dict) and is_granular_map(shape):
        below = {name: merge(live.get(name), part, shape.child(name) or ANY) for name, part in config.items()}
        return {**live, **below}
    if isinstance(live, list) and isinstance(config, list) and is_associative_list(shape):
        return _merged_list(live, config, shape)
    return config


def _merged_list(live: list[Any], config: list[Any], shape: TypeSchema) -> list[Any]:
    """Items in the order of `config`; items only in `live` keep their position between neighbours where possible."""
    live_items = {path_element(item, shape): item for item in live}
    config_items = {path_element(item, shape): item for item in config}
    result: dict[str, Any] = {}
    remaining = list(live_items)
    for step, item in config_items.items():
        while remaining and remaining[0] not in config_items:
            result[remaining[0]] = live_items[remaining[0]]
            remaining.pop(0)
        if step in live_items:
            remaining.remove(step)
            result[step] = merge(live_items[step], item, shape.item or ANY)
        else:
            result[step] = item
    return [*result.values(), *(live_items[step] for step in remaining)]


def remove_paths(
    value: Any, shape: TypeSchema, paths: Iterable[Path], kept: Callable[[Path], bool], prefix: Path = ()
) -> Any:
    """`value` without the paths `paths`. An object or list that becomes empty is removed, too (None is returned),
    unless `kept` returns true for its path."""
    heads: dict[str, list[Path]] = {}
    for path in paths:
        heads.setdefault(path[0], []).append(path[1:])
    remaining: Any
    if isinstance(value, dict):
        fields: Json = {}
        for name, part in value.items():
            step = f"f:{name}"
            tails, below = heads.get(step), shape.child(name) or ANY
            if tails is None:
                fields[name] = part
            elif () not in tails and (remaining := remove_paths(part, below, tails, kept, (*prefix, step))) is not None:
                fields[name] = remaining
        return fields if fields or kept(prefix) else None
    if isinstance(value, list) and is_associative_list(shape):
        items: list[Any] = []
        for item in value:
            step = path_element(item, shape)
            tails, below = heads.get(step), shape.item or ANY
            if tails is None:
                items.append(item)
            elif () not in tails and (remaining := remove_paths(item, below, tails, kept, (*prefix, step))) is not None:
                items.append(remaining)
        return items if items or kept(prefix) else None
    return value


def decode_fields_v1(fields_v1: Any) -> set[Path]:
    """The paths of a FieldsV1 object; malformed parts are ignored."""
    paths: set[Path] = set()
    pending: list[tuple[Path, Any]] = [((), fields_v1)]
    while pending:
        path, node = pending.pop()
        if not isinstance(node, dict) or len(path) > MAX_DEPTH:
            continue
        if path and not node:
            paths.add(path)
        for step, below in node.items():
            if step == ".":
                paths.add(path)
            elif isinstance(step, str) and step[:2] in ("f:", "k:", "v:", "i:"):
                pending.append(((*path, step), below))
    return paths


def encode_fields_v1(paths: Iterable[Path]) -> Json:
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


def _sorted(tree: Json) -> Json:
    return {name: _sorted(tree[name]) for name in sorted(tree)}


def path_text(path: Path) -> str:
    """A path in the form of messages, such as `.spec.containers[name="a"].image`."""
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
