"""The headless Service that gives the replicas of a job their names (docs/rules.md S17)."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.core import Job
from trainyard.objects import Json
from trainyard.objects.labels import OWNER


def headless(
    job: Job, labels: Mapping[str, str], ports: Mapping[str, int], only: Mapping[str, str] | None = None
) -> Json:
    """It selects every pod of the job by our label, ready or not: peers look for each other before they are. With
    `only` it selects those that have these labels, too."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"labels": dict(labels)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {OWNER: job.uid, **(only or {})},
            "ports": [{"name": name, "port": port} for name, port in ports.items()],
        },
    }
