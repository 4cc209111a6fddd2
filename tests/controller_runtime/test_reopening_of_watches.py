"""The number of requests to a server that ends each watch at once is bounded, for every client and whatever events the
watch sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.controller_runtime.fake_clock import run
from trainyard.client import ApiClient, ApiRequest, Gone
from trainyard.controller_runtime import Reflector, TaskSupervisor, WatchBackoff, WatchTarget
from trainyard.controller_runtime.object_adapter import dict_adapter
from trainyard.controller_runtime.watches import Watches
from trainyard.core import Config
from trainyard.node.kubelet.api_client import NodeApiClient
from trainyard.objects import encode
from trainyard.objects.resources import POD
from trainyard.operator import Operator

SECONDS = 600.0
FEW = 120  # watches of one resource in SECONDS: one in 4 to 8 seconds (and one list, after a 410), and the first few
OLD = {"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "5"}}


def _line(kind: str, obj: dict[str, Any]) -> bytes:
    return encode({"type": kind, "object": obj}) + b"\n"


STREAMS: dict[str, list[bytes | Exception]] = {
    "says nothing": [],
    "sends a bookmark": [_line("BOOKMARK", {"metadata": {"resourceVersion": "10"}})],
    "repeats an event": [_line("MODIFIED", OLD)],
    "sends an error": [_line("ERROR", {"kind": "Status", "code": 500, "message": "no"})],
    "answers 410": [Gone(410, "Expired", "too old")],
    "sends 410 in the stream": [_line("ERROR", {"kind": "Status", "code": 410, "message": "too old"})],
}


class ClosingServer(ApiClient):
    """A server that ends each watch at once. Each bookmark has a new resourceVersion."""

    def __init__(self, stream: list[bytes | Exception]) -> None:
        super().__init__("http://scripted")
        self.lines = stream
        self.watches: dict[str, int] = {}

    async def send(self, request: ApiRequest) -> bytes:
        return encode({"metadata": {"resourceVersion": "10"}, "items": []})

    async def stream(
        self, request: ApiRequest, seconds: float | None, opened: Callable[[], None] = lambda: None
    ) -> AsyncGenerator[bytes, None]:
        self.watches[request.path] = count = self.watches.get(request.path, 0) + 1
        opened()
        for line in self.lines:
            if isinstance(line, Exception):
                raise line
            yield line.replace(b'"10"', b'"%d"' % (10 + count))


async def _reflector(api: ApiClient) -> None:
    await Reflector(api, WatchTarget(POD), dict_adapter(), lambda event: None).run()


async def _node_pods(api: ApiClient) -> None:
    await NodeApiClient(api, "local", lambda text: None).pods(lambda pods: None, lambda verb, pod: None).run()


async def _node_config_map(api: ApiClient) -> None:
    await NodeApiClient(api, "local", lambda text: None).wait_for_change("n", ("configmap", "a"), None)


async def _cli(api: ApiClient) -> None:
    feeds = Watches(api)
    feeds.watch(WatchTarget(POD))
    try:
        await asyncio.Event().wait()
    finally:
        await feeds.stop()


async def _operator(api: ApiClient) -> None:
    from trainyard import kinds

    operator = Operator(api, kinds.ALL, Config())
    await operator.start()
    try:
        await asyncio.Event().wait()
    finally:
        await operator.stop()


CLIENTS: list[Callable[[ApiClient], Coroutine[Any, Any, None]]] = [
    _reflector,
    _node_pods,
    _node_config_map,
    _cli,
    _operator,
]


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__.strip("_"))
def test_a_server_that_ends_each_watch_at_once_is_asked_with_back_off(
    client: Callable[[ApiClient], Coroutine[Any, Any, None]], stream: list[bytes | Exception]
) -> None:
    api = ClosingServer(stream)
    if client is _node_config_map and stream == STREAMS["repeats an event"]:
        return  # this client ends at the first event of the object

    async def run_for_some_time() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SECONDS):
                await client(api)

    run(run_for_some_time())
    assert api.watches and max(api.watches.values()) <= FEW, api.watches


def test_a_handler_that_raises_is_logged_and_gets_a_relist_with_back_off() -> None:
    """The node is NotReady meanwhile, and the lists have pauses between them."""
    api, messages, times = ClosingServer([]), list[str](), list[float]()

    def apply(event: object) -> None:
        times.append(asyncio.get_running_loop().time())
        raise OSError(36, "File name too long")

    async def run_for_some_time() -> None:
        tasks = TaskSupervisor("node", messages.append)
        tasks.start("watch pods", Reflector(api, WatchTarget(POD), dict_adapter(), apply).run)
        await asyncio.sleep(SECONDS)
        assert "File name too long" in tasks.unhealthy
        await tasks.stop()

    run(run_for_some_time())
    assert 10 < len(times) < FEW
    assert messages[0].startswith(
        "node: the task 'watch pods' failed: OSError: [Errno 36] File name too long; restarting it"
    )


def test_a_stream_that_advanced_or_lasted_is_opened_again_at_once() -> None:
    backoff = WatchBackoff(0.25, 8.0)
    assert backoff.watch_closed(0.0, advanced=False) is None
    backoff.next_delay()
    for seconds, advanced in ((0.0, True), (5.0, False)):
        pause = backoff.watch_closed(seconds, advanced)
        assert pause is not None and pause <= 0.1 and backoff.failures == 0


def test_no_other_file_opens_a_watch() -> None:
    """A second caller of `Api.watch` would need a second reopening policy."""
    package = Path(__file__).parents[2] / "src" / "trainyard"
    files = (path for path in package.rglob("*.py") if ".watch(" in path.read_text())
    callers = {str(path.relative_to(package)) for path in files if "api.watch(" in path.read_text()}
    assert callers == {"controller_runtime/reflector.py", "node/kubelet/api_client.py"}, (
        "use controller_runtime.Reflector"
    )
