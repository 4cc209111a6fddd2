"""The reflector: `step` is the pure state machine of list and watch, `Reflector` runs it against an API server.

    NotListed --first page of several--> Listing --last page--> Watching --410--> NotListed
      |                                   |  `--410 on any page--> NotListed
      `--the only page--> Watching        `--connection lost--> Listing, same page

Rules for this file:
- `step` is pure: (state, input from the server) -> (update for the store, next state).
- A relist replaces the store's content, it never merges, and only a complete list is passed to the store.
- After a lost connection the watch resumes at its resourceVersion, a list at its continue token. A relist follows only
  410, 404 of an optional resource, or MAX_ERROR_ANSWERS error answers at one resourceVersion. An event that is not
  newer than the known resourceVersion is dropped.
- Nothing polls: `Reflector` waits for watch events, or pauses after a failure (exponential back-off with jitter).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Generic, TypeAlias, TypeVar

import msgspec

from trainyard.client import ApiClient, ApiError, Gone, NotFound, Selectors, Unavailable
from trainyard.client.request import ALL_OBJECTS
from trainyard.controller_runtime.backoff import WatchBackoff
from trainyard.controller_runtime.heap import trim_heap
from trainyard.controller_runtime.object_adapter import (
    ObjectAdapter,
    decode_bookmark,
    decode_list_page,
    decode_objects,
    decode_status,
    decode_watch_event,
)
from trainyard.objects import GVK
from trainyard.objects.structs import replace

log = logging.getLogger(__name__)

T = TypeVar("T")

PAGE_SIZE = 500  # objects of one page of a list (`limit`)
EVENTS_PER_YIELD = 200  # watch events handled before yielding to the event loop
MAX_ERROR_ANSWERS = 3  # error answers at one resourceVersion before a relist
INITIAL_DELAY = 0.25  # seconds until a watch that failed is tried again; doubling
MAX_DELAY = 8.0  # watches are retried within ten seconds after the API server is back
NOT_SERVED_MAX_DELAY = 30.0  # the longest pause while the resource is not served (404)


# The states of a reflector.


class NotListed(msgspec.Struct, frozen=True):
    """The next request is a list, from its first page."""


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """A paginated list in progress. `pages` are those received; `revision` is the resourceVersion of the first;
    `continue_token` is that of the next page; `errors` counts consecutive error answers."""

    pages: tuple[tuple[T, ...], ...]
    revision: str
    continue_token: str
    errors: int = 0


class Watching(msgspec.Struct, frozen=True):
    """The next request is a watch from the resourceVersion `revision`: the store has received everything up to it.
    `errors` counts the error answers since it last advanced."""

    revision: str
    errors: int = 0


ReflectorState: TypeAlias = NotListed | Listing[T] | Watching


# The inputs of `step`: what a list or a watch request returns.


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list: its objects, its resourceVersion, and the continue token ("" on the last page)."""

    objs: tuple[T, ...]
    revision: str
    continue_token: str = ""


class ObjectEvent(msgspec.Struct, Generic[T], frozen=True):
    """A watch event other than BOOKMARK and ERROR, as received: it may be old or of an unknown type. `type` is the
    event type (ADDED, MODIFIED, DELETED), `revision` the object's resourceVersion. If it is new, `step` returns
    `ObjectChanged`."""

    type: str
    obj: T
    revision: str


class Bookmark(msgspec.Struct, frozen=True):
    """A BOOKMARK event as received, with its resourceVersion. If that is new, `step` returns `RevisionAdvanced`."""

    revision: str


class Expired(msgspec.Struct, frozen=True):
    """410 Gone, as an answer or an ERROR event: the resourceVersion or the continue token has expired."""


class NotServed(msgspec.Struct, frozen=True):
    """404 of an optional resource: the API server does not serve it, so it has no objects."""


class ErrorAnswer(msgspec.Struct, frozen=True):
    """Any other error answer or ERROR event; answers of 429 and 503 are `Disconnected`."""


class Disconnected(msgspec.Struct, frozen=True):
    """The connection ended or broke, no answer came, or the server answered 429 or 503."""


WatchInput: TypeAlias = ListPage[T] | ObjectEvent[T] | Bookmark | Expired | NotServed | ErrorAnswer | Disconnected


# The outputs of `step`: updates for the store.


class ListReplaced(msgspec.Struct, Generic[T], frozen=True):
    """The objects of a complete list, and its resourceVersion: they replace the content of the store."""

    objs: tuple[T, ...]
    revision: str


