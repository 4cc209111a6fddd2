"""Cross-field validation rules. A `Rule` has a path, the rule in CEL for the CRD, the same rule in Python, and a text.

tests/kinds/test_rules_agree.py runs both on the same values and checks that they agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

import msgspec

from trainyard.objects import Json, Problem
from trainyard.objects.structs import replace

Check = Callable[[Any, Any], bool]
"""(value, old value or None) -> True when the rule holds. Only transition rules use the old value."""


class Rule(msgspec.Struct, frozen=True):
    """One rule. `path` is from the object's root: `spec.replicaSpecs[].tfPort`. `[]` stands for every item of a list,
    `[KEY]` for every item of a list whose items differ in that field, `{}` for every value of a map. It is the path of
    the field that the rule is about, not of a parent: for each field that a rule reads of an object, an API server
    copies the schemas of all its fields, and a PodSpec has 43.

    `default_message` is the message of the CRD's rule. `detail(value)` is a message that contains the value, as the old
    operators' messages do; the embedded server, lint and the operator use it. `transition` rules compare with the
    stored value, of an item with that of the item of the same KEY, and are skipped where there was none. `field` is the
    field below the value that the problem is reported for. An `early` rule is checked on all values before the next
    rule is checked on any.
    """

    path: str
    cel: str
    check: Check
    default_message: str
    detail: Callable[[Any], str] | None = None
    transition: bool = False
    field: str = ""
    early: bool = False

    def message(self, value: Any) -> str:
        """The text of the problem with this value."""
        return self.detail(value) if self.detail else self.default_message


def violations(rules: tuple[Rule, ...], new: Json, old: Json | None) -> list[Problem]:
    """A problem for every rule that does not hold. Consecutive rules of one path are checked value by value, as the old
    operators did. Values of a wrong type are skipped: validation by the schema has already reported them."""
    problems = []
    applicable = [rule for rule in rules if old is not None or not rule.transition]
    for (rule_path, _), group in groupby(applicable, lambda rule: (rule.path, rule.early)):
        rules_of_path = list(group)
        for path, value, before in _values(rule_path.split(".") if rule_path else [], "", new, old):
            for rule in rules_of_path:
                if (before is not None or not rule.transition) and not _holds(rule, value, before):
                    problems.append(Problem(".".join(filter(None, (path, rule.field))), rule.message(value)))
    return problems


def with_aliases(rules: tuple[Rule, ...], aliases: Mapping[str, str]) -> tuple[Rule, ...]:
    """The rules, and copies of them for the aliases of fields of the spec. `aliases`: {alias: name}."""
    copies = []
    for alias, name in aliases.items():
        for rule in rules:
            parts = rule.path.split(".")
            if parts[:1] == ["spec"] and len(parts) > 1 and parts[1].removesuffix("[]") == name:
                parts[1] = parts[1].replace(name, alias)
                copies.append(replace(rule, path=".".join(parts)))
    return (*rules, *copies)


def _holds(rule: Rule, value: Any, before: Any) -> bool:
    try:
        return rule.check(value, before)
    except (TypeError, AttributeError, KeyError, IndexError, ValueError):
        return True


def _values(parts: list[str], path: str, new: Any, old: Any) -> Iterator[tuple[str, Any, Any]]:
    if not parts:
        yield path, new, old
        return
    name, items = field_and_items(parts[0])
    if not isinstance(new, dict) or new.get(name) is None:
        return
    path = f"{path}.{name}" if path else name
    field_value = new[name]
    before = old.get(name) if isinstance(old, dict) else None
    if not items:
        yield from _values(parts[1:], path, field_value, before)
    elif isinstance(field_value, dict) and items == "{}":
        for key, item in field_value.items():
            yield from _values(parts[1:], f"{path}.{key}", item, None)
    elif isinstance(field_value, list) and items != "{}":
        for index, item in enumerate(field_value):
            if item is not None:  # an API server checks no rule on null
                yield from _values(parts[1:], f"{path}[{index}]", item, _item_of_key(before, items[1:-1], item))


def field_and_items(part: str) -> tuple[str, str]:
    """A part of a rule's path: the field, and what stands for its items, "" for the field itself."""
    name, bracket, rest = part.partition("[" if part.endswith("]") else "{")
    return name, bracket + rest


def _item_of_key(items: Any, key: str, item: Any) -> Any:
    """The item with the same value in the field `key`, None if there is none."""
    if not key or not isinstance(items, list) or not isinstance(item, dict):
        return None
    return next((other for other in items if isinstance(other, dict) and other.get(key) == item.get(key)), None)
