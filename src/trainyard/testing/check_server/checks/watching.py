"""Watches: from where they start, what they say, and how they end."""

from __future__ import annotations

import time
from typing import Any

from trainyard.objects import decode
from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import answers, ignores, replaced, sets, swaps, without
from trainyard.testing.check_server.checks.listing import secrets, version

AREA = "watches"
END = "k8s.io/initial-events-end"
INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
SHORT = {"timeoutSeconds": "1"}


async def change(yard: Subject, name: str, **meta: Any) -> Any:
    path = yard.at("secrets", name)
    return (await yard.ask("PATCH", path, {"metadata": meta or {"annotations": {"at": str(time.time())}}})).must(200)


async def heard(yard: Subject, **query: str) -> list[Any]:
    """All that a watch of one second says."""
    async with yard.watch(yard.at("secrets"), **{**SHORT, **query}) as lines:
        return await lines.rest()


def told(lines: list[Any]) -> list[tuple[str, str]]:
    return [(line["type"], line["object"]["metadata"].get("name", "")) for line in lines]


@check(
    "From a version on, a watch says what came after it, in order: ADDED, MODIFIED, DELETED.",
    area=AREA,
    breaks=ignores("resourceVersion"),
)
async def from_version(yard: Subject) -> None:
    start = version((await secrets(yard, "a"))[0])
    await secrets(yard, "b")
    await change(yard, "a")
    async with yard.watch(yard.at("secrets"), resourceVersion=start) as lines:
        assert await lines.take(2) == [("ADDED", "b"), ("MODIFIED", "a")]
        (await yard.ask("DELETE", yard.at("secrets", "b"))).must(200)
        assert await lines.take(1) == [("DELETED", "b")]


@check("The object of a line is the object as it then was, with its kind.", area=AREA, breaks=without("object.kind"))
async def whole(yard: Subject) -> None:
    made = (await secrets(yard, "a"))[0]
    start = str(int(version(made)) - 1)
    changed = await change(yard, "a", labels={"x": "y"})
    async with yard.watch(yard.at("secrets"), resourceVersion=start) as lines:
        line = await lines.until(lambda line: line["object"]["metadata"]["name"] == "a")
        assert line["object"] == made and line["object"]["kind"] == "Secret"
        assert (await lines.next())["object"] == changed


@check(
    "The object of a DELETED line is the last one, with the version of the deletion.",
    area=AREA,
    breaks=sets("object.metadata.resourceVersion", "1"),
)
async def last_words(yard: Subject) -> None:
    made = (await secrets(yard, "a", labels={"x": "y"}))[0]
    async with yard.watch(yard.at("secrets"), resourceVersion=version(made)) as lines:
        (await yard.ask("DELETE", yard.at("secrets", "a"))).must(200)
        line = await lines.next()
        assert line["type"] == "DELETED" and line["object"]["metadata"]["labels"] == {"x": "y"}
        assert int(version(line["object"])) > int(version(made))


@check(
    "Without a version, and from 0, a watch first says ADDED for what is there.",
    area=AREA,
    breaks=replaced("registry.list_options:initial_events", lambda request: (False, False)),
)
async def from_nothing(yard: Subject) -> None:
    await secrets(yard, "ab")
    for query in ({}, {"resourceVersion": "0"}):
        async with yard.watch(yard.at("secrets"), **query) as lines:
            assert sorted(await lines.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
            await change(yard, "a")
            assert await lines.take(1) == [("MODIFIED", "a")]


@check(
    "With sendInitialEvents a watch says what is there, then a bookmark that says so, then the changes.",
    area=AREA,
    breaks=without("object.metadata.annotations"),
)
async def initial(yard: Subject) -> None:
    made = await secrets(yard, "ab")
    async with yard.watch(yard.at("secrets"), **INITIAL, allowWatchBookmarks="true") as lines:
        assert sorted(await lines.take(2)) == [("ADDED", "a"), ("ADDED", "b")]
        mark = await lines.next()
        assert mark["type"] == "BOOKMARK" and mark["object"]["metadata"]["annotations"] == {END: "true"}
        assert mark["object"]["kind"] == "Secret" and mark["object"]["apiVersion"] == "v1"
        assert int(version(mark["object"])) >= int(version(made[-1]))
        await change(yard, "a")
        assert await lines.take(1) == [("MODIFIED", "a")]


@check(
    "A watch without a version that takes bookmarks gets the one that ends the beginning, too.",
    area=AREA,
    breaks=ignores("allowWatchBookmarks"),
)
async def legacy_initial(yard: Subject) -> None:
    await secrets(yard, "a")
    for query in ({}, {"resourceVersion": "0"}):
        async with yard.watch(yard.at("secrets"), allowWatchBookmarks="true", **query) as lines:
            assert await lines.take(1) == [("ADDED", "a")]
            assert (await lines.next())["object"]["metadata"]["annotations"] == {END: "true"}


@check(
    "Who takes no bookmarks gets none.",
    area=AREA,
    breaks=replaced("registry.list_options:initial_events", lambda request: (True, True)),
)
async def no_bookmark(yard: Subject) -> None:
    await secrets(yard, "a")
    assert told(await heard(yard, **INITIAL)) == [("ADDED", "a")]


@check(
    "With sendInitialEvents=false a watch without a version starts now.",
    area=AREA,
    breaks=ignores("sendInitialEvents", "resourceVersionMatch"),
)
async def from_now(yard: Subject) -> None:
    await secrets(yard, "a")
    async with yard.watch(yard.at("secrets"), sendInitialEvents="false", resourceVersionMatch="NotOlderThan") as lines:
        await secrets(yard, "b")
        assert await lines.take(1) == [("ADDED", "b")]


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
    "Parameters of a watch that do not go together are refused with 422, each with its cause.",
    area=AREA,
    breaks=ignores("sendInitialEvents", "resourceVersionMatch", "continue") | ignores("watch"),
)
async def together(yard: Subject) -> None:
    for query, words in FORBIDDEN:
        said = (await yard.ask("GET", yard.at("secrets"), watch="true", **SHORT, **query)).refused(
            422, "Invalid", *words
        )
        assert said["details"]["kind"] == "ListOptions" and len(said["details"]["causes"]) == len(words), said


