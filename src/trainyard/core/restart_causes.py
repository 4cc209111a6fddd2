"""Why replicas restart (RestartCause): the cause of a disruption, and the disruptions of replicas that restart alone.

A restart of a whole role or gang is counted in the status that begins its attempt (policies/restart.py). Replicas that
restart alone have no attempt of their own, so their disruptions are counted by uid, like failures.
"""

from __future__ import annotations

from trainyard.core.job_state import JobStatus, Replica, RestartCause
from trainyard.core.kind import Job
from trainyard.core.model import RestartScope
from trainyard.objects.structs import replace

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


def count_disruptions(job: Job, replicas: list[Replica], status: JobStatus) -> JobStatus:
    """The status with the visible disruptions of replicas that restart alone counted, each once."""
    if job.restart_scope is not RestartScope.SLOT:
        return status
    counted, causes = list(status.counted_failures), dict(status.restart_causes)
    for replica in replicas:
        termination, child = replica.termination, replica.child
        if child is None:
            continue
        going = child.deleting and child.disrupted
        if not going and not (termination and termination.disrupted):
            continue
        if (key := disruption_key(child.uid)) not in counted:
            counted.append(key)
            cause = disruption_cause(termination.reason if termination else child.reason)
            causes[cause] = causes.get(cause, 0) + 1
    return replace(status, counted_failures=tuple(counted), restart_causes=causes)
