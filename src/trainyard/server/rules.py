"""The rules (x-kubernetes-validations) of a definition's schema: examined with the definition, asked at every write.

    rule_problems(schema, path)   what is wrong with the rules themselves
    compile_rules(schema)         a tree that has only what leads to a rule; None when there is none
    broken(tree, new, old)        what a write breaks

Rules for this file:
- `self` is what the schema describes: fields that it names, with CEL names for odd ones; a null counts as absent.
- A rule that knows oldSelf is asked when there is an old value at the same place: the same field, the same key, or the
  item with the same keys of a list that is a map. The others are asked unless nothing changed there.
- The engine has no static types. Fields and types are checked here, on the paths (`self.a.b`) that an expression says.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from trainyard.objects import Json, Problem
from trainyard.schema.checks import shown
from trainyard.schema.shaping import EMBEDDED
from trainyard.schema.structural import LIST_KEYS, LIST_TYPE, VALIDATIONS
from trainyard.server import cel

REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)
_META = {"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}}
_RESOURCE = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": _META}
_RESERVED = frozenset((
    *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"),
    *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
))  # fmt: skip
_PATHS = re.compile(
    r"""("(?:\\.|[^"\\])*+(?:"|\\?\Z)|'(?:\\.|[^'\\])*+(?:'|\\?\Z)|//[^\n]*)"""
    r"""|((?:has\(\s*)?)(?<![\w.])(self|oldSelf)((?:\.[A-Za-z_]\w*\b(?!\s*\())*)"""
)
BUDGET = 2.0  # seconds of the processor that the rules of one write may take; the engine bounds each of them
OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
_TYPES = {"integer": "INT", "number": "DOUBLE", "boolean": "BOOL", "string": "STRING"}
_TIMES = {"date-time": "timestamp", "date": "timestamp", "datetime": "timestamp", "duration": "duration"}


@lru_cache(maxsize=4096)
def escaped(name: str) -> str:
    """A field's name as CEL can say it, "" when it cannot."""
    if name in _RESERVED:
        return f"__{name}__"
    text = name.replace("__", "__underscores__").replace(".", "__dot__").replace("-", "__dash__")
    text = text.replace("/", "__slash__")
    return text if re.fullmatch(r"[A-Za-z_]\w*", text, re.ASCII) else ""


@dataclass(frozen=True)
class Rule:
    text: str
    message: str
    expression: str
    reason: str
    place: str
    old: str
    """How the rule knows oldSelf: "", value, optional."""


@dataclass
class Tree:
    """A schema with rules in it, or on the way to one."""

    schema: Json
    root: bool
    rules: list[Rule] = field(default_factory=list)
    fields: dict[str, Tree] = field(default_factory=dict)
    values: Tree | None = None
    items: Tree | None = None
    _timed: dict[str, str] = field(default_factory=dict)

    def timed(self, text: str) -> str:
        """An expression as the engine is asked it."""
        if text not in self._timed:
            self._timed[text] = timed(text, self)
        return self._timed[text]


def compile_rules(schema: Json, root: bool = True) -> Tree | None:
    """The schema has been examined."""
    tree = Tree(schema, root or schema.get(EMBEDDED) is True)
    tree.rules = [_rule(one) for one in schema.get(VALIDATIONS) or ()]
    for name, part in (schema.get("properties") or {}).items():
        if below := compile_rules(part, root=False):
            tree.fields[name] = below
    if isinstance(schema.get("additionalProperties"), dict):
        tree.values = compile_rules(schema["additionalProperties"], root=False)
    if isinstance(schema.get("items"), dict):
        tree.items = compile_rules(schema["items"], root=False)
    return tree if tree.rules or tree.fields or tree.values or tree.items else None


def _rule(said: Json) -> Rule:
    old = "" if not _knows_old(said["rule"]) else "optional" if said.get("optionalOldSelf") is True else "value"
    message, expression = (said.get("message") or "").strip(), said.get("messageExpression") or ""
    return Rule(said["rule"].strip(), message, expression, said.get("reason") or "", said.get("fieldPath") or "", old)


def _knows_old(text: str) -> bool:
    return any(found[3] == "oldSelf" for found in _PATHS.finditer(text))


# --- what a write breaks


def broken(tree: Tree, new: Any, old: Any = None, path: str = "") -> Iterator[Problem]:
    """`old` is None when there is nothing to compare with. No rule is asked any more when BUDGET has been used up."""
    spent = time.thread_time()
    for problem in _broken(tree, new, old, path):
        if problem is not None:
            yield problem
        elif time.thread_time() - spent > BUDGET:
            yield Problem(path or "(the whole object)", f"Forbidden: {OUT_OF_BUDGET}")
            return


