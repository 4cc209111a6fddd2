"""Lists: pages, versions, and which parameters go together."""

from __future__ import annotations

from typing import Any

from trainyard.testing.check_server import Reply, Subject, check
from trainyard.testing.check_server.breaks import answers, ignores, original, replaced, sets, swaps, unsent, without

AREA = "lists"
FAR = "99999999999"


async def secrets(yard: Subject, names: str, **meta: Any) -> list[Any]:
    """Secrets of these names (a letter each): of all resources the one that nobody else makes in a new namespace."""
    made = []
    for name in names:
        obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, **meta}}
        made.append((await yard.ask("POST", yard.at("secrets"), obj)).must(201))
    return made


def names(reply: Reply) -> str:
    return "".join(one["metadata"]["name"] for one in reply.must(200)["items"])


def version(obj: Any) -> str:
    return str(obj["metadata"]["resourceVersion"])


@check(
    "A list has the kind of its resource with List behind, and a resourceVersion.",
    area=AREA,
    breaks=swaps(b"SecretList", b"List"),
)
async def listed(yard: Subject) -> None:
    made = await secrets(yard, "ba")
    said = (await yard.ask("GET", yard.at("secrets"))).must(200)
    assert said["kind"] == "SecretList" and said["apiVersion"] == "v1"
    assert int(version(said)) >= int(version(made[-1]))
    assert [one["metadata"]["name"] for one in said["items"]] == ["a", "b"]


@check("An empty list has items: [], not null.", area=AREA, breaks=without("items"))
async def empty(yard: Subject) -> None:
    assert (await yard.ask("GET", yard.at("secrets"))).must(200)["items"] == []


