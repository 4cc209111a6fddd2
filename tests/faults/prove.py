"""`make prove`: so many histories under faults, a few at a time, and what they have shown.

A second argument is the seed of the first of them."""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections import Counter

from tests.faults.histories import cluster

WIDTH = 8


async def prove(count: int, first_seed: int = 0) -> int:
    """How many histories broke an invariant; each of them is printed with its seed."""
    began, gate, failed = time.monotonic(), asyncio.Semaphore(WIDTH), 0
    takeovers = writes = 0
    faults: Counter[str] = Counter()
    for first in range(0, count, 100):  # a new cluster now and then: its log is kept whole
        async with cluster() as shared:

            async def bounded(seed: int) -> None:
                nonlocal failed, takeovers, writes
                async with gate:
                    result = await shared.history(seed)  # it ends within this turn
                takeovers += result.takeovers
                faults.update(result.faults)
                writes += sum(write.accepted for write in result.writes)
                if result.violations:
                    failed += 1
                    print(f"history {seed}:", *result.violations, sep="\n  ", flush=True)

            await asyncio.gather(*(bounded(first_seed + at) for at in range(first, min(first + 100, count))))
        print(f"{min(first + 100, count)} histories, {time.monotonic() - began:.0f} s", flush=True)
    cpu = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    print(
        f"{count} histories, {faults.total()} faults, {takeovers} changes of leader, {writes} accepted writes: "
        f"{failed} failed"
    )
    print("faults:", ", ".join(f"{name} {times}" for name, times in sorted(faults.items())))
    print(f"{cpu:.0f} s of CPU beside the operators'")
    return failed


if __name__ == "__main__":
    sys.exit(min(1, asyncio.run(prove(*map(int, sys.argv[1:])))))
