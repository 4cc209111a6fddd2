"""Watches: start, events and end."""

from __future__ import annotations

import time
from typing import Any

from tests.conformance import Cluster, check
from tests.conformance.checks.lists import create_secrets, version_of
from tests.conformance.mutations import answers, ignores, replaced, sets, swaps, without
from trainyard.objects import decode

AREA = "watches"
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
ONE_SECOND = {"timeoutSeconds": "1"}


async def touch(cluster: Cluster, name: str, **meta: Any) -> Any:
    path = cluster.path("secrets", name)
    return (
        await cluster.request("PATCH", path, {"metadata": meta or {"annotations": {"at": str(time.time())}}})
    ).expect(200)


async def watch_events(cluster: Cluster, **query: str) -> list[Any]:
    """All events of a watch of one second."""
    async with cluster.watch(cluster.path("secrets"), **{**ONE_SECOND, **query}) as watch:
        return await watch.rest()


def types_and_names(events: list[Any]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


@check(
    "A watch from a resourceVersion sends later events in order: ADDED, MODIFIED, DELETED.",
    area=AREA,
    mutation=ignores("resourceVersion"),
)
async def from_version(cluster: Cluster) -> None:
    start_version = version_of((await create_secrets(cluster, "a"))[0])
    await create_secrets(cluster, "b")
    await touch(cluster, "a")
    async with cluster.watch(cluster.path("secrets"), resourceVersion=start_version) as watch:
        assert await watch.take(2) == [("ADDED", "b"), ("MODIFIED", "a")]
        (await cluster.request("DELETE", cluster.path("secrets", "b"))).expect(200)
        assert await watch.take(1) == [("DELETED", "b")]


@check("An event has the object as of that change, with its kind.", area=AREA, mutation=without("object.kind"))
async def full_objects(cluster: Cluster) -> None:
    created = (await create_secrets(cluster, "a"))[0]
    start_version = str(int(version_of(created)) - 1)
    changed = await touch(cluster, "a", labels={"x": "y"})
    async with cluster.watch(cluster.path("secrets"), resourceVersion=start_version) as watch:
        event = await watch.read_until(lambda event: event["object"]["metadata"]["name"] == "a")
        assert event["object"] == created and event["object"]["kind"] == "Secret"
        assert (await watch.next())["object"] == changed


@check(
    "A DELETED event has the last state of the object and the resourceVersion of the deletion.",
    area=AREA,
    mutation=sets("object.metadata.resourceVersion", "1"),
)
async def deleted_object(cluster: Cluster) -> None:
    created = (await create_secrets(cluster, "a", labels={"x": "y"}))[0]
    async with cluster.watch(cluster.path("secrets"), resourceVersion=version_of(created)) as watch:
        (await cluster.request("DELETE", cluster.path("secrets", "a"))).expect(200)
        event = await watch.next()
        assert event["type"] == "DELETED" and event["object"]["metadata"]["labels"] == {"x": "y"}
        assert int(version_of(event["object"])) > int(version_of(created))


@check(
    "A watch without a resourceVersion or from 0 first sends ADDED for existing objects.",
    area=AREA,
    mutation=replaced("registry.list_options:initial_events", lambda request: (False, False)),
)
async def from_nothing(cluster: Cluster) -> None:
    await create_secrets(cluster, "ab")
    for query in ({}, {"resourceVersion": "0"}):
        async with cluster.watch(cluster.path("secrets"), **query) as watch:
            assert sorted(await watch.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
            await touch(cluster, "a")
            assert await watch.take(1) == [("MODIFIED", "a")]


@check(
    "With sendInitialEvents a watch sends existing objects, then an annotated bookmark, then changes.",
    area=AREA,
    mutation=without("object.metadata.annotations"),
)
async def initial(cluster: Cluster) -> None:
    created = await create_secrets(cluster, "ab")
    async with cluster.watch(cluster.path("secrets"), **INITIAL, allowWatchBookmarks="true") as watch:
        assert sorted(await watch.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
        bookmark = await watch.next()
        assert bookmark["type"] == "BOOKMARK" and bookmark["object"]["metadata"]["annotations"] == {
            INITIAL_EVENTS_END: "true"
        }
        assert bookmark["object"]["kind"] == "Secret" and bookmark["object"]["apiVersion"] == "v1"
        assert int(version_of(bookmark["object"])) >= int(version_of(created[-1]))
        await touch(cluster, "a")
        assert await watch.take(1) == [("MODIFIED", "a")]


@check(
    "A watch without a resourceVersion and with bookmarks also gets the initial-events-end bookmark.",
    area=AREA,
    mutation=ignores("allowWatchBookmarks"),
)
async def legacy_initial(cluster: Cluster) -> None:
    await create_secrets(cluster, "a")
    for query in ({}, {"resourceVersion": "0"}):
        async with cluster.watch(cluster.path("secrets"), allowWatchBookmarks="true", **query) as watch:
            assert await watch.take(1) == [("ADDED", "a")]
            assert (await watch.next())["object"]["metadata"]["annotations"] == {INITIAL_EVENTS_END: "true"}


@check(
    "A watch without allowWatchBookmarks gets no bookmarks.",
    area=AREA,
    mutation=replaced("registry.list_options:initial_events", lambda request: (True, True)),
)
async def no_bookmark(cluster: Cluster) -> None:
    await create_secrets(cluster, "a")
    assert types_and_names(await watch_events(cluster, **INITIAL)) == [("ADDED", "a")]


@check(
    "With sendInitialEvents=false a watch without a resourceVersion sends only new events.",
    area=AREA,
    mutation=ignores("sendInitialEvents", "resourceVersionMatch"),
)
async def from_now(cluster: Cluster) -> None:
    await create_secrets(cluster, "a")
    async with cluster.watch(
        cluster.path("secrets"), sendInitialEvents="false", resourceVersionMatch="NotOlderThan"
    ) as watch:
        await create_secrets(cluster, "b")
        assert await watch.take(1) == [("ADDED", "b")]


FORBIDDEN = (
    ({"sendInitialEvents": "true"}, ["sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"]),
    (
        {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
        ["requires setting", 'Unsupported value: "Exact"'],
    ),
    ({"resourceVersionMatch": "NotOlderThan"}, ["forbidden for watch unless sendInitialEvents is provided"]),
    ({"resourceVersionMatch": "Exact", "resourceVersion": "1"}, ["unless sendInitialEvents", "Unsupported value"]),
    ({"continue": "x"}, ["forbidden when continue is provided"]),
)


@check(
    "Incompatible watch parameters are rejected with 422, with a cause for each.",
    area=AREA,
    mutation=ignores("sendInitialEvents", "resourceVersionMatch", "continue") | ignores("watch"),
)
async def incompatible_parameters(cluster: Cluster) -> None:
    for query, messages in FORBIDDEN:
        error = (
            await cluster.request("GET", cluster.path("secrets"), watch="true", **ONE_SECOND, **query)
        ).expect_error(422, "Invalid", *messages)
        assert error["details"]["kind"] == "ListOptions" and len(error["details"]["causes"]) == len(messages), error


@check(
    "A watch from a compacted resourceVersion sends ERROR with a Status 410 Expired, and ends.",
    area=AREA,
    mutation=sets("object.code", 200),
)
async def expired_version(cluster: Cluster) -> None:
    resource = await cluster.create_crd()
    for name in ("a", "b"):
        (await cluster.request("POST", resource.path(), resource.obj(name))).expect(201)
    await cluster.compact()
    async with cluster.watch(resource.path(), resourceVersion="1") as watch:
        event, *more_events = await watch.rest()
        status = event["object"]
        assert event["type"] == "ERROR" and not more_events
        assert (status["kind"], status["code"], status["reason"], status["status"]) == (
            "Status",
            410,
            "Expired",
            "Failure",
        )
        assert status["message"].startswith("too old resource version: 1 (")


@check("A watch ends normally after timeoutSeconds.", area=AREA, mutation=ignores("timeoutSeconds"))
async def timeout(cluster: Cluster) -> None:
    await create_secrets(cluster, "a")
    started_at = time.monotonic()
    assert types_and_names(await watch_events(cluster)) == [("ADDED", "a")]
    assert 0.5 < time.monotonic() - started_at < 10


@check(
    "With a label selector, an object that stops matching is DELETED, one that starts matching ADDED.",
    area=AREA,
    mutation=ignores("labelSelector"),
)
async def crossing(cluster: Cluster) -> None:
    start_version = version_of((await create_secrets(cluster, "a", labels={"l": "out"}))[0])
    async with cluster.watch(cluster.path("secrets"), resourceVersion=start_version, labelSelector="l=in") as watch:
        await touch(cluster, "a", labels={"l": "in"})
        await touch(cluster, "a", annotations={"x": "y"})
        left_selection = await touch(cluster, "a", labels={"l": "out"})
        await touch(cluster, "a", labels={"l": "far"})
        await create_secrets(cluster, "b", labels={"l": "in"})
        events = [await watch.next() for _ in range(4)]
        assert types_and_names(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]
        deleted_meta = events[2]["object"]["metadata"]
        assert deleted_meta["labels"] == {"l": "in"} and deleted_meta["resourceVersion"] == version_of(left_selection)


@check(
    "With a field selector, an object that stops matching is DELETED, one that starts matching ADDED.",
    area=AREA,
    mutation=ignores("fieldSelector"),
    needs=("pods",),
)
async def crossing_fields(cluster: Cluster) -> None:
    start_version = version_of(await cluster.create_pod("a", nodeName="nowhere"))
    await cluster.create_pod("b", nodeName="nowhere")
    running = {"fieldSelector": "status.phase=Running", "resourceVersion": start_version}
    async with cluster.watch(cluster.path("pods"), **running) as watch:
        for phase in ("Running", "Succeeded"):
            (await cluster.request("PATCH", cluster.path("pods", "a", "status"), {"status": {"phase": phase}})).expect(
                200
            )
        assert await watch.take(2) == [("ADDED", "a"), ("DELETED", "a")]


@check(
    "A watch by metadata.name sends events of that object only; watch is ignored on a get.",
    area=AREA,
    mutation=replaced("model.selection:_test", lambda *_, **__: lambda key, record: True),
)
async def one_name(cluster: Cluster) -> None:
    start_version = version_of((await create_secrets(cluster, "ab"))[-1])
    async with cluster.watch(
        cluster.path("secrets"), resourceVersion=start_version, fieldSelector="metadata.name=a"
    ) as watch:
        await touch(cluster, "b")
        await touch(cluster, "a")
        assert await watch.take(1) == [("MODIFIED", "a")]
    assert (await cluster.request("GET", cluster.path("secrets", "a"), watch="true", **ONE_SECOND)).expect(200)[
        "kind"
    ] == "Secret"


@check(
    "A watch of a namespace sends only its events; a watch across all namespaces sends those of each.",
    area=AREA,
    mutation=replaced("storage.watches:event_line", lambda watch, entry: b""),
)
async def namespaces(cluster: Cluster) -> None:
    label = {"labelSelector": f"l={cluster.unique_name('x')}"}
    start_version = version_of((await create_secrets(cluster, "a", labels={"l": cluster.unique_name("x")}))[0])
    everywhere = cluster.watch("/api/v1/secrets", resourceVersion=start_version, **label)
    elsewhere = cluster.watch(
        cluster.path("secrets", namespace="default"), resourceVersion=start_version, **ONE_SECOND, **label
    )
    async with everywhere as all_events, elsewhere as other_events:
        await touch(cluster, "a")
        assert await all_events.take(1) == [("MODIFIED", "a")]
        assert await other_events.rest() == []


@check("Every value of the parameter watch except false and 0 is true.", area=AREA, mutation=ignores("watch"))
async def words_for_true(cluster: Cluster) -> None:
    await create_secrets(cluster, "a")
    for value in ("true", "1", "yes"):
        response = await cluster.request("GET", cluster.path("secrets"), watch=value, **ONE_SECOND)
        assert response.code == 200 and decode(response.body.splitlines()[0])["type"] == "ADDED", value
    for value in ("false", "0"):
        assert (await cluster.request("GET", cluster.path("secrets"), watch=value)).expect(200)["kind"] == "SecretList"


@check(
    "A watch with invalid parameters is rejected with 400.",
    area=AREA,
    mutation=answers(400, 200),
)
async def bad_selector(cluster: Cluster) -> None:
    for query in ({"labelSelector": "=a"}, {"fieldSelector": "data.x=y"}, {"timeoutSeconds": "x"}):
        (await cluster.request("GET", cluster.path("secrets"), watch="true", **query)).expect_error(400, "BadRequest")


@check(
    "Two watches of a collection get the same events.",
    area=AREA,
    mutation=replaced("storage.watches:event_line", lambda watch, entry: b"", "sends no events"),
)
async def two_watches(cluster: Cluster) -> None:
    start_version = version_of((await create_secrets(cluster, "a"))[0])
    path = cluster.path("secrets")
    async with (
        cluster.watch(path, resourceVersion=start_version) as first_watch,
        cluster.watch(path, resourceVersion=start_version) as second_watch,
    ):
        await create_secrets(cluster, "bc")
        assert await first_watch.take(2) == await second_watch.take(2) == [("ADDED", "b"), ("ADDED", "c")]


@check(
    "The resourceVersions of a watch only increase.", area=AREA, mutation=sets("object.metadata.resourceVersion", "5")
)
async def increasing_versions(cluster: Cluster) -> None:
    start_version = version_of((await create_secrets(cluster, "ab"))[-1])
    async with cluster.watch(cluster.path("secrets"), resourceVersion=start_version) as watch:
        for name in "abab":
            await touch(cluster, name)
        versions = [int(version_of((await watch.next())["object"])) for _ in range(4)]
    assert versions == sorted(set(versions)) and versions[0] > int(start_version)


@check(
    "A watch as PartialObjectMetadata sends only metadata in each event.",
    area=AREA,
    mutation=swaps(b"PartialObjectMetadata", b"Secret"),
)
async def partial(cluster: Cluster) -> None:
    await create_secrets(cluster, "a")
    accept = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
    async with cluster.watch(cluster.path("secrets"), headers=accept) as watch:
        event = await watch.next()
        assert event["object"]["kind"] == "PartialObjectMetadata" and event["object"]["metadata"]["name"] == "a"
        assert "data" not in event["object"] and "type" not in event["object"]


@check(
    "A write without changes sends no event.",
    area=AREA,
    mutation=replaced("registry.writes:json_equal", lambda new, old: False),
)
async def unchanged_writes(cluster: Cluster) -> None:
    start_version = version_of((await create_secrets(cluster, "a"))[0])
    async with cluster.watch(cluster.path("secrets"), resourceVersion=start_version) as watch:
        (await cluster.request("PATCH", cluster.path("secrets", "a"), {"metadata": {"labels": {}}})).expect(200)
        (await cluster.request("PATCH", cluster.path("secrets", "a"), {"data": {}}, dryRun="All")).expect(200)
        await create_secrets(cluster, "b")
        assert await watch.take(1) == [("ADDED", "b")]


@check(
    "A watch with bookmarks gets a bookmark before its timeout.",
    area=AREA,
    mutation=ignores("allowWatchBookmarks"),
)
async def last_bookmark(cluster: Cluster) -> None:
    start_version = version_of((await create_secrets(cluster, "a"))[0])
    query = {"resourceVersion": start_version, "allowWatchBookmarks": "true", "timeoutSeconds": "3"}
    async with cluster.watch(cluster.path("secrets"), **query) as watch:
        await create_secrets(cluster, "b")  # kube-apiserver sends no bookmark before its first event
        assert await watch.take(1) == [("ADDED", "b")]
        bookmark = await watch.next(10)
        assert bookmark["type"] == "BOOKMARK" and int(version_of(bookmark["object"])) >= int(start_version)
        assert bookmark["object"] == {
            "kind": "Secret",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": version_of(bookmark["object"])},
        }
