"""Lists: pagination, resource versions, and combinations of parameters."""

from __future__ import annotations

from typing import Any

from tests.conformance import Cluster, Response, check
from tests.conformance.mutations import (
    answers,
    ignores,
    original,
    replaced,
    sets,
    swaps,
    without,
    without_header,
)

AREA = "lists"
FUTURE_VERSION = "99999999999"


async def create_secrets(cluster: Cluster, names: str, **meta: Any) -> list[Any]:
    """Create Secrets with these names (a letter each): no controller creates Secrets in a new namespace."""
    created = []
    for name in names:
        obj = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, **meta}}
        created.append((await cluster.request("POST", cluster.path("secrets"), obj)).expect(201))
    return created


def names_of(response: Response) -> str:
    return "".join(item["metadata"]["name"] for item in response.expect(200)["items"])


def version_of(obj: Any) -> str:
    return str(obj["metadata"]["resourceVersion"])


@check(
    "A list has the kind of its items plus `List`, and a resourceVersion, and its items are sorted by name.",
    area=AREA,
    mutation=swaps(b"SecretList", b"List"),
)
async def list_kind(cluster: Cluster) -> None:
    created = await create_secrets(cluster, "ba")
    object_list = (await cluster.request("GET", cluster.path("secrets"))).expect(200)
    assert object_list["kind"] == "SecretList" and object_list["apiVersion"] == "v1"
    assert int(version_of(object_list)) >= int(version_of(created[-1]))
    assert [item["metadata"]["name"] for item in object_list["items"]] == ["a", "b"]


@check("An empty list has items: [], not null.", area=AREA, mutation=without("items"))
async def empty(cluster: Cluster) -> None:
    assert (await cluster.request("GET", cluster.path("secrets"))).expect(200)["items"] == []


@check(
    "A page has a continue token and remainingItemCount; the last page has neither.",
    area=AREA,
    mutation=ignores("limit"),
)
async def pages(cluster: Cluster) -> None:
    await create_secrets(cluster, "abcde")
    path = cluster.path("secrets")
    first_page = (await cluster.request("GET", path, limit="2")).expect(200)
    assert [item["metadata"]["name"] for item in first_page["items"]] == ["a", "b"]
    assert first_page["metadata"]["remainingItemCount"] == 3
    second_page = (await cluster.request("GET", path, limit="2", continue_=first_page["metadata"]["continue"])).expect(
        200
    )
    assert [item["metadata"]["name"] for item in second_page["items"]] == ["c", "d"]
    assert second_page["metadata"]["remainingItemCount"] == 1
    last_page = (await cluster.request("GET", path, limit="2", continue_=second_page["metadata"]["continue"])).expect(
        200
    )
    assert [item["metadata"]["name"] for item in last_page["items"]] == ["e"]
    assert "remainingItemCount" not in last_page["metadata"] and not last_page["metadata"].get("continue")


def _token_without_version(token: str) -> Any:
    return 0, _READ_TOKEN(token)[1]


_READ_TOKEN = original("registry.lists:_read_token")


@check(
    "All pages of a list have the same resourceVersion and snapshot.",
    area=AREA,
    mutation=replaced(
        "registry.lists:_read_token", _token_without_version, "loses the resourceVersion of a continue token"
    ),
)
async def snapshot(cluster: Cluster) -> None:
    await create_secrets(cluster, "abcd")
    path = cluster.path("secrets")
    first_page = (await cluster.request("GET", path, limit="2")).expect(200)
    (await cluster.request("DELETE", f"{path}/d")).expect(200)
    await create_secrets(cluster, "e")
    second_page = await cluster.request("GET", path, continue_=first_page["metadata"]["continue"])
    assert names_of(second_page) == "cd" and version_of(second_page.json) == version_of(first_page)


@check("With a selector a page has no remainingItemCount.", area=AREA, mutation=ignores("labelSelector"))
async def page_with_selector(cluster: Cluster) -> None:
    await create_secrets(cluster, "abc", labels={"l": "x"})
    meta = (await cluster.request("GET", cluster.path("secrets"), limit="2", labelSelector="l=x")).expect(200)[
        "metadata"
    ]
    assert meta["continue"] and "remainingItemCount" not in meta


