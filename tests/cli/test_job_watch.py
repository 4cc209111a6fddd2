"""The engine of `run`, `submit --wait` and `logs -f`: until when it watches, and the exit code."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.views.why_values import tfjob
from trainyard.app.local import LocalCluster, LocalClusterOptions
from trainyard.cli.command.codes import FAILED, SUCCEEDED
from trainyard.cli.output.screen import Descriptors, Screen
from trainyard.cli.session.job_watch import JobWatch, LogSelection, exit_code
from trainyard.kinds import TFJOB
from trainyard.objects import Json, uid_of
from trainyard.views.job_view import JobView


async def created(cluster: LocalCluster, name: str) -> Json:
    job = {**tfjob(), "metadata": {"name": name, "namespace": "default"}}
    return {"apiVersion": TFJOB.gvk.api_version, "kind": "TfJob", **await cluster.api.create(TFJOB.gvk, "default", job)}


def watching(cluster: LocalCluster, screen: Screen, *jobs: Json) -> JobWatch:
    watch = JobWatch(cluster.api, screen, JobView({uid_of(job): job for job in jobs}), LogSelection(silent=True))
    watch.start((TFJOB.gvk, "default") for _ in jobs)
    return watch


async def test_the_watch_ends_when_every_job_has_ended_or_is_deleted(tmp_path: Path) -> None:
    options = LocalClusterOptions(network="shared", operator=False, parent=tmp_path, say=lambda text: None)
    with (tmp_path / "output").open("wb") as output:
        screen = Screen(Descriptors(*[output.fileno()] * 3), False, False, lambda: None)
        async with asyncio.timeout(30), LocalCluster(options) as cluster:
            jobs = [await created(cluster, name) for name in ("a", "b", "c")]
            watch = watching(cluster, screen, *jobs[:2])
            await watch.wait_until(lambda: watch.watches.synced)
            assert not watch.all_ended()
            await cluster.api.delete(TFJOB.gvk, "default", "c")
            late = watching(cluster, screen, jobs[2])  # it is deleted before the first list
            await late.wait_until(late.all_ended)
            ended: Any = {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
            await cluster.api.patch(TFJOB.gvk, "default", "a", ended, "status")
            await cluster.api.delete(TFJOB.gvk, "default", "b")
            await watch.wait_until(watch.all_ended)
            view = watch.view.jobs
            assert exit_code(view.values()) == FAILED and exit_code([view[uid_of(jobs[0])]]) == SUCCEEDED
            await asyncio.gather(watch.stop(), late.stop())
        await screen.close()
