"""Watches: the log's entries, told to whoever listens.

Rules for this file:
- A line is encoded once per entry, form and type, whoever gets it.
- A listener hears of an entry when it is settled, and is sent the lines when the loop comes round: a burst of writes is
  one write to each socket. Where many listen they are sent to in slices, the longest waiting first, and others get a
  turn in between; what is written then goes out with the rest.
- With a selector, an object that stops matching is DELETED for that listener, one that starts to match is ADDED.
- Who does not read is dropped (`behind` of the listener decides): he has a revision and can start again.
- A connection that breaks while it is written to ends its own watch and nobody else's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from trainyard.objects import decode, encode
from trainyard.objects.values import replace
from trainyard.server.errors import Refused, too_old
from trainyard.server.lists import INITIAL_END
from trainyard.server.log import Compacted, Entry, Log
from trainyard.server.requests import Watch
from trainyard.server.writes import DEFINITIONS

log = logging.getLogger("trainyard.server")

BOOKMARK_EVERY = 30.0
MOST_BUFFERED = 16 * 1024 * 1024
"""Bytes a watcher may leave unread before it is dropped."""
LAST_BOOKMARK = 2.0  # seconds before the end of a watch
CHUNK = 500  # entries of the past that are sent at a time
SLICE = 8  # listeners that are sent to at a time: a quarter of a millisecond


def line_of(watch: Watch, entry: Entry) -> bytes:
    """What a watch says of an entry, as a line; empty when it is none of its business."""
    wanted = watch.selection
    if wanted.namespace and entry.key.namespace != wanted.namespace:
        return b""
    before, now = entry.before, entry.now
    if wanted.everything:
        had, has = before is not None, now is not None
    else:
        had = before is not None and wanted.wants(entry.key, before)
        has = now is not None and wanted.wants(entry.key, now)
    if not had and not has:
        return b""
    word = ("MODIFIED" if had else "ADDED") if has else "DELETED"
    cached = entry.frames.get((watch.view, word))
    if cached is None:
        cached = entry.frames[watch.view, word] = _line(word, _shown(watch, entry, word))
    return cached


def _shown(watch: Watch, entry: Entry, word: str) -> bytes:
    if entry.now is None:
        body = entry.last
    elif word == "DELETED" and entry.before is not None:
        # It left the selection: the object as it was when it was last in it, with the number of this change.
        old = decode(entry.before.body)
        body = encode({**old, "metadata": {**old["metadata"], "resourceVersion": str(entry.revision)}})
    else:
        body = entry.now.body
    return watch.show(body) if watch.show else body


def _line(word: str, body: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (word.encode(), body) if body else b""


def bookmark(watch: Watch, revision: int, initial_end: bool = False) -> bytes:
    """You have seen everything up to here: an object that is nothing but its version, in the form of the others."""
    meta: dict[str, object] = {"resourceVersion": str(revision)}
    if initial_end:
        meta["annotations"] = {INITIAL_END: "true"}
    body = encode({"kind": watch.resource.kind, "apiVersion": watch.resource.api_version, "metadata": meta})
    return _line("BOOKMARK", watch.show(body) if watch.show else body)


def error_line(refused: Refused) -> bytes:
    return _line("ERROR", refused.body())


class Listener:
    """One open watch. `send` takes lines for the socket; `behind` says that the socket does not take them away."""

    def __init__(self, watch: Watch, send: Callable[[bytes], object], behind: Callable[[], bool]) -> None:
        self.watch, self.send, self.behind = watch, send, behind
        self.revision = watch.revision
        self.waiting: list[bytes] = []
        self.last = ""
        """Why it ends when what is waiting has been sent."""
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def hear(self, entry: Entry) -> bytes:
        """The line about that entry, empty when it is none of this watch's business."""
        line = line_of(self.watch, entry)
        if line and self.watch.later:
            self._told()
        return line

    def mark(self, revision: int, initial_end: bool = False) -> bytes:
        """The line that says how far the log is."""
        line = bookmark(self.watch, revision, initial_end)
        self._told()
        return line

    def _told(self) -> None:
        """What the first line has said, the later ones do not say again."""
        if later := self.watch.later:
            self.watch = replace(self.watch, show=later[0], view=later[1], later=None)

    def end(self, why: str) -> None:
        if not self.ended.done():
            self.ended.set_result(why)