@check(
    "A watch from a version that is gone says ERROR with a Status 410 Expired, and ends.",
    area=AREA,
    breaks=sets("object.code", 200),
)
async def gone(yard: Subject) -> None:
    kind = await yard.crd()
    for name in ("a", "b"):
        (await yard.ask("POST", kind.path(), kind.obj(name))).must(201)
    await yard.forget()
    async with yard.watch(kind.path(), resourceVersion="1") as lines:
        line, *more = await lines.rest()
        said = line["object"]
        assert line["type"] == "ERROR" and not more
        assert (said["kind"], said["code"], said["reason"], said["status"]) == ("Status", 410, "Expired", "Failure")
        assert said["message"].startswith("too old resource version: 1 (")


@check("A watch ends after its timeoutSeconds, as if it were done.", area=AREA, breaks=ignores("timeoutSeconds"))
async def timeout(yard: Subject) -> None:
    await secrets(yard, "a")
    began = time.monotonic()
    assert told(await heard(yard)) == [("ADDED", "a")]
    assert 0.5 < time.monotonic() - began < 10


@check(
    "With a label selector, an update that leaves the selection is DELETED, one that enters it ADDED.",
    area=AREA,
    breaks=ignores("labelSelector"),
)
async def crossing(yard: Subject) -> None:
    start = version((await secrets(yard, "a", labels={"l": "out"}))[0])
    async with yard.watch(yard.at("secrets"), resourceVersion=start, labelSelector="l=in") as lines:
        await change(yard, "a", labels={"l": "in"})
        await change(yard, "a", annotations={"x": "y"})
        left = await change(yard, "a", labels={"l": "out"})
        await change(yard, "a", labels={"l": "far"})
        await secrets(yard, "b", labels={"l": "in"})
        found = [await lines.next() for _ in range(4)]
        assert told(found) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "b")]
        gone = found[2]["object"]["metadata"]
        assert gone["labels"] == {"l": "in"} and gone["resourceVersion"] == version(left)


@check("With a field selector it is the same.", area=AREA, breaks=ignores("fieldSelector"), needs=("pods",))
async def crossing_fields(yard: Subject) -> None:
    start = version(await yard.pod("a", nodeName="nowhere"))
    await yard.pod("b", nodeName="nowhere")
    running = {"fieldSelector": "status.phase=Running", "resourceVersion": start}
    async with yard.watch(yard.at("pods"), **running) as lines:
        for phase in ("Running", "Succeeded"):
            (await yard.ask("PATCH", yard.at("pods", "a", "status"), {"status": {"phase": phase}})).must(200)
        assert await lines.take(2) == [("ADDED", "a"), ("DELETED", "a")]


@check(
    "A watch of one name, by field, hears of that object alone; beside a name in the path watch means nothing.",
    area=AREA,
    breaks=replaced("registry.selection:_test", lambda *_, **__: lambda key, record: True),
)
async def one_name(yard: Subject) -> None:
    start = version((await secrets(yard, "ab"))[-1])
    async with yard.watch(yard.at("secrets"), resourceVersion=start, fieldSelector="metadata.name=a") as lines:
        await change(yard, "b")
        await change(yard, "a")
        assert await lines.take(1) == [("MODIFIED", "a")]
    assert (await yard.ask("GET", yard.at("secrets", "a"), watch="true", **SHORT)).must(200)["kind"] == "Secret"