@check(
    "A limit gives a page, a continue for the next, and how many remain; the last page has neither.",
    area=AREA,
    breaks=ignores("limit"),
)
async def pages(yard: Subject) -> None:
    await secrets(yard, "abcde")
    path = yard.at("secrets")
    first = (await yard.ask("GET", path, limit="2")).must(200)
    assert [one["metadata"]["name"] for one in first["items"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 3
    second = (await yard.ask("GET", path, limit="2", continue_=first["metadata"]["continue"])).must(200)
    assert [one["metadata"]["name"] for one in second["items"]] == ["c", "d"]
    assert second["metadata"]["remainingItemCount"] == 1
    last = (await yard.ask("GET", path, limit="2", continue_=second["metadata"]["continue"])).must(200)
    assert [one["metadata"]["name"] for one in last["items"]] == ["e"]
    assert "remainingItemCount" not in last["metadata"] and not last["metadata"].get("continue")


def _forgets_the_version(token: str) -> Any:
    return 0, _READ(token)[1]


_READ = original("registry.lists:_read_token")


@check(
    "All pages of a list have one resourceVersion and are one snapshot.",
    area=AREA,
    breaks=replaced("registry.lists:_read_token", _forgets_the_version, "forgets the version in a continue"),
)
async def snapshot(yard: Subject) -> None:
    await secrets(yard, "abcd")
    path = yard.at("secrets")
    first = (await yard.ask("GET", path, limit="2")).must(200)
    (await yard.ask("DELETE", f"{path}/d")).must(200)
    await secrets(yard, "e")
    rest = await yard.ask("GET", path, continue_=first["metadata"]["continue"])
    assert names(rest) == "cd" and version(rest.json) == version(first)


@check("With a selector a page does not say how many remain.", area=AREA, breaks=ignores("labelSelector"))
async def unknown_rest(yard: Subject) -> None:
    await secrets(yard, "abc", labels={"l": "x"})
    said = (await yard.ask("GET", yard.at("secrets"), limit="2", labelSelector="l=x")).must(200)["metadata"]
    assert said["continue"] and "remainingItemCount" not in said


@check(
    "A page that holds exactly what is left has no continue.",
    area=AREA,
    breaks=ignores("limit") | sets("metadata.continue", "x"),
)
async def whole_page(yard: Subject) -> None:
    await secrets(yard, "ab")
    assert not (await yard.ask("GET", yard.at("secrets"), limit="2")).must(200)["metadata"].get("continue")


@check(
    "A limit of 0 or less is none.",
    area=AREA,
    breaks=replaced("registry.list_options:int_parameter", lambda request, name: 1 if name == "limit" else 0),
)
async def no_limit(yard: Subject) -> None:
    await secrets(yard, "abc")
    assert names(await yard.ask("GET", yard.at("secrets"), limit="0")) == "abc"
    assert names(await yard.ask("GET", yard.at("secrets"), limit="-1")) == "abc"


@check(
    "What is no number is refused as limit, timeoutSeconds or resourceVersion with 400.",
    area=AREA,
    breaks=ignores("limit", "timeoutSeconds", "resourceVersion"),
)
async def no_numbers(yard: Subject) -> None:
    for query in (
        {"limit": "x"},
        {"limit": ""},
        {"timeoutSeconds": "x"},
        {"resourceVersion": "x"},
        {"resourceVersion": "-1"},
    ):
        (await yard.ask("GET", yard.at("secrets"), **query)).refused(400, "BadRequest")


@check("A continue that no server gave is refused with 400.", area=AREA, breaks=ignores("continue"))
async def made_up(yard: Subject) -> None:
    for token in ("junk", "e30", "bnVsbA"):
        (await yard.ask("GET", yard.at("secrets"), continue_=token)).refused(
            400, "BadRequest", "continue key is not valid"
        )


@check(
    "A continue and a resourceVersion together are refused with 400; 0 is as good as none.",
    area=AREA,
    breaks=ignores("resourceVersion"),
)
async def continue_and_version(yard: Subject) -> None:
    await secrets(yard, "abc")
    token = (await yard.ask("GET", yard.at("secrets"), limit="1")).must(200)["metadata"]["continue"]
    (await yard.ask("GET", yard.at("secrets"), continue_=token, resourceVersion="5")).refused(
        400, "BadRequest", "specifying resource version is not allowed when using continue"
    )
    assert names(await yard.ask("GET", yard.at("secrets"), continue_=token, resourceVersion="0")) == "bc"


@check(
    "A continue whose snapshot is gone is 410 Expired, and the answer has another one that goes on from there.",
    area=AREA,
    breaks=without("metadata.continue"),
)
async def expired(yard: Subject) -> None:
    await secrets(yard, "ab")
    token = (await yard.ask("GET", yard.at("secrets"), limit="1")).must(200)["metadata"]["continue"]
    kind = await yard.crd()  # its objects are younger than the token, so no server has them as they were then
    for name in ("a", "b", "c"):
        (await yard.ask("POST", kind.path(), kind.obj(name))).must(201)
    await yard.forget()
    said = (await yard.ask("GET", kind.path(), limit="1", continue_=token)).refused(410, "Expired")
    fresh = said["metadata"]["continue"]
    page = await yard.ask("GET", kind.path(), limit="1", continue_=fresh)
    assert names(page) == "b"
    assert names(await yard.ask("GET", kind.path(), continue_=page.json["metadata"]["continue"])) == "c"


@check(
    "A list without a version, of 0, and not older than a version shows the newest.",
    area=AREA,
    breaks=answers(200, 410),
)
async def newest(yard: Subject) -> None:
    made = await secrets(yard, "abc")
    first = version(made[0])
    for query in (
        {},
        {"resourceVersion": "0"},
        {"resourceVersion": "0", "resourceVersionMatch": "NotOlderThan"},
        {"resourceVersion": first},
        {"resourceVersion": first, "resourceVersionMatch": "NotOlderThan"},
        {"resourceVersion": version(made[-1]), "resourceVersionMatch": "NotOlderThan"},
    ):
        reply = await yard.ask("GET", yard.at("secrets"), **query)
        assert names(reply) == "abc", query
        assert int(version(reply.json)) >= int(version(made[-1])), query


@check(
    "A list at exactly a version shows what was there then, and has that version.",
    area=AREA,
    breaks=ignores("resourceVersion", "resourceVersionMatch"),
)
async def exactly(yard: Subject) -> None:
    made = await secrets(yard, "abc")
    then = version(made[1])
    (await yard.ask("DELETE", yard.at("secrets", "a"))).must(200)
    reply = await yard.ask("GET", yard.at("secrets"), resourceVersion=then, resourceVersionMatch="Exact")
    assert names(reply) == "ab" and version(reply.json) == then
    page = await yard.ask("GET", yard.at("secrets"), resourceVersion=then, resourceVersionMatch="Exact", limit="1")
    assert names(page) == "a" and version(page.json) == then


@check(
    "A version beside a limit, without a match, means exactly that version; beside 0 the limit is ignored.",
    area=AREA,
    breaks=ignores("limit"),
)
async def legacy_limit(yard: Subject) -> None:
    made = await secrets(yard, "abc")
    reply = await yard.ask("GET", yard.at("secrets"), resourceVersion=version(made[1]), limit="5")
    assert names(reply) == "ab" and version(reply.json) == version(made[1])
    assert names(await yard.ask("GET", yard.at("secrets"), resourceVersion="0", limit="1")) == "abc"


@check(
    "A list at exactly a version that is gone is 410 Expired.",
    area=AREA,
    breaks=ignores("resourceVersion", "resourceVersionMatch"),
)
async def gone(yard: Subject) -> None:
    kind = await yard.crd()
    (await yard.ask("POST", kind.path(), kind.obj("a"))).must(201)
    await yard.forget()
    exact = {"resourceVersion": "1", "resourceVersionMatch": "Exact"}
    (await yard.ask("GET", kind.path(), **exact)).refused(410, "Expired", "too old")
    assert names(await yard.ask("GET", kind.path(), resourceVersion="1")) == "a"


@check(
    "A version that has not been given yet is 504 Timeout with a cause, and says when to ask again.",
    area=AREA,
    breaks=sets("details.causes", []),
)
async def future(yard: Subject) -> None:
    for query in ({}, {"resourceVersionMatch": "Exact"}, {"resourceVersionMatch": "NotOlderThan"}):
        reply = await yard.ask("GET", yard.at("secrets"), resourceVersion=FAR, **query)
        said = reply.refused(504, "Timeout", f"Too large resource version: {FAR}, current: ")
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        assert said["details"] == {"causes": [cause], "retryAfterSeconds": 1}


@check(
    "What is 504 for a version to come tells in a header when to ask again.", area=AREA, breaks=unsent("Retry-After")
)
async def future_header(yard: Subject) -> None:
    assert (await yard.ask("GET", yard.at("secrets"), resourceVersion=FAR)).headers["retry-after"] == "1"


FORBIDDEN = (
    ({"resourceVersionMatch": "Exact"}, ["forbidden unless resourceVersion is provided"]),
    ({"resourceVersionMatch": "NotOlderThan"}, ["forbidden unless resourceVersion is provided"]),
    ({"resourceVersionMatch": "X", "resourceVersion": "0"}, ['supported values: "Exact", "NotOlderThan", ""']),
    ({"resourceVersionMatch": "X"}, ["unless resourceVersion is provided", 'Unsupported value: "X"']),
    ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, ['"exact" is forbidden for resourceVersion "0"']),
    ({"resourceVersionMatch": "Exact", "continue": "x"}, ["unless resourceVersion", "when continue is provided"]),
    ({"sendInitialEvents": "true"}, ["sendInitialEvents is forbidden for list"]),
)


@check(
    "Parameters of a list that do not go together are refused with 422, each with its cause.",
    area=AREA,
    breaks=ignores("resourceVersionMatch", "sendInitialEvents"),
)
async def together(yard: Subject) -> None:
    for query, words in FORBIDDEN:
        said = (await yard.ask("GET", yard.at("secrets"), **query)).refused(422, "Invalid", *words)
        details = said["details"]
        assert (details["group"], details["kind"]) == ("meta.k8s.io", "ListOptions"), said
        assert len(details["causes"]) == len(words), said


@check("A parameter that nobody knows is ignored.", area=AREA, breaks=answers(200, 400))
async def unknown_parameter(yard: Subject) -> None:
    await secrets(yard, "a")
    assert names(await yard.ask("GET", yard.at("secrets"), nonsense="x")) == "a"
