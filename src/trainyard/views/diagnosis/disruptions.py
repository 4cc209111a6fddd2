"""Why a pod is ended from outside: its condition DisruptionTarget, which its logs do not tell."""

from __future__ import annotations

from typing import NamedTuple

from trainyard.objects import Json, as_dict, find_condition

_EXPLANATIONS = {
    "EvictionByEvictionAPI": "its pod was evicted by a request, such as that of kubectl drain",
    "DeletionByTaintManager": "its node has a taint that its pod does not tolerate: it may be lost",
    "DeletionByPodGC": "its node no longer exists, or is out of service",
    "PreemptionByScheduler": "its pod made room for one with a higher priority",
    "TerminationByKubelet": "its pod was stopped by its kubelet",
}
"""By reason, as kube-apiserver, kube-controller-manager, kube-scheduler and kubelet 1.37 write it."""


class Disruption(NamedTuple):
    """Who or what ends a pod: the reason and the message of the condition."""

    reason: str
    message: str

    @property
    def explanation(self) -> str:
        """What happened, as a part of a sentence."""
        return f"{_EXPLANATIONS.get(self.reason, 'its pod was disrupted')} ({self.reason})"


def disruption_of(pod: Json) -> Disruption | None:
    """None for a pod without the condition."""
    condition = find_condition(as_dict(pod.get("status")).get("conditions"), "DisruptionTarget") or {}
    if condition.get("status") != "True":
        return None
    return Disruption(str(condition.get("reason") or ""), str(condition.get("message") or ""))
