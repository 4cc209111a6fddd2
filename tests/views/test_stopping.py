"""For whom a stop waits, and for how long."""

from __future__ import annotations

import pytest

from tests.views.why_values import NOW, RUNNING, at, diagnose, pod, tfjob
from trainyard.objects import Json
from trainyard.views.stopping import unresponsive_text


def deleted(slot: str, ago: float, grace_period: int = 30, phase: str = "Running") -> Json:
    """A pod that got SIGTERM so many seconds ago."""
    times: Json = {"deletionTimestamp": at(ago - grace_period), "deletionGracePeriodSeconds": grace_period}
    return pod(slot, phase=phase, **times)


@pytest.mark.parametrize(
    ("pods", "text"),
    [
        ((), ""),
        ((pod("WORKER-0"), deleted("WORKER-1", 4)), ""),
        ((deleted("WORKER-0", 5), pod("WORKER-1")), "worker-0 has not reacted to SIGTERM; SIGKILL in 25 s"),
        (
            (deleted("WORKER-10", 6), deleted("WORKER-2", 5), deleted("WORKER-3", 6, phase="Failed")),
            "worker-2, worker-10 have not reacted to SIGTERM; SIGKILL in 25 s",
        ),
        ((deleted("WORKER-0", 2, 2),), ""),
        ((deleted("WORKER-0", 31),), ""),
    ],
)
def test_replicas_that_do_not_react(pods: tuple[Json, ...], text: str) -> None:
    assert unresponsive_text(pods, NOW) == text


def test_why_says_it_too() -> None:
    finding = diagnose(tfjob(RUNNING), deleted("MASTER-0", 12))[0]
    assert finding.summary == "master-0: it has not reacted to SIGTERM for 12s; SIGKILL in 18 s"
    finding = diagnose(tfjob(RUNNING), deleted("MASTER-0", 2))[0]
    assert finding.summary == "master-0: it is ending within its grace period"
