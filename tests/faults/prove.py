"""`make prove`: so many histories under faults, a few at a time, and what they have shown."""

from __future__ import annotations

import asyncio
import resource
import sys
import time

from tests.faults.histories import cluster

WIDTH = 8


async def prove(count: int) -> int:
    """How many histories broke an invariant; each of them is printed with its seed."""
    began, gate, failed = time.monotonic(), asyncio.Semaphore(WIDTH), 0
    faults = takeovers = writes = 0
    for first in range(0, count, 100):  # a new cluster now and then: its log is kept whole
        async with cluster() as shared:

            async def bounded(seed: int) -> None:
                nonlocal failed, faults, takeovers, writes
                async with gate:
                    result = await shared.history(seed)  # it ends within this turn
                faults, takeovers = faults + result.faults, takeovers + result.takeovers
                writes += sum(write.accepted for write in result.writes)
                if result.violations:
                    failed += 1
                    print(f"history {seed}:", *result.violations, sep="\n  ", flush=True)

            await asyncio.gather(*map(bounded, range(first, min(first + 100, count))))
        print(f"{min(first + 100, count)} histories, {time.monotonic() - began:.0f} s", flush=True)
    cpu = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    print(
        f"{count} histories, {faults} faults, {takeovers} changes of leader, {writes} accepted writes: {failed} failed"
    )
    print(f"{cpu:.0f} s of CPU beside the operators'")
    return failed


if __name__ == "__main__":
    sys.exit(min(1, asyncio.run(prove(int(sys.argv[1])))))