def _broken(tree: Tree, new: Any, old: Any, path: str) -> Iterator[Problem | None]:
    """None after each rule."""
    if new is None:
        return
    same = old is not None and old == new
    asked = [rule for rule in tree.rules if not ((rule.old == "value" and old is None) or (same and not rule.old))]
    if asked:
        value = value_of(tree.schema, new, tree.root)
        before = value if same else None if old is None else value_of(tree.schema, old, tree.root)
        for rule in asked:
            if (problem := _asked(rule, tree, (new, value, before), path)) is not None:
                yield problem
            yield None
    if isinstance(new, dict):
        before = old if isinstance(old, dict) else {}
        for name, below in tree.fields.items():
            if name in new:
                yield from _broken(below, new[name], before.get(name), f"{path}.{name}" if path else name)
        if tree.values is not None:
            for name, part in new.items():
                yield from _broken(tree.values, part, before.get(name), f"{path}[{name}]")
    elif isinstance(new, list) and tree.items is not None:
        pair = _pairs(tree.schema, old)
        for index, part in enumerate(new):
            yield from _broken(tree.items, part, pair(part), f"{path}[{index}]")


def _pairs(schema: Json, old: Any) -> Callable[[Any], Any]:
    """Finds the old item for a new one, where items have keys."""
    keys = schema.get(LIST_KEYS) or ()
    if schema.get(LIST_TYPE) != "map" or not isinstance(old, list):
        return lambda item: None

    def named(item: Any) -> str:
        return repr([item.get(key) for key in keys]) if isinstance(item, dict) else ""

    known = {named(item): item for item in old}
    return lambda item: known.get(named(item))


def _asked(rule: Rule, tree: Tree, values: tuple[Any, Any, Any], path: str) -> Problem | None:
    """`values`: the new one as it is stored, then the new and the old one as CEL sees them."""
    new, value, before = values
    variables = {"self": value}
    if rule.old:
        variables.update({"oldSelf": before} if rule.old == "value" else {"was": before is not None, "before": before})
    place = path + rule.place if path else rule.place.lstrip(".")
    try:
        if cel.program(tree.timed(rule.text), rule.old).value(variables) is True:
            return None
    except cel.Missing:
        return None  # the definition was accepted with a warning
    except cel.Wrong as error:
        kind = tree.schema.get("type") or "int-or-string"
        return Problem(path, f'Invalid value: "{kind}": {error} evaluating rule: {rule.message or rule.text}')
    text = _message(rule, tree, variables)
    value = "" if isinstance(new, dict | list) else f" {shown(new)}"
    return Problem(
        place,
        {
            "FieldValueForbidden": f"Forbidden: {text}",
            "FieldValueRequired": f"Required value: {text}",
            "FieldValueDuplicate": f"Duplicate value:{value or ' ' + shown(new)}",
        }.get(rule.reason, f"Invalid value:{value + ':' if value else ''} {text}"),
    )


def _message(rule: Rule, tree: Tree, variables: Json) -> str:
    if rule.expression:
        try:
            said = cel.program(tree.timed(rule.expression), rule.old).value(variables)
        except cel.Wrong:
            said = None
        if isinstance(said, str) and said.strip() and "\n" not in said.strip():
            return said.strip()
    return rule.message or f"failed rule: {rule.text}"


def value_of(schema: Json, value: Any, root: bool = False) -> Any:
    """A JSON value as CEL sees it."""
    if isinstance(value, dict):
        more = schema.get("additionalProperties")
        if isinstance(more, dict):
            return {name: value_of(more, part) for name, part in value.items() if part is not None}
        known = schema.get("properties") or {}
        if root or schema.get(EMBEDDED) is True:
            known = {**known, **_RESOURCE}
        return {
            escaped(name): value_of(known[name], part)
            for name, part in value.items()
            if part is not None and name in known and escaped(name)
        }
    if isinstance(value, list):
        return [value_of(schema.get("items") or {}, part) for part in value]
    if schema.get("type") == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if schema.get("format") == "byte" and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return value
    return value


def timed(text: str, tree: Tree) -> str:
    """The engine takes no times from outside: where the text names one, it is made from its string."""

    def replace(found: re.Match[str]) -> str:
        if found[1] or found[2]:
            return found[0]
        try:
            reached = _reached(tree.schema, tree.root, found[4])
        except LookupError:
            return found[0]
        make = _TIMES.get(str(reached.get("format"))) if reached.get("type") == "string" else None
        return f"{make}({found[0]})" if make else found[0]

    return _PATHS.sub(replace, text)


# --- what is wrong with rules


def rule_problems(schema: Json, path: str) -> list[Problem]:
    """Raises cel.Missing when there is something to check and nothing to check it with."""
    return list(_all_rules(schema, path, True, ""))


