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
from trainyard.controller_runtime.view import View, cut_line, cut_list, read_bookmark, read_each, read_error
from trainyard.objects import GVK
from trainyard.objects.values import replace

log = logging.getLogger(__name__)

T = TypeVar("T")

PAGE = 500
BREATH = 200  # watch events handled before yielding to the event loop
PATIENCE = 3  # error answers at one resourceVersion before a relist
FIRST_PAUSE = 0.25  # seconds until a watch that failed is tried again; doubling
LONGEST_PAUSE = 8.0  # watches are retried within ten seconds after the API server is back
PARKED_PAUSE = 30.0  # the longest pause while the resource is not served (404)


# What a watch can be.


class Empty(msgspec.Struct, frozen=True):
    """Nothing is known: list from the first page."""


class Paging(msgspec.Struct, Generic[T], frozen=True):
    """A paginated list in progress; `cont` is the continue token of the next page. `revision` is the first page's."""

    pages: tuple[tuple[T, ...], ...]
    revision: str
    cont: str
    refused: int = 0


class Watching(msgspec.Struct, frozen=True):
    """The store has received everything up to the resourceVersion `revision`."""

    revision: str
    refused: int = 0


State: TypeAlias = Empty | Paging[T] | Watching


# What it can get.


class Page(msgspec.Struct, Generic[T], frozen=True):
    objs: tuple[T, ...]
    revision: str
    cont: str = ""


class Line(msgspec.Struct, Generic[T], frozen=True):
    verb: str
    obj: T
    revision: str


class Bookmark(msgspec.Struct, frozen=True):
    revision: str


class Expired(msgspec.Struct, frozen=True):
    """410 Gone, as an answer or an ERROR event: the resourceVersion or the continue token has expired."""


class Missing(msgspec.Struct, frozen=True):
    """404: the resource itself is not there, so it has no objects."""


class Refused(msgspec.Struct, frozen=True):
    """Any other error answer or ERROR event; answers of 429 and 503 are `Lost`."""


class Lost(msgspec.Struct, frozen=True):
    """The connection ended or broke, no answer came, or the server answered 429 or 503."""


Got: TypeAlias = Page[T] | Line[T] | Bookmark | Expired | Missing | Refused | Lost


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


Said: TypeAlias = Replaced[T] | Changed[T] | Moved


def step(state: State[T], got: Got[T]) -> tuple[Said[T] | None, State[T]]:
    """One transition, without I/O: the update for the store, if there is one, and the next state."""
    match state, got:
        case Empty(), Page(objs, revision, ""):
            return Replaced(objs, revision), Watching(revision)
        case Empty(), Page(objs, revision, cont):
            return None, Paging((objs,), revision, cont)
        case Paging(pages, first), Page(objs, _, ""):
            return Replaced(tuple(obj for page in (*pages, objs) for obj in page), first), Watching(first)
        case Paging(pages, first), Page(objs, _, cont):
            return None, Paging((*pages, objs), first, cont)
        case Watching(known), Line("ADDED" | "MODIFIED" | "DELETED" as verb, obj, revision):
            if not newer(revision, known):
                return None, state
            return Changed(verb, obj, revision), Watching(revision)
        case Watching(known), Bookmark(revision):
            return (Moved(revision), Watching(revision)) if newer(revision, known) else (None, state)
        case _, Expired():
            return None, Empty()
        case Watching(), Missing():
            return None, Empty()
        case _, Missing():
            return Replaced((), ""), Empty()
        case ((Watching() | Paging()), Refused()):
            if state.refused + 1 >= PATIENCE:
                return None, Empty()
            return None, replace(state, refused=state.refused + 1)
    return None, state  # lost, an unknown verb: reconnect exactly where we were


def newer(revision: str, known: str) -> bool:
    """True unless `revision` is known not to be newer. Two decimal resourceVersions are compared as numbers."""
    if revision.isdecimal() and known.isdecimal():
        return int(revision) > int(known)
    return revision != known


class Source(msgspec.Struct, frozen=True):
    """What to watch. `optional`: the resource may not exist, which then means that there are no objects of it."""

    gvk: GVK
    namespace: str = ""
    which: Selection = EVERYTHING
    optional: bool = False

    @property
    def name(self) -> str:
        """The resource as kubectl spells it: "pods", "tfjobs.v1.kubeflow.org"."""
        return f"{self.gvk.plural}.{self.gvk.version}.{self.gvk.group}" if self.gvk.group else self.gvk.plural


