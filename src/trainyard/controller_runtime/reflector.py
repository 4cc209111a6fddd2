"""A reflector: `step` is the pure state machine of list and watch, `Feed` runs it against an API server.

    Empty --page, more to come--> Paging --last page--> Watching --410--> Empty
      |                             |  `--410 on any page--> Empty
      `--the only page--> Watching  `--lost--> the same page again

Rules for this file:
- `step` is pure: (state, input from the server) -> (update for the store, next state).
- A relist replaces the store's content, it never merges, and only a complete list reaches the store.
- After a lost connection the watch resumes at its resourceVersion, a list at its continue token. A relist follows only
  410, 404 of an optional resource, or PATIENCE error answers at one resourceVersion. An event that is not newer than
  the known resourceVersion is dropped.
- Nothing polls: `Feed` waits for watch events, or pauses after a failure (exponential back-off with jitter).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Generic, TypeAlias, TypeVar

import msgspec

from trainyard.client import Api, ApiError, Gone, NotFound, Selection, Unavailable
from trainyard.client.request import EVERYTHING
from trainyard.controller_runtime.backoff import StreamBackoff
from trainyard.controller_runtime.object_adapter import (
    ObjectAdapter,
    decode_each,
    read_bookmark,
    read_error,
    split_list,
    split_watch_event,
)
from trainyard.objects import GVK
from trainyard.objects.values import replace

log = logging.getLogger(__name__)

T = TypeVar("T")

PAGE_SIZE = 500
EVENTS_PER_YIELD = 200  # watch events handled before yielding to the event loop
MOST_ERRORS = 3  # error answers at one resourceVersion before a relist
FIRST_PAUSE = 0.25  # seconds until a watch that failed is tried again; doubling
LONGEST_PAUSE = 8.0  # watches are retried within ten seconds after the API server is back
NOT_SERVED_PAUSE = 30.0  # the longest pause while the resource is not served (404)


# What a watch can be.


class NotListed(msgspec.Struct, frozen=True):
    """Nothing is known: list from the first page."""


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """A paginated list in progress; `cont` is the continue token of the next page. `revision` is the first page's."""

    pages: tuple[tuple[T, ...], ...]
    revision: str
    continue_token: str
    errors: int = 0


class Watching(msgspec.Struct, frozen=True):
    """The store has received everything up to the resourceVersion `revision`."""

    revision: str
    errors: int = 0


State: TypeAlias = NotListed | Listing[T] | Watching


# What it can get.


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    objs: tuple[T, ...]
    revision: str
    continue_token: str = ""


class ObjectEvent(msgspec.Struct, Generic[T], frozen=True):
    type: str
    obj: T
    revision: str


class Bookmark(msgspec.Struct, frozen=True):
    revision: str


class Expired(msgspec.Struct, frozen=True):
    """410 Gone, as an answer or an ERROR event: the resourceVersion or the continue token has expired."""


class NotServed(msgspec.Struct, frozen=True):
    """404: the resource itself is not there, so it has no objects."""


class ErrorAnswer(msgspec.Struct, frozen=True):
    """Any other error answer or ERROR event; answers of 429 and 503 are `Lost`."""


class Disconnected(msgspec.Struct, frozen=True):
    """The connection ended or broke, no answer came, or the server answered 429 or 503."""


WatchInput: TypeAlias = ListPage[T] | ObjectEvent[T] | Bookmark | Expired | NotServed | ErrorAnswer | Disconnected


# What a store hears.


class Replaced(msgspec.Struct, Generic[T], frozen=True):
    """A complete list: it replaces the content of the store."""

    objs: tuple[T, ...]
    revision: str


class Changed(msgspec.Struct, Generic[T], frozen=True):
    verb: str
    obj: T
    revision: str


class Moved(msgspec.Struct, frozen=True):
    """A bookmark: no further change up to this resourceVersion."""

    revision: str


StoreEvent: TypeAlias = Replaced[T] | Changed[T] | Moved