class ObjectChanged(msgspec.Struct, Generic[T], frozen=True):
    """An `ObjectEvent` that passed the checks of `step`: newer than the store, and its event type is ADDED,
    MODIFIED or DELETED. The store sets or deletes the object."""

    type: str
    obj: T
    revision: str


class RevisionAdvanced(msgspec.Struct, frozen=True):
    """A `Bookmark` that is newer than the store: it has received every change up to this resourceVersion."""

    revision: str


StoreEvent: TypeAlias = ListReplaced[T] | ObjectChanged[T] | RevisionAdvanced


def step(  # noqa: PLR0911  (a table: a row, a return)
    state: ReflectorState[T], watch_input: WatchInput[T]
) -> tuple[StoreEvent[T] | None, ReflectorState[T]]:
    """One transition for the input. Returns the update for the store (None: there is none) and the next state."""
    match state, watch_input:
        case Watching(known), ObjectEvent("ADDED" | "MODIFIED" | "DELETED" as event_type, obj, revision):  # most inputs
            if not is_newer(revision, known):
                return None, state
            return ObjectChanged(event_type, obj, revision), Watching(revision)
        case NotListed(), ListPage(objs, revision, ""):
            return ListReplaced(objs, revision), Watching(revision)
        case NotListed(), ListPage(objs, revision, continue_token):
            return None, Listing((objs,), revision, continue_token)
        case Listing(pages, list_revision), ListPage(objs, _, ""):
            all_objs = tuple(obj for page in (*pages, objs) for obj in page)
            return ListReplaced(all_objs, list_revision), Watching(list_revision)
        case Listing(pages, list_revision), ListPage(objs, _, continue_token):
            return None, Listing((*pages, objs), list_revision, continue_token)
        case Watching(known), Bookmark(revision):
            return (RevisionAdvanced(revision), Watching(revision)) if is_newer(revision, known) else (None, state)
        case _, Expired():
            return None, NotListed()
        case Watching(), NotServed():
            return None, NotListed()
        case _, NotServed():
            return ListReplaced((), ""), NotListed()
        case ((Watching() | Listing()), ErrorAnswer()):
            if state.errors + 1 >= MAX_ERROR_ANSWERS:
                return None, NotListed()
            return None, replace(state, errors=state.errors + 1)
    return None, state  # disconnected, or an unknown event type: the next request resumes from the same state


def is_newer(revision: str, known: str) -> bool:
    """True unless `revision` is known not to be newer. Two decimal resourceVersions are compared as numbers."""
    if revision.isdecimal() and known.isdecimal():
        return int(revision) > int(known)
    return revision != known


class WatchTarget(msgspec.Struct, frozen=True):
    """A resource to list and watch, in one namespace ("": in all), with a label and field selection. `optional`: 404 of
    the resource counts as an empty list."""

    gvk: GVK
    namespace: str = ""
    selection: Selectors = ALL_OBJECTS
    optional: bool = False

    @property
    def name(self) -> str:
        """The resource as kubectl spells it: "pods", "tfjobs.v1.kubeflow.org"."""
        return f"{self.gvk.plural}.{self.gvk.version}.{self.gvk.group}" if self.gvk.group else self.gvk.plural