@check(
    "A watch of a namespace hears nothing of another, one of all namespaces hears of each.",
    area=AREA,
    breaks=replaced("storage.watches:event_line", lambda watch, entry: b""),
)
async def namespaces(yard: Subject) -> None:
    label = {"labelSelector": f"l={yard.name('x')}"}
    start = version((await secrets(yard, "a", labels={"l": yard.name("x")}))[0])
    everywhere = yard.watch("/api/v1/secrets", resourceVersion=start, **label)
    elsewhere = yard.watch(yard.at("secrets", namespace="default"), resourceVersion=start, **SHORT, **label)
    async with everywhere as all_lines, elsewhere as other_lines:
        await change(yard, "a")
        assert await all_lines.take(1) == [("MODIFIED", "a")]
        assert await other_lines.rest() == []


@check("Every value of watch but false and 0 means it.", area=AREA, breaks=ignores("watch"))
async def words_for_true(yard: Subject) -> None:
    await secrets(yard, "a")
    for word in ("true", "1", "yes"):
        reply = await yard.ask("GET", yard.at("secrets"), watch=word, **SHORT)
        assert reply.code == 200 and decode(reply.body.splitlines()[0])["type"] == "ADDED", word
    for word in ("false", "0"):
        assert (await yard.ask("GET", yard.at("secrets"), watch=word)).must(200)["kind"] == "SecretList"


@check(
    "A watch with a selector that cannot be parsed is refused with 400 before it begins.",
    area=AREA,
    breaks=answers(400, 200),
)
async def bad_selector(yard: Subject) -> None:
    for query in ({"labelSelector": "=a"}, {"fieldSelector": "data.x=y"}, {"timeoutSeconds": "x"}):
        (await yard.ask("GET", yard.at("secrets"), watch="true", **query)).refused(400, "BadRequest")


@check(
    "Two watches of one collection hear the same lines.",
    area=AREA,
    breaks=replaced("storage.watches:event_line", lambda watch, entry: b"", "says nothing of a change"),
)
async def two(yard: Subject) -> None:
    start = version((await secrets(yard, "a"))[0])
    path = yard.at("secrets")
    async with yard.watch(path, resourceVersion=start) as one, yard.watch(path, resourceVersion=start) as other:
        await secrets(yard, "bc")
        assert await one.take(2) == await other.take(2) == [("ADDED", "b"), ("ADDED", "c")]


@check("The versions in a watch only grow.", area=AREA, breaks=sets("object.metadata.resourceVersion", "5"))
async def growing(yard: Subject) -> None:
    start = version((await secrets(yard, "ab"))[-1])
    async with yard.watch(yard.at("secrets"), resourceVersion=start) as lines:
        for name in "abab":
            await change(yard, name)
        seen = [int(version((await lines.next())["object"])) for _ in range(4)]
    assert seen == sorted(set(seen)) and seen[0] > int(start)


@check(
    "A watch in the form of metadata alone says so in each line.",
    area=AREA,
    breaks=swaps(b"PartialObjectMetadata", b"Secret"),
)
async def partial(yard: Subject) -> None:
    await secrets(yard, "a")
    accept = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
    async with yard.watch(yard.at("secrets"), headers=accept) as lines:
        line = await lines.next()
        assert line["object"]["kind"] == "PartialObjectMetadata" and line["object"]["metadata"]["name"] == "a"
        assert "data" not in line["object"] and "type" not in line["object"]


@check(
    "A write that changes nothing is no line.",
    area=AREA,
    breaks=replaced("registry.writes:json_equal", lambda new, old: False),
)
async def silence(yard: Subject) -> None:
    start = version((await secrets(yard, "a"))[0])
    async with yard.watch(yard.at("secrets"), resourceVersion=start) as lines:
        (await yard.ask("PATCH", yard.at("secrets", "a"), {"metadata": {"labels": {}}})).must(200)
        (await yard.ask("PATCH", yard.at("secrets", "a"), {"data": {}}, dryRun="All")).must(200)
        await secrets(yard, "b")
        assert await lines.take(1) == [("ADDED", "b")]


@check(
    "A watch that takes bookmarks is told how far it has come before its time is up.",
    area=AREA,
    breaks=ignores("allowWatchBookmarks"),
)
async def last_bookmark(yard: Subject) -> None:
    start = version((await secrets(yard, "a"))[0])
    query = {"resourceVersion": start, "allowWatchBookmarks": "true", "timeoutSeconds": "3"}
    async with yard.watch(yard.at("secrets"), **query) as lines:
        await secrets(yard, "b")  # kube-apiserver marks nothing before it has sent an event since its start
        assert await lines.take(1) == [("ADDED", "b")]
        mark = await lines.next(10)
        assert mark["type"] == "BOOKMARK" and int(version(mark["object"])) >= int(start)
        assert mark["object"] == {
            "kind": "Secret",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": version(mark["object"])},
        }