def step(state: State[T], got: WatchInput[T]) -> tuple[StoreEvent[T] | None, State[T]]:
    """One transition, without I/O: the update for the store, if there is one, and the next state."""
    match state, got:
        case NotListed(), ListPage(objs, revision, ""):
            return Replaced(objs, revision), Watching(revision)
        case NotListed(), ListPage(objs, revision, cont):
            return None, Listing((objs,), revision, cont)
        case Listing(pages, first), ListPage(objs, _, ""):
            return Replaced(tuple(obj for page in (*pages, objs) for obj in page), first), Watching(first)
        case Listing(pages, first), ListPage(objs, _, cont):
            return None, Listing((*pages, objs), first, cont)
        case Watching(known), ObjectEvent("ADDED" | "MODIFIED" | "DELETED" as verb, obj, revision):
            if not is_newer(revision, known):
                return None, state
            return Changed(verb, obj, revision), Watching(revision)
        case Watching(known), Bookmark(revision):
            return (Moved(revision), Watching(revision)) if is_newer(revision, known) else (None, state)
        case _, Expired():
            return None, NotListed()
        case Watching(), NotServed():
            return None, NotListed()
        case _, NotServed():
            return Replaced((), ""), NotListed()
        case ((Watching() | Listing()), ErrorAnswer()):
            if state.errors + 1 >= MOST_ERRORS:
                return None, NotListed()
            return None, replace(state, errors=state.errors + 1)
    return None, state  # lost, an unknown verb: reconnect exactly where we were


def is_newer(revision: str, known: str) -> bool:
    """True unless `revision` is known not to be newer. Two decimal resourceVersions are compared as numbers."""
    if revision.isdecimal() and known.isdecimal():
        return int(revision) > int(known)
    return revision != known


class WatchTarget(msgspec.Struct, frozen=True):
    """What to watch. `optional`: the resource may not exist, which then means that there are no objects of it."""

    gvk: GVK
    namespace: str = ""
    selection: Selection = EVERYTHING
    optional: bool = False

    @property
    def name(self) -> str:
        """The resource as kubectl spells it: "pods", "tfjobs.v1.kubeflow.org"."""
        return f"{self.gvk.plural}.{self.gvk.version}.{self.gvk.group}" if self.gvk.group else self.gvk.plural


