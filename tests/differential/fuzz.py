"""Many sequences on two servers, and what was found, by cause.

Rules for this file:
- The first answer of a sequence that differs counts. What follows it may follow from it.
- A difference is one when it comes again: each sequence that shows one is played a second time.
- Each cause is shrunk once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tests.differential.allowed import ALLOWED
from tests.differential.compare import Allowed, Difference, differences
from tests.differential.generate import sequence
from tests.differential.shrink import shrunk
from tests.differential.steps import Step, write
from tests.differential.target import Target

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

    async def differ(self, steps: Sequence[Step]) -> list[Difference]:
        """What is not allowed, in the first answer that has such a difference."""
        real, ours = await asyncio.gather(self.real.play(steps), self.ours.play(steps))
        self.steps += len(steps)
        return first(differences(steps, real, ours), self.allowed, self.used)

    async def differ_again(self, steps: Sequence[Step]) -> list[Difference]:
        """The same, when it is no accident."""
        differences = await self.differ(steps)
        again = {difference.cause for difference in await self.differ(steps)} if differences else set()
        return [difference for difference in differences if difference.cause in again]


def first(differences: Iterable[Difference], allowed: Sequence[Allowed], used: Counter[str]) -> list[Difference]:
    """Those of the first step that has any. Counts what was allowed on the way there."""
    kept: list[Difference] = []
    other = -1  # the step whose error is another one, and may be
    for difference in differences:
        if kept and difference.number != kept[0].number:
            break
        if difference.number == other and difference.path.startswith("body.details."):
            continue
        reason = next((entry for entry in allowed if entry.covers(difference)), None)
        if reason is None:
            kept.append(difference)
        else:
            used[reason.why] += 1
            other = difference.number if difference.path == "body.details.causes" else other
            if reason.last or difference.parts:
                break
    return kept


async def campaign(
    pair: Pair, seed: int, numbers: Sequence[int], say: Callable[[str], None] = lambda text: None, shrink: bool = True
) -> dict[str, Found]:
    """Plays those sequences of a seed. Returns what was found, by cause."""
    findings: dict[str, Found] = {}
    waiting = iter(numbers)
    done = 0

    async def work() -> None:
        nonlocal done
        for number in waiting:
            steps = sequence(seed, number)
            differing = {difference.cause: difference for difference in await pair.differ_again(steps)}
            done += 1
            for cause, difference in differing.items():
                if cause in findings:
                    findings[cause].count += 1
                else:
                    findings[cause] = Found(difference, number, steps)
            if done % 200 == 0:
                say(f"{done} sequences, {pair.steps} steps, {len(findings)} causes")

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
    if shrink:
        await _shrink(pair, list(findings.values()), say)
    return findings


async def _shrink(pair: Pair, findings: Sequence[Found], say: Callable[[str], None]) -> None:
    waiting = iter(findings)

    async def work() -> None:
        for finding in waiting:
            cause = finding.difference.cause

            async def shows(steps: list[Step], cause: str = cause) -> bool:
                return any(again.cause == cause for again in await pair.differ(steps))

            finding.steps = await shrunk(finding.steps, shows)
            same = [again for again in await pair.differ(finding.steps) if again.cause == cause]
            finding.difference = same[0] if same else finding.difference
            say(f"shrunk to {len(finding.steps)} steps: {cause}")

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
