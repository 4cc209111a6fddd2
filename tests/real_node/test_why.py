"""What `trainyard why` says of pods that a real kubelet, a real scheduler and a real runtime do not start, or end. All
jobs wait at the same time. The one who asks is a user with the ClusterRole `edit`, or only `view`.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.real_node.stage import Stage, container, pytorch_job, template, until
from trainyard.objects import Json, name_of

pytestmark = [pytest.mark.node, pytest.mark.slow]

SLEEP = ("sleep", "100000")
NEVER = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 2}
MISSING = {"name": "absent"}


def job(name: str, *command: str, pod: Json | None = None, restart: str = "OnFailure", **fields: Any) -> Json:
    main = container("pytorch", *(command or SLEEP), **fields)
    return pytorch_job(name, template(main, **(pod or {})), restart=restart)


def volume(**source: Any) -> Json:
    return {"volumes": [{"name": "data", **source}]}


CASES = {
    name_of(case): (case, words)
    for case, *words in (
        (job("image", image="registry.invalid/nothing:1"), "its image cannot be pulled", "registry.invalid/nothing:1"),
        (job("image-name", image="Not An Image"), "the name of its image is invalid"),
        (job("image-never", image="nowhere/nothing:1", imagePullPolicy="Never"), "its image is not on its node"),
        (job("configmap", envFrom=[{"configMapRef": MISSING}]), "configmap", "absent"),
        (job("secret-key", env=[{"name": "KEY", "valueFrom": {"secretKeyRef": {**MISSING, "key": "k"}}}]), "absent"),
        (job("volume", pod=volume(configMap=MISSING), volumeMounts=[{"name": "data", "mountPath": "/data"}]), "absent"),
        (job("claim", pod=volume(persistentVolumeClaim={"claimName": "absent"})), "absent"),
        (job("big", resources={"requests": {"cpu": "1000"}}), "Insufficient cpu"),
        (job("selector", pod={"nodeSelector": {"accelerator": "h100"}}), "nodeSelector or affinity"),
        (job("command", "no-such-program"), "its container cannot be started", "no-such-program"),
        (job("root", securityContext={"runAsNonRoot": True}), "its image would run as root"),
        (
            job("init", pod={"initContainers": [container("prepare", "sh", "-c", "exit 9")]}),
            "init container prepare",
            "exit code 9",
        ),
        (job("liveness", livenessProbe=NEVER), "liveness probe"),
        (job("startup", startupProbe=NEVER), "startup probe"),
        (job("readiness", readinessProbe=NEVER), "readiness probe"),
        (job("crash", "sh", "-c", "echo oops >&2; exit 5"), "exit code 5", "oops"),
    )
}


@pytest.fixture(scope="module")
def jobs(stage: Stage) -> Stage:
    """The stage with all jobs."""
    stage.create(*(case for case, _ in CASES.values()))
    return stage


@pytest.mark.parametrize("name", CASES)
def test_why_names_the_cause(jobs: Stage, name: str) -> None:
    _, words = CASES[name]
    until(
        lambda: jobs.trainyard("why", name).stdout,
        f"why {name} says {words}",
        accept=lambda text: all(word in " ".join(text.split()) for word in words),
        context=lambda: jobs.kubectl("get", "pods", f"{name}-master-0", "-o", "jsonpath={.status}"),
    )