class Hub:
    """All listeners, by the store they listen to."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._listeners: dict[str, dict[Listener, None]] = {}
        self._dirty: deque[Listener] = deque()
        log.follow(self._heard, settled=True)  # nobody listens yet, so what is there already tells nobody

    def add(self, listener: Listener) -> None:
        self._listeners.setdefault(listener.watch.resource.place, {})[listener] = None

    def remove(self, listener: Listener) -> None:
        self._listeners.get(listener.watch.resource.place, {}).pop(listener, None)

    def listening(self, store: str) -> int:
        """How many listen to that store."""
        return len(self._listeners.get(store, ()))

    def end_all(self, why: str) -> None:
        for listener in self._all():
            listener.end(why)

    def past(self, listener: Listener) -> list[bytes]:
        """The next lines of what has been missed; empty when there is none and the listener hears everything itself.

        Past `CHUNK` entries it may take several calls. The last one adds the listener, so that nothing falls between.
        """
        lines: list[bytes] = []
        while not lines:
            try:
                if listener.revision < listener.watch.resource.since:
                    raise Compacted
                entries = self._log.after(listener.revision, CHUNK)
                entries = entries[
                    : max(0, self._log.settled - listener.revision)
                ]  # the rest is told when it is settled
            except Compacted:
                listener.end("expired")
                return [error_line(too_old(listener.revision, max(self._log.floor, listener.watch.resource.since)))]
            if not entries:
                self.add(listener)
                return []
            place = listener.watch.resource.place
            lines = [line for entry in entries if entry.store == place and (line := listener.hear(entry))]
            listener.revision = entries[-1].revision
            for entry in entries:
                entry.frames.clear()
        return lines

    def bookmarks(self) -> None:
        """Tells everybody who wants to know, and has not heard anything since, how far the log is."""
        revision = self._log.settled
        for listener in self._all():
            if listener.watch.bookmarks and listener.revision < revision and not listener.waiting:
                listener.revision = revision
                self._tell(listener, listener.mark(revision))

    def last_mark(self, listener: Listener) -> None:
        """Its watch ends in a moment: from here on the next one can start."""
        if listener in self._listeners.get(listener.watch.resource.place, ()):
            line = listener.mark(self._log.settled)
            if listener.waiting:
                listener.waiting.append(line)
            else:
                self._tell(listener, line)

    def _all(self) -> list[Listener]:
        return [listener for listeners in self._listeners.values() for listener in listeners]

    def _heard(self, entry: Entry) -> None:
        for listener in self._listeners.get(entry.store, ()):
            line = listener.hear(entry)
            if line:
                if not listener.waiting:
                    if not self._dirty:
                        asyncio.get_running_loop().call_soon(self._flush)
                    self._dirty.append(listener)
                listener.waiting.append(line)
                listener.revision = entry.revision
        entry.frames.clear()  # everybody has it; a latecomer makes his own
        if entry.store == DEFINITIONS and entry.now is None:
            for listener in self._listeners.get(entry.key.name, ()):
                listener.last = "the resource is gone"
                if not listener.waiting:
                    listener.end(listener.last)

    def _flush(self) -> None:
        for _ in range(min(SLICE, len(self._dirty))):
            listener = self._dirty.popleft()
            lines, listener.waiting = listener.waiting, []
            self._tell(listener, lines[0] if len(lines) == 1 else b"".join(lines))
            if listener.last:
                listener.end(listener.last)
        if self._dirty:
            asyncio.get_running_loop().call_soon(self._flush)

    def _tell(self, listener: Listener, lines: bytes) -> None:
        """To the socket. What is wrong with one must not keep the others waiting."""
        try:
            why = "slow" if listener.behind() else ""
            if not why and not listener.ended.done():
                listener.send(lines)
        except Exception as error:  # a transport that is just being closed raises what it likes
            log.debug("a watch has broken resource=%s why=%r", listener.watch.resource.full_name, error)
            why = "broken"
        if why:
            self.remove(listener)
            listener.end(why)
