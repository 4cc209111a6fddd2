"""Reflector and controller against a scripted API server: pages, lost connections, error answers, and the three kinds
of failure of a reconcile."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from trainyard.client import ApiClient, ApiRequest, Conflict, Gone, NotFound, Unavailable
from trainyard.controller_runtime import controller as controller_module
from trainyard.controller_runtime import reflector as reflector_module
from trainyard.controller_runtime.controller import Controller, enqueue_object
from trainyard.controller_runtime.object_adapter import dict_adapter
from trainyard.controller_runtime.reflector import Reflector, StoreEvent, WatchTarget
from trainyard.controller_runtime.store import Store
from trainyard.objects import GVK, Json, NamespacedName, encode
from trainyard.objects.resources import POD
from trainyard.server import Server


def pod(name: str, revision: int) -> Json:
    return {"metadata": {"namespace": "n", "name": name, "uid": f"u-{name}", "resourceVersion": str(revision)}}


def page(*pods: Json, revision: int = 10, cont: str = "") -> bytes:
    return encode({"metadata": {"resourceVersion": str(revision), "continue": cont}, "items": list(pods)})


def line(verb: str, obj: Json) -> bytes:
    return encode({"type": verb, "object": obj}) + b"\n"


QUIET = b""  # the watch request is accepted and no event follows


class Scripted(ApiClient):
    """Answers list and watch requests from two lists. An exception in them is raised. Requests after the last answer
    hang."""

    def __init__(self, lists: list[Any], watches: list[list[Any]]) -> None:
        super().__init__("http://scripted")
        self.lists, self.watches = lists, watches
        self.requests: list[dict[str, str]] = []
        self.used_up = asyncio.Event()

    async def send(self, request: ApiRequest) -> bytes:
        self.requests.append({"verb": "list", **dict(request.query)})
        return await self._next(self.lists)

    async def stream(
        self, request: ApiRequest, seconds: float | None, opened: Callable[[], None] = lambda: None
    ) -> AsyncGenerator[bytes, None]:
        self.requests.append({"verb": "watch", **dict(request.query)})
        script = self.watches.pop(0) if self.watches else None
        if script is None:
            self.used_up.set()
            await asyncio.Event().wait()
        for chunk in script or []:
            if isinstance(chunk, Exception):
                raise chunk
            opened()
            if chunk == QUIET:
                self.used_up.set()
                await asyncio.Event().wait()
            yield chunk

    async def _next(self, script: list[Any]) -> bytes:
        if not script:
            self.used_up.set()
            await asyncio.Event().wait()
        answer = script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bytes(answer)

    @property
    def request_log(self) -> list[str]:
        """One line per request: verb, and resourceVersion or continue token."""
        return [
            f"{request['verb']} {request.get('resourceVersion', request.get('continue', ''))}".strip()
            for request in self.requests
        ]


async def run_reflector(api: Scripted, optional: bool = False) -> tuple[Store[Json], Reflector[Json]]:
    """Run a reflector until the script is used up. Returns the store that it filled, and the reflector."""
    store: Store[Json] = Store(dict_adapter())

    def apply(event: StoreEvent[Json]) -> None:
        store.apply(event)

    reflector = Reflector(api, WatchTarget(POD, optional=optional), store.adapter, apply)
    running = asyncio.create_task(reflector.run())
    await asyncio.wait_for(api.used_up.wait(), 20)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return store, reflector


def names(store: Store[Json]) -> list[str]:
    return sorted(obj["metadata"]["name"] for obj in store)


async def test_a_reflector_lists_pages_then_watches_then_resumes() -> None:
    api = Scripted(
        [page(pod("a", 1), revision=10, cont="p2"), page(pod("b", 2), revision=10)],
        [[line("ADDED", pod("c", 11)) + line("DELETED", pod("a", 12)), Unavailable(0, "ConnectionLost", "cut")]],
    )
    store, _ = await run_reflector(api)
    assert names(store) == ["b", "c"]
    assert api.request_log == ["list", "list p2", "watch 10", "watch 12"]


async def test_bookmarks_alone_move_the_revision() -> None:
    api = Scripted([page(revision=10)], [[line("BOOKMARK", pod("", 99))]])
    store, _ = await run_reflector(api)
    assert store.revision == "99" and api.request_log == ["list", "watch 10", "watch 99"]


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
    store, _ = await run_reflector(api)
    assert names(store) == ["b"] and store.list_count == 2
    assert api.request_log == ["list", "watch 10", "list", "watch 20"]


async def test_a_410_on_the_second_page_restarts_the_list() -> None:
    api = Scripted([page(pod("a", 1), cont="p2"), Gone(410, "Expired", "token"), page(pod("b", 2), revision=11)], [])
    store, _ = await run_reflector(api)
    assert names(store) == ["b"] and api.request_log == ["list", "list p2", "list", "watch 11"]


async def test_relists_during_a_list_do_not_begin_it_again() -> None:
    """Each job whose write is overdue asks for one: with many of them no list ended."""
    store: Store[Json] = Store(dict_adapter())

    class Asking(Scripted):
        async def list_bytes(self, *arguments: Any, **options: Any) -> bytes:
            answer = await super().list_bytes(*arguments, **options)
            reflector.relist()
            await asyncio.sleep(0)
            return answer

    def apply(event: StoreEvent[Json]) -> None:
        store.apply(event)

    api = Asking([page(pod("a", 1), cont="p2"), page(pod("b", 2))], [])
    reflector = Reflector(api, WatchTarget(POD), store.adapter, apply)
    running = asyncio.create_task(reflector.run())
    await asyncio.wait_for(api.used_up.wait(), 20)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert names(store) == ["a", "b"] and api.request_log == ["list", "list p2", "watch 10"]


async def test_repeated_410s_are_retried_with_back_off() -> None:
    gone = Gone(410, "Expired", "too old")
    api = Scripted([page()] * 4, [[gone]] * 3)
    began = time.monotonic()
    _, reflector = await run_reflector(api)
    assert reflector.failures == 3  # an accepted list does not reset the back-off of the watch
    assert time.monotonic() - began > (0.25 + 0.5 + 1.0) / 2


async def test_a_server_that_hangs_up_at_once_is_not_called_in_a_hot_loop() -> None:
    api = Scripted([page()], [[], [], []])
    began = time.monotonic()
    await run_reflector(api)
    assert time.monotonic() - began > (0.25 + 0.5 + 1.0) / 2


async def test_an_error_line_is_borne_then_listed_again() -> None:
    error = line("ERROR", {"kind": "Status", "code": 500, "reason": "InternalError", "message": "etcd"})
    api = Scripted([page(), page(revision=30)], [[error], [error], [error]])
    await run_reflector(api)
    assert api.request_log == ["list", "watch 10", "watch 10", "watch 10", "list", "watch 30"]


async def test_an_object_that_cannot_be_decoded_is_skipped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    odd: Json = {"metadata": "none"}
    api = Scripted([page(pod("a", 1), odd)], [[line("ADDED", odd) + line("ADDED", pod("b", 11))]])
    store, _ = await run_reflector(api)
    assert names(store) == ["a", "b"]
    assert "object ignored" in caplog.text


async def test_an_unknown_watch_event_type_is_ignored() -> None:
    api = Scripted([page()], [[line("SHOUTED", pod("a", 11)) + line("ADDED", pod("b", 12))]])
    store, _ = await run_reflector(api)
    assert names(store) == ["b"]


@pytest.mark.parametrize("garbage", [b"\x00\xff\n", b"[]\n", b'{"type":7}\n', b"not json\n"])
async def test_a_malformed_watch_line_ends_the_watch_only(garbage: bytes) -> None:
    api = Scripted([page()], [[line("ADDED", pod("a", 11)), garbage]])
    store, _ = await run_reflector(api)
    assert names(store) == ["a"] and api.request_log == ["list", "watch 10", "watch 11"]


async def test_a_missing_resource_is_empty_if_it_is_optional() -> None:
    missing = NotFound(404, "NotFound", "404 page not found")
    store, _ = await run_reflector(Scripted([missing], []), optional=True)
    assert store.synced and len(store) == 0
    store, _ = await run_reflector(Scripted([missing], []), optional=False)
    assert not store.synced


async def test_five_thousand_lines_leave_the_loop_its_turns() -> None:
    iterations = 0

    async def count_iterations() -> None:
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    burst = b"".join(line("ADDED", pod(f"p{at}", 11 + at)) for at in range(5000))
    counting = asyncio.create_task(count_iterations())
    store, _ = await run_reflector(Scripted([page()], [[burst]]))
    counting.cancel()
    assert len(store) == 5000 and iterations >= 20


# Reconciles that fail.


class ScriptedController:
    """A controller whose reconciles return or raise the scripted `results`, one after the other."""

    def __init__(self, *results: Any) -> None:
        self.results = list(results)
        self.times: list[float] = []
        self.keys: list[NamespacedName] = []
        self.started, self.used_up = asyncio.Event(), asyncio.Event()
        self.api = Scripted([page(pod("a", 1))], [])
        self.controller: Controller[NamespacedName] = Controller(self.api, self.reconcile, workers=2)
        self.controller.watch(WatchTarget(POD), enqueue_object)

    async def reconcile(self, key: NamespacedName) -> float | None:
        self.started.set()
        self.times.append(time.monotonic())
        self.keys.append(key)
        result = self.results.pop(0)
        if not self.results:
            self.used_up.set()
        if isinstance(result, Exception):
            raise result
        return None if result is None else float(result)

    async def run(self) -> list[float]:
        """Run until the script is used up. Returns the seconds between the reconciles."""
        await self.controller.start()
        await asyncio.wait_for(self.used_up.wait(), 20)
        await self.controller.stop()
        return [after - before for before, after in zip(self.times, self.times[1:], strict=False)]


async def test_a_conflict_is_requeued_soon() -> None:
    scripted = ScriptedController(Conflict(409, "Conflict", "old"), Conflict(409, "Conflict", "old"), None)
    pauses = await scripted.run()
    assert all(pause < 1 for pause in pauses) and scripted.controller.counts["conflicts"] == 2


async def test_a_server_error_is_retried_after_retry_after() -> None:
    scripted = ScriptedController(Unavailable(429, "TooManyRequests", "not now", retry_after=0.8), None)
    assert (await scripted.run())[0] >= 0.79


async def test_watch_events_do_not_shorten_retry_after() -> None:
    scripted = ScriptedController(Unavailable(429, "TooManyRequests", "not now", retry_after=0.8), None)
    running = asyncio.create_task(scripted.run())
    await asyncio.wait_for(scripted.started.wait(), 10)
    for _ in range(5):
        scripted.controller.queue.add(NamespacedName("n", "a"))
        await asyncio.sleep(0.02)
    assert (await running)[0] >= 0.79


async def test_a_bug_is_loud_counted_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    scripted = ScriptedController(RuntimeError("a bug of ours"), None)
    assert (await scripted.run())[0] >= 0.49
    assert scripted.controller.counts["faults"] == 1 and "a bug of ours" in caplog.text and "n/a" in caplog.text


async def test_a_reconcile_is_requeued_at_its_time() -> None:
    pauses = await ScriptedController(0.2, None).run()
    assert 0.19 <= pauses[0] < 5


async def test_a_requeue_is_never_later_than_the_longest_delay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The wall clock may be set meanwhile, and CLOCK_MONOTONIC stops while the machine is suspended."""
    monkeypatch.setattr(controller_module, "MAX_REQUEUE_DELAY", 0.05)
    assert (await ScriptedController(3600.0, None).run())[0] < 60


