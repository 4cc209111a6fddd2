"""The drivers, with answers from a script: pages, breaks, refusals; and the three kinds of failure of a pass."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from trainyard.client import Api, Conflict, Gone, NotFound, Request, Unavailable
from trainyard.controller_runtime import controller as loops
from trainyard.controller_runtime import reflector as watch
from trainyard.controller_runtime.controller import Controller, enqueue_object
from trainyard.controller_runtime.object_adapter import dict_adapter
from trainyard.controller_runtime.reflector import Reflector, StoreEvent, WatchTarget
from trainyard.controller_runtime.store import Store
from trainyard.objects import GVK, Json, Key, encode
from trainyard.objects.resources import POD
from trainyard.server import Server


def pod(name: str, revision: int) -> Json:
    return {"metadata": {"namespace": "n", "name": name, "uid": f"u-{name}", "resourceVersion": str(revision)}}


def page(*pods: Json, revision: int = 10, cont: str = "") -> bytes:
    return encode({"metadata": {"resourceVersion": str(revision), "continue": cont}, "items": list(pods)})


def line(verb: str, obj: Json) -> bytes:
    return encode({"type": verb, "object": obj}) + b"\n"


QUIET = b""  # a watch that is let in, and says nothing


class Scripted(Api):
    """Answers lists and watches from two lists. An exception in them is raised; when a list is used up, it hangs."""

    def __init__(self, lists: list[Any], watches: list[list[Any]]) -> None:
        super().__init__("http://scripted")
        self.lists, self.watches = lists, watches
        self.asked: list[dict[str, str]] = []
        self.used_up = asyncio.Event()

    async def send(self, request: Request) -> bytes:
        self.asked.append({"verb": "list", **dict(request.query)})
        return await self._next(self.lists)

    async def stream(
        self, request: Request, seconds: float | None, opened: Callable[[], None] = lambda: None
    ) -> AsyncGenerator[bytes, None]:
        self.asked.append({"verb": "watch", **dict(request.query)})
        script = self.watches.pop(0) if self.watches else None
        if script is None:
            self.used_up.set()
            await asyncio.Event().wait()
        for said in script or []:
            if isinstance(said, Exception):
                raise said
            opened()
            if said == QUIET:
                self.used_up.set()
                await asyncio.Event().wait()
            yield said

    async def _next(self, script: list[Any]) -> bytes:
        if not script:
            self.used_up.set()
            await asyncio.Event().wait()
        said = script.pop(0)
        if isinstance(said, Exception):
            raise said
        return bytes(said)

    @property
    def story(self) -> list[str]:
        return [f"{one['verb']} {one.get('resourceVersion', one.get('continue', ''))}".strip() for one in self.asked]


async def fed(api: Scripted, optional: bool = False) -> tuple[Store[Json], Reflector[Json]]:
    """What the store holds when the script is used up."""
    store: Store[Json] = Store(dict_adapter())

    def apply(said: StoreEvent[Json]) -> None:
        store.apply(said)

    feed = Reflector(api, WatchTarget(POD, optional=optional), store.adapter, apply)
    running = asyncio.create_task(feed.run())
    await asyncio.wait_for(api.used_up.wait(), 20)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return store, feed


def names(store: Store[Json]) -> list[str]:
    return sorted(obj["metadata"]["name"] for obj in store)


async def test_pages_then_lines_then_where_it_was() -> None:
    api = Scripted(
        [page(pod("a", 1), revision=10, cont="p2"), page(pod("b", 2), revision=10)],
        [[line("ADDED", pod("c", 11)) + line("DELETED", pod("a", 12)), Unavailable(0, "ConnectionLost", "cut")]],
    )
    store, _ = await fed(api)
    assert names(store) == ["b", "c"]
    assert api.story == ["list", "list p2", "watch 10", "watch 12"]


async def test_bookmarks_alone_move_the_revision() -> None:
    api = Scripted([page(revision=10)], [[line("BOOKMARK", pod("", 99))]])
    store, _ = await fed(api)
    assert store.revision == "99" and api.story == ["list", "watch 10", "watch 99"]


@pytest.mark.parametrize(
    "trouble",
    [
        Gone(410, "Expired", "too old"),
        line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}),
    ],
    ids=["answer", "line"],
)
async def test_410_lists_again_and_replaces(trouble: Any) -> None:
    api = Scripted([page(pod("a", 1)), page(pod("b", 20), revision=20)], [[trouble]])
    store, _ = await fed(api)
    assert names(store) == ["b"] and store.lists == 2
    assert api.story == ["list", "watch 10", "list", "watch 20"]


async def test_410_on_page_two_starts_over() -> None:
    api = Scripted([page(pod("a", 1), cont="p2"), Gone(410, "Expired", "token"), page(pod("b", 2), revision=11)], [])
    store, _ = await fed(api)
    assert names(store) == ["b"] and api.story == ["list", "list p2", "list", "watch 11"]


async def test_repeated_410_is_answered_ever_more_slowly() -> None:
    gone = Gone(410, "Expired", "too old")
    api = Scripted([page()] * 4, [[gone]] * 3)
    began = time.monotonic()
    _, feed = await fed(api)
    assert feed.failures == 3  # a list that works is no sign that the watch will
    assert time.monotonic() - began > (0.25 + 0.5 + 1.0) / 2


async def test_a_server_that_hangs_up_at_once_is_not_called_in_a_hot_loop() -> None:
    api = Scripted([page()], [[], [], []])
    began = time.monotonic()
    await fed(api)
    assert time.monotonic() - began > (0.25 + 0.5 + 1.0) / 2


async def test_an_error_line_is_borne_then_listed_again() -> None:
    error = line("ERROR", {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd"})
    api = Scripted([page(), page(revision=30)], [[error], [error], [error]])
    await fed(api)
    assert api.story == ["list", "watch 10", "watch 10", "watch 10", "list", "watch 30"]


async def test_an_object_that_cannot_be_read_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    odd: Json = {"metadata": "none"}
    api = Scripted([page(pod("a", 1), odd)], [[line("ADDED", odd) + line("ADDED", pod("b", 11))]])
    store, _ = await fed(api)
    assert names(store) == ["a", "b"]
    assert "left out" in caplog.text


async def test_an_unknown_verb_is_passed_over() -> None:
    api = Scripted([page()], [[line("SHOUTED", pod("a", 11)) + line("ADDED", pod("b", 12))]])
    store, _ = await fed(api)
    assert names(store) == ["b"]


@pytest.mark.parametrize("garbage", [b"\x00\xff\n", b"[]\n", b'{"type":7}\n', b"not json\n"])
async def test_a_line_that_is_no_line_breaks_the_watch_only(garbage: bytes) -> None:
    api = Scripted([page()], [[line("ADDED", pod("a", 11)), garbage]])
    store, _ = await fed(api)
    assert names(store) == ["a"] and api.story == ["list", "watch 10", "watch 11"]


async def test_a_missing_resource_is_empty_if_it_may_be_missing() -> None:
    missing = NotFound(404, "NotFound", "404 page not found")
    store, _ = await fed(Scripted([missing], []), optional=True)
    assert store.synced and len(store) == 0
    store, _ = await fed(Scripted([missing], []), optional=False)
    assert not store.synced


async def test_five_thousand_lines_leave_the_loop_its_turns() -> None:
    turns = 0

    async def live() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    burst = b"".join(line("ADDED", pod(f"p{at}", 11 + at)) for at in range(5000))
    living = asyncio.create_task(live())
    store, _ = await fed(Scripted([page()], [[burst]]))
    living.cancel()
    assert len(store) == 5000 and turns >= 20


# Passes that fail.


class Passes:
    """A loop whose passes end as the script says; the last word is for ever."""

    def __init__(self, *ends: Any) -> None:
        self.ends = list(ends)
        self.times: list[float] = []
        self.keys: list[Key] = []
        self.begun, self.enough = asyncio.Event(), asyncio.Event()
        self.api = Scripted([page(pod("a", 1))], [])
        self.loop: Controller[Key] = Controller(self.api, self.reconcile, workers=2)
        self.loop.watch(WatchTarget(POD), enqueue_object)

    async def reconcile(self, key: Key) -> float | None:
        self.begun.set()
        self.times.append(time.monotonic())
        self.keys.append(key)
        end = self.ends.pop(0)
        if not self.ends:
            self.enough.set()
        if isinstance(end, Exception):
            raise end
        return None if end is None else float(end)

    async def run(self) -> list[float]:
        """The pauses between the passes."""
        await self.loop.start()
        await asyncio.wait_for(self.enough.wait(), 20)
        await self.loop.stop()
        return [after - before for before, after in zip(self.times, self.times[1:], strict=False)]


async def test_a_conflict_is_looked_at_again_soon() -> None:
    passes = Passes(Conflict(409, "Conflict", "old"), Conflict(409, "Conflict", "old"), None)
    pauses = await passes.run()
    assert all(pause < 1 for pause in pauses) and passes.loop.counts["conflicts"] == 2


async def test_the_worlds_fault_waits_as_long_as_asked() -> None:
    passes = Passes(Unavailable(429, "TooManyRequests", "not now", retry_after=0.8), None)
    assert (await passes.run())[0] >= 0.79


async def test_events_do_not_break_the_peace_the_server_asked_for() -> None:
    passes = Passes(Unavailable(429, "TooManyRequests", "not now", retry_after=0.8), None)
    running = asyncio.create_task(passes.run())
    await asyncio.wait_for(passes.begun.wait(), 10)
    for _ in range(5):
        passes.loop.queue.add(Key("n", "a"))
        await asyncio.sleep(0.02)
    assert (await running)[0] >= 0.79


async def test_a_bug_is_loud_counted_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    passes = Passes(RuntimeError("a bug of ours"), None)
    assert (await passes.run())[0] >= 0.49
    assert passes.loop.counts["faults"] == 1 and "a bug of ours" in caplog.text and "n/a" in caplog.text


async def test_a_pass_comes_back_when_it_said_so() -> None:
    pauses = await Passes(0.2, None).run()
    assert 0.19 <= pauses[0] < 5


async def test_a_pass_comes_back_after_the_longest_delay_at_the_latest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The wall clock may be set meanwhile, and CLOCK_MONOTONIC stands still while a machine sleeps."""
    monkeypatch.setattr(loops, "LONGEST_DELAY", 0.05)
    assert (await Passes(3600.0, None).run())[0] < 60


