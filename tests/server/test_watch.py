"""Watches, over real sockets: from a revision, from now, from the past that is gone; with selectors; and the slow."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import aiohttp
import pytest

from tests.server.server_clients import (
    CRDS,
    MAPS,
    PODS,
    THINGS,
    Client,
    Cluster,
    config_map,
    crd,
    custom_object,
    following,
    pod,
    until_listeners,
)
from tests.support.waiting import until_async
from trainyard.objects import decode
from trainyard.server import RevisionLog, Server
from trainyard.server.http import handler as http_module
from trainyard.server.storage.watches import SLICE, Listener, WatchHub


async def test_a_watch_from_a_lists_revision_gets_the_later_events(client: Client) -> None:
    await client.make(MAPS, config_map("old"))
    _, listed = await client.ask("GET", MAPS)
    async with client.watch(MAPS, resourceVersion=listed["metadata"]["resourceVersion"]) as lines:
        await client.make(MAPS, config_map("a"))
        await client.ask("PATCH", f"{MAPS}/a", {"data": {"x": "1"}})
        await client.ask("PATCH", f"{MAPS}/a", {"data": {"x": "1"}})
        _, gone = await client.ask("DELETE", f"{MAPS}/a")
        assert await following(lines, 3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
        assert gone["status"] == "Success"


async def test_a_watch_without_a_revision_begins_with_the_existing_objects(client: Client) -> None:
    await client.make(MAPS, config_map("a"))
    for start in ({}, {"resourceVersion": "0"}):
        async with client.watch(MAPS, **start) as lines:
            assert await following(lines, 1) == [("ADDED", "a")]


async def test_send_initial_events_ends_with_a_bookmark(client: Client) -> None:
    await client.make(MAPS, config_map("a"))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with client.watch(MAPS, **query) as lines:
        first, end = await anext(lines), await anext(lines)
        assert first["type"] == "ADDED"
        assert end["type"] == "BOOKMARK"
        assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert end["object"]["metadata"]["resourceVersion"] == first["object"]["metadata"]["resourceVersion"]
    code, answer = await client.ask("GET", MAPS, watch="true", sendInitialEvents="true")
    assert code == 422 and "resourceVersionMatch" in answer["message"]


async def test_every_line_carries_its_own_number_in_order(client: Client) -> None:
    async with client.watch("/api/v1/configmaps", resourceVersion="1") as lines:
        await asyncio.gather(*(client.make(MAPS, config_map(f"a{index}")) for index in range(50)))
        events: list[Any] = []
        async with asyncio.timeout(10):
            while len(events) < 50:
                events.append(int((await anext(lines))["object"]["metadata"]["resourceVersion"]))
    assert events == sorted(set(events))


async def test_a_deletion_carries_the_number_of_the_deletion(client: Client, server: Server) -> None:
    created = await client.make(MAPS, config_map("a"))
    async with client.watch(MAPS, resourceVersion=created["metadata"]["resourceVersion"]) as lines:
        await client.ask("DELETE", f"{MAPS}/a")
        async with asyncio.timeout(10):
            line = await anext(lines)
    assert line["type"] == "DELETED"
    assert line["object"]["metadata"]["resourceVersion"] == str(server.log.revision)
    assert line["object"]["metadata"]["uid"] == created["metadata"]["uid"]


async def test_a_selector_turns_changes_into_comings_and_goings(client: Client) -> None:
    start = {"resourceVersion": "1", "labelSelector": "app=x"}
    async with client.watch(MAPS, **start) as lines:
        await client.make(MAPS, config_map("a", metadata={"labels": {"app": "y"}}))
        await client.ask("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"app": "x"}}})
        await client.ask("PATCH", f"{MAPS}/a", {"data": {"k": "v"}})
        _, changed = await client.ask("PATCH", f"{MAPS}/a", {"metadata": {"labels": {"app": "y"}}})
        await client.ask("DELETE", f"{MAPS}/a")
        await client.make(MAPS, config_map("b", metadata={"labels": {"app": "x"}}))
        events: list[Any] = []
        async with asyncio.timeout(10):
            while len(events) < 4:
                events.append(await anext(lines))
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
        ("ADDED", "b"),
    ]
    left = events[2]["object"]["metadata"]
    assert left["labels"] == {"app": "x"} and left["resourceVersion"] == changed["metadata"]["resourceVersion"]


async def test_a_field_selector_watch_gets_the_pods_bound_to_a_node(client: Client) -> None:
    async with client.watch("/api/v1/pods", fieldSelector="spec.nodeName=n1", resourceVersion="1") as lines:
        for name, node in (("a", "n1"), ("b", "n2")):
            await client.make(PODS, pod(name))
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"name": node}}
            await client.ask("POST", f"{PODS}/{name}/binding", binding)
        await client.make(PODS, pod("c", nodeName="n1"))
        assert await following(lines, 2) == [("ADDED", "a"), ("ADDED", "c")]


async def test_one_object_can_be_watched(client: Client) -> None:
    async with client.watch(MAPS, fieldSelector="metadata.name=b", resourceVersion="1") as lines:
        await client.make(MAPS, config_map("a"))
        await client.make(MAPS, config_map("b"))
        assert await following(lines, 1) == [("ADDED", "b")]


async def test_the_watches_of_a_custom_resource_end_with_its_crd(client: Client) -> None:
    await client.make(CRDS, crd())
    await client.make(THINGS, custom_object("a"))
    async with client.watch(THINGS) as lines:
        assert await following(lines, 1) == [("ADDED", "a")]
        await client.ask("DELETE", f"{CRDS}/things.example.org")
        assert await following(lines, 1) == [("DELETED", "a")]
        async with asyncio.timeout(10):
            with pytest.raises(StopAsyncIteration):
                await anext(lines)


async def test_a_watch_from_a_past_that_is_gone_ends_with_an_error_line(client: Client, server: Server) -> None:
    await client.make(MAPS, config_map("a"))
    server.log.compact(server.log.revision)
    async with client.watch(MAPS, resourceVersion="1") as lines:
        line = await anext(lines)
        assert line["type"] == "ERROR"
        assert (line["object"]["code"], line["object"]["reason"]) == (410, "Expired")
        with pytest.raises(StopAsyncIteration):
            await anext(lines)


async def test_a_watch_of_the_future_is_refused(client: Client) -> None:
    code, answer = await client.ask("GET", MAPS, watch="true", resourceVersion="999")
    assert code == 504 and "Too large resource version" in answer["message"]


async def test_bookmarks_are_sent_to_watches_that_allow_them(client: Client, server: Server) -> None:
    async with (
        client.watch(MAPS, resourceVersion="1", allowWatchBookmarks="true") as lines,
        client.watch(MAPS, resourceVersion="1") as other_lines,
    ):
        await client.make(PODS, pod("elsewhere"))
        await until_listeners(server, "configmaps", 2)
        server.hub.send_bookmarks()
        async with asyncio.timeout(10):
            line = await anext(lines)
        assert line["type"] == "BOOKMARK" and line["object"]["kind"] == "ConfigMap"
        assert line["object"]["metadata"]["resourceVersion"] == str(server.log.revision)
        await client.make(MAPS, config_map("a"))
        assert await following(other_lines, 1) == [("ADDED", "a")]


async def test_a_watch_ends_when_its_time_is_up(client: Client) -> None:
    async with client.watch(MAPS, resourceVersion="1", timeoutSeconds="1") as lines, asyncio.timeout(10):
        with pytest.raises(StopAsyncIteration):
            await anext(lines)


async def test_the_watch_of_a_disconnected_client_is_removed(client: Client, server: Server) -> None:
    async with client.watch(MAPS, resourceVersion="1"):
        await until_listeners(server, "configmaps", 1)
    await until_listeners(server, "configmaps", 0)


async def test_a_slow_watcher_is_disconnected_and_delays_no_other(
    client: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_module, "MAX_BUFFERED", 100_000)
    host, port = server.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), limit=1024)
    writer.write(f"GET {MAPS}?watch=true&resourceVersion=1 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await writer.drain()
    await until_listeners(server, "configmaps", 1)
    async with asyncio.timeout(30):
        index = 0
        while server.hub.listener_count("configmaps"):  # each object is large, the reader takes nothing
            await client.make(MAPS, config_map(f"a{index}", data={"x": "y" * 200_000}))
            index += 1
    writer.close()
    assert index > 1


@pytest.mark.parametrize("part", ["behind", "send"])
async def test_a_connection_that_breaks_during_a_write_delays_no_other(cluster: Cluster, part: str) -> None:
    """A TLS transport that has just been closed raises when it is asked how much it holds."""

    def breaks(*lines: bytes) -> bool:
        raise RuntimeError("closed")

    hub, watch, heard = WatchHub(cluster.log), cluster.watch(MAPS), list[bytes]()
    broken = Listener(watch, breaks, breaks if part == "behind" else lambda: False)
    healthy = Listener(watch, heard.append, lambda: False)
    for listener in (broken, healthy):
        hub.add(listener)
    cluster.make(MAPS, config_map("a"))
    await asyncio.sleep(0)
    cluster.make(MAPS, config_map("b"))
    await until_async(lambda: heard, "two events", accept=lambda events: len(events) == 2)
    assert [decode(line)["object"]["metadata"]["name"] for line in heard] == ["a", "b"]
    assert broken.ended.result() == "broken" and hub.listener_count("configmaps") == 1


async def test_with_many_watchers_other_requests_are_served_in_between(cluster: Cluster) -> None:
    hub, watch, writes = WatchHub(cluster.log), cluster.watch(MAPS), dict[int, list[int]]()
    for index in range(3 * SLICE):
        batches = writes[index] = []
        hub.add(Listener(watch, lambda lines, batches=batches: batches.append(lines.count(b"\n")), lambda: False))
    cluster.make(MAPS, config_map("a"))
    await asyncio.sleep(0)
    assert [len(batches) for batches in writes.values()] == [1] * SLICE + [0] * 2 * SLICE
    cluster.make(MAPS, config_map("b"))
    await until_async(
        lambda: writes,
        "two writes for each",
        accept=lambda by_watch: all(sum(sizes) == 2 for sizes in by_watch.values()),
    )
    assert list(writes.values()) == [[1, 1]] * SLICE + [[2]] * 2 * SLICE


async def test_many_watches_of_a_custom_resource_get_the_deletions_before_they_end(cluster: Cluster) -> None:
    cluster.make(CRDS, crd())
    cluster.make(THINGS, custom_object("a"))
    hub, watch, lines_written = WatchHub(cluster.log), cluster.watch(THINGS), list[str]()
    listeners = [
        Listener(watch, lambda lines: lines_written.append(lines.decode()), lambda: False) for _ in range(3 * SLICE)
    ]
    for listener in listeners:
        hub.add(listener)
    cluster.delete(f"{CRDS}/things.example.org")
    await until_async(lambda: all(listener.ended.done() for listener in listeners), "every watch has ended")
    assert len(lines_written) == 3 * SLICE and all('"DELETED"' in lines for lines in lines_written)


async def test_a_watch_from_an_old_revision_gets_every_event(client: Client) -> None:
    for index in range(30):
        await client.make(PODS, pod(f"p{index}"))
    for index in range(1200):
        await client.ask("PATCH", f"{PODS}/p0/status", {"status": {"message": str(index)}})
    await client.make(MAPS, config_map("a"))
    async with client.watch(MAPS, resourceVersion="1") as maps, client.watch(PODS, resourceVersion="1") as pods:
        assert await following(maps, 1) == [("ADDED", "a")]
        writing = asyncio.create_task(client.ask("PATCH", f"{PODS}/p0/status", {"status": {"message": "last"}}))
        events: list[Any] = []
        async with asyncio.timeout(20):
            while not events or events[-1]["object"]["status"].get("message") != "last":
                events.append(await anext(pods))
        await writing
    assert len(events) == 30 + 1200 + 1


async def test_kubectl_can_watch_tables(client: Client) -> None:
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    url = f"{client.url}{MAPS}?watch=true&resourceVersion=1"
    async with client.session.get(url, headers=accept) as got, asyncio.timeout(10):
        await client.make(MAPS, config_map("a", data={"x": "1"}))
        line = decode(await got.content.readline())
    assert line["type"] == "ADDED" and line["object"]["kind"] == "Table"
    assert line["object"]["rows"][0]["cells"] == ["a", 1, "0s"]


async def test_watches_end_when_the_server_stops() -> None:
    server = Server()
    await server.start()
    async with aiohttp.ClientSession() as session:
        client = Client(session, server.url)
        async with client.watch(MAPS, resourceVersion="1") as lines:
            stopping = asyncio.create_task(server.stop())
            async with asyncio.timeout(10):
                with contextlib.suppress(StopAsyncIteration, aiohttp.ClientError):
                    await anext(lines)
                await stopping
    await server.stop()


async def test_a_restart_over_the_same_log_serves_the_same_world() -> None:
    log = RevisionLog()
    for count in (1, 2):
        server = Server(log=log)
        await server.start()
        async with aiohttp.ClientSession() as session:
            client = Client(session, server.url)
            if count == 1:
                await client.make(CRDS, crd())
                await client.make(THINGS, custom_object("a"))
            code, listed = await client.ask("GET", THINGS)
            assert code == 200 and [item["metadata"]["name"] for item in listed["items"]] == ["a"]
        await server.stop()


def test_an_event_is_encoded_once_for_all_watches_of_the_same_representation(cluster: Cluster) -> None:
    from trainyard.server.storage.watches import event_line

    cluster.make(MAPS, config_map("a", metadata={"labels": {"x": "y"}}))
    entry = cluster.log.after(cluster.log.revision - 1)[0]
    all_of_it, by_label = cluster.watch(MAPS), cluster.watch(MAPS, labelSelector="x=y")
    assert event_line(all_of_it, entry) is event_line(by_label, entry)
    assert event_line(cluster.watch(MAPS, labelSelector="x=z"), entry) == b""
