"""`python -m tests.differential`: the fuzzer for a person. Exit code 1 when there is a difference.

It brings a control plane of its own, because it stops the controllers.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tests.differential import cases
from tests.differential.allowed import ALLOWED
from tests.differential.compare import Allowed, Difference
from tests.differential.fuzz import Found, Pair, campaign
from tests.differential.target import embedded, real
from tests.support.control_plane import ControlPlane


@dataclass(frozen=True, slots=True)
class Wish:
    """What the person wants."""

    sequences: int
    seed: int
    start: int
    shrink: bool
    ignore: tuple[str, ...]
    keep: Path | None
    open_: Path | None
    report: Path | None

    def allowed(self) -> list[Allowed]:
        """The usual allowed differences, and those that the options leave out."""
        return [*ALLOWED, *(Allowed("left out", ".*", _matches(pattern)) for pattern in self.ignore)]


def _matches(pattern: str) -> Callable[[Difference], bool]:
    return lambda difference: re.search(pattern, difference.cause) is not None


@click.command()
@click.option("--sequences", default=500, show_default=True, help="How many sequences to play.")
@click.option("--seed", default=1, show_default=True, help="Which ones.")
@click.option("--start", default=0, help="The first of them.")
@click.option("--shrink/--no-shrink", default=True, show_default=True, help="Look for the shortest form of each.")
@click.option("--ignore", multiple=True, help="Causes that match this pattern are left out.")
@click.option("--keep", type=click.Path(path_type=Path), help="Write what was found as cases into this folder.")
@click.option("--open", "open_", type=click.Path(path_type=Path), help="Write the causes to this file, as known.")
@click.option("--report", type=click.Path(path_type=Path), help="Write what was found to this file.")
def main(**wish: Any) -> None:
    """Play random sequences on the real API server and on ours, and print where they differ."""
    wanted = Wish(**wish)
    differences = asyncio.run(_run(wanted))
    text = "\n".join(str(difference) for difference in differences)
    if wanted.open_:
        wanted.open_.write_text("".join(sorted(f"{group.difference.cause}\n" for group in differences)))
    if wanted.report:
        wanted.report.write_text(text)
    else:
        print(text)
    sys.exit(1 if differences else 0)


async def _run(wish: Wish) -> list[Found]:
    async with ControlPlane() as plane, real(plane) as theirs, embedded() as ours:
        pair = Pair(theirs, ours, wish.allowed())
        began = time.monotonic()
        numbers = range(wish.start, wish.start + wish.sequences)
        differences = await campaign(pair, wish.seed, numbers, _say, wish.shrink)
        seconds = time.monotonic() - began
        for kept in differences.values() if wish.keep else ():
            cases.keep(await cases.recorded(theirs, kept), wish.keep or cases.FOLDER)
    for entry in ALLOWED:
        _say(f"allowed {pair.used[entry.why]} times: {entry.why}")
    differing = sum(group.count for group in differences.values())
    _say(
        f"{len(numbers)} sequences, {pair.steps} steps in {seconds:.0f} s: "
        f"{differing} differ, {len(differences)} causes"
    )
    return sorted(differences.values(), key=lambda group: -group.count)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
