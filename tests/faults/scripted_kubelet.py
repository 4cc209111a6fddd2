"""A kubelet that runs no processes: each pod ends as the script of its job says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tests.faults.history_jobs import JOB_SET
from trainyard.client import ApiClient, NotFound
from trainyard.controller_runtime.controller import Controller, enqueue_object
from trainyard.controller_runtime.reflector import WatchTarget
from trainyard.objects import Json, NamespacedName, format_time, labels_of, uid_of
from trainyard.objects.labels import INDEX, OWNER
from trainyard.objects.resources import POD


@dataclass(slots=True)
class Script:
    """What the pods of one job do: the first `failures` pods of index 0 end with `code`, all others succeed."""

    failures: int
    code: int
    seconds: float  # that a pod runs
    grace: float  # that a pod takes to terminate


class Kubelet:
    """Runs every pod as its job's script says. A pod that is deleted goes after the script's grace."""

    def __init__(self, api: ApiClient, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self.scripts: dict[tuple[str, str], Script] = {}  # (namespace, job's name)
        self._api = api
        self._failed: dict[str, int] = {}  # uid of the job -> how many of its pods have failed
        self._due: dict[tuple[str, str], float] = {}  # (uid, step): when, on the loop's clock
        self.loop: Controller[NamespacedName] = Controller(api, self._reconcile, workers=4)
        self.pods = self.loop.watch(WatchTarget(POD), enqueue_object)

    async def _reconcile(self, key: NamespacedName) -> float | None:
        pod = self.pods.get(key)
        if pod is None or not pod["spec"].get("nodeName"):
            return None
        with suppress(NotFound):
            return await self._advance(pod, key)
        return None

    async def _advance(self, pod: Json, key: NamespacedName) -> float | None:
        labels = labels_of(pod)
        script = self._script(pod)
        if pod["metadata"].get("deletionTimestamp"):
            if (pause := self._pause(uid_of(pod), "terminate", script.grace)) > 0:
                return pause
            await self._api.delete(POD, *key, uid=uid_of(pod), grace_period_seconds=0)
            return None
        phase = pod.get("status", {}).get("phase", "Pending")
        if phase == "Pending":
            await self._report(pod, key, "Running", {"running": {"startedAt": format_time(self._now())}})
        elif phase == "Running":
            if (pause := self._pause(uid_of(pod), "run", script.seconds)) > 0:
                return pause
            owner = labels.get(OWNER, "")
            fails = self._failed.get(owner, 0) < script.failures and labels.get(INDEX, "0") == "0"
            code = script.code if fails else 0
            end = {"exitCode": code, "finishedAt": format_time(self._now()), "reason": "Error" if code else "Completed"}
            await self._report(pod, key, "Failed" if code else "Succeeded", {"terminated": end})
            self._failed[owner] = self._failed.get(owner, 0) + fails
        return None

    def _script(self, pod: Json) -> Script:
        job = (pod["metadata"].get("annotations") or {}).get("script") or labels_of(pod).get(JOB_SET, "")
        return self.scripts.get((pod["metadata"]["namespace"], job), Script(0, 0, 0.1, 0.0))

    def _pause(self, uid: str, step: str, seconds: float) -> float:
        now = asyncio.get_running_loop().time()
        return self._due.setdefault((uid, step), now + seconds) - now

    async def _report(self, pod: Json, key: NamespacedName, phase: str, state: Json) -> None:
        names = [container["name"] for container in pod["spec"]["containers"]]
        status = {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if phase == "Running" else "False"}],
            "containerStatuses": [{"name": name, "state": state, "restartCount": 0} for name in names],
        }
        await self._api.patch(POD, *key, {"metadata": {"uid": uid_of(pod)}, "status": status}, "status")
