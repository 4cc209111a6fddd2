"""Which roles, indexes and containers `trainyard logs` refuses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.samples import elasticjob
from trainyard import kinds
from trainyard.cli.command.cluster_command import CommandError, JobNotFound
from trainyard.cli.command.jobs import JobInfo
from trainyard.cli.logs import _check_selection
from trainyard.cli.session.job_watch import LogSelection
from trainyard.objects import Json
from trainyard.objects.labels import INDEX, ROLE

ENDED = {"conditions": [{"type": "Succeeded", "status": "True"}]}


def pod(index: int, *containers: str) -> Json:
    labels = {ROLE: "Worker", INDEX: str(index)}
    spec = {"initContainers": [{"name": "init"}], "containers": [{"name": name} for name in containers]}
    return {"metadata": {"name": f"w-{index}", "labels": labels}, "spec": spec, "status": {}}


@pytest.mark.parametrize(
    ("selection", "pods", "message"),
    [
        ({"index": 1}, [], ""),
        ({"index": 3}, [], ""),  # maxReplicas is 4
        ({"index": 4}, [], "has no replica with index 4; it has: worker-0 to worker-1"),
        ({"index": 4}, [pod(4, "main")], ""),
        ({"role": "PS"}, [], "has no role PS; it has: worker"),
        ({"container": "sidecar"}, [], ""),  # it may come with the pod
        ({"container": "init"}, [pod(0, "main")], ""),
        ({"container": "sidecar"}, [pod(0, "main")], "has no container sidecar; it has: init, main"),
    ],
)
@pytest.mark.parametrize("has_ended", [False, True])
def test_what_a_job_cannot_have_is_refused_and_looked_up_in_the_history_after_its_end(
    selection: dict[str, Any], pods: list[Json], message: str, has_ended: bool
) -> None:
    job = elasticjob(2, minReplicas=1, maxReplicas=4)
    info = JobInfo(kinds.ELASTICJOB, {**job, "status": ENDED} if has_ended else job)
    error: CommandError | None = None
    try:
        _check_selection(info, LogSelection(**selection), pods)
    except CommandError as refusal:
        error = refusal
    assert str(error).removeprefix("elasticjob/example ") == (message or "None")
    assert isinstance(error, JobNotFound) == (bool(message) and has_ended)
