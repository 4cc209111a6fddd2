"""How a node ends its pods: drained, left for a restart of the node, or stopped with it.

Rules:
- Pods end within their grace periods or (`kill`) at once; _KILL_SECONDS after that, no pod is waited for any more.
- A pod that is evicted ends as Failed with the condition DisruptionTarget.
- When the node will be started again, pods with restartPolicy Never are evicted, as by a kubelet whose machine is shut
  down, and pods that may restart keep their status for that."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from trainyard.node.kubelet.pod_worker import PodWorker

KILL_SECONDS = 5.0  # seconds until killed processes have ended
_STATUS_WRITE_SECONDS = 2.0  # seconds for the status writes in progress when the node stops


async def drain(workers: Sequence[PodWorker], kill: bool, report_seconds: float) -> bool:
    """Evict all pods. Returns whether all have ended, and their ends were written within `report_seconds` after
    that."""
    for worker in workers:
        worker.evict(kill)
    try:
        async with asyncio.timeout(_longest_end(workers, kill)):
            await asyncio.gather(*(worker.ended.wait() for worker in workers))
        async with asyncio.timeout(report_seconds):
            await asyncio.gather(*(worker.end_reported.wait() for worker in workers))
    except TimeoutError:
        return False
    return True


async def leave_for_restart(workers: Sequence[PodWorker], kill: bool) -> None:
    """End all pods so that the next process of the node continues those that may restart."""
    if status_writes := [task for worker in workers if (task := worker.status_writer.in_progress)]:
        # Also the statuses of pods that ended by themselves.
        await asyncio.wait(status_writes, timeout=0.0 if kill else _STATUS_WRITE_SECONDS)
    evicted = [worker for worker in workers if worker.state.policy == "Never"]
    for worker in workers:
        if worker in evicted:
            worker.evict(kill)
        elif not worker.ended.is_set():
            worker.leave_for_restart(kill)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_longest_end(workers, kill)):
            await asyncio.gather(
                *(worker.ended.wait() for worker in workers), *(worker.end_reported.wait() for worker in evicted)
            )


async def stop(workers: Sequence[PodWorker], kill: bool) -> None:
    """End all pods. Raises TimeoutError when some do not end in time."""
    for worker in workers:
        if not worker.ended.is_set():
            worker.stop(kill)
    async with asyncio.timeout(_longest_end(workers, kill)):
        await asyncio.gather(*(worker.ended.wait() for worker in workers))


def _longest_end(workers: Sequence[PodWorker], kill: bool) -> float:
    """Seconds until the last pod must have ended."""
    grace = 0.0 if kill else max((worker.state.grace for worker in workers), default=0.0)
    return KILL_SECONDS + grace
