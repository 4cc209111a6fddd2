"""The event recorder: core/v1 Events about an object, as `kubectl describe` shows them.

Rules for this file:
- Best effort: recording an event never blocks and never fails a reconcile. When the buffer is full the oldest event is
  dropped; so is an event that the server rejects.
- An equal event about the same object is recorded at most once in ten minutes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from secrets import token_hex
from typing import Protocol

from trainyard.client import Api, ApiError
from trainyard.objects import Json, format_time, name_of, namespace_of, uid_of
from trainyard.objects.resources import EVENT

log = logging.getLogger(__name__)

REPEAT_SECONDS = 600.0
BUFFER_SIZE = 1000
LONGEST_MESSAGE = 1024  # what the API allows


class RecordableEvent(Protocol):
    """`type` is Normal or Warning."""

    @property
    def type(self) -> str: ...

    @property
    def reason(self) -> str: ...

    @property
    def message(self) -> str: ...


class EventRecorder:
    """`record` puts events into the buffer; `run` sends them, one after the other."""

    def __init__(
        self, api: Api, now: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._now = now
        self._clock = clock
        self._buffer: deque[Json] = deque(maxlen=BUFFER_SIZE)
        self._wake = asyncio.Event()
        self._recent: dict[tuple[str, str, str, str], float] = {}  # oldest first

    def record(self, obj: Json, events: Iterable[RecordableEvent], source: str) -> None:
        """Record these about the object, but not what was recorded in the last REPEAT_SECONDS."""
        for event in events:
            if self._is_new(uid_of(obj), event):
                self._buffer.append(self._event_object(obj, event, source))
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
                    log.debug("event not recorded object=%s why=%s", obj["involvedObject"]["name"], error)
                except Exception:
                    log.exception("bug while recording an event object=%s", obj["involvedObject"]["name"])

    def _is_new(self, uid: str, event: RecordableEvent) -> bool:
        now = self._clock()
        while self._recent and now - next(iter(self._recent.values())) > REPEAT_SECONDS:
            del self._recent[next(iter(self._recent))]
        key = (uid, event.type, event.reason, event.message)
        if key in self._recent:
            return False
        self._recent[key] = now
        return True

    def _event_object(self, obj: Json, event: RecordableEvent, source: str) -> Json:
        at = format_time(self._now())
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": namespace_of(obj), "name": f"{name_of(obj)[:200]}.{token_hex(8)}"},
            "involvedObject": {
                "apiVersion": obj.get("apiVersion", ""),
                "kind": obj.get("kind", ""),
                "namespace": namespace_of(obj),
                "name": name_of(obj),
                "uid": uid_of(obj),
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