class Reflector(Generic[T]):
    """A reflector of one resource: lists, watches, resumes, and calls `apply` with each update for the store."""

    def __init__(
        self,
        api: Api,
        target: WatchTarget,
        adapter: ObjectAdapter[T],
        apply: Callable[[StoreEvent[T]], None],
        on_unanswered: Callable[[Unavailable], None] = lambda error: None,
        on_refused: Callable[[str], None] = lambda why: None,
    ) -> None:
        """`unanswered` is called when a request gets no answer, `refused` with the message of a 4xx answer (not of 408,
        410, 429, nor 404 of an optional resource). The request is retried in any case."""
        self.target = target
        self.state: State[T] = NotListed()
        self.last_error = ""  # the last error, "" once a list or a watch request is accepted
        self.not_served = False  # the resource is not served (404); the list is retried
        self._api = api
        self._adapter = adapter
        self._apply = apply
        self._on_unanswered, self._on_refused = on_unanswered, on_refused
        self._backoff = StreamBackoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._advanced = False  # the open stream has told a change
        self._request: asyncio.Task[float] | None = None

    @property
    def failures(self) -> int:
        """The number of consecutive failures, with no successful watch in between (see StreamBackoff)."""
        return self._backoff.failures

    @property
    def failing(self) -> bool:
        """True after two or more consecutive failures, while no list or watch request has been accepted since. (An
        accepted watch request alone does not reset the back-off: the watch may break again.)"""
        return self.failures > 1 and self.last_error != ""

    async def run(self) -> None:
        """Until cancelled. Raises whatever `apply` raises; the next run begins with a list."""
        while True:
            self._request = asyncio.create_task(self._list_or_watch())
            try:
                await asyncio.wait((self._request,))
            finally:
                self._request.cancel()
                await asyncio.gather(self._request, return_exceptions=True)
            pause = 0.0 if self._request.cancelled() else self._request.result()
            await asyncio.sleep(pause)

    def relist(self) -> None:
        """Cancel the list or watch in progress, forget its resourceVersion, and list again now."""
        log.warning("listing again resource=%s", self.target.gvk.plural)
        self.state = NotListed()
        if self._request is not None:
            self._request.cancel()

    async def _list_or_watch(self) -> float:
        """One request: a page of a list, or a watch until it ends. Returns the seconds to wait before the next."""
        try:
            if isinstance(self.state, Watching):
                return await self._watch(self.state.revision)
            await self._list_page()
            return 0.0
        except Gone:
            return self._failed(Expired(), "410")
        except NotFound as error:
            if not self.target.optional:
                self._on_refused(str(error))
            return self._failed(NotServed() if self.target.optional else ErrorAnswer(), error)
        except Unavailable as error:
            if not error.code:
                self._on_unanswered(error)
            answered = error.code not in (0, 429, 503)
            return self._failed(ErrorAnswer() if answered else Disconnected(), error, error.retry_after)
        except ApiError as error:
            self._on_refused(str(error))
            return self._failed(ErrorAnswer(), error)
        except Exception:  # raised by `apply`: this task ends, and its supervisor restarts it with a list
            self.state = NotListed()
            raise

    async def _list_page(self) -> None:
        cont = self.state.continue_token if isinstance(self.state, Listing) else ""
        source = self.target
        body = await self._api.list_bytes(source.gvk, source.namespace, source.selection, PAGE_SIZE, cont)
        raws, revision, following = split_list(body)
        self._transition(ListPage(tuple(decode_each(self._adapter, raws, source.gvk.plural)), revision, following))

    async def _watch(self, revision: str) -> float:
        """Read one watch to its end."""
        source = self.target
        clock = asyncio.get_running_loop().time
        began = clock()
        count, self._advanced = 0, False
        which = source.selection
        lines = self._api.watch(
            source.gvk, source.namespace, revision, which.label_selector, which.field_selector, self._answered
        )
        async with aclosing(lines):
            async for line in lines:
                if (broken := self._handle_line(line)) is not None:
                    return self._failed(broken, line[:200])
                count += 1
                if count % EVENTS_PER_YIELD == 0:
                    await asyncio.sleep(0)
        failures = self.failures
        pause = self._backoff.closed(clock() - began, self._advanced)
        if pause is None:
            return self._failed(Disconnected(), "the watch ended at once")
        self._log_recovery(failures)
        return pause

    def _handle_line(self, line: bytes) -> WatchInput[T] | None:
        """Handle one watch event. Returns Expired or Refused for an ERROR event, else None."""
        verb, raw = split_watch_event(line)
        if verb == "ERROR":
            code, _ = read_error(raw)
            return Expired() if code == 410 else ErrorAnswer()
        if verb == "BOOKMARK":
            self._transition(Bookmark(read_bookmark(raw)))
        else:
            for obj in decode_each(self._adapter, [raw], self.target.gvk.plural):
                self._transition(ObjectEvent(verb, obj, self._adapter.revision(obj)))
        return None

    def _transition(self, got: WatchInput[T]) -> None:
        said, self.state = step(self.state, got)
        if isinstance(got, ListPage):
            self._answered()
        self.not_served = isinstance(got, NotServed) or (self.not_served and not isinstance(got, ListPage))
        if said is not None:
            self._apply(said)
        if isinstance(said, Changed):  # not on a bookmark: a server could send one and close, again and again
            self._advanced = True
            self._progressed()

    def _answered(self) -> None:
        self.last_error = ""

    def _progressed(self) -> None:
        failures = self.failures
        self._backoff.reset()
        self._log_recovery(failures)

    def _log_recovery(self, failures: int) -> None:
        self.last_error = ""
        if failures:
            log.info("watch is back resource=%s after=%d", self.target.gvk.plural, failures)

    def _failed(self, got: WatchInput[T], why: object, retry_after: float | None = None) -> float:
        self._transition(got)
        pause = self._backoff.failed(retry_after, NOT_SERVED_PAUSE if isinstance(got, NotServed) else LONGEST_PAUSE)
        self.last_error = str(why)
        level = logging.WARNING if self.failures in (1, 10) else logging.DEBUG
        log.log(level, "watch failed resource=%s tries=%d why=%s", self.target.gvk.plural, self.failures, why)
        return pause
