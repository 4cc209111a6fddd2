"""CEL validation rules (x-kubernetes-validations) of a CRD schema: checked with the CRD, evaluated at every write.

    rule_problems(schema, path)   the problems of the rules themselves
    compile_rules(schema)         a tree with only the nodes that lead to a rule; None without rules
    evaluate(tree, new, old)      the problems of a write

Rules for this file:
- `self` has the fields that the schema declares, with CEL escapes for special names; null fields are absent.
- A transition rule (with oldSelf) is evaluated when there is a correlated old value: the same field, the same map key,
  or the list item with the same keys (list type map). Other rules are evaluated unless their value is unchanged.
- The engine has no static types. Fields and types are checked here, on the paths (`self.a.b`) in an expression.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from trainyard.objects import Json, Problem
from trainyard.schema.checks import json_text
from trainyard.schema.pruning_and_defaulting import EMBEDDED
from trainyard.schema.structural import LIST_KEYS, LIST_TYPE, VALIDATIONS
from trainyard.server.crd import cel

REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
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
BUDGET = 2.0  # seconds of CPU time for the rules of one write; the engine limits each rule
OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
_TYPES = {"integer": "INT", "number": "DOUBLE", "boolean": "BOOL", "string": "STRING"}
_TIMES = {"date-time": "timestamp", "date": "timestamp", "datetime": "timestamp", "duration": "duration"}


@lru_cache(maxsize=4096)
def escaped_name(name: str) -> str:
    """A field name escaped for CEL; "" when it cannot be escaped."""
    if name in _RESERVED:
        return f"__{name}__"
    text = name.replace("__", "__underscores__").replace(".", "__dot__").replace("-", "__dash__")
    text = text.replace("/", "__slash__")
    return text if re.fullmatch(r"[A-Za-z_]\w*", text, re.ASCII) else ""


class ValidationRule(msgspec.Struct, frozen=True):
    """One entry of x-kubernetes-validations."""

    text: str
    message: str
    expression: str
    reason: str
    field_path: str
    old_self: str
    """How the rule uses oldSelf: "" (not), "value", "optional"."""


class Tree(msgspec.Struct):
    """A schema node with rules, or with rules below it."""

    schema: Json
    root: bool
    rules: list[ValidationRule] = msgspec.field(default_factory=list)
    fields: dict[str, Tree] = msgspec.field(default_factory=dict)
    values: Tree | None = None
    items: Tree | None = None
    _timed: dict[str, str] = msgspec.field(default_factory=dict)

    def timed(self, text: str) -> str:
        """The expression for the engine, with conversions of time strings; cached."""
        if text not in self._timed:
            self._timed[text] = with_times(text, self)
        return self._timed[text]


def compile_rules(schema: Json, root: bool = True) -> Tree | None:
    """The tree of a valid schema; None without rules."""
    tree = Tree(schema, root or schema.get(EMBEDDED) is True)
    tree.rules = [_rule(rule) for rule in schema.get(VALIDATIONS) or ()]
    for name, subschema in (schema.get("properties") or {}).items():
        if subtree := compile_rules(subschema, root=False):
            tree.fields[name] = subtree
    if isinstance(schema.get("additionalProperties"), dict):
        tree.values = compile_rules(schema["additionalProperties"], root=False)
    if isinstance(schema.get("items"), dict):
        tree.items = compile_rules(schema["items"], root=False)
    return tree if tree.rules or tree.fields or tree.values or tree.items else None


def _rule(rule: Json) -> ValidationRule:
    old = "" if not _uses_old_self(rule["rule"]) else "optional" if rule.get("optionalOldSelf") is True else "value"
    message, expression = (rule.get("message") or "").strip(), rule.get("messageExpression") or ""
    return ValidationRule(
        rule["rule"].strip(), message, expression, rule.get("reason") or "", rule.get("fieldPath") or "", old
    )


def _uses_old_self(text: str) -> bool:
    return any(match[3] == "oldSelf" for match in _PATHS.finditer(text))


# --- evaluation of a write


def evaluate(tree: Tree, new: Any, old: Any = None, path: str = "") -> Iterator[Problem]:
    """The problems of a write. `old` is None without a correlated old value. Stops when BUDGET is used up."""
    started = time.thread_time()
    for problem in _broken(tree, new, old, path):
        if problem is not None:
            yield problem
        elif time.thread_time() - started > BUDGET:
            yield Problem(path or "(the whole object)", f"Forbidden: {OUT_OF_BUDGET}")
            return


def _broken(tree: Tree, new: Any, old: Any, path: str) -> Iterator[Problem | None]:
    """Yield the problems, and None after each rule (for the budget)."""
    if new is None:
        return
    unchanged = old is not None and old == new
    due = [
        rule
        for rule in tree.rules
        if not ((rule.old_self == "value" and old is None) or (unchanged and not rule.old_self))
    ]
    if due:
        value = cel_value(tree.schema, new, tree.root)
        old_value = value if unchanged else None if old is None else cel_value(tree.schema, old, tree.root)
        for rule in due:
            if (problem := _evaluated(rule, tree, (new, value, old_value), path)) is not None:
                yield problem
            yield None
    if isinstance(new, dict):
        old_value = old if isinstance(old, dict) else {}
        for name, subtree in tree.fields.items():
            if name in new:
                yield from _broken(subtree, new[name], old_value.get(name), f"{path}.{name}" if path else name)
        if tree.values is not None:
            for name, value_of_part in new.items():
                yield from _broken(tree.values, value_of_part, old_value.get(name), f"{path}[{name}]")
    elif isinstance(new, list) and tree.items is not None:
        find_old = _pairs(tree.schema, old)
        for index, value_of_part in enumerate(new):
            yield from _broken(tree.items, value_of_part, find_old(value_of_part), f"{path}[{index}]")


def _pairs(schema: Json, old: Any) -> Callable[[Any], Any]:
    """A function that returns the old item for a new one, for lists of type map."""
    keys = schema.get(LIST_KEYS) or ()
    if schema.get(LIST_TYPE) != "map" or not isinstance(old, list):
        return lambda item: None

    def key_of(item: Any) -> str:
        return repr([item.get(key) for key in keys]) if isinstance(item, dict) else ""

    old_items = {key_of(item): item for item in old}
    return lambda item: old_items.get(key_of(item))


def _evaluated(rule: ValidationRule, tree: Tree, values: tuple[Any, Any, Any], path: str) -> Problem | None:
    """Evaluate one rule. `values`: the new value as stored, then the new and the old value as CEL values."""
    new, value, old_value = values
    variables = {"self": value}
    if rule.old_self:
        variables.update(
            {"oldSelf": old_value} if rule.old_self == "value" else {"was": old_value is not None, "before": old_value}
        )
    field_path = path + rule.field_path if path else rule.field_path.lstrip(".")
    try:
        if cel.compile_expression(tree.timed(rule.text), rule.old_self).evaluate(variables) is True:
            return None
    except cel.EngineMissing:
        return None  # the definition was accepted with a warning
    except cel.EvaluationError as error:
        kind = tree.schema.get("type") or "int-or-string"
        return Problem(path, f'Invalid value: "{kind}": {error} evaluating rule: {rule.message or rule.text}')
    text = _message(rule, tree, variables)
    value = "" if isinstance(new, dict | list) else f" {json_text(new)}"
    return Problem(
        field_path,
        {
            "FieldValueForbidden": f"Forbidden: {text}",
            "FieldValueRequired": f"Required value: {text}",
            "FieldValueDuplicate": f"Duplicate value:{value or ' ' + json_text(new)}",
        }.get(rule.reason, f"Invalid value:{value + ':' if value else ''} {text}"),
    )


def _message(rule: ValidationRule, tree: Tree, variables: Json) -> str:
    if rule.expression:
        try:
            message = cel.compile_expression(tree.timed(rule.expression), rule.old_self).evaluate(variables)
        except cel.EvaluationError:
            message = None
        if isinstance(message, str) and message.strip() and "\n" not in message.strip():
            return message.strip()
    return rule.message or f"failed rule: {rule.text}"


def cel_value(schema: Json, value: Any, root: bool = False) -> Any:
    """A JSON value converted for CEL."""
    if isinstance(value, dict):
        additional = schema.get("additionalProperties")
        if isinstance(additional, dict):
            return {name: cel_value(additional, part) for name, part in value.items() if part is not None}
        properties = schema.get("properties") or {}
        if root or schema.get(EMBEDDED) is True:
            properties = {**properties, **_RESOURCE}
        return {
            escaped_name(name): cel_value(properties[name], part)
            for name, part in value.items()
            if part is not None and name in properties and escaped_name(name)
        }
    if isinstance(value, list):
        return [cel_value(schema.get("items") or {}, part) for part in value]
    if schema.get("type") == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if schema.get("format") == "byte" and isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return value
    return value


def with_times(text: str, tree: Tree) -> str:
    """The expression with time paths wrapped in timestamp() or duration(): variables of the engine cannot be times."""

    def replace(match: re.Match[str]) -> str:
        if match[1] or match[2]:
            return match[0]
        try:
            node = _schema_at(tree.schema, tree.root, match[4])
        except LookupError:
            return match[0]
        constructor = _TIMES.get(str(node.get("format"))) if node.get("type") == "string" else None
        return f"{constructor}({match[0]})" if constructor else match[0]

    return _PATHS.sub(replace, text)


# --- validation of the rules


def rule_problems(schema: Json, path: str) -> list[Problem]:
    """The problems of all rules of a schema. Raises cel.EngineMissing when there are rules and the engine is not
    installed."""
    return list(_all_rule_problems(schema, path, True, ""))


def _all_rule_problems(schema: Json, path: str, root: bool, uncorrelated: str) -> Iterator[Problem]:
    """`uncorrelated`: the path of the enclosing list whose items cannot be correlated, "" outside of one."""
    tree = Tree(schema, root or schema.get(EMBEDDED) is True)
    for index, rule in enumerate(schema.get(VALIDATIONS) or ()):
        yield from _rule_problems(rule, tree, f"{path}.{VALIDATIONS}[{index}]", uncorrelated)
    for name, subschema in (schema.get("properties") or {}).items():
        yield from _all_rule_problems(subschema, f"{path}.properties[{name}]", False, uncorrelated)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _all_rule_problems(
            schema["additionalProperties"], f"{path}.additionalProperties", False, uncorrelated
        )
    if isinstance(schema.get("items"), dict):
        item_uncorrelated = uncorrelated or ("" if schema.get(LIST_TYPE) == "map" else path)
        yield from _all_rule_problems(schema["items"], f"{path}.items", False, item_uncorrelated)


def _rule_problems(rule: Any, tree: Tree, path: str, uncorrelated: str) -> Iterator[Problem]:
    text = rule.get("rule") if isinstance(rule, dict) else None
    if not isinstance(text, str) or not text.strip():
        yield Problem(f"{path}.rule", "Required value: rule is not specified")
        return
    message = rule.get("message")
    if message and "\n" in message.strip():
        yield Problem(f"{path}.message", f"Invalid value: {json_text(message)}: must not contain line breaks")
    if message is None and not rule.get("messageExpression") and "\n" in text.strip():
        yield Problem(f"{path}.message", "Required value: message must be specified if rule contains line breaks")
    if (reason := rule.get("reason")) is not None and reason not in REASONS:
        supported = ", ".join(f'"{supported_reason}"' for supported_reason in REASONS)
        yield Problem(f"{path}.reason", f"Unsupported value: {json_text(reason)}: supported values: {supported}")
    if (field_path := rule.get("fieldPath")) and not _is_valid_path(tree.schema, field_path):
        yield Problem(f"{path}.fieldPath", f"Invalid value: {json_text(field_path)}: must be a valid path")
    old = _rule(rule).old_self
    if old and uncorrelated:
        text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelated}"
        yield Problem(f"{path}.rule", f"Invalid value: {json_text(rule['rule'])}: {text}")
        return
    if not old and rule.get("optionalOldSelf") is not None:
        value_text = json_text(rule["optionalOldSelf"])
        yield Problem(
            f"{path}.optionalOldSelf", f"Invalid value: {value_text}: may not be set if oldSelf is not used in rule"
        )
    for name, kind, description in (
        ("rule", "BOOL", "cel expression"),
        ("messageExpression", "STRING", "messageExpression"),
    ):
        if rule.get(name):
            yield from _expression_problems(rule[name], tree, old, f"{path}.{name}", (kind, description))


def _expression_problems(text: str, tree: Tree, old: str, path: str, expectation: tuple[str, str]) -> Iterator[Problem]:
    kind, description = expectation
    failure = "compilation failed" if description == "cel expression" else f"{description} compilation failed"
    try:
        for match in _PATHS.finditer(text):
            if not match[1]:
                _schema_at(tree.schema, tree.root, match[4])
        result_type = cel.compile_expression(*with_typed_paths(with_times(text, tree), tree, old)).kind
    except LookupError as error:
        yield Problem(path, f"Invalid value: {json_text(text)}: {failure}: undefined field {error.args[0]!r}")
    except cel.EvaluationError as error:
        message = str(error).replace("__in__", ".")
        yield Problem(path, f"Invalid value: {json_text(text)}: {failure}: {message}")
    else:
        if result_type not in (kind, "DYN"):
            article = "a bool" if kind == "BOOL" else "a string"
            yield Problem(path, f"Invalid value: {json_text(text)}: {description} must evaluate to {article}")


def with_typed_paths(text: str, tree: Tree, old: str) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """The expression with a typed variable for each path of a scalar type (self.a: INT), so that the engine checks the
    types."""
    types: dict[str, str] = {}

    def replace(match: re.Match[str]) -> str:
        if match[1] or match[2] or (match[3] == "oldSelf" and old != "value"):
            return match[0]
        node = _schema_at(tree.schema, tree.root, match[4])
        kind = _TYPES.get(str(node.get("type")))
        if kind is None or node.get("format") in (*_TIMES, "byte"):
            return match[0]
        name = match[0].replace(".", "__in__")
        types[name] = kind
        return name

    checked = _PATHS.sub(replace, text)
    return checked, old, tuple(types.items())


def _schema_at(schema: Json, root: bool, steps: str) -> Json:
    """The schema at the end of a path. Raises LookupError with the name of an undeclared field."""
    for step in steps.split(".")[1:]:
        additional = schema.get("additionalProperties")
        properties = {escaped_name(name): subschema for name, subschema in (schema.get("properties") or {}).items()}
        if root or schema.get(EMBEDDED) is True:
            properties = {**properties, **_RESOURCE}
        if step in properties:
            schema = properties[step]
        elif isinstance(additional, dict):
            schema = additional
        else:
            raise LookupError(step)
        root = False
    return schema


def _is_valid_path(schema: Json, field_path: str) -> bool:
    steps = re.findall(r"\.([A-Za-z_][\w-]*)|\['([^']+)'\]", field_path)
    if "".join(f".{dotted}" if dotted else f"['{quoted}']" for dotted, quoted in steps) != field_path:
        return False
    for dotted, quoted in steps:
        name, additional = dotted or quoted, schema.get("additionalProperties")
        subschema = (schema.get("properties") or {}).get(name, additional)
        if not isinstance(subschema, dict):
            return False
        schema = subschema
    return True
