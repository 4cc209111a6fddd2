"""JobWatch: the jobs and the pods are watched apart, and a job may be seen to end before its pod is seen to start."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from typing import Any

from trainyard.cli.output.screen import Descriptors, Screen
from trainyard.cli.session.job_watch import JobWatch, LogSelection
from trainyard.client import ApiClient, ApiRequest
from trainyard.kinds import TFJOB
from trainyard.objects import Json, encode
from trainyard.objects.labels import OWNER
from trainyard.views.job_view import JobView

JOB: Json = {
    "metadata": {"name": "a", "namespace": "default", "uid": "job", "resourceVersion": "9"},
    "spec": {},
    "status": {"conditions": [{"type": "Succeeded", "status": "True", "reason": "JobSucceeded"}]},
}
POD: Json = {
    "metadata": {
        "name": "a-0",
        "namespace": "default",
        "uid": "pod",
        "resourceVersion": "8",
        "labels": {OWNER: "job"},
    },
    "spec": {"containers": [{"name": "main"}]},
    "status": {
        "phase": "Succeeded",
        "containerStatuses": [{"name": "main", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}],
    },
}


class LatePods(ApiClient):
    """Lists the job as ended, and the pod only from the second list on; the watch of pods sends nothing until
    `late` is set."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:9")
        self.pod_lists = 0
        self.listed, self.late = asyncio.Event(), asyncio.Event()

    async def send(self, request: ApiRequest) -> bytes:
        items = [JOB]
        if "/pods" in request.path:
            self.pod_lists += 1
            items = [POD] if self.pod_lists > 1 else []
            if items:
                self.listed.set()
        return encode({"metadata": {"resourceVersion": "7"}, "items": items})

    async def stream(
        self, request: ApiRequest, seconds: float | None, opened: Callable[[], None] = lambda: None
    ) -> AsyncGenerator[bytes, None]:
        opened()
        if "/pods" in request.path:
            await self.late.wait()
            yield encode({"type": "ADDED", "object": POD}) + b"\n"
        await asyncio.Event().wait()

    async def logs(self, *where: str, **options: Any) -> AsyncGenerator[bytes]:
        yield b"its only line\n"


async def test_the_log_of_a_pod_observed_after_the_end_of_its_job_is_printed() -> None:
    api = LatePods()
    reader, writer = os.pipe()
    screen = Screen(Descriptors(writer, writer, writer), False, False, lambda: None)
    watch = JobWatch(api, screen, JobView({"job": JOB}), LogSelection(follow=True))
    watch.start([(TFJOB.gvk, "default")])
    await watch.wait_until(watch.all_ended)
    current = asyncio.create_task(watch.wait_until_pods_current())
    await api.listed.wait()
    assert not current.done()
    api.late.set()
    await asyncio.wait_for(current, 5)
    await watch.logs.finish(ended_pods_only=True)
    await watch.stop()
    await screen.close()
    os.close(writer)
    with os.fdopen(reader) as text:
        assert "its only line" in text.read()