class Reflector(Generic[T]):
    """Lists and watches one resource, and calls `apply` with each update for the store. A failed request is retried
    with back-off, a closed watch resumes at its resourceVersion."""

    def __init__(
        self,
        api: ApiClient,
        target: WatchTarget,
        adapter: ObjectAdapter[T],
        apply: Callable[[StoreEvent[T]], None],
        on_unanswered: Callable[[Unavailable], None] = lambda error: None,
        on_refused: Callable[[str], None] = lambda message: None,
    ) -> None:
        """`on_unanswered` is called when a request gets no answer, `on_refused` with the message of a 4xx answer (not
        of 408, 410, 429, nor 404 of an optional resource). The request is retried in any case."""
        self.target = target
        self.state: ReflectorState[T] = NotListed()
        self.last_error = ""  # of the last request; "" once a list or a watch request is accepted
        self.not_served = False  # the resource is not served (404); the list is retried
        self._api = api
        self._adapter = adapter
        self._apply = apply
        self._on_unanswered, self._on_refused = on_unanswered, on_refused
        self._backoff = WatchBackoff(INITIAL_DELAY, MAX_DELAY)
        self._advanced = False  # an event of the current watch request has advanced the resourceVersion
        self._request: asyncio.Task[float] | None = None

    @property
    def failures(self) -> int:
        """The number of consecutive failures, with no successful watch in between (see WatchBackoff)."""
        return self._backoff.failures

    @property
    def failing(self) -> bool:
        """True after two or more consecutive failures, while no list or watch request has been accepted since. An
        accepted watch request alone does not reset the back-off: the watch may break again."""
        return self.failures > 1 and self.last_error != ""

    async def run(self) -> None:
        """List and watch until cancelled. Re-raises an exception of `apply`; the next `run` then begins with a list."""
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
        """Cancel the watch in progress, forget its resourceVersion, and list again now. A list in progress goes on:
        requests that come during one, each of another job, would begin it again and again."""
        if not isinstance(self.state, Watching):
            return
        log.warning("relist resource=%s", self.target.gvk.plural)
        self.state = NotListed()
        if self._request is not None:
            self._request.cancel()

    async def _list_or_watch(self) -> float:
        """Send one request: for a page of a list, or a watch until it ends. Returns the pause before the next, in
        seconds."""
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
        continue_token = self.state.continue_token if isinstance(self.state, Listing) else ""
        target = self.target
        body = await self._api.list_bytes(target.gvk, target.namespace, target.selection, PAGE_SIZE, continue_token)
        raws, revision, next_token = decode_list_page(body)
        self._transition(ListPage(tuple(decode_objects(self._adapter, raws, target.gvk.plural)), revision, next_token))
        if continue_token and not next_token:
            del body, raws
            trim_heap()

    async def _watch(self, revision: str) -> float:
        """Watch from `revision` until the watch ends. Returns the pause before the next request, in seconds."""
        target = self.target
        clock = asyncio.get_running_loop().time
        started = clock()
        event_count, self._advanced = 0, False
        selection = target.selection
        lines = self._api.watch(
            target.gvk,
            target.namespace,
            revision,
            selection.label_selector,
            selection.field_selector,
            self._clear_error,
        )
        async with aclosing(lines):
            async for line in lines:
                if (failure := self._handle_event(line)) is not None:
                    return self._failed(failure, line[:200])
                event_count += 1
                if event_count % EVENTS_PER_YIELD == 0:
                    await asyncio.sleep(0)
        failures = self.failures
        pause = self._backoff.watch_closed(clock() - started, self._advanced)
        if pause is None:
            return self._failed(Disconnected(), "the watch ended at once")
        self._log_recovery(failures)
        return pause

    def _handle_event(self, line: bytes) -> WatchInput[T] | None:
        """Handle one watch event. Returns Expired or ErrorAnswer for an ERROR event, else None."""
        event_type, raw = decode_watch_event(line)
        if event_type == "ERROR":
            code, _ = decode_status(raw)
            return Expired() if code == 410 else ErrorAnswer()
        if event_type == "BOOKMARK":
            self._transition(Bookmark(decode_bookmark(raw)))
        else:
            for obj in decode_objects(self._adapter, [raw], self.target.gvk.plural):
                self._transition(ObjectEvent(event_type, obj, self._adapter.revision(obj)))
        return None

    def _transition(self, watch_input: WatchInput[T]) -> None:
        store_event, self.state = step(self.state, watch_input)
        if isinstance(watch_input, ListPage):
            self._clear_error()
        self.not_served = isinstance(watch_input, NotServed) or (
            self.not_served and not isinstance(watch_input, ListPage)
        )
        if store_event is not None:
            self._apply(store_event)
        # A bookmark does not reset the back-off: the server may send one and close the watch, again and again.
        if isinstance(store_event, ObjectChanged):
            self._advanced = True
            if self.failures or self.last_error:
                self._reset_backoff()

    def _clear_error(self) -> None:
        self.last_error = ""

    def _reset_backoff(self) -> None:
        failures = self.failures
        self._backoff.reset()
        self._log_recovery(failures)

    def _log_recovery(self, failures: int) -> None:
        self.last_error = ""
        if failures:
            log.info("watch restored resource=%s failures=%d", self.target.gvk.plural, failures)

    def _failed(self, failure: WatchInput[T], error: object, retry_after: float | None = None) -> float:
        """Apply the failure of a request to the state and log `error`. Returns the pause in seconds."""
        self._transition(failure)
        longest = NOT_SERVED_MAX_DELAY if isinstance(failure, NotServed) else MAX_DELAY
        pause = self._backoff.next_delay(retry_after, longest)
        self.last_error = str(error)
        level = logging.WARNING if self.failures in (1, 10) else logging.DEBUG
        log.log(level, "watch failed resource=%s failures=%d error=%s", self.target.gvk.plural, self.failures, error)
        return pause
