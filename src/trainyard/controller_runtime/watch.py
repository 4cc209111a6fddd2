"""A watch is a small machine that can be stepped by hand; `Feed` drives it against an API server.

    Empty --page, more to come--> Paging --last page--> Watching --410--> Empty
      |                             |  `--410 on any page--> Empty
      `--the only page--> Watching  `--lost--> the same page again

Rules for this file:
- `step` is pure: (state, what we got) -> (what the store should hear, next state).
- A relist replaces, it never merges, and a partial list is never told to anyone.
- A lost connection resumes exactly where it was. Only 410, or being refused again and again at one revision, lists
  again. A revision never goes backwards: a line we have had already is dropped.
- Nothing polls: the driver waits for bytes, or pauses after a failure, longer each time and never in step with others.
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
BREATH = 200  # events between two looks at what else the loop has to do
PATIENCE = 3  # refusals at one revision before it is given up and listed again
FIRST_PAUSE = 0.25  # seconds until a watch that failed is tried again; doubling
LONGEST_PAUSE = 8.0  # so that all is well ten seconds after the API server is back
PARKED_PAUSE = 30.0  # for a resource that is not there


# What a watch can be.


class Empty(msgspec.Struct, frozen=True):
    """Nothing is known: list from the first page."""


class Paging(msgspec.Struct, Generic[T], frozen=True):
    """Some pages are here, and `cont` asks for the next. `revision` is the first page's."""

    pages: tuple[tuple[T, ...], ...]
    revision: str
    cont: str
    refused: int = 0


class Watching(msgspec.Struct, frozen=True):
    """Everything up to `revision` has been told."""

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
    """410, as an answer or as a line: the server has forgotten that revision or that page."""


class Missing(msgspec.Struct, frozen=True):
    """404: the resource itself is not there, so it has no objects."""


class Refused(msgspec.Struct, frozen=True):
    """Any other error that the server said in words."""


class Lost(msgspec.Struct, frozen=True):
    """The connection ended or broke; nothing was said."""


Got: TypeAlias = Page[T] | Line[T] | Bookmark | Expired | Missing | Refused | Lost


# What a store hears.


class Replaced(msgspec.Struct, Generic[T], frozen=True):
    """This is all there is."""

    objs: tuple[T, ...]
    revision: str


class Changed(msgspec.Struct, Generic[T], frozen=True):
    verb: str
    obj: T
    revision: str


class Moved(msgspec.Struct, frozen=True):
    """Nothing happened up to this revision."""

    revision: str


Said: TypeAlias = Replaced[T] | Changed[T] | Moved


def step(state: State[T], got: Got[T]) -> tuple[Said[T] | None, State[T]]:
    """One move of a watch. The caller does the talking."""
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
    """True unless we can tell that `revision` is not after `known`. Revisions are numbers on every server we know."""
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
    """Drives one watch for ever: lists, watches, resumes, and tells `apply` what the machine says."""

    def __init__(
        self,
        api: Api,
        source: Source,
        view: View[T],
        apply: Callable[[Said[T]], None],
        unanswered: Callable[[Unavailable], None] = lambda error: None,
        refused: Callable[[str], None] = lambda why: None,
    ) -> None:
        """`unanswered` hears of each time that nobody answered, `refused` of each refusal that the server put in words;
        the feed tries again all the same."""
        self.source = source
        self.state: State[T] = Empty()
        self.why = ""  # what the last of them said, "" once a list or a watch is answered
        self.parked = False  # the resource is not there; it is asked for again
        self._api = api
        self._view = view
        self._apply = apply
        self._unanswered, self._refused = unanswered, refused
        self._backoff = StreamBackoff(FIRST_PAUSE, LONGEST_PAUSE)
        self._advanced = False  # the open stream has told a change
        self._exchange: asyncio.Task[float] | None = None

    @property
    def failures(self) -> int:
        """In a row, with no watch in between that advanced or lasted."""
        return self._backoff.failures

    @property
    def failing(self) -> bool:
        """More than once, and neither a list nor a watch has been let in since. (That shortens no pause: the watch may
        break again.)"""
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
        """Forget where we were and list again, now. Whatever list was on its way does not count."""
        log.warning("listing again resource=%s", self.source.gvk.plural)
        self.state = Empty()
        if self._exchange is not None:
            self._exchange.cancel()

    async def _once(self) -> float:
        """One exchange with the server: a page, or a watch until it ends. Returns the pause before the next."""
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
        except Exception:  # of whoever hears the changes: its task ends, and its supervisor runs it from a fresh list
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
        """Take in one line. Returns what broke the watch, if it did."""
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
        if isinstance(said, Changed):  # a bookmark is no use of a stream: a server could send one and hang up, for ever
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
