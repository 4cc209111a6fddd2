"""What a stop waits for: pods whose programs have not ended since they got SIGTERM."""

from __future__ import annotations

from collections.abc import Iterable

from trainyard.objects import Json, parse_time
from trainyard.views.job_view import natural_sort_key
from trainyard.views.replica_view import replica_view

PATIENCE = 5.0  # seconds from SIGTERM in which a program may save a checkpoint without a word


def unresponsive_text(pods: Iterable[Json], now: float) -> str:
    """Which replicas have not reacted to SIGTERM for PATIENCE seconds, and when they get SIGKILL; "" for none. `now`:
    Unix seconds."""
    kill_times: dict[str, float] = {}
    for pod in pods:
        metadata, status = pod["metadata"], pod.get("status") or {}
        kill_at = parse_time(metadata.get("deletionTimestamp"))  # the end of the grace period
        if kill_at is None or status.get("phase") != "Running":
            continue
        grace_period = float(metadata.get("deletionGracePeriodSeconds") or 0)
        if kill_at - grace_period + PATIENCE <= now < kill_at:
            kill_times[replica_view(pod).name] = kill_at
    if not kill_times:
        return ""
    from trainyard.views.diagnosis.inputs import join_names  # imported here because it loads all of the diagnosis

    verb = "has" if len(kill_times) == 1 else "have"
    names = join_names(sorted(kill_times, key=natural_sort_key))
    return f"{names} {verb} not reacted to SIGTERM; SIGKILL in {max(kill_times.values()) - now:.0f} s"
