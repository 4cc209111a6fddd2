"""Many sequences on two servers, and what was found, by cause.

Rules for this file:
- The first difference of a sequence counts. What follows it may follow from it.
- A difference is one when it comes again: each sequence that shows one is played a second time.
- Each cause is shrunk once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from trainyard.testing.differential.allowed import ALLOWED
from trainyard.testing.differential.compare import Allowed, Difference, differences
from trainyard.testing.differential.generate import sequence
from trainyard.testing.differential.shrink import shrunk
from trainyard.testing.differential.steps import Step, write
from trainyard.testing.differential.target import Target

AT_ONCE = 8


@dataclass(slots=True)
class Found:
    """One cause: how often, where it was seen first, and the shortest sequence that shows it."""

    difference: Difference
    number: int
    steps: list[Step]
    count: int = 1

    def __str__(self) -> str:
        return f"{self.count}x, first in sequence {self.number}: {self.difference}\n{write(self.steps)}"


@dataclass(slots=True)
class Pair:
    """The real server and ours, asked alike. `used` counts the allowed differences that were met."""

    real: Target
    ours: Target
    allowed: Sequence[Allowed] = ALLOWED
    used: Counter[str] = field(default_factory=Counter)
    steps: int = 0

    async def differ(self, steps: Sequence[Step]) -> Difference | None:
        """The first difference that is not allowed."""
        real, ours = await asyncio.gather(self.real.play(steps), self.ours.play(steps))
        self.steps += len(steps)
        return first(differences(steps, real, ours), self.allowed, self.used)

    async def differ_again(self, steps: Sequence[Step]) -> Difference | None:
        """The same, when it is no accident."""
        found = await self.differ(steps)
        again = await self.differ(steps) if found else None
        return found if found and again and found.cause == again.cause else None


def first(found: Iterable[Difference], allowed: Sequence[Allowed], used: Counter[str]) -> Difference | None:
    for one in found:
        reason = next((entry for entry in allowed if entry.covers(one)), None)
        if reason is None:
            return one
        used[reason.why] += 1
    return None


async def campaign(
    pair: Pair, seed: int, numbers: Sequence[int], say: Callable[[str], None] = lambda text: None, shrink: bool = True
) -> dict[str, Found]:
    """Plays those sequences of a seed. Returns what was found, by cause."""
    found: dict[str, Found] = {}
    waiting = iter(numbers)
    done = 0

    async def work() -> None:
        nonlocal done
        for number in waiting:
            steps = sequence(seed, number)
            difference = await pair.differ_again(steps)
            done += 1
            if difference and difference.cause in found:
                found[difference.cause].count += 1
            elif difference:
                found[difference.cause] = Found(difference, number, steps)
            if done % 200 == 0:
                say(f"{done} sequences, {pair.steps} steps, {len(found)} causes")

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    if shrink:
        await _shrink(pair, list(found.values()), say)
    return found


async def _shrink(pair: Pair, found: Sequence[Found], say: Callable[[str], None]) -> None:
    waiting = iter(found)

    async def work() -> None:
        for one in waiting:
            cause = one.difference.cause

            async def shows(steps: list[Step], cause: str = cause) -> bool:
                again = await pair.differ(steps)
                return again is not None and again.cause == cause

            one.steps = await shrunk(one.steps, shows)
            one.difference = await pair.differ(one.steps) or one.difference
            say(f"shrunk to {len(one.steps)} steps: {cause}")

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
