"""The newest lines of the logs of a job, for open pages: bounded, and what does not fit is counted.

Rules:
- A run of a container is followed once, however many pages show it (LogStreams).
- Of what comes faster than pages are sent, a Trainyard node sends the end alone, and only the end is split into lines.
  So a program that prints as fast as it can costs the process that serves the page less than `kubectl logs -f`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from itertools import count
from typing import NamedTuple

from trainyard.client import ApiClient, ApiError, Unavailable
from trainyard.objects import Json, name_of, namespace_of, uid_of
from trainyard.objects.container_statuses import container_statuses
from trainyard.objects.log_files import LEFT_OUT, LEFT_OUT_PREFIX
from trainyard.views.output_lines import OutputLineSplitter
from trainyard.views.replica_view import replica_view

MAX_LINES = 500  # lines of one frame, and lines kept of each log
MAX_LINE_CHARACTERS = 4000
MAX_STREAMS = 64  # logs that a page follows at one time
FIRST_LINES = 200  # lines of each log before the new ones; fewer where there are many replicas
RETRY_SECONDS = 1.0
SMALL_CHUNK = 1 << 12  # bytes; such a chunk is split when it comes, so that lines of several logs keep their order
MAX_WAITING = 1 << 17  # bytes that wait for the next frame; of more the oldest are left out

_Key = tuple[str, str, int, int]  # the pod's uid, the container, its run, and the lines of the log to begin with


class _Line(NamedTuple):
    """`order`: its place among the lines of all logs. `begin`: of the bytes of its log that were split, without those
    that were left out."""

    order: int
    begin: int
    text: str


class LogStream:
    """One run of a container. `lines`: the newest; `split`: bytes that were split into lines; `left_out`: bytes that
    were not. `readers`: those that show it."""

    def __init__(self, replica: str, order: count[int]) -> None:
        self.replica = replica
        self.readers: set[LogLines] = set()
        self.lines: deque[_Line] = deque(maxlen=MAX_LINES)
        self.split = self.left_out = 0
        self.following: asyncio.Future[None] | None = None
        self._order = order
        self._waiting: deque[bytes] = deque()
        self._waiting_size = 0
        self._at_once = 0  # lines that were split off when they came, since a page took some
        self._splitter = OutputLineSplitter()
        self._begins_within_line = False

    @property
    def is_live(self) -> bool:
        """Whether more may come."""
        return self.following is not None and not self.following.done()

    def receive(self, chunk: bytes) -> None:
        """What the log has grown by."""
        if LEFT_OUT_PREFIX in chunk and (note := LEFT_OUT.search(chunk)) is not None:
            self._leave_out(self._waiting_size + note.end() - len(note[0]) + int(note[1]))
            self._waiting.clear()
            self._waiting_size, chunk = 0, chunk[note.end() :]
        self._waiting.append(chunk)
        self._waiting_size += len(chunk)
        if self._waiting_size <= SMALL_CHUNK and self._at_once < MAX_LINES:
            lines = self._split_waiting()
            self._at_once += lines
            if not lines:
                return
        while self._waiting_size > MAX_WAITING and len(self._waiting) > 1:
            self._leave_out(len(dropped := self._waiting.popleft()))
            self._waiting_size -= len(dropped)
        self._notify()

    def finish(self) -> None:
        """The container has ended."""
        self._split_waiting()
        self._add(self._splitter.finish())
        self._notify()

    def say(self, text: str) -> None:
        """Add a line that is not of the log."""
        self._add([text.encode()])
        self._notify()

    def split_waiting(self) -> None:
        """Turn what waits into lines, for a page that takes them."""
        self._at_once = 0
        self._split_waiting()

    def _split_waiting(self) -> int:
        """Returns the number of lines; of too many the last ones are kept."""
        text = b"".join(self._waiting)
        self._waiting.clear()
        self._waiting_size = 0
        last = text.rsplit(b"\n", MAX_LINES + 1)
        begin = len(last[0]) + 1 if len(last) > MAX_LINES + 1 else 0
        if begin == 0 and self._begins_within_line:
            begin = text.find(b"\n") + 1 or len(text)
        if begin:
            self._leave_out(begin)
            text = text[begin:]
            self._begins_within_line = text == b"" and last[-1] != b""
        lines = self._splitter.feed(text)
        self._add(lines)
        self.split += len(text)
        return len(lines)

    def _leave_out(self, size: int) -> None:
        self.left_out += size
        self._splitter, self._begins_within_line = OutputLineSplitter(), True

    def _add(self, lines: list[bytes]) -> None:
        begin = self.split
        for line in lines:
            text = line[: 4 * MAX_LINE_CHARACTERS].decode("utf-8", "replace")[:MAX_LINE_CHARACTERS]
            self.lines.append(_Line(next(self._order), begin, text))
            begin += len(line) + 1

    def _notify(self) -> None:
        for reader in self.readers:
            reader.notice()


class LogStreams:
    """The logs that are followed, each once for all pages that show it."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._streams: dict[_Key, LogStream] = {}
        self.order = count()

    def open(self, key: _Key, pod: Json, tail: int | None, *, previous: bool, reader: LogLines) -> LogStream:
        """The stream of a run, which is followed from now on. `tail`: the lines to begin with, None for all;
        `previous`: the run is the one before."""
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = LogStream(replica_view(pod).name, self.order)
            stream.following = asyncio.ensure_future(self._follow(stream, pod, key[1], tail, previous=previous))
        stream.readers.add(reader)
        return stream

    async def close(self, keys: list[_Key], reader: LogLines) -> None:
        """A page shows these no more. What none shows is not followed."""
        ended = []
        for key in keys:
            stream = self._streams[key]
            stream.readers.discard(reader)
            if not stream.readers and stream.following is not None:
                del self._streams[key]
                stream.following.cancel()
                ended.append(stream.following)
        await asyncio.gather(*ended, return_exceptions=True)

    async def _follow(self, stream: LogStream, pod: Json, container: str, tail: int | None, *, previous: bool) -> None:
        where = namespace_of(pod), name_of(pod), container
        while True:
            try:
                logs = self._api.logs(
                    *where, follow=not previous, previous=previous, tail_lines=tail, newest_bytes=MAX_WAITING
                )
                async with aclosing(logs) as chunks:
                    async for chunk in chunks:
                        stream.receive(chunk)
                stream.finish()
                return
            except Unavailable:
                tail = 0  # what was written meanwhile is in the whole log
                await asyncio.sleep(RETRY_SECONDS)
            except ApiError as error:
                stream.say(f"(its log cannot be shown: {error.message})")
                return


