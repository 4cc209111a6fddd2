"""Watches: sends the log's entries to the open watches as watch events.

Rules for this file:
- An event line is encoded once per entry, representation and event type, and shared by all watches.
- A listener gets an entry when it is committed, and its lines are sent in the next turn of the event loop: a burst of
  writes is one write to each socket. Many listeners are served in slices, the longest waiting first, and other tasks
  run in between; entries committed meanwhile are sent with the rest.
- With a selector, an object that stops matching is DELETED for that listener, one that starts to match is ADDED.
- A client that does not read is dropped (`is_slow` of the listener decides): it can watch again from its revision.
- A connection that breaks during a write ends only its own watch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from trainyard.objects import decode, encode
from trainyard.objects.structs import replace
from trainyard.server.model.errors import StatusError, too_old
from trainyard.server.model.requests import INITIAL_END, Watch
from trainyard.server.model.resources import DEFINITIONS
from trainyard.server.model.store import LogEntry
from trainyard.server.storage.log import Compacted, RevisionLog

log = logging.getLogger("trainyard.server")

BOOKMARK_SECONDS = 30.0
MAX_BUFFERED = 16 * 1024 * 1024
"""Unread bytes at which a watch is dropped."""
LAST_BOOKMARK_SECONDS = 2.0  # seconds before the end of a watch
CHUNK = 500  # past entries that are sent at a time
SLICE = 8  # listeners served per turn of the loop: a quarter of a millisecond


def event_line(watch: Watch, entry: LogEntry) -> bytes:
    """The event line of a watch for an entry; empty when the entry is not in its selection."""
    selection = watch.selection
    if selection.namespace and entry.key.namespace != selection.namespace:
        return b""
    before, now = entry.previous, entry.record
    if selection.is_unfiltered:
        matched_before, matches_now = before is not None, now is not None
    else:
        matched_before = before is not None and selection.matches(entry.key, before)
        matches_now = now is not None and selection.matches(entry.key, now)
    if not matched_before and not matches_now:
        return b""
    event_type = ("MODIFIED" if matched_before else "ADDED") if matches_now else "DELETED"
    cached = entry.encoded_events.get((watch.representation, event_type))
    if cached is None:
        cached = entry.encoded_events[watch.representation, event_type] = _line(
            event_type, _shown(watch, entry, event_type)
        )
    return cached


def _shown(watch: Watch, entry: LogEntry, event_type: str) -> bytes:
    if entry.record is None:
        body = entry.last_state
    elif event_type == "DELETED" and entry.previous is not None:
        # The object left the selection: its last matching state, with the revision of this change.
        obj = decode(entry.previous.body)
        body = encode({**obj, "metadata": {**obj["metadata"], "resourceVersion": str(entry.revision)}})
    else:
        body = entry.record.body
    return watch.encode(body) if watch.encode else body


def _line(event_type: str, body: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (event_type.encode(), body) if body else b""


def bookmark(watch: Watch, revision: int, initial_end: bool = False) -> bytes:
    """A BOOKMARK event: an object with only a resourceVersion, in the representation of the watch."""
    meta: dict[str, object] = {"resourceVersion": str(revision)}
    if initial_end:
        meta["annotations"] = {INITIAL_END: "true"}
    body = encode({"kind": watch.resource.kind, "apiVersion": watch.resource.api_version, "metadata": meta})
    return _line("BOOKMARK", watch.encode(body) if watch.encode else body)


def _error_line(refused: StatusError) -> bytes:
    return _line("ERROR", refused.body())


class Listener:
    """One open watch. `send` writes lines to the socket; `is_slow` returns whether too many bytes are unread."""

    def __init__(self, watch: Watch, send: Callable[[bytes], object], behind: Callable[[], bool]) -> None:
        self.watch, self.send, self.is_slow = watch, send, behind
        self.revision = watch.revision
        self.waiting: list[bytes] = []
        self.end_reason = ""
        """The reason to end the watch once the waiting lines are sent; "" to continue."""
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def line_for(self, entry: LogEntry) -> bytes:
        """The event line for that entry; empty when it is not in the selection."""
        line = event_line(self.watch, entry)
        if line and self.watch.later:
            self._use_later_form()
        return line

    def bookmark(self, revision: int, initial_end: bool = False) -> bytes:
        """The line of a BOOKMARK event at that revision."""
        line = bookmark(self.watch, revision, initial_end)
        self._use_later_form()
        return line

    def _use_later_form(self) -> None:
        """Switch to the representation of later events: a Table has its columns in the first event only."""
        if later := self.watch.later:
            self.watch = replace(self.watch, encode=later[0], representation=later[1], later=None)

    def end(self, why: str) -> None:
        """End the watch now; `why` is for the log. Further calls do nothing."""
        if not self.ended.done():
            self.ended.set_result(why)


class WatchHub:
    """All listeners, by the storage key of their resource."""

    def __init__(self, log: RevisionLog) -> None:
        self._log = log
        self._listeners: dict[str, dict[Listener, None]] = {}
        self._pending: deque[Listener] = deque()
        log.follow(self._on_entry, committed=True)  # there are no listeners yet, so existing objects are not sent

    def add(self, listener: Listener) -> None:
        """Send the events of the listener's resource to it from now on."""
        self._listeners.setdefault(listener.watch.resource.storage_key, {})[listener] = None

    def remove(self, listener: Listener) -> None:
        """Send no more events to the listener."""
        self._listeners.get(listener.watch.resource.storage_key, {}).pop(listener, None)

    def listener_count(self, store: str) -> int:
        """The number of listeners of that store."""
        return len(self._listeners.get(store, ()))

    def end_all(self, why: str) -> None:
        """End all watches; `why` is for the log."""
        for listener in self._all():
            listener.end(why)

    def past_lines(self, listener: Listener) -> list[bytes]:
        """The next lines of past entries; empty when there are none left, and then the listener is registered.

        More than `CHUNK` entries take several calls. The last call registers the listener, so that no entry is missed.
        """
        lines: list[bytes] = []
        while not lines:
            try:
                if listener.revision < listener.watch.resource.created_revision:
                    raise Compacted
                entries = self._log.after(listener.revision, CHUNK)
                # Later entries are sent when they are committed.
                entries = entries[: max(0, self._log.committed - listener.revision)]
            except Compacted:
                listener.end("expired")
                return [
                    _error_line(
                        too_old(listener.revision, max(self._log.floor, listener.watch.resource.created_revision))
                    )
                ]
            if not entries:
                self.add(listener)
                return []
            place = listener.watch.resource.storage_key
            lines = [line for entry in entries if entry.store == place and (line := listener.line_for(entry))]
            listener.revision = entries[-1].revision
            for entry in entries:
                entry.encoded_events.clear()
        return lines

    def send_bookmarks(self) -> None:
        """Send a bookmark to each watch that has allowWatchBookmarks and no event since the last committed
        revision."""
        revision = self._log.committed
        for listener in self._all():
            if listener.watch.bookmarks and listener.revision < revision and not listener.waiting:
                listener.revision = revision
                self._send(listener, listener.bookmark(revision))

    def send_last_bookmark(self, listener: Listener) -> None:
        """Send the last bookmark of a watch that is about to end, so that the next watch can start from it."""
        if listener in self._listeners.get(listener.watch.resource.storage_key, ()):
            line = listener.bookmark(self._log.committed)
            if listener.waiting:
                listener.waiting.append(line)
            else:
                self._send(listener, line)

    def _all(self) -> list[Listener]:
        return [listener for listeners in self._listeners.values() for listener in listeners]

    def _on_entry(self, entry: LogEntry) -> None:
        for listener in self._listeners.get(entry.store, ()):
            line = listener.line_for(entry)
            if line:
                if not listener.waiting:
                    if not self._pending:
                        asyncio.get_running_loop().call_soon(self._flush)
                    self._pending.append(listener)
                listener.waiting.append(line)
                listener.revision = entry.revision
        entry.encoded_events.clear()  # all listeners have it; later watches encode it again
        if entry.store == DEFINITIONS and entry.record is None:
            for listener in self._listeners.get(entry.key.name, ()):
                listener.end_reason = "the resource is gone"
                if not listener.waiting:
                    listener.end(listener.end_reason)

    def _flush(self) -> None:
        for _ in range(min(SLICE, len(self._pending))):
            listener = self._pending.popleft()
            lines, listener.waiting = listener.waiting, []
            self._send(listener, lines[0] if len(lines) == 1 else b"".join(lines))
            if listener.end_reason:
                listener.end(listener.end_reason)
        if self._pending:
            asyncio.get_running_loop().call_soon(self._flush)

    def _send(self, listener: Listener, lines: bytes) -> None:
        """Write to the socket. An error ends this watch and does not affect others."""
        try:
            reason = "slow" if listener.is_slow() else ""
            if not reason and not listener.ended.done():
                listener.send(lines)
        except Exception as error:  # a transport that is being closed can raise any exception
            log.debug("a watch failed resource=%s error=%r", listener.watch.resource.full_name, error)
            reason = "broken"
        if reason:
            self.remove(listener)
            listener.end(reason)
