"""The steps that commands read in the logs of a real cluster: what they say, and how many requests they make."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from tests.views.why_values import RUNNING, pod, tfjob
from trainyard.app.evidence.facts import gather_facts
from trainyard.app.evidence.pod_metrics import POD_METRICS, progress_warnings, read_usages_and_steps
from trainyard.client import ApiClient, Forbidden, NotFound
from trainyard.kinds import TFJOB
from trainyard.objects import GVK, Json, labels_of, name_of
from trainyard.objects.labels import OWNER
from trainyard.objects.resources import POD
from trainyard.views.diagnosis import why

MINUTES = 780.0
JOB = tfjob(RUNNING)
HUNG = "no step for 13m (2 s a step before)"
REFUSED = "no steps: you may not get pods/log in namespace default"


def log(silent_for: float) -> bytes:
    """What a kubelet returns of a program that has printed three steps, one each two seconds, and nothing since."""
    end = time.time() - silent_for
    stamps = (datetime.fromtimestamp(end - 2 * ago, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") for ago in (2, 1, 0))
    return b"".join(f"{stamp} step={step} loss=1\n".encode() for step, stamp in enumerate(stamps, 1))


class Cluster:
    """A cluster whose kubelets return `text` as the log of each pod; None: the user has no right to read it.

    cpu: what metrics-server has measured, in cores, by pod; {}: there is none. read: the pods whose log was read."""

    def __init__(self, pods: list[Json], text: bytes | None, cpu: dict[str, str]) -> None:
        self._pods, self._text, self._cpu = pods, text, cpu
        self.read: list[str] = []

    async def list(self, gvk: GVK, *arguments: Any) -> Json:
        if gvk == POD_METRICS and not self._cpu:
            raise NotFound(404, "NotFound", "the server could not find the requested resource")
        items = [
            {"metadata": {"name": name, "namespace": "default"}, "containers": [{"usage": {"cpu": cpu}}]}
            for name, cpu in self._cpu.items()
        ]
        return {"items": {POD: self._pods, POD_METRICS: items}.get(gvk, [])}

    async def get(self, *arguments: Any) -> Json:
        raise NotFound(404, "NotFound", "not found")

    async def logs(
        self, namespace: str, name: str, *arguments: Any, timestamps: bool = False, **options: Any
    ) -> AsyncIterator[bytes]:
        self.read.append(name)
        if self._text is None:
            raise Forbidden(403, "Forbidden", "may not")
        for line in self._text.splitlines(keepends=True):
            yield line if timestamps else line.partition(b" ")[2]


def cluster(
    workers: int = 3, *, may_read: bool = True, cpu: dict[str, str] | None = None
) -> tuple[Cluster, ApiClient, list[Json]]:
    """A cluster with the pods of JOB, which has so many workers."""
    pods = [pod(f"WORKER-{index}") for index in range(workers)]
    stand_in = Cluster(pods, log(MINUTES) if may_read else None, cpu or {})
    return stand_in, cast(ApiClient, stand_in), pods


@pytest.mark.parametrize("usages", [None, ()], ids=["why", "page"])
async def test_why_and_the_page_read_each_log_once(usages: tuple[()] | None) -> None:
    stand_in, api, _ = cluster()
    facts = await gather_facts(api, TFJOB, JOB, usages=usages)
    assert f"worker-0, worker-1, worker-2: {HUNG}" in [finding.summary for finding in why(facts)]
    assert sorted(stand_in.read) == ["worker-0-abcd-x", "worker-1-abcd-x", "worker-2-abcd-x"]
    assert next(iter(facts.logs.values())) == ("step=1 loss=1", "step=2 loss=1", "step=3 loss=1")


async def test_get_of_a_job_reads_few_logs_and_of_all_jobs_none() -> None:
    stand_in, api, pods = cluster(40)
    assert await progress_warnings(api, "default", [JOB], pods) == [] == stand_in.read
    (warning,) = await progress_warnings(api, "default", [JOB], pods, reads_logs=True)
    assert HUNG in warning and warning.startswith("tfjob/mnist: worker-0, ") and len(stand_in.read) == 8


async def test_a_replica_whose_log_is_not_read_is_not_behind() -> None:
    _, api, pods = cluster(40)
    usages, missing, refusal = await read_usages_and_steps(api, JOB, pods, 32)
    assert "install metrics-server" in missing and refusal == ""
    assert [usage.step for usage in usages].count(3.0) == 32 and {usage.lag for usage in usages} == {0.0}
    assert {usage.steps_per_second for usage in usages} == {0.5, None}, "known after one reading"


async def test_of_many_replicas_those_that_compute_least_are_read() -> None:
    cpu = {f"worker-{index}-abcd-x": "3m" if index in (11, 12) else "2" for index in range(13)}
    stand_in, api, pods = cluster(13, cpu=cpu)
    await read_usages_and_steps(api, JOB, pods, 2)
    assert sorted(stand_in.read) == ["worker-11-abcd-x", "worker-12-abcd-x"]


async def test_logs_of_another_job_are_not_read() -> None:
    stand_in, api, pods = cluster(2)
    labels = {**labels_of(pods[0]), OWNER: "v"}
    other = pod("WORKER-0", name="other-worker-0", uid="other", labels=labels)
    await progress_warnings(api, "default", [JOB], [other, *pods], reads_logs=True)
    assert sorted(stand_in.read) == list(map(name_of, pods))


async def test_a_user_who_may_not_read_logs_gets_one_line() -> None:
    _, api, pods = cluster(may_read=False)
    assert await progress_warnings(api, "default", [JOB], pods, reads_logs=True) == [REFUSED]
    facts = await gather_facts(api, TFJOB, JOB)
    assert facts.refused == ("get pods/log",) and facts.usages == ()
