"""`python -m trainyard.testing.differential`: the fuzzer for a person. Exit code 1 when there is a difference.

--sequences N --seed S        how many, and which
--keep NAME                   play the one sequence of --only N, and keep it as a case with the real answers
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from pathlib import Path

import click

from trainyard.testing.control_plane import ControlPlane
from trainyard.testing.differential import cases
from trainyard.testing.differential.allowed import ALLOWED
from trainyard.testing.differential.compare import Allowed
from trainyard.testing.differential.fuzz import Found, Pair, campaign
from trainyard.testing.differential.target import embedded, real


@click.command()
@click.option("--sequences", default=500, show_default=True, help="How many sequences to play.")
@click.option("--seed", default=1, show_default=True, help="Which ones.")
@click.option("--start", default=0, help="The first of them.")
@click.option("--shrink/--no-shrink", default=True, show_default=True, help="Look for the shortest form of each.")
@click.option("--ignore", multiple=True, help="Causes that match this pattern are left out.")
@click.option("--keep", type=click.Path(path_type=Path), help="Write what was found as cases into this folder.")
@click.option("--report", type=click.Path(path_type=Path), help="Write what was found to this file.")
def main(
    sequences: int, seed: int, start: int, shrink: bool, ignore: tuple[str, ...], keep: Path | None, report: Path | None
) -> None:
    """Play random sequences on the real API server and on ours, and print where they differ."""
    listed = asyncio.run(_run(range(start, start + sequences), seed, shrink, ignore, keep))
    text = "\n".join(str(one) for one in listed)
    if report:
        report.write_text(text)
    else:
        print(text)
    sys.exit(1 if listed else 0)


async def _run(numbers: range, seed: int, shrink: bool, ignore: tuple[str, ...], keep: Path | None) -> list[Found]:
    async with ControlPlane() as plane, real(plane) as theirs, embedded() as ours:
        left_out = [Allowed("left out", ".*", lambda one, words=words: re.search(words, one.cause)) for words in ignore]
        pair = Pair(theirs, ours, [*ALLOWED, *left_out])
        began = time.monotonic()
        found = await campaign(pair, seed, numbers, _say, shrink)
        seconds = time.monotonic() - began
        for one in found.values() if keep else ():
            cases.keep(await cases.recorded(theirs, one), keep or cases.FOLDER)
    listed = sorted(found.values(), key=lambda one: -one.count)
    for entry in ALLOWED:
        _say(f"allowed {pair.used[entry.why]} times: {entry.why}")
    differing = sum(one.count for one in listed)
    _say(f"{len(numbers)} sequences, {pair.steps} steps in {seconds:.0f} s: {differing} differ, {len(listed)} causes")
    return listed


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