@check(
    "A page with exactly the remaining items has no continue token.",
    area=AREA,
    mutation=ignores("limit") | sets("metadata.continue", "x"),
)
async def exact_page(cluster: Cluster) -> None:
    await create_secrets(cluster, "ab")
    assert (
        not (await cluster.request("GET", cluster.path("secrets"), limit="2")).expect(200)["metadata"].get("continue")
    )


@check(
    "A limit of 0 or less is ignored.",
    area=AREA,
    mutation=replaced("registry.list_options:int_parameter", lambda request, name: 1 if name == "limit" else 0),
)
async def no_limit(cluster: Cluster) -> None:
    await create_secrets(cluster, "abc")
    assert names_of(await cluster.request("GET", cluster.path("secrets"), limit="0")) == "abc"
    assert names_of(await cluster.request("GET", cluster.path("secrets"), limit="-1")) == "abc"


@check(
    "limit, timeoutSeconds or resourceVersion that is not a number is rejected with 400.",
    area=AREA,
    mutation=ignores("limit", "timeoutSeconds", "resourceVersion"),
)
async def not_numbers(cluster: Cluster) -> None:
    for query in (
        {"limit": "x"},
        {"limit": ""},
        {"timeoutSeconds": "x"},
        {"resourceVersion": "x"},
        {"resourceVersion": "-1"},
    ):
        (await cluster.request("GET", cluster.path("secrets"), **query)).expect_error(400, "BadRequest")


@check("An invalid continue token is rejected with 400.", area=AREA, mutation=ignores("continue"))
async def invalid_continue(cluster: Cluster) -> None:
    for token in ("junk", "e30", "bnVsbA"):
        (await cluster.request("GET", cluster.path("secrets"), continue_=token)).expect_error(
            400, "BadRequest", "continue key is not valid"
        )


@check(
    "A continue token with a resourceVersion other than 0 is rejected with 400.",
    area=AREA,
    mutation=ignores("resourceVersion"),
)
async def continue_and_version(cluster: Cluster) -> None:
    await create_secrets(cluster, "abc")
    token = (await cluster.request("GET", cluster.path("secrets"), limit="1")).expect(200)["metadata"]["continue"]
    (await cluster.request("GET", cluster.path("secrets"), continue_=token, resourceVersion="5")).expect_error(
        400, "BadRequest", "specifying resource version is not allowed when using continue"
    )
    assert names_of(await cluster.request("GET", cluster.path("secrets"), continue_=token, resourceVersion="0")) == "bc"


@check(
    "An expired continue token gives 410 Expired with a new token that continues at the same name.",
    area=AREA,
    mutation=without("metadata.continue"),
)
async def expired(cluster: Cluster) -> None:
    await create_secrets(cluster, "ab")
    token = (await cluster.request("GET", cluster.path("secrets"), limit="1")).expect(200)["metadata"]["continue"]
    resource = await cluster.create_crd()  # created after the token, so the server has no snapshot of it
    for name in ("a", "b", "c"):
        (await cluster.request("POST", resource.path(), resource.obj(name))).expect(201)
    await cluster.compact()
    error = (await cluster.request("GET", resource.path(), limit="1", continue_=token)).expect_error(410, "Expired")
    new_token = error["metadata"]["continue"]
    page = await cluster.request("GET", resource.path(), limit="1", continue_=new_token)
    assert names_of(page) == "b"
    assert names_of(await cluster.request("GET", resource.path(), continue_=page.json["metadata"]["continue"])) == "c"


@check(
    "A list without resourceVersion, with 0, or with NotOlderThan returns the latest state.",
    area=AREA,
    mutation=answers(200, 410),
)
async def newest(cluster: Cluster) -> None:
    created = await create_secrets(cluster, "abc")
    first = version_of(created[0])
    for query in (
        {},
        {"resourceVersion": "0"},
        {"resourceVersion": "0", "resourceVersionMatch": "NotOlderThan"},
        {"resourceVersion": first},
        {"resourceVersion": first, "resourceVersionMatch": "NotOlderThan"},
        {"resourceVersion": version_of(created[-1]), "resourceVersionMatch": "NotOlderThan"},
    ):
        response = await cluster.request("GET", cluster.path("secrets"), **query)
        assert names_of(response) == "abc", query
        assert int(version_of(response.json)) >= int(version_of(created[-1])), query