async def test_no_pass_before_everything_is_known() -> None:
    scripted = ScriptedController(None)
    second = Scripted([], [])
    scripted.controller.reflectors.append(Reflector(second, WatchTarget(POD), dict_adapter(), lambda event: None))
    unsynced: Store[Json] = scripted.controller.watch(WatchTarget(GVK("", "v1", "Node", "nodes")), enqueue_object)
    await scripted.controller.start()
    await asyncio.wait_for(second.used_up.wait(), 10)
    await asyncio.wait_for(scripted.api.used_up.wait(), 10)
    assert not unsynced.synced and not scripted.controller.synced and scripted.keys == []
    await scripted.controller.stop()


async def test_pages_of_our_real_server_are_one_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector_module, "PAGE_SIZE", 2)
    server = Server()
    await server.start()
    maps = GVK("", "v1", "ConfigMap", "configmaps")
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    complete = asyncio.Event()
    store: Store[Json] = Store(dict_adapter())

    def apply(event: StoreEvent[Json]) -> None:
        store.apply(event)
        if len(store) == 6:
            complete.set()

    async with ApiClient(server.url) as api:
        for at in range(5):
            await api.create(maps, "default", {**kind, "metadata": {"name": f"m{at}"}})
        running = asyncio.create_task(Reflector(api, WatchTarget(maps, "default"), store.adapter, apply).run())
        await api.create(maps, "default", {**kind, "metadata": {"name": "later"}})
        await asyncio.wait_for(complete.wait(), 10)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    await server.stop()
    assert names(store) == ["later", "m0", "m1", "m2", "m3", "m4"] and store.list_count == 1


async def test_a_quiet_resource_that_is_back_does_not_count_as_failing_and_one_that_is_cut_again_does() -> None:
    """Its watch may have no event for a minute, so an accepted list or watch request ends `failing`."""
    gone = NotFound(404, "NotFound", "no such resource")
    _, reflector = await run_reflector(Scripted([gone, gone, gone, page(revision=10)], []), optional=True)
    assert (reflector.failing, reflector.not_served, reflector.failures) == (False, False, 3)
    cut = [Unavailable(0, "ConnectionLost", "cut")]
    _, reflector = await run_reflector(Scripted([page(revision=10)], [cut, cut]))
    assert reflector.failing and "cut" in reflector.last_error
    _, reflector = await run_reflector(Scripted([page(revision=10)], [cut, cut, [QUIET]]))
    assert (reflector.failing, reflector.failures) == (False, 2)  # the accepted watch does not reset the back-off
