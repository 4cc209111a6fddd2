"""The headless Service through which the host names of a job's replicas resolve (docs/rules.md S17)."""

from __future__ import annotations

from collections.abc import Mapping

from trainyard.core import Job
from trainyard.objects import Json
from trainyard.objects.labels import OWNER


def headless_service(
    job: Job, labels: Mapping[str, str], ports: Mapping[str, int], extra_selector: Mapping[str, str] | None = None
) -> Json:
    """A Service that selects every pod of the job by the label OWNER, ready or not: pods connect before they are ready.

    The selector also requires the labels in `extra_selector`. `ports`: name -> port.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"labels": dict(labels)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {OWNER: job.uid, **(extra_selector or {})},
            "ports": [{"name": name, "port": port} for name, port in ports.items()],
        },
    }