@check(
    "A list with resourceVersionMatch=Exact returns the state at that resourceVersion.",
    area=AREA,
    mutation=ignores("resourceVersion", "resourceVersionMatch"),
)
async def exactly(cluster: Cluster) -> None:
    created = await create_secrets(cluster, "abc")
    old_version = version_of(created[1])
    (await cluster.request("DELETE", cluster.path("secrets", "a"))).expect(200)
    response = await cluster.request(
        "GET", cluster.path("secrets"), resourceVersion=old_version, resourceVersionMatch="Exact"
    )
    assert names_of(response) == "ab" and version_of(response.json) == old_version
    page = await cluster.request(
        "GET", cluster.path("secrets"), resourceVersion=old_version, resourceVersionMatch="Exact", limit="1"
    )
    assert names_of(page) == "a" and version_of(page.json) == old_version


@check(
    "resourceVersion with a limit and no match means Exact; with resourceVersion=0 the limit is ignored.",
    area=AREA,
    mutation=ignores("limit"),
)
async def legacy_limit(cluster: Cluster) -> None:
    created = await create_secrets(cluster, "abc")
    response = await cluster.request("GET", cluster.path("secrets"), resourceVersion=version_of(created[1]), limit="5")
    assert names_of(response) == "ab" and version_of(response.json) == version_of(created[1])
    assert names_of(await cluster.request("GET", cluster.path("secrets"), resourceVersion="0", limit="1")) == "abc"


@check(
    "A list at a compacted resourceVersion gives 410 Expired.",
    area=AREA,
    mutation=ignores("resourceVersion", "resourceVersionMatch"),
)
async def expired_version(cluster: Cluster) -> None:
    resource = await cluster.create_crd()
    (await cluster.request("POST", resource.path(), resource.obj("a"))).expect(201)
    await cluster.compact()
    exact = {"resourceVersion": "1", "resourceVersionMatch": "Exact"}
    (await cluster.request("GET", resource.path(), **exact)).expect_error(410, "Expired", "too old")
    assert names_of(await cluster.request("GET", resource.path(), resourceVersion="1")) == "a"


@check(
    "A future resourceVersion gives 504 Timeout with a cause and retryAfterSeconds.",
    area=AREA,
    mutation=sets("details.causes", []),
)
async def future(cluster: Cluster) -> None:
    for query in ({}, {"resourceVersionMatch": "Exact"}, {"resourceVersionMatch": "NotOlderThan"}):
        response = await cluster.request("GET", cluster.path("secrets"), resourceVersion=FUTURE_VERSION, **query)
        error = response.expect_error(504, "Timeout", f"Too large resource version: {FUTURE_VERSION}, current: ")
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        assert error["details"] == {"causes": [cause], "retryAfterSeconds": 1}


@check(
    "The 504 for a future resourceVersion has a Retry-After header.", area=AREA, mutation=without_header("Retry-After")
)
async def future_header(cluster: Cluster) -> None:
    assert (await cluster.request("GET", cluster.path("secrets"), resourceVersion=FUTURE_VERSION)).headers[
        "retry-after"
    ] == "1"


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
    "Incompatible list parameters are rejected with 422, with a cause for each.",
    area=AREA,
    mutation=ignores("resourceVersionMatch", "sendInitialEvents"),
)
async def incompatible_parameters(cluster: Cluster) -> None:
    for query, messages in FORBIDDEN:
        error = (await cluster.request("GET", cluster.path("secrets"), **query)).expect_error(422, "Invalid", *messages)
        details = error["details"]
        assert (details["group"], details["kind"]) == ("meta.k8s.io", "ListOptions"), error
        assert len(details["causes"]) == len(messages), error


@check("An unknown parameter is ignored.", area=AREA, mutation=answers(200, 400))
async def unknown_parameter(cluster: Cluster) -> None:
    await create_secrets(cluster, "a")
    assert names_of(await cluster.request("GET", cluster.path("secrets"), nonsense="x")) == "a"
