"""The event recorder: core/v1 Events about an object, as `kubectl describe` shows them.

Rules for this file:
- Best effort: `record` never blocks and never fails a reconcile. When the buffer is full the oldest event is dropped;
  so is an event that the API server rejects. `dropped` counts both.
- Events of equal type, reason and message about the same object (uid) are one Event with a `count` and a
  `lastTimestamp`, as client-go's EventCorrelator makes it: a repetition is a patch, as long as fewer than MAX_RECENT
  other events came in between. One that is not sent yet is only counted. Where the role has not the verb patch, a
  repetition is a new Event with that count.
- The patches about an object are bounded by a token bucket, as by client-go's spam filter: after BURST patches one in
  REFILL_SECONDS. A repetition without a token is counted, and is part of the next patch. A new event needs no token.
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

import msgspec

from trainyard.client import AlreadyExists, ApiClient, ApiError, Forbidden, NotFound, Unavailable
from trainyard.controller_runtime.backoff import Backoff
from trainyard.objects import Json, format_time, name_of, namespace_of, uid_of
from trainyard.objects.resources import EVENT

log = logging.getLogger(__name__)

MAX_RECENT = 4096  # remembered events, and objects with patches; as many as client-go's correlator remembers
BURST, REFILL_SECONDS = 25, 600.0  # patches about one object
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


class _Series(msgspec.Struct):
    """The occurrences of one event: `name` and `first` (RFC 3339) are the Event's name and its firstTimestamp; `queued`
    is the Event in the buffer, None while there is none."""

    name: str
    first: str = ""
    count: int = 0
    is_created: bool = False
    queued: Json | None = None


class _TokenBucket(msgspec.Struct, gc=False):
    """The patches about one object: how many may be sent, as of `time` (monotonic seconds)."""

    tokens: float
    time: float

    def take(self, now: float) -> bool:
        """Take a token; False if there is none."""
        self.tokens = min(float(BURST), self.tokens + (now - self.time) / REFILL_SECONDS)
        self.time = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class EventRecorder:
    """`record` puts events into the buffer; `run` sends them to the API server, one after the other. `now` is the wall
    clock of the timestamps (Unix seconds), `clock` the monotonic clock of the token buckets."""

    def __init__(
        self, api: ApiClient, now: Callable[[], float] = time.time, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._now = now
        self._clock = clock
        self._buffer: deque[_Series] = deque()
        self.dropped = 0
        self._may_not_patch = False
        self._not_empty, self._urgent = asyncio.Event(), asyncio.Event()
        self._last_recorded = 0.0  # time.monotonic
        # Those of recent events by their hashes, least recent first. The events themselves would be megabytes.
        self._recent: dict[int, _Series] = {}
        self._buckets: dict[str, _TokenBucket] = {}  # by the uid of the object, least recently made first

    @property
    def waiting(self) -> int:
        """The number of events that are not sent yet."""
        return len(self._buffer)

    def record(self, obj: Json, events: Iterable[RecordableEvent], component: str, *, may_wait: bool = False) -> None:
        """Record the events about `obj`. `component` is their source."""
        for event in events:
            series = self._series(obj, event)
            series.count += 1
            timestamp = format_time(self._now())
            if series.queued is not None:
                series.queued |= {"count": series.count, "lastTimestamp": timestamp}
            elif series.count == 1 or self._may_patch(uid_of(obj)):
                series.first = series.first or timestamp
                series.queued = _event_object(obj, event, component, series, timestamp)
                self._queue(series)
                if not may_wait:
                    self._urgent.set()

    def _queue(self, series: _Series) -> None:
        if len(self._buffer) == BUFFER_SIZE:
            self._buffer.popleft().queued = None
            self.dropped += 1
        self._buffer.append(series)
        self._last_recorded = time.monotonic()
        self._not_empty.set()

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
                series = self._buffer.popleft()
                obj, series.queued = series.queued, None
                assert obj is not None  # noqa: S101 - each series in the buffer has an Event
                try:
                    await self._send(series, obj)
                except ApiError as error:
                    if isinstance(error, Unavailable) and unavailable.failures < MAX_TRIES - 1:
                        pause = unavailable.next_delay(error.retry_after)
                        if series.queued is None:  # else the Event of a later occurrence takes its place
                            series.queued = obj
                            self._buffer.appendleft(series)
                        await asyncio.sleep(pause)
                        continue
                    self.dropped += 1
                    log.debug("event not recorded object=%s error=%s", obj["involvedObject"]["name"], error)
                except Exception:
                    self.dropped += 1
                    log.exception("event not recorded, unexpected error object=%s", obj["involvedObject"]["name"])
                unavailable.reset()

    async def _send(self, series: _Series, event: Json) -> None:
        """Create the Event, or patch it; the API server has perhaps removed it since. Without the permission to patch
        it a repetition is an Event of its own: the first one is removed some time."""
        namespace = namespace_of(event)
        if series.is_created:
            repeated = {key: event[key] for key in ("count", "lastTimestamp")}
            try:
                await self._api.patch(EVENT, namespace, series.name, repeated, version_only=True)
                return
            except NotFound:
                pass
            except Forbidden as error:
                self._warn_of_refusal(error)
                series.name = _event_name(str(event["involvedObject"]["name"]))
                event["metadata"]["name"] = series.name
        with contextlib.suppress(AlreadyExists):  # a try before, whose response was lost, has created it
            await self._api.create(EVENT, namespace, event, version_only=True)
        series.is_created = True

    def _warn_of_refusal(self, error: Forbidden) -> None:
        if not self._may_not_patch:
            log.warning("repeated events are new events; give the role the verb patch of events error=%s", error)
        self._may_not_patch = True

    async def _wait_for_pause(self) -> None:
        """Wait until the events that may wait have waited, or until one is recorded that may not."""
        latest = time.monotonic() + MAX_WAIT
        while (pause := min(self._last_recorded + QUIET_SECONDS, latest) - time.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._urgent.wait()
                    break
        self._urgent.clear()

    def _series(self, obj: Json, event: RecordableEvent) -> _Series:
        """The series of the event, which becomes the most recent one."""
        key = hash((uid_of(obj), event.type, event.reason, event.message))
        series = self._recent.pop(key, None) or _Series(_event_name(name_of(obj)))
        if len(self._recent) >= MAX_RECENT:
            del self._recent[next(iter(self._recent))]
        self._recent[key] = series
        return series

    def _may_patch(self, uid: str) -> bool:
        if uid not in self._buckets:
            if len(self._buckets) >= MAX_RECENT:
                del self._buckets[next(iter(self._buckets))]
            self._buckets[uid] = _TokenBucket(float(BURST), self._clock())
        return self._buckets[uid].take(self._clock())


def _event_name(name: str) -> str:
    """A new name of an Event about the object of that name."""
    return f"{name[:200]}.{token_hex(8)}"


def _event_object(obj: Json, event: RecordableEvent, source: str, series: _Series, timestamp: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": namespace_of(obj), "name": series.name},
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
        "count": series.count,
        "firstTimestamp": series.first,
        "lastTimestamp": timestamp,
        "source": {"component": source},
        "reportingComponent": source,
        "reportingInstance": "",
    }
