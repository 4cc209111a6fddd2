"""A cross-field rule is one value: where it holds, the rule for the cluster (CEL), the same rule in Python, one text.

A test runs both on the same values and shows that they agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trainyard.objects import Json, Problem

Check = Callable[[Any, Any], bool]
"""(value, old value or None) -> holds? `old` is given only to transition rules."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `path` names fields from the object's root; `[]` stands for every item: `spec.replicaSpecs[].tfPort`.

    `text` is what the cluster says. `detail(value)`, where given, says it more exactly with the value at hand (the old
    operators' texts carry values); the embedded server, lint and the operator use it. `transition` rules compare with
    the stored object and are skipped on create. `at` names the field below the value that the problem is about.
    """

    path: str
    cel: str
    check: Check
    text: str
    detail: Callable[[Any], str] | None = None
    transition: bool = False
    at: str = ""

    def say(self, value: Any) -> str:
        return self.detail(value) if self.detail else self.text


def broken(rules: tuple[Rule, ...], new: Json, old: Json | None) -> list[Problem]:
    """Every rule that does not hold, in the order of the rules, then of the values. Wrongly typed values are skipped:
    the schema has already spoken about them."""
    problems = []
    for rule in rules:
        if rule.transition and old is None:
            continue
        for path, value, before in _values(rule.path.split(".") if rule.path else [], "", new, old):
            try:
                holds = rule.check(value, before)
            except (TypeError, AttributeError, KeyError, IndexError, ValueError):
                holds = True
            if not holds:
                where = ".".join(filter(None, (path, rule.at))) if not rule.at.startswith("[") else path + rule.at
                problems.append(Problem(where, rule.say(value)))
    return problems


def _values(parts: list[str], path: str, new: Any, old: Any) -> Iterator[tuple[str, Any, Any]]:
    if not parts:
        yield path, new, old
        return
    name = parts[0].removesuffix("[]")
    if not isinstance(new, dict) or new.get(name) is None:
        return
    path = f"{path}.{name}" if path else name
    below = new[name]
    before = old.get(name) if isinstance(old, dict) else None
    if not parts[0].endswith("[]"):
        yield from _values(parts[1:], path, below, before)
    elif isinstance(below, list):
        for index, item in enumerate(below):
            yield from _values(parts[1:], f"{path}[{index}]", item, None)
