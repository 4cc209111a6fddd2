"""The shortest sequence that still shows something: steps go first, then parts of what is left.

What is tried is small and in a fixed order, so the same sequence always shrinks to the same one.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from tests.differential.steps import Step, references, renumbered
from trainyard.objects import encode

Shows = Callable[[list[Step]], Awaitable[bool]]


async def shrunk(steps: Sequence[Step], shows: Shows, tries: int = 200) -> list[Step]:
    """Smaller by one thing at a time, until nothing can go, or after so many tries."""
    best, left = list(steps), tries
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(best):
            if not left:
                return best
            left -= 1
            if await shows(candidate):
                best, smaller = candidate, True
                break
    return best


def _smaller(steps: list[Step]) -> Iterator[list[Step]]:
    for number in reversed(range(len(steps))):
        if (rest := _without(steps, number)) and len(rest) < len(steps):
            yield rest
    for number, step in enumerate(steps):
        for simpler in _simpler(step):
            yield [*steps[:number], simpler, *steps[number + 1 :]]


def _without(steps: list[Step], number: int) -> list[Step]:
    """Without that step and those that need its answer."""
    gone = {number}
    for index in range(number + 1, len(steps)):
        if references(steps[index]) & gone:
            gone.add(index)
    kept = [index for index in range(len(steps)) if index not in gone]
    return [renumbered(steps[index], kept.index) for index in kept]


def _simpler(step: Step) -> Iterator[Step]:
    plain = step.json()
    for name in ("accept", "type"):
        if name in plain and (name == "accept" or step.do != "PATCH"):
            yield Step(**{**plain, name: ""})
    for name in step.query:
        if not (name == "watch" and step.watches):
            yield Step(
                **{**plain, "query": {parameter: text for parameter, text in step.query.items() if parameter != name}}
            )
    if step.body is not None:
        for body in _less(step.body):
            yield Step(**{**plain, "body": body})


def _less(value: Any) -> Iterator[Any]:
    """Copies with one part gone, the largest parts first."""
    places = sorted(_places(value, ()), key=lambda place: -len(encode(place[1])))
    for path, _ in places:
        smaller = copy.deepcopy(value)
        inside = smaller
        for step in path[:-1]:
            inside = inside[step]
        del inside[path[-1]]
        yield smaller


def _places(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in pairs:
        if path or key not in ("apiVersion", "kind"):
            yield (*path, key), part
        yield from _places(part, (*path, key))