class Feed(Generic[T]):
    """A reflector of one resource: lists, watches, resumes, and calls `apply` with each update for the store."""

    def __init__(
        self,
        api: Api,
        source: Source,
        view: View[T],
        apply: Callable[[Said[T]], None],
        unanswered: Callable[[Unavailable], None] = lambda error: None,
        refused: Callable[[str], None] = lambda why: None,
    ) -> None:
        """`unanswered` is called when a request gets no answer, `refused` with the message of a 4xx answer (not of 408,
        410, 429, nor 404 of an optional resource). The request is retried in any case."""
        self.source = source
        self.state: State[T] = Empty()
        self.why = ""  # the last error, "" once a list or a watch request is accepted
        self.parked = False  # the resource is not served (404); the list is retried
        self._api = api
        self._view = view
        self._apply = apply
        self._unanswered, self._refused = unanswered, refused
        self._backoff = StreamBackoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._advanced = False  # the open stream has told a change
        self._exchange: asyncio.Task[float] | None = None

    @property
    def failures(self) -> int:
        """The number of consecutive failures, with no successful watch in between (see StreamBackoff)."""
        return self._backoff.failures

    @property
    def failing(self) -> bool:
        """True after two or more consecutive failures, while no list or watch request has been accepted since. (An
        accepted watch request alone does not reset the back-off: the watch may break again.)"""
        return self.failures > 1 and self.why != ""

    async def run(self) -> None:
        """Until cancelled. Raises whatever `apply` raises; the next run begins with a list."""
        while True:
            self._exchange = asyncio.create_task(self._once())
            try:
                await asyncio.wait((self._exchange,))
            finally:
                self._exchange.cancel()
                await asyncio.gather(self._exchange, return_exceptions=True)
            pause = 0.0 if self._exchange.cancelled() else self._exchange.result()
            await asyncio.sleep(pause)

    def relist(self) -> None:
        """Cancel the list or watch in progress, forget its resourceVersion, and list again now."""
        log.warning("listing again resource=%s", self.source.gvk.plural)
        self.state = Empty()
        if self._exchange is not None:
            self._exchange.cancel()

    async def _once(self) -> float:
        """One request: a page of a list, or a watch until it ends. Returns the seconds to wait before the next."""
        try:
            if isinstance(self.state, Watching):
                return await self._watch(self.state.revision)
            await self._page()
            return 0.0
        except Gone:
            return self._failed(Expired(), "410")
        except NotFound as error:
            if not self.source.optional:
                self._refused(str(error))
            return self._failed(Missing() if self.source.optional else Refused(), error)
        except Unavailable as error:
            if not error.code:
                self._unanswered(error)
            answered = error.code not in (0, 429, 503)
            return self._failed(Refused() if answered else Lost(), error, error.retry_after)
        except ApiError as error:
            self._refused(str(error))
            return self._failed(Refused(), error)
        except Exception:  # raised by `apply`: this task ends, and its supervisor restarts it with a list
            self.state = Empty()
            raise

    async def _page(self) -> None:
        cont = self.state.cont if isinstance(self.state, Paging) else ""
        source = self.source
        body = await self._api.list_bytes(source.gvk, source.namespace, source.which, PAGE, cont)
        raws, revision, following = cut_list(body)
        self._take(Page(tuple(read_each(self._view, raws, source.gvk.plural)), revision, following))

    async def _watch(self, revision: str) -> float:
        """Read one watch to its end."""
        source = self.source
        clock = asyncio.get_running_loop().time
        began = clock()
        count, self._advanced = 0, False
        which = source.which
        lines = self._api.watch(
            source.gvk, source.namespace, revision, which.label_selector, which.field_selector, self._answered
        )
        async with aclosing(lines):
            async for line in lines:
                if (broken := self._line(line)) is not None:
                    return self._failed(broken, line[:200])
                count += 1
                if count % BREATH == 0:
                    await asyncio.sleep(0)
        failures = self.failures
        pause = self._backoff.closed(clock() - began, self._advanced)
        if pause is None:
            return self._failed(Lost(), "the watch ended at once")
        self._back(failures)
        return pause

    def _line(self, line: bytes) -> Got[T] | None:
        """Handle one watch event. Returns Expired or Refused for an ERROR event, else None."""
        verb, raw = cut_line(line)
        if verb == "ERROR":
            code, _ = read_error(raw)
            return Expired() if code == 410 else Refused()
        if verb == "BOOKMARK":
            self._take(Bookmark(read_bookmark(raw)))
        else:
            for obj in read_each(self._view, [raw], self.source.gvk.plural):
                self._take(Line(verb, obj, self._view.revision(obj)))
        return None

    def _take(self, got: Got[T]) -> None:
        said, self.state = step(self.state, got)
        if isinstance(got, Page):
            self._answered()
        self.parked = isinstance(got, Missing) or (self.parked and not isinstance(got, Page))
        if said is not None:
            self._apply(said)
        if isinstance(said, Changed):  # not on a bookmark: a server could send one and close, again and again
            self._advanced = True
            self._alive()

    def _answered(self) -> None:
        self.why = ""

    def _alive(self) -> None:
        failures = self.failures
        self._backoff.reset()
        self._back(failures)

    def _back(self, failures: int) -> None:
        self.why = ""
        if failures:
            log.info("watch is back resource=%s after=%d", self.source.gvk.plural, failures)

    def _failed(self, got: Got[T], why: object, retry_after: float | None = None) -> float:
        self._take(got)
        pause = self._backoff.failed(retry_after, PARKED_PAUSE if isinstance(got, Missing) else LONGEST_PAUSE)
        self.why = str(why)
        level = logging.WARNING if self.failures in (1, 10) else logging.DEBUG
        log.log(level, "watch failed resource=%s tries=%d why=%s", self.source.gvk.plural, self.failures, why)
        return pause
