"""The event recorder: core/v1 Events about an object, as `kubectl describe` shows them.

Rules for this file:
- Best effort: `record` never blocks and never fails a reconcile. When the buffer is full the oldest event is dropped;
  so is an event that the API server rejects. `dropped` counts both.
- An event of equal type, reason and message about the same object (uid) is recorded at most once in ten minutes, as
  long as fewer than MAX_RECENT other events come in between.
- An event that may wait is sent when none has been recorded for QUIET_SECONDS, MAX_WAIT after the first at the latest:
  that the pod of a job was created must not delay the pods of the jobs that follow.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from secrets import token_hex
from typing import Protocol

from trainyard.client import ApiClient, ApiError, Unavailable
from trainyard.controller_runtime.backoff import Backoff
from trainyard.objects import Json, format_time, name_of, namespace_of, uid_of
from trainyard.objects.resources import EVENT

log = logging.getLogger(__name__)

DEDUPLICATION_SECONDS = 600.0  # for so long an equal event is not recorded again
MAX_RECENT = 4096  # remembered events; as many as client-go's correlator remembers
BUFFER_SIZE = 4000  # events
MAX_TRIES = 5  # requests of an event while the API server is unavailable
RETRY_SECONDS = 1.0, 30.0  # the shortest and the longest pause between them
QUIET_SECONDS, MAX_WAIT = 0.2, 1.0
MAX_MESSAGE_LENGTH = 1024  # characters, the limit of the Kubernetes API


class RecordableEvent(Protocol):
    """An event to record. `type` is Normal or Warning; `reason` is CamelCase; `message` is for users."""

    @property
    def type(self) -> str:
        """`Normal` or `Warning`."""

    @property
    def reason(self) -> str:
        """A word in CamelCase, as in `kubectl get events`."""

    @property
    def message(self) -> str:
        """The sentence for the user."""


class EventRecorder:
    """`record` puts events into the buffer; `run` creates them at the API server, one after the other. `now` is the
    wall clock of the timestamps (Unix seconds), `clock` the monotonic clock of DEDUPLICATION_SECONDS."""

    def __init__(
        self, api: ApiClient, now: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._now = now
        self._clock = clock
        self._buffer: deque[Json] = deque(maxlen=BUFFER_SIZE)
        self.dropped = 0
        self._not_empty, self._urgent = asyncio.Event(), asyncio.Event()
        self._last_recorded = 0.0  # time.monotonic
        # The hashes of recent events and their times, oldest first. The events themselves would be a megabyte and more.
        self._recent: dict[int, float] = {}

    @property
    def waiting(self) -> int:
        """The number of events that are not sent yet."""
        return len(self._buffer)

    def record(self, obj: Json, events: Iterable[RecordableEvent], component: str, *, may_wait: bool = False) -> None:
        """Record the events about `obj`, except those recorded in the last DEDUPLICATION_SECONDS. `component` is their
        source."""
        for event in events:
            if self._is_new(uid_of(obj), event):
                self.dropped += len(self._buffer) == BUFFER_SIZE
                self._buffer.append(self._event_object(obj, event, component))
                self._last_recorded = time.monotonic()
                self._not_empty.set()
                if not may_wait:
                    self._urgent.set()

    async def run(self) -> None:
        """Send buffered events until cancelled. An event is sent again while the API server is unavailable, up to
        MAX_TRIES times; then, and when it is refused, it is logged and dropped."""
        unavailable = Backoff(*RETRY_SECONDS)
        while True:
            if not self._buffer:
                self._not_empty.clear()
                await self._not_empty.wait()
            await self._wait_for_pause()
            while self._buffer:
                obj = self._buffer.popleft()
                try:
                    await self._api.create(EVENT, namespace_of(obj), obj, version_only=True)
                except ApiError as error:
                    if isinstance(error, Unavailable) and unavailable.failures < MAX_TRIES - 1:
                        pause = unavailable.next_delay(error.retry_after)
                        self._buffer.appendleft(obj)
                        await asyncio.sleep(pause)
                        continue
                    self.dropped += 1
                    log.debug("event not recorded object=%s error=%s", obj["involvedObject"]["name"], error)
                except Exception:
                    self.dropped += 1
                    log.exception("event not recorded, unexpected error object=%s", obj["involvedObject"]["name"])
                unavailable.reset()

    async def _wait_for_pause(self) -> None:
        """Wait until the events that may wait have waited, or until one is recorded that may not."""
        latest = time.monotonic() + MAX_WAIT
        while (pause := min(self._last_recorded + QUIET_SECONDS, latest) - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._urgent.wait()
                    break
        self._urgent.clear()

    def _is_new(self, uid: str, event: RecordableEvent) -> bool:
        now = self._clock()
        while self._recent and (
            len(self._recent) >= MAX_RECENT or now - next(iter(self._recent.values())) > DEDUPLICATION_SECONDS
        ):
            del self._recent[next(iter(self._recent))]
        key = hash((uid, event.type, event.reason, event.message))
        if key in self._recent:
            return False
        self._recent[key] = now
        return True

    def _event_object(self, obj: Json, event: RecordableEvent, source: str) -> Json:
        timestamp = format_time(self._now())
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
            "message": event.message[:MAX_MESSAGE_LENGTH],
            "count": 1,
            "firstTimestamp": timestamp,
            "lastTimestamp": timestamp,
            "source": {"component": source},
            "reportingComponent": source,
            "reportingInstance": "",
        }