class _Place:
    """How far one page has read a stream. `first_lines`: the newest ones that it begins with."""

    def __init__(self, stream: LogStream, first_lines: int) -> None:
        stream.split_waiting()
        self.stream = stream
        newest = list(stream.lines)[-first_lines:]
        self._last = newest[0].order - 1 if newest else -1  # the order of the last line that was taken
        self._split = newest[0].begin if newest else stream.split
        self._left_out = stream.left_out

    def take(self) -> tuple[list[_Line], int]:
        """The lines after those that were taken, and the bytes of lines that were lost."""
        stream = self.stream
        stream.split_waiting()
        lines = [line for line in stream.lines if line.order > self._last]
        lost = stream.left_out - self._left_out
        if lines and len(lines) == len(stream.lines):  # those between may be gone
            lost += max(0, lines[0].begin - self._split)
        self._last = lines[-1].order if lines else self._last
        self._split, self._left_out = stream.split, stream.left_out
        return lines, lost


class LogLines:
    """What one page shows: the containers of the pods that `pods` returns. `replica`: the one whose pods are followed,
    "*" for all. `on_news` is called when there is something to take."""

    def __init__(self, streams: LogStreams, pods: Callable[[], list[Json]], replica: str) -> None:
        self.on_news: Callable[[], None] = lambda: None
        self.has_news = False
        """Whether `take` returns something."""
        self._streams, self._pods, self._replica = streams, pods, replica
        self._places: dict[_Key, _Place] = {}
        self._notes: list[_Line] = []
        self._says_left_out = False
        self.follow_pods()

    def notice(self) -> None:
        """A stream has grown. The page is woken once until it takes the lines."""
        if not self.has_news:
            self.has_news = True
            self.on_news()

    def take(self) -> tuple[list[tuple[str, str]], int]:
        """At most MAX_LINES lines that wait, as (replica, text), and the number of bytes of those that are left out."""
        self.has_news = False
        taken = [("*", note) for note in self._notes]
        self._notes, left_out = [], 0
        for place in self._places.values():
            lines, lost = place.take()
            left_out += lost
            taken += [(place.stream.replica, line) for line in lines]
        taken.sort(key=lambda pair: pair[1].order)
        left_out += sum(len(line.text) + 1 for _, line in taken[:-MAX_LINES])
        return [(replica, line.text) for replica, line in taken[-MAX_LINES:]], left_out

    def follow_pods(self) -> None:
        """Follow the runs of containers that have begun since."""
        chosen = [pod for pod in self._pods() if self._replica in ("*", replica_view(pod).name)]
        first_lines = max(1, FIRST_LINES // max(1, len(chosen)))
        for pod in chosen:
            for container in container_statuses(pod.get("status")):
                has_begun = container.state("running") is not None or container.state("terminated") is not None
                run = container.restarts if has_begun else container.restarts - 1  # waiting: the run before
                known = {key[2] for key in self._places if key[:2] == (uid_of(pod), container.name)}
                if run < 0 or run in known:
                    continue
                if sum(place.stream.is_live for place in self._places.values()) >= MAX_STREAMS:
                    self._say_left_out()
                    return
                key = (uid_of(pod), container.name, run, first_lines)
                tail = None if known else first_lines
                stream = self._streams.open(key, pod, tail, previous=not has_begun, reader=self)
                self._places[key] = _Place(stream, MAX_LINES if known else first_lines)
                if stream.lines:
                    self.notice()

    def _say_left_out(self) -> None:
        if not self._says_left_out:
            self._says_left_out = True
            text = f"(more than {MAX_STREAMS} logs: open a replica to see the others)"
            self._notes.append(_Line(next(self._streams.order), 0, text))
            self.notice()

    async def close(self) -> None:
        """End what is followed for this page alone."""
        await self._streams.close(list(self._places), self)
