"""Steps of replicas from the last lines of their logs, where no Trainyard node measures: on a real cluster.

The lines are parsed as by a node (node/kubelet/usage/progress.py). A reading asks for the logs of at most MAX_LOGS
pods, a few lines of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from trainyard.client import ApiClient, ApiError, Forbidden
from trainyard.node.kubelet.usage.progress import StepRate, parse_lines
from trainyard.objects import Json, annotations_of, name_of, namespace_of, uid_of
from trainyard.objects.usage import METRICS, Progress

MAX_LOGS, TAIL_LINES, AT_ONCE = 32, 50, 8
LOG_TIMEOUT = 5.0  # seconds


class LogSteps:
    """Keeps the steps of earlier readings for the rates."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._rates: dict[str, StepRate] = {}  # by uid of the pod
        self._limit = asyncio.Semaphore(AT_ONCE)
        self.refusal = ""  # why logs cannot be read

    async def read(self, pods: Iterable[Json]) -> dict[str, Progress]:
        """The progress of the running pods, by their name; pods that print no steps have none."""
        running = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"][:MAX_LOGS]
        self.refusal = ""
        progress = await asyncio.gather(*map(self._read_pod, running))
        return {name_of(pod): value for pod, value in zip(running, progress, strict=True) if value is not None}

    async def _read_pod(self, pod: Json) -> Progress | None:
        has_patterns = annotations_of(pod).get(METRICS) != "off"
        values, source = parse_lines(await self._tail(pod), is_output=True, has_patterns=has_patterns)
        if "step" not in values:
            return None
        rate, now = self._rates.setdefault(uid_of(pod), StepRate()), time.monotonic()
        rate.add(now, values["step"])
        return Progress(values, rate.per_second(now), source)

    async def _tail(self, pod: Json) -> bytes:
        container = str(((pod.get("spec") or {}).get("containers") or [{}])[0].get("name") or "")
        logs = self._api.logs(namespace_of(pod), name_of(pod), container, tail_lines=TAIL_LINES)
        try:
            async with self._limit, asyncio.timeout(LOG_TIMEOUT):
                return b"".join([chunk async for chunk in logs])
        except Forbidden:
            self.refusal = f"no steps: you may not get pods/log in namespace {namespace_of(pod)}"
        except (ApiError, TimeoutError):  # it has just ended, or its node does not answer
            pass
        return b""
