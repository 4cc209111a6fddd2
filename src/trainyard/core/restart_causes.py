"""Why replicas restart (RestartCause): the cause of a disruption.

A restart of a whole role or gang is counted in the status that begins its attempt (policies/restart.py). Replicas that
restart alone have no attempt of their own, so their disruptions are counted by uid, like failures (failures.py).
"""

from __future__ import annotations

from trainyard.core.job_state import RestartCause

PREEMPTIONS = frozenset({"PreemptionByScheduler", "PreemptionByKubeScheduler", "Preempted", "Preempting"})
"""Reasons of a Pod, or of its condition DisruptionTarget, when one of a higher priority takes its place."""
LOST_NODES = frozenset(
    {
        "DeletionByTaintManager",  # the node is not ready, or somebody has tainted it
        "DeletionByPodGC",  # the node is gone
        "TerminationByKubelet",  # the node shuts down; with node pressure the Pod has the reason Evicted
        "NodeLost",
        "NodeShutdown",
        "Shutdown",
        "Terminated",
    }
)
"""Such reasons when the node goes."""


def disruption_cause(reason: str) -> RestartCause:
    """The cause of a disruption with this reason of the Pod or of its condition DisruptionTarget. `eviction` includes
    that a client has deleted the Pod or its Job."""
    return "preemption" if reason in PREEMPTIONS else "node-lost" if reason in LOST_NODES else "eviction"


def disruption_key(uid: str) -> str:
    """The key in JobStatus.counted_failures under which the disruption of a Pod or Job is counted."""
    return f"disrupted-{uid}"
