"""The event recorder: core/v1 Events about a job, as `kubectl describe` shows them.

Rules for this file:
- Best effort: recording an event never blocks and never fails a reconcile. When the buffer is full the oldest event is
  dropped; so is an event that the server rejects.
- An equal event about the same job is recorded at most once in ten minutes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from secrets import token_hex

from trainyard.client import Api, ApiError
from trainyard.core import Event
from trainyard.objects import GVK, Json, format_time, name_of, namespace_of, uid_of

log = logging.getLogger(__name__)

EVENT = GVK("", "v1", "Event", "events")
REPEAT_SECONDS = 600.0
BUFFER_SIZE = 1000
LONGEST_MESSAGE = 1024  # what the API allows


class EventRecorder:
    """`say` puts events in line; `run` sends them, one after the other."""

    def __init__(
        self, api: Api, now: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._now = now
        self._clock = clock
        self._buffer: deque[Json] = deque(maxlen=BUFFER_SIZE)
        self._wake = asyncio.Event()
        self._recent: dict[tuple[str, Event], float] = {}  # oldest first

    def record(self, job: Json, events: tuple[Event, ...], source: str) -> None:
        """Say these about the job, unless they were said a moment ago."""
        for event in events:
            if self._is_new(uid_of(job), event):
                self._buffer.append(self._event_object(job, event, source))
                self._wake.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._buffer:
                obj = self._buffer.popleft()
                try:
                    await self._api.create(EVENT, namespace_of(obj), obj)
                except ApiError as error:
                    log.debug("event not said job=%s why=%s", obj["involvedObject"]["name"], error)
                except Exception:
                    log.exception("bug while saying an event job=%s", obj["involvedObject"]["name"])

    def _is_new(self, uid: str, event: Event) -> bool:
        now = self._clock()
        while self._recent and now - next(iter(self._recent.values())) > REPEAT_SECONDS:
            del self._recent[next(iter(self._recent))]
        if (uid, event) in self._recent:
            return False
        self._recent[uid, event] = now
        return True

    def _event_object(self, job: Json, event: Event, source: str) -> Json:
        at = format_time(self._now())
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": namespace_of(job), "name": f"{name_of(job)[:200]}.{token_hex(8)}"},
            "involvedObject": {
                "apiVersion": job.get("apiVersion", ""),
                "kind": job.get("kind", ""),
                "namespace": namespace_of(job),
                "name": name_of(job),
                "uid": uid_of(job),
            },
            "type": event.type,
            "reason": event.reason,
            "message": event.message[:LONGEST_MESSAGE],
            "count": 1,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "source": {"component": source},
            "reportingComponent": source,
            "reportingInstance": "",
        }