async def test_no_pass_before_everything_is_known() -> None:
    passes = Passes(None)
    second = Scripted([], [])
    passes.loop.reflectors.append(Reflector(second, WatchTarget(POD), dict_adapter(), lambda said: None))
    unsynced: Store[Json] = passes.loop.watch(WatchTarget(GVK("", "v1", "Node", "nodes")), enqueue_object)
    await passes.loop.start()
    await asyncio.wait_for(second.used_up.wait(), 10)
    await asyncio.wait_for(passes.api.used_up.wait(), 10)
    assert not unsynced.synced and not passes.loop.synced and passes.keys == []
    await passes.loop.stop()


async def test_pages_of_our_real_server_are_one_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PAGE_SIZE", 2)
    server = Server()
    await server.start()
    maps = GVK("", "v1", "ConfigMap", "configmaps")
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    heard = asyncio.Event()
    store: Store[Json] = Store(dict_adapter())

    def apply(said: StoreEvent[Json]) -> None:
        store.apply(said)
        if len(store) == 6:
            heard.set()

    async with Api(server.url) as api:
        for at in range(5):
            await api.create(maps, "default", {**kind, "metadata": {"name": f"m{at}"}})
        running = asyncio.create_task(Reflector(api, WatchTarget(maps, "default"), store.adapter, apply).run())
        await api.create(maps, "default", {**kind, "metadata": {"name": "later"}})
        await asyncio.wait_for(heard.wait(), 10)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await server.stop()
    assert names(store) == ["later", "m0", "m1", "m2", "m3", "m4"] and store.lists == 1


async def test_a_quiet_resource_that_is_back_does_not_count_as_failing_and_one_that_is_cut_again_does() -> None:
    """Its watch says nothing for a minute, so the list that came must do, or that the watch was let in."""
    gone = NotFound(404, "NotFound", "no such resource")
    _, feed = await fed(Scripted([gone, gone, gone, page(revision=10)], []), optional=True)
    assert (feed.failing, feed.not_served, feed.failures) == (False, False, 3)
    cut = [Unavailable(0, "ConnectionLost", "cut")]
    _, feed = await fed(Scripted([page(revision=10)], [cut, cut]))
    assert feed.failing and "cut" in feed.last_error
    _, feed = await fed(Scripted([page(revision=10)], [cut, cut, [QUIET]]))
    assert (feed.failing, feed.failures) == (False, 2)  # the next pause is as long as if it had not been let in
