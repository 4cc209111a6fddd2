"""Differences of two normalized answers, field by field, and those that are allowed.

An allowed difference names where it may be, and why. One that is never met is forgotten knowledge: a test fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.differential.steps import Step
from trainyard.objects import Json, encode

NOTHING = "<nothing>"
_INDEX = re.compile(r"\[\d+\]")
_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Difference:
    """At one place of the response to one step the two servers differ."""

    number: int
    step: Step
    path: str
    real: Any
    ours: Any
    code: int = 0
    """The status code that the real server answered with."""

    @property
    def parts(self) -> bool:
        """One of the servers has done what was asked, the other has not: from here on they hold different things."""
        return self.path == "code" and str(self.real).startswith("2") != str(self.ours).startswith("2")

    @property
    def cause(self) -> str:
        """What differences with probably one reason have in common."""
        place = _INDEX.sub("[]", self.path)
        values = [
            encode(value).decode() if isinstance(value, dict | list) else str(value) for value in (self.real, self.ours)
        ]
        texts = " | ".join(_loose(value) for value in values)
        return f"{self.step.do} {self.step.resource} {place}: {texts}"

    def __str__(self) -> str:
        real, ours = (encode(value).decode()[:_SHOWN] for value in (self.real, self.ours))
        return (
            f"step {self.number} {self.step.do} {self.step.resource}: {self.path}\n    real: {real}\n    ours: {ours}"
        )


def _loose(text: str) -> str:
    return re.sub(r"<[a-z]+ [^>]*>|\d+|\"[abc]\"", "*", text)[:70].replace("\n", " ")


Where = Callable[[Difference], bool]


@dataclass(frozen=True, slots=True)
class Allowed:
    """A difference that stays. `path` is a pattern for the whole path, without indexes."""

    why: str
    path: str
    when: Where = lambda difference: True
    last: bool = False
    """What comes after it follows from it, and is not compared."""

    def covers(self, difference: Difference) -> bool:
        place = _INDEX.sub("", difference.path)
        return re.fullmatch(self.path, place) is not None and self.when(difference)


def differences(steps: Sequence[Step], real: Sequence[Json], ours: Sequence[Json]) -> Iterator[Difference]:
    """Every one, allowed or not, in order."""
    pairs = _Pairs()
    for number, (step, theirs, mine) in enumerate(zip(steps, real, ours, strict=True)):
        if theirs["code"] != mine["code"]:  # all else differs, too, and says nothing more
            yield Difference(number, step, "code", _outcome(theirs), _outcome(mine))
            continue
        for path, left, right in _compared(theirs, mine, "", pairs):
            yield Difference(number, step, path, left, right, theirs["code"])


def _outcome(answer: Json) -> str:
    body = answer["body"] if isinstance(answer["body"], dict) else {}
    return " ".join(str(part) for part in (answer["code"], body.get("reason"), body.get("message")) if part)


def _other_events(real: Any, ours: Any) -> bool:
    """Two watch events of different objects: their fields are not compared."""
    both = (real, ours)
    return (
        all(isinstance(answer, dict) and answer.keys() == {"type", "object"} for answer in both)
        and real["type"] != ours["type"]
    )


def _is_version(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("<version ")


class _Pairs:
    """Which version of one run is which of the other. A difference (a write that one of them did not count) is told
    once: from then on the two of it belong together, and so do the next that are new on both sides.
    """

    def __init__(self) -> None:
        self._ours: dict[str, str] = {}
        self._known: set[str] = set()

    def same(self, real: str, ours: str) -> bool:
        fresh = real not in self._ours and ours not in self._known and (" before " in real) == (" before " in ours)
        agree = fresh or self._ours.get(real) == ours
        self._ours[real] = ours
        self._known.add(ours)
        return agree


def _compared(real: Any, ours: Any, path: str, pairs: _Pairs) -> Iterator[tuple[str, Any, Any]]:
    if _other_events(real, ours):
        yield path, real, ours
    elif isinstance(real, dict) and isinstance(ours, dict):
        for name in sorted({*real, *ours}):
            below = f"{path}.{name}" if path else name
            yield from _compared(real.get(name, NOTHING), ours.get(name, NOTHING), below, pairs)
    elif isinstance(real, list) and isinstance(ours, list) and len(real) == len(ours):
        for index, (left, right) in enumerate(zip(real, ours, strict=True)):
            yield from _compared(left, right, f"{path}[{index}]", pairs)
    elif _is_version(real) and _is_version(ours):
        if not pairs.same(real, ours):
            yield path, real, ours
    elif real != ours or isinstance(real, bool) != isinstance(ours, bool):
        yield path, real, ours
