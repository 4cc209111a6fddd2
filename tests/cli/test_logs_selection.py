"""Which roles, indexes and containers `trainyard logs` refuses, and what it says of output that it cannot read."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.samples import elasticjob
from trainyard import kinds
from trainyard.cli.command.cluster_command import ClusterContext, CommandError, JobNotFound
from trainyard.cli.command.jobs import JobInfo
from trainyard.cli.logs import _check_selection, _print_current
from trainyard.cli.output.screen import Descriptors, Screen
from trainyard.cli.session.job_watch import LogSelection
from trainyard.client import ApiClient, Unavailable
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


class OutOfReach(ApiClient):
    """One pod runs, and the API server cannot reach its kubelet."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9")

    async def list(self, *arguments: Any) -> Json:
        return {"items": [pod(0, "main")]}

    async def logs(self, *where: str, **parameters: Any) -> AsyncGenerator[bytes]:
        raise Unavailable(500, "InternalError", "dial tcp 10.0.0.2:10250: connect: connection refused")
        yield b""


async def test_of_output_that_cannot_be_read_nobody_says_that_there_is_none() -> None:
    reader, writer = os.pipe()
    screen = Screen(Descriptors(writer, writer, writer), False, False, lambda: None)
    info = JobInfo(kinds.ELASTICJOB, elasticjob(1))
    await _print_current(cast(ClusterContext, SimpleNamespace(api=OutOfReach())), [info], LogSelection(), screen)
    await screen.close()
    os.close(writer)
    with os.fdopen(reader) as text:
        output = text.read()
    assert "its output cannot be shown: dial tcp" in output and "no output yet" not in output
