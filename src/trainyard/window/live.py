"""One open page: what it has subscribed to, and the frames that it gets.

Rules for this file:
- The latest state wins: a frame is made when it is sent, so a slow page gets fewer frames and never a longer queue.
- A topic sends at most one frame in its interval.
- Lines of logs are the exception: those that came too fast are counted, and the count is sent (log_lines.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from trainyard.objects import Json
from trainyard.window.job_list import COLUMNS, JobList
from trainyard.window.job_pages import JobPages, rank_columns, usage_columns
from trainyard.window.log_lines import LogLines
from trainyard.window.observation import Observation

PING_SECONDS = 5.0
MAX_PAGE_AGE = 4.0  # seconds; a page takes ten requests, the usage one
LOOK_SECONDS = 0.5  # topics are asked whether they are due at least so often
ROWS_PER_FRAME = 2000
MAX_TOPICS = 16  # of one page
Send = Callable[[Any], Awaitable[None]]
"""Sends one frame: a value that msgspec can encode. Returns when the connection has taken it."""


class Sources(msgspec.Struct, frozen=True):
    """What pages are made from. `observation` is None where there is only a history."""

    observation: Observation | None
    jobs: JobList
    pages: JobPages
    open_log: Callable[[str, str], LogLines | None]  # by the uid of a job, and a replica or "*"


class Topic(Protocol):
    """One subscription. `interval`: seconds between two rounds of frames."""

    interval: float

    def is_due(self) -> bool:
        """Whether there is something new to send."""

    def changed(self, job_uid: str) -> None:
        """The job with that uid has changed."""

    def frames(self) -> AsyncIterator[Any]:
        """The frames that bring the page up to date."""

    async def close(self) -> None:
        """End what was started for the subscription."""


class JobsTopic:
    """`jobs`: first all rows, then those that have changed."""

    interval = 0.25

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._dirty: set[str] = set()
        self._is_sent = False

    def is_due(self) -> bool:
        """The first time as soon as the cluster is listed."""
        observation = self._sources.observation
        if not self._is_sent:
            return observation is None or observation.synced
        return bool(self._dirty)

    def changed(self, job_uid: str) -> None:
        """Its row is sent again."""
        self._dirty.add(job_uid)

    async def frames(self) -> AsyncIterator[Any]:
        """Snapshots are cut: a frame of 10,000 jobs would be 800 kB."""
        dirty, self._dirty = self._dirty, set()
        if not self._is_sent:
            self._is_sent, rows, is_first = True, [], True
            async for row in self._sources.jobs.rows():
                rows.append(row)
                if len(rows) == ROWS_PER_FRAME:
                    yield self._frame(rows, [], reset=is_first, more=True)
                    rows, is_first = [], False
            yield self._frame(rows, [], reset=is_first, more=False)
            return
        changed: list[Any] = []
        gone: list[str] = []
        for uid in dirty - {""}:
            changed_row = self._sources.jobs.live_row(uid) or await self._sources.jobs.recorded_row_of(uid)
            if changed_row is None:
                gone.append(uid)
            else:
                changed.append(changed_row)
        yield self._frame(changed, gone, reset=False, more=False)

    @staticmethod
    def _frame(rows: list[Any], gone: list[str], *, reset: bool, more: bool) -> Json:
        return {"type": "jobs", "reset": reset, "columns": COLUMNS, "rows": rows, "gone": gone, "more": more}

    async def close(self) -> None:
        """Nothing was started."""


class JobTopic:
    """`job:UID`: the ranks at once, then the details, findings, timeline and events, which take requests."""

    interval = 0.5
    refresh_seconds = 2.0  # usage, events and logs change without the job ...
    settle_seconds = 1.0  # ... most of all right after it

    def __init__(self, sources: Sources, job_uid: str) -> None:
        self._sources, self._uid = sources, job_uid
        self._is_dirty = True
        self._is_settling = False  # it was changed at the last refresh
        self._refresh_at = 0.0
        self._sent: dict[str, bytes] = {}

    def is_due(self) -> bool:
        """After a change, and every few seconds."""
        observation = self._sources.observation
        if observation is not None and not observation.synced:
            return False
        return self._is_dirty or time.monotonic() > self._refresh_at

    def changed(self, job_uid: str) -> None:
        """Only this job matters."""
        self._is_dirty = self._is_dirty or job_uid == self._uid

    async def frames(self) -> AsyncIterator[Any]:
        """Those that are not the same as the ones that were sent last."""
        max_age = self.settle_seconds / 2 if self._is_settling else MAX_PAGE_AGE
        self._is_settling, self._is_dirty = self._is_dirty, False
        self._refresh_at = time.monotonic() + (self.settle_seconds if self._is_settling else self.refresh_seconds)
        view, ranks = self._sources.observation.view if self._sources.observation else None, None
        if view is not None and self._uid in view.jobs:
            slots = view.slots(self._uid)
            ranks = rank_columns(slots) | usage_columns(slots, await self._sources.pages.usages(self._uid))
            if self._is_new("ranks", ranks):
                yield {"type": "ranks", "uid": self._uid, "columns": ranks}
        page = await self._sources.pages.page(self._uid, max_age)
        if page is None:
            yield {"type": "gone", "uid": self._uid}
            return
        if ranks is None and self._is_new("ranks", page.ranks):
            yield {"type": "ranks", "uid": self._uid, "columns": page.ranks}
        about_job = {"job": page.job, "findings": page.findings, "timeline": page.timeline}
        about_job["forbidden"] = page.forbidden
        if self._is_new("job", about_job):
            yield {"type": "job", "uid": self._uid, **about_job}
        if self._is_new("events", page.events):
            yield {"type": "events", "uid": self._uid, "events": page.events}

    def _is_new(self, name: str, content: Any) -> bool:
        encoded = msgspec.json.encode(content)
        if self._sent.get(name) == encoded:
            return False
        self._sent[name] = encoded
        return True

    async def close(self) -> None:
        """Nothing was started."""


class LogTopic:
    """`logs:UID:REPLICA` or `logs:UID:*`: the last lines, then new ones."""

    interval = 0.25

    def __init__(self, job_uid: str, lines: LogLines) -> None:
        self._uid, self._lines = job_uid, lines

    def is_due(self) -> bool:
        """When lines have come, or were dropped."""
        return self._lines.has_news

    def changed(self, job_uid: str) -> None:
        """New pods may have logs."""
        if job_uid == self._uid:
            self._lines.follow_pods()

    async def frames(self) -> AsyncIterator[Any]:
        """All lines that wait."""
        lines, dropped = self._lines.take()
        yield {"type": "log", "uid": self._uid, "lines": lines, "dropped": dropped}

    async def close(self) -> None:
        """End the streams."""
        await self._lines.close()


class LivePage:
    """One page. `hello` makes the first frame; it is sent again when what is forbidden has changed."""

    def __init__(self, sources: Sources, send: Send, hello: Callable[[], Json]) -> None:
        self._sources, self._send, self._hello = sources, send, hello
        self._topics: dict[str, Topic] = {}
        self._next_time: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._says_hello = False

    def subscribe(self, names: list[str]) -> None:
        """Replace the subscriptions. Unknown names are left out."""
        names = [name for name in names if isinstance(name, str)][:MAX_TOPICS]
        for name in [name for name in self._topics if name not in names]:
            asyncio.ensure_future(self._topics.pop(name).close())  # noqa: RUF006  (it only cancels tasks)
        for name in names:
            if name not in self._topics and (topic := self._new_topic(name)) is not None:
                self._topics[name] = topic
                self._next_time[name] = 0.0
        self._changed.set()

    def _new_topic(self, name: str) -> Topic | None:
        topic, _, rest = name.partition(":")
        if name == "jobs":
            return JobsTopic(self._sources)
        if topic == "job" and rest:
            return JobTopic(self._sources, rest)
        if topic == "logs" and rest:
            uid, _, replica = rest.partition(":")
            lines = self._sources.open_log(uid, replica or "*")
            if lines is not None:
                lines.on_news = self._changed.set
                return LogTopic(uid, lines)
        return None

    def _on_change(self, job_uid: str) -> None:
        if not job_uid:
            self._says_hello = True
        for topic in self._topics.values():
            topic.changed(job_uid)
        self._changed.set()

    async def run(self) -> None:
        """Send frames until cancelled, or until sending fails."""
        observation = self._sources.observation
        if observation is not None:
            observation.subscribe(self._on_change)
        try:
            await self._send(self._hello())
            ping = time.monotonic() + PING_SECONDS
            while True:
                pause = await self._send_due_frames()
                now = time.monotonic()
                if now >= ping:
                    await self._send({"type": "ping", "now": time.time()})
                    ping = now + PING_SECONDS
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(pause, LOOK_SECONDS)):
                        await self._changed.wait()
        finally:
            if observation is not None:
                observation.unsubscribe(self._on_change)
            await asyncio.gather(*(topic.close() for topic in self._topics.values()))

    async def _send_due_frames(self) -> float:
        """Send the frames of all topics whose interval is over. Returns the seconds until the next one's is."""
        self._changed.clear()
        if self._says_hello:
            self._says_hello = False
            await self._send(self._hello())
        pauses = []
        for name, topic in list(self._topics.items()):
            if not topic.is_due():
                continue
            now = time.monotonic()
            if (pause := self._next_time[name] - now) > 0:
                pauses.append(pause)
                continue
            self._next_time[name] = now + topic.interval
            async for frame in topic.frames():
                await self._send(frame)
        return min(pauses, default=LOOK_SECONDS)
