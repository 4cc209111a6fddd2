"""Small jobs whose replicas run a command, as the API takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainyard import kinds
from trainyard.core import Kind
from trainyard.objects import Json

NO_IMAGE = "example.invalid/none"
"""No catalogue has this image, so its containers need a command; it runs with the environment of the machine."""


def tf_job(name: str, command: Sequence[str], workers: int = 0, image: str = NO_IMAGE, **spec: Any) -> Json:
    """A TfJob with a MASTER and that many WORKERs. `spec`: more fields of the spec, e.g. `backoffLimit=0`."""
    template = _template(kinds.TFJOB, command, image)
    counts = {"MASTER": 1, "WORKER": workers}
    sets = [{"tfReplicaType": role, "replicas": count, "template": template} for role, count in counts.items() if count]
    return _job(kinds.TFJOB, name, {"replicaSpecs": sets, **spec})


def elastic_job(name: str, command: Sequence[str], workers: int = 1, image: str = NO_IMAGE, **spec: Any) -> Json:
    """An ElasticJob with that many Workers, restarted as `restartPolicy: ExitCode` says."""
    worker = {
        "replicas": workers,
        "restartPolicy": "ExitCode",
        "template": _template(kinds.ELASTICJOB, command, image),
    }
    return _job(kinds.ELASTICJOB, name, {"rdzvEndpoint": "none:2379", "replicaSpecs": {"Worker": worker}, **spec})


def _template(kind: Kind, command: Sequence[str], image: str) -> Json:
    container = {"name": kind.roles.container, "image": image, "command": list(command)}
    return {"spec": {"restartPolicy": "OnFailure", "containers": [container]}}


def _job(kind: Kind, name: str, spec: Json) -> Json:
    gvk = kind.gvk
    return {"apiVersion": gvk.api_version, "kind": gvk.kind, "metadata": {"name": name}, "spec": spec}
