"""A sequence of requests as a plain value, so that it can be kept, played again and shrunk.

What a step needs of an earlier answer is a reference in any of its texts: `{2.uid}`, `{2.version}`, `{2.name}`,
`{2.continue}` of the answer to step 2, counted from 0. `{ns}` is the namespace of the run. A step whose reference leads
nowhere is not played: its answer is code 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainyard.objects import Json, decode, encode

REFERENCE = re.compile(r"\{(?:(\d+)\.(uid|version|name|continue)|ns)\}")


class Unresolved(Exception):
    """A reference to a value that no response has."""


@dataclass(frozen=True, slots=True)
class Step:
    """One request. `raw` is a body that is no JSON, or not as `body` would be written."""

    do: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    raw: str = ""
    type: str = ""
    accept: str = ""

    @property
    def watches(self) -> bool:
        return self.do == "GET" and "watch" in self.query

    @property
    def resource(self) -> str:
        """What it is about, for people: pods/status."""
        parts = self.path.strip("/").split("/")
        rest = parts[parts.index("namespaces") + 2 :] if "namespaces" in parts else parts
        return "/".join([*rest[:1], *rest[2:]])

    def json(self) -> Json:
        """The fields that are set."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in fields.items() if value is not None and (value or name == "body")}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said. `body` is decoded JSON, or the lines of a watch as a list, or text. Code 0: not asked."""

    code: int
    headers: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None


def references(step: Step) -> set[int]:
    """The steps whose answers this one needs."""
    return {int(number) for number, _ in REFERENCE.findall(encode(step.json()).decode()) if number}


def renumbered(step: Step, number: Callable[[int], int]) -> Step:
    """The same step where the steps it refers to have other numbers."""

    def moved(match: re.Match[str]) -> str:
        return f"{{{number(int(match[1]))}.{match[2]}}}" if match[1] else match[0]

    return Step(**_mapped(step.json(), lambda text: REFERENCE.sub(moved, text)))


def resolved(step: Step, answers: Sequence[Answer], namespace: str) -> Step:
    """The step as it is sent. Raises Unresolved."""

    def value(match: re.Match[str]) -> str:
        if not match[1]:
            return namespace
        return _given(answers[int(match[1])].body, match[2]) if int(match[1]) < len(answers) else _nothing()

    return Step(**_mapped(step.json(), lambda text: REFERENCE.sub(value, text)))


def _given(body: Any, reference: str) -> str:
    body = body if isinstance(body, dict) else {}
    meta, details = body.get("metadata") or {}, body.get("details") or {}
    place = {"uid": "uid", "version": "resourceVersion", "name": "name", "continue": "continue"}[reference]
    return str(meta.get(place) or details.get(place) or _nothing())


def _nothing() -> str:
    raise Unresolved


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(name): _mapped(part, change) for name, part in value.items()}
    if isinstance(value, list):
        return [_mapped(part, change) for part in value]
    return value


def write(steps: Sequence[Step]) -> str:
    return "".join(encode(step.json()).decode() + "\n" for step in steps)


def read(text: str) -> list[Step]:
    return [Step(**decode(line.encode())) for line in text.splitlines() if line.strip()]