def _all_rules(schema: Json, path: str, root: bool, lost: str) -> Iterator[Problem]:
    """`lost`: the list whose items cannot be told apart, "" outside of one."""
    tree = Tree(schema, root or schema.get(EMBEDDED) is True)
    for index, rule in enumerate(schema.get(VALIDATIONS) or ()):
        yield from _one_rule(rule, tree, f"{path}.{VALIDATIONS}[{index}]", lost)
    for name, part in (schema.get("properties") or {}).items():
        yield from _all_rules(part, f"{path}.properties[{name}]", False, lost)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _all_rules(schema["additionalProperties"], f"{path}.additionalProperties", False, lost)
    if isinstance(schema.get("items"), dict):
        inside = lost or ("" if schema.get(LIST_TYPE) == "map" else path)
        yield from _all_rules(schema["items"], f"{path}.items", False, inside)


def _one_rule(rule: Any, tree: Tree, path: str, lost: str) -> Iterator[Problem]:
    text = rule.get("rule") if isinstance(rule, dict) else None
    if not isinstance(text, str) or not text.strip():
        yield Problem(f"{path}.rule", "Required value: rule is not specified")
        return
    message = rule.get("message")
    if message and "\n" in message.strip():
        yield Problem(f"{path}.message", f"Invalid value: {shown(message)}: must not contain line breaks")
    if message is None and not rule.get("messageExpression") and "\n" in text.strip():
        yield Problem(f"{path}.message", "Required value: message must be specified if rule contains line breaks")
    if (reason := rule.get("reason")) is not None and reason not in REASONS:
        supported = ", ".join(f'"{one}"' for one in REASONS)
        yield Problem(f"{path}.reason", f"Unsupported value: {shown(reason)}: supported values: {supported}")
    if (place := rule.get("fieldPath")) and not _leads_somewhere(tree.schema, place):
        yield Problem(f"{path}.fieldPath", f"Invalid value: {shown(place)}: must be a valid path")
    old = _rule(rule).old
    if old and lost:
        text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {lost}"
        yield Problem(f"{path}.rule", f"Invalid value: {shown(rule['rule'])}: {text}")
        return
    if not old and rule.get("optionalOldSelf") is not None:
        said = shown(rule["optionalOldSelf"])
        yield Problem(
            f"{path}.optionalOldSelf", f"Invalid value: {said}: may not be set if oldSelf is not used in rule"
        )
    for word, kind, what in (("rule", "BOOL", "cel expression"), ("messageExpression", "STRING", "messageExpression")):
        if rule.get(word):
            yield from _expression(rule[word], tree, old, f"{path}.{word}", (kind, what))


def _expression(text: str, tree: Tree, old: str, path: str, wanted: tuple[str, str]) -> Iterator[Problem]:
    kind, what = wanted
    failed = "compilation failed" if what == "cel expression" else f"{what} compilation failed"
    try:
        for found in _PATHS.finditer(text):
            if not found[1]:
                _reached(tree.schema, tree.root, found[4])
        given = cel.program(*typed(timed(text, tree), tree, old)).kind
    except LookupError as error:
        yield Problem(path, f"Invalid value: {shown(text)}: {failed}: undefined field {error.args[0]!r}")
    except cel.Wrong as error:
        said = str(error).replace("__in__", ".")
        yield Problem(path, f"Invalid value: {shown(text)}: {failed}: {said}")
    else:
        if given not in (kind, "DYN"):
            article = "a bool" if kind == "BOOL" else "a string"
            yield Problem(path, f"Invalid value: {shown(text)}: {what} must evaluate to {article}")


def typed(text: str, tree: Tree, old: str) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """The text with a variable for each path whose type is plain (self.a: INT), for the engine to check the types."""
    types: dict[str, str] = {}

    def replace(found: re.Match[str]) -> str:
        if found[1] or found[2] or (found[3] == "oldSelf" and old != "value"):
            return found[0]
        reached = _reached(tree.schema, tree.root, found[4])
        kind = _TYPES.get(str(reached.get("type")))
        if kind is None or reached.get("format") in (*_TIMES, "byte"):
            return found[0]
        name = found[0].replace(".", "__in__")
        types[name] = kind
        return name

    checked = _PATHS.sub(replace, text)
    return checked, old, tuple(types.items())


def _reached(schema: Json, root: bool, steps: str) -> Json:
    """The schema at the end of a path. Raises LookupError with the name that is not there."""
    for step in steps.split(".")[1:]:
        more = schema.get("additionalProperties")
        known = {escaped(name): part for name, part in (schema.get("properties") or {}).items()}
        if root or schema.get(EMBEDDED) is True:
            known = {**known, **_RESOURCE}
        if step in known:
            schema = known[step]
        elif isinstance(more, dict):
            schema = more
        else:
            raise LookupError(step)
        root = False
    return schema


def _leads_somewhere(schema: Json, place: str) -> bool:
    steps = re.findall(r"\.([A-Za-z_][\w-]*)|\['([^']+)'\]", place)
    if "".join(f".{dotted}" if dotted else f"['{quoted}']" for dotted, quoted in steps) != place:
        return False
    for dotted, quoted in steps:
        name, more = dotted or quoted, schema.get("additionalProperties")
        below = (schema.get("properties") or {}).get(name, more)
        if not isinstance(below, dict):
            return False
        schema = below
    return True
