"""One open page: what it has subscribed to, and the frames that it gets.

Rules for this file:
- The latest state wins: a frame is made when it is sent, so a slow page gets fewer frames and never a longer queue.
- A topic sends at most one frame in its interval, and all pages at the same moments: they share what is made.
- Lines of logs are the exception: what came too fast is counted, and the number of bytes is sent (log_stream.py).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, Protocol

import msgspec

from trainyard.app.job_actions import offered_actions
from trainyard.client import ApiError
from trainyard.objects import Json
from trainyard.page.job_list import ROWS_PER_FRAME, JobList, is_unfinished, jobs_frame
from trainyard.page.job_pages import JobPage, JobPages
from trainyard.page.job_progress import ProgressReader, ProgressTopic
from trainyard.page.log_stream import LogLines
from trainyard.page.observation import Observation

PING_SECONDS = 5.0
MAX_PAGE_AGE = 4.0  # seconds; a page takes ten requests, the usage one
LOOK_SECONDS = 0.5  # topics are asked whether they are due at least so often
LOOKS_PER_ROUND = 100  # jobs that wait, and are looked at again
RECORD_SECONDS = 2.0  # until a record that has no result yet is looked at again
MAX_TOPICS = 16  # of one page
Send = Callable[[bytes], Awaitable[None]]
"""Sends one frame, encoded as JSON. Returns when the connection has taken it."""
encode = msgspec.json.encode


class Sources(msgspec.Struct, frozen=True):
    """What pages are made from. `observation` is None where there is only a history."""

    observation: Observation | None
    jobs: JobList
    progress: ProgressReader
    pages: JobPages
    open_log: Callable[[str, str], LogLines | None]  # by the uid of a job, and a replica or "*"


class Topic(Protocol):
    """One subscription. `interval`: seconds between two rounds of frames."""

    interval: float

    def is_due(self) -> bool:
        """Whether there is something new to send."""

    def changed(self, job_uid: str) -> None:
        """The job with that uid has changed."""

    def frames(self) -> AsyncIterator[bytes]:
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
        self._later: dict[str, float] = {}  # jobs that are looked at again, and when; see _note
        self._next_look = math.inf
        self._changed_rows: dict[str, Any] = {}  # as they were sent last: after the snapshot, or of self._later

    def is_due(self) -> bool:
        """The first time as soon as the cluster is listed."""
        observation = self._sources.observation
        if not self._is_sent:
            return observation is None or observation.synced
        return bool(self._dirty) or time.monotonic() > self._next_look

    def changed(self, job_uid: str) -> None:
        """Its row is sent again."""
        self._dirty.add(job_uid)

    async def frames(self) -> AsyncIterator[bytes]:
        """Snapshots are cut: a frame of 10,000 jobs would be 800 kB."""
        dirty, self._dirty = self._dirty, set()
        if not self._is_sent:
            self._is_sent, rows, is_first = True, [], True
            async for row in self._sources.jobs.rows():
                rows.append(row)
                self._note(row)
                if len(rows) == ROWS_PER_FRAME:
                    yield jobs_frame(rows, [], reset=is_first, more=True)
                    rows, is_first = [], False
            yield jobs_frame(rows, [], reset=is_first, more=False)
            self._next_look = min(self._later.values(), default=math.inf)
            return
        now = time.monotonic()
        dirty |= set(islice((uid for uid, at in self._later.items() if at < now), LOOKS_PER_ROUND))
        changed: list[Any] = []
        gone: list[str] = []
        for uid, changed_row in (await self._sources.jobs.changed_rows(dirty - {""})).items():
            self._later.pop(uid, None)
            before = self._changed_rows.get(uid)
            if changed_row is None:
                gone.append(uid)
                continue
            self._note(changed_row)
            if changed_row != before:
                changed.append(changed_row)
                self._changed_rows[uid] = changed_row
        self._next_look = min(self._later.values(), default=math.inf)
        if changed or gone:
            yield jobs_frame(changed, gone, reset=False, more=False)

    def _note(self, row: list[Any]) -> None:
        """Look again at a job that waits, and at one that is gone and whose record is still being written."""
        is_record = is_unfinished(row)
        at = time.monotonic() + RECORD_SECONDS if is_record else self._sources.jobs.next_look(row[0])
        if at < math.inf:
            self._later[row[0]] = at
            if not is_record:
                self._changed_rows.setdefault(row[0], row)

    async def close(self) -> None:
        """Nothing was started."""


class DevicesTopic:
    """`devices`: the GPUs of the nodes, and who uses them, after each change. Nothing is sent where there are none."""

    interval = 2.0

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._sent: list[str] = []

    def is_due(self) -> bool:
        """They change without an object of the API."""
        return True

    def changed(self, job_uid: str) -> None:
        """No job matters."""

    async def frames(self) -> AsyncIterator[bytes]:
        """The lines, if they are not those that were sent last."""
        lines = await self._sources.pages.device_lines()
        if lines != self._sent:
            self._sent = lines
            yield encode({"type": "devices", "lines": lines})

    async def close(self) -> None:
        """Nothing was started."""


class JobTopic:
    """`job:UID`: the ranks and what can be done at once; details, findings, timeline and events when they are read,
    which takes requests. `on_news` is called then."""

    interval = 0.5
    refresh_seconds = 2.0  # usage, events and logs change without the job ...
    settle_seconds = 1.0  # ... most of all right after it

    def __init__(self, sources: Sources, job_uid: str, on_news: Callable[[], None]) -> None:
        self._sources, self._uid, self._on_news = sources, job_uid, on_news
        self._is_dirty = True
        self._is_settling = False  # it was changed at the last refresh
        self._refresh_at = 0.0
        self._page: asyncio.Task[JobPage | None] | None = None
        self._sent_page: JobPage | None = None
        self._sent: dict[str, bytes] = {}

    def is_due(self) -> bool:
        """After a change, every few seconds, and when the page is read."""
        observation = self._sources.observation
        if observation is not None and not observation.synced:
            return False
        is_read = self._page is not None and self._page.done()
        return self._is_dirty or is_read or time.monotonic() > self._refresh_at

    def changed(self, job_uid: str) -> None:
        """Only this job matters."""
        self._is_dirty = self._is_dirty or job_uid == self._uid

    async def frames(self) -> AsyncIterator[bytes]:
        """Those that are not the same as the ones that were sent last."""
        if self._is_dirty or time.monotonic() > self._refresh_at:
            self._refresh()
            async for frame in self._ranks():
                yield frame
            if (actions := self._actions()) is not None and self._is_new("actions", actions):
                yield actions
        if self._page is not None and self._page.done():
            task, self._page = self._page, None
            with suppress(ApiError):  # the API server is away: the next refresh reads it again
                for frame in self._page_frames(task.result()):
                    yield frame

    def _refresh(self) -> None:
        """Read the page again, unless it is being read or was just now."""
        max_age = self.settle_seconds / 2 if self._is_settling else MAX_PAGE_AGE
        self._is_settling, self._is_dirty = self._is_dirty, False
        now = time.monotonic()
        self._refresh_at = now + (self.settle_seconds if self._is_settling else self.refresh_seconds)
        if self._page is None:
            self._page = asyncio.ensure_future(self._sources.pages.page(self._uid, max_age))
            self._page.add_done_callback(lambda done: self._on_news())

    async def _ranks(self) -> AsyncIterator[bytes]:
        frame = await self._sources.pages.live_ranks(self._uid)
        if frame is not None and self._is_new("ranks", frame):
            yield frame

    def _actions(self) -> bytes | None:
        """What can be done with a job that exists."""
        observation = self._sources.observation
        job = observation.view.parsed(self._uid) if observation is not None else None
        return encode({"type": "actions", "uid": self._uid, "actions": offered_actions(job)}) if job else None

    def _page_frames(self, page: JobPage | None) -> Iterator[bytes]:
        if page is None:
            yield encode({"type": "gone", "uid": self._uid})
            return
        if page is self._sent_page:
            return
        self._sent_page = page
        contents: dict[str, Json] = {
            "job": {
                "job": page.job,
                "findings": page.findings,
                "timeline": page.timeline,
                "forbidden": page.forbidden,
                "tensorboard": page.tensorboard,
            },
            "events": {"events": page.events},
        }
        view = self._sources.observation.view if self._sources.observation else None
        if view is None or self._uid not in view.jobs:
            contents["ranks"] = {"columns": page.ranks}
        for name, content in contents.items():
            if self._is_new(name, frame := encode({"type": name, "uid": self._uid, **content})):
                yield frame

    def _is_new(self, name: str, frame: bytes) -> bool:
        if self._sent.get(name) == frame:
            return False
        self._sent[name] = frame
        return True

    async def close(self) -> None:
        """The page may be read to its end: other tabs may wait for it."""
        if self._page is not None:
            self._page.cancel()
            await asyncio.gather(self._page, return_exceptions=True)


class LogTopic:
    """`logs:UID:REPLICA` or `logs:UID:*`: the last lines, then new ones."""

    interval = 0.25

    def __init__(self, job_uid: str, lines: LogLines) -> None:
        self._uid, self._lines = job_uid, lines

    def is_due(self) -> bool:
        """When lines have come, or were left out."""
        return self._lines.has_news

    def changed(self, job_uid: str) -> None:
        """New pods may have logs."""
        if job_uid == self._uid:
            self._lines.follow_pods()

    async def frames(self) -> AsyncIterator[bytes]:
        """The lines that wait, and the bytes of those that were left out before them."""
        lines, left_out = self._lines.take()
        if lines or left_out:  # not of a part of a line
            yield encode({"type": "log", "uid": self._uid, "lines": lines, "leftOut": left_out})

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
        if name == "devices":
            return DevicesTopic(self._sources)
        if name == "progress":
            return ProgressTopic(self._sources.progress, self._sources.observation, self._changed.set)
        if topic == "job" and rest:
            return JobTopic(self._sources, rest, self._changed.set)
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
            await self._send(encode(self._hello()))
            ping = time.monotonic() + PING_SECONDS
            while True:
                pause = await self._send_due_frames()
                now = time.monotonic()
                if now >= ping:
                    await self._send(encode({"type": "ping", "now": time.time()}))
                    ping = now + PING_SECONDS
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
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
            await self._send(encode(self._hello()))
        pauses = []
        for name, topic in list(self._topics.items()):
            if not topic.is_due():
                continue
            now = time.monotonic()
            if (pause := self._next_time[name] - now) > 0:
                pauses.append(pause)
                continue
            # At multiples of the interval, so that all tabs make their frames of one topic from the same state.
            self._next_time[name] = (now // topic.interval + 1) * topic.interval
            async for frame in topic.frames():
                await self._send(frame)
        return min(pauses, default=LOOK_SECONDS)
