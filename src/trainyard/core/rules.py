"""A cross-field rule is one value: where it holds, the rule for the cluster (CEL), the same rule in Python, one text.

A test runs both on the same values and shows that they agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

import msgspec

from trainyard.objects import Json, Problem
from trainyard.objects.values import replace

Check = Callable[[Any, Any], bool]
"""(value, old value or None) -> holds? `old` is given only to transition rules."""


class Rule(msgspec.Struct, frozen=True):
    """One rule. `path` names fields from the object's root; `[]` stands for every item of a list, `{}` for every value
    of a map: `spec.replicaSpecs[].tfPort`.

    `text` is what the cluster says. `detail(value)`, where given, says it more exactly with the value at hand (the old
    operators' texts carry values); the embedded server, lint and the operator use it. `transition` rules compare with
    the stored object and are skipped on create. `at` names the field below the value that the problem is about.
    `early` rules are asked of every value before the next rule is asked of any.
    """

    path: str
    cel: str
    check: Check
    default_message: str
    detail: Callable[[Any], str] | None = None
    transition: bool = False
    at: str = ""
    early: bool = False

    def message(self, value: Any) -> str:
        return self.detail(value) if self.detail else self.default_message


def violations(rules: tuple[Rule, ...], new: Json, old: Json | None) -> list[Problem]:
    """Every rule that does not hold. Rules of one path that stand together are asked value by value, as the old
    operators did. Wrongly typed values are skipped: the schema has already spoken about them."""
    problems = []
    due = [rule for rule in rules if old is not None or not rule.transition]
    for (place, _), group in groupby(due, lambda rule: (rule.path, rule.early)):
        together = list(group)
        for path, value, before in _values(place.split(".") if place else [], "", new, old):
            for rule in together:
                if not _holds(rule, value, before):
                    problems.append(Problem(".".join(filter(None, (path, rule.at))), rule.message(value)))
    return problems


def with_aliases(rules: tuple[Rule, ...], spellings: Mapping[str, str]) -> tuple[Rule, ...]:
    """The rules once more for every other accepted spelling of a field of the spec."""
    more = []
    for other, name in spellings.items():
        for rule in rules:
            parts = rule.path.split(".")
            if parts[:1] == ["spec"] and len(parts) > 1 and parts[1].removesuffix("[]") == name:
                parts[1] = parts[1].replace(name, other)
                more.append(replace(rule, path=".".join(parts)))
    return (*rules, *more)


def _holds(rule: Rule, value: Any, before: Any) -> bool:
    try:
        return rule.check(value, before)
    except (TypeError, AttributeError, KeyError, IndexError, ValueError):
        return True


def _values(parts: list[str], path: str, new: Any, old: Any) -> Iterator[tuple[str, Any, Any]]:
    if not parts:
        yield path, new, old
        return
    name = parts[0].removesuffix("[]").removesuffix("{}")
    if not isinstance(new, dict) or new.get(name) is None:
        return
    path = f"{path}.{name}" if path else name
    below = new[name]
    before = old.get(name) if isinstance(old, dict) else None
    if not parts[0].endswith(("[]", "{}")):
        yield from _values(parts[1:], path, below, before)
    elif isinstance(below, dict) and parts[0].endswith("{}"):
        for key, item in below.items():
            yield from _values(parts[1:], f"{path}.{key}", item, None)
    elif isinstance(below, list) and parts[0].endswith("[]"):
        for index, item in enumerate(below):
            if item is not None:  # an API server asks no rule of null
                yield from _values(parts[1:], f"{path}[{index}]", item, None)
