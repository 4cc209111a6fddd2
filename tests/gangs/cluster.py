"""A namespace of a real control plane, and the jobs in it, for the tests beside the programs of others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.control_plane.job_life import end, path_of
from tests.support.control_plane import ControlPlane
from tests.support.waiting import SLOW_PAUSE, until_async
from trainyard.core import Kind
from trainyard.objects import Json, name_of

SECONDS = 90.0
"""How long a test waits: as long as a loaded machine may take, and less than the five minutes after which a scheduler
looks again at every pod that it could not place."""


class JobCluster:
    """A control plane and the namespace of a test."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace

    def submit(self, kind: Kind, job: Json) -> Json:
        """The answer: the job as it was stored."""
        code, answer = self.plane.ask("POST", path_of(kind, self.namespace), job)
        assert code == 201, answer
        return answer

    def job(self, kind: Kind, name: str) -> Json:
        return self.plane.ask("GET", path_of(kind, self.namespace, name))[1]

    def edit(self, kind: Kind, name: str, spec: Json) -> None:
        code, answer = self.plane.ask("PATCH", path_of(kind, self.namespace, name), {"spec": spec})
        assert code == 200, answer

    def pods(self, job: str = "") -> list[Json]:
        items: list[Json] = self.plane.ask("GET", f"/api/v1/namespaces/{self.namespace}/pods")[1]["items"]
        return [pod for pod in items if name_of(pod).startswith(job)]

    def running(self, job: str = "") -> list[str]:
        """The pods that run and are not being deleted."""
        return [
            name_of(pod)
            for pod in self.pods(job)
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    def end(self, name: str, code: int = 0) -> None:
        """Play the end of a pod."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}"
        pod = self.plane.ask("GET", path)[1]
        if code == 0:
            end(self.plane, path, pod)
            return
        state = {"terminated": {"exitCode": code, "reason": "Error"}}
        statuses = [{**status, "ready": False, "state": state} for status in pod["status"]["containerStatuses"]]
        self.plane.ask("PATCH", f"{path}/status", {"status": {"phase": "Failed", "containerStatuses": statuses}})

    def state(self) -> object:
        """For the message of a test that waited in vain."""
        return {name_of(pod): pod["status"] for pod in self.pods()}

    async def until(self, condition: Callable[[], object], description: str) -> None:
        await until_async(
            lambda: asyncio.to_thread(condition), description, context=self.state, pause=SLOW_PAUSE, seconds=SECONDS
        )
