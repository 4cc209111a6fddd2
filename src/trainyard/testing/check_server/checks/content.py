"""Paths, methods, forms of answers, and gzip."""

from __future__ import annotations

import asyncio
import gzip

from trainyard.objects import decode
from trainyard.testing.check_server import Subject, check
from trainyard.testing.check_server.breaks import answers, replaced, sets, swaps, unheard, unsent, without
from trainyard.testing.check_server.checks.crud import config_map

AREA = "answers"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
NO_RESOURCE = "the server could not find the requested resource"


def accept(words: str) -> dict[str, str]:
    return {"Accept": words}


@check(
    "A resource or a version that nobody serves, in a group that is served, is 404 with a Status of empty details.",
    area=AREA,
    breaks=sets("details", {"kind": "x"}),
)
async def no_resource(yard: Subject) -> None:
    paths = (
        "/api/v1/nonsense",
        "/apis/batch/v1/nonsense",
        "/apis/batch/v9/jobs",
        "/api/v2/pods",
        yard.at("configmaps", "a", "status"),
        yard.at("configmaps", "a", "x"),
    )
    for path in (*paths, f"/api/v1/namespaces/{yard.namespace}/nodes"):
        said = (await yard.ask("GET", path)).refused(404, "NotFound", NO_RESOURCE)
        assert said["details"] == {}, path


@check(
    "A group or a path that nobody serves is 404 in plain text.", area=AREA, breaks=swaps(b"404 page not found", b"{}")
)
async def no_page(yard: Subject) -> None:
    for path in ("/nonsense", "/apis/nonsense/v1/things"):
        reply = await yard.ask("GET", path)
        assert reply.code == 404 and reply.body == b"404 page not found\n", (path, reply)
        assert reply.headers["content-type"].startswith("text/plain")


@check("Methods that a path does not have are 405 MethodNotAllowed.", area=AREA, breaks=answers(405, 200))
async def methods(yard: Subject) -> None:
    await yard.map("one")
    one, all_ = yard.at("configmaps", "one"), yard.at("configmaps")
    for method, path in (
        ("POST", one), ("PUT", all_), ("PATCH", all_), ("OPTIONS", one), ("OPTIONS", all_), ("TRACE", all_),
        ("PUT", "/api/v1/configmaps"), ("DELETE", yard.at("pods", "x", "status")), ("POST", "/version"),
    ):  # fmt: skip
        body = config_map("one") if method in ("POST", "PUT", "PATCH") else None
        said = (await yard.ask(method, path, body)).refused(405, "MethodNotAllowed", "does not allow this method")
        assert said["details"] == {}, (method, path)


@check("HEAD is 405 for objects, whether they are there or not.", area=AREA, breaks=answers(405, 200))
async def head(yard: Subject) -> None:
    await yard.map("one")
    for name in ("one", "none"):
        reply = await yard.ask("HEAD", yard.at("configmaps", name))
        assert reply.code == 405 and reply.body == b""


@check("A slash at the end of a path is none.", area=AREA, breaks=answers(200, 404))
async def slash(yard: Subject) -> None:
    made = await yard.map("one")
    assert (await yard.ask("GET", yard.at("configmaps", "one") + "/")).must(200) == made
    assert (await yard.ask("GET", yard.at("configmaps") + "/")).must(200)["kind"] == "ConfigMapList"


@check(
    "A name that is .. is refused with 400, and one with a slash in it is no path.",
    area=AREA,
    breaks=answers(400, 404) | answers(404, 400),
)
async def strange_names(yard: Subject) -> None:
    path = yard.at("configmaps")
    (await yard.ask("GET", f"{path}/%2e%2e")).refused(400, "BadRequest", 'Name parameter invalid: ".."')
    (await yard.ask("GET", f"{path}/a%2fb")).refused(404, "NotFound", NO_RESOURCE)


@check(
    "Health is asked with /healthz, /livez and /readyz, and answered with ok.", area=AREA, breaks=swaps(b"ok", b"no")
)
async def health(yard: Subject) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        reply = await yard.ask("GET", path)
        assert (reply.code, reply.body) == (200, b"ok"), path


@check("/version says major, minor and gitVersion.", area=AREA, breaks=without("minor"))
async def server_version(yard: Subject) -> None:
    said = (await yard.ask("GET", "/version")).must(200)
    assert said["major"] == "1" and said["minor"].isdigit() and said["gitVersion"].startswith(f"v1.{said['minor']}.")


@check("JSON is what everybody gets who accepts it, or anything, or says nothing.", area=AREA, breaks=answers(200, 406))
async def json(yard: Subject) -> None:
    made = await yard.map("one")
    for words in (
        "application/json", "*/*", "", "application/json;q=0.5", "text/html,application/json;q=0.1",
        "text/html;q=0.9,*/*;q=0.1", "application/json;charset=utf-8", "application/json;stream=watch",
        "application/json;as=Foo;v=v1;g=meta.k8s.io,application/json",
    ):  # fmt: skip
        reply = await yard.ask("GET", yard.at("configmaps", "one"), headers=accept(words))
        assert reply.must(200) == made, words
        assert reply.headers["content-type"] == "application/json"


@check(
    "Who accepts nothing that there is gets 406 NotAcceptable, in JSON, even for what is not there.",
    area=AREA,
    breaks=unheard("Accept"),
)
async def not_acceptable(yard: Subject) -> None:
    await yard.map("one")
    for words in ("text/html", "application/xml", "application/cbor", "junk", "application/*"):
        for path in (yard.at("configmaps", "one"), yard.at("configmaps"), yard.at("configmaps", "none")):
            (await yard.ask("GET", path, headers=accept(words))).refused(406, "NotAcceptable", "406: Not Acceptable")


@check("A form that nobody knows (as=Foo, a wrong group) is 406.", area=AREA, breaks=unheard("Accept"))
async def unknown_form(yard: Subject) -> None:
    await yard.map("one")
    for words in ("as=Foo;v=v1;g=meta.k8s.io", "as=Table;v=v1;g=wrong", "as=Table;v=v9;g=meta.k8s.io"):
        reply = await yard.ask("GET", yard.at("configmaps", "one"), headers=accept(f"application/json;{words}"))
        reply.refused(406, "NotAcceptable", "only the following media types are accepted: application/json")


@check("A write that accepts nothing that there is writes nothing.", area=AREA, breaks=unheard("Accept"))
async def refused_write(yard: Subject) -> None:
    reply = await yard.ask("POST", yard.at("configmaps"), config_map("one"), headers=accept("text/html"))
    reply.refused(406, "NotAcceptable")


@check("PartialObjectMetadata is an object without all but its metadata.", area=AREA, breaks=unheard("Accept"))
async def partial(yard: Subject) -> None:
    made = await yard.map("one", data={"a": "b"})
    said = (await yard.ask("GET", yard.at("configmaps", "one"), headers=accept(PARTIAL))).must(200)
    assert said == {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": made["metadata"]}
    posted = await yard.ask("POST", yard.at("configmaps"), config_map("two"), headers=accept(PARTIAL))
    assert posted.must(201)["kind"] == "PartialObjectMetadata"


@check(
    "PartialObjectMetadataList is the same for a list; one form for the other is 406.",
    area=AREA,
    breaks=unheard("Accept"),
)
async def partial_list(yard: Subject) -> None:
    made = await yard.map("one", labels={"l": "x"})
    many = accept(PARTIAL.replace("Metadata;", "MetadataList;"))
    said = (await yard.ask("GET", yard.at("configmaps"), headers=many, labelSelector="l=x")).must(200)
    assert said["kind"] == "PartialObjectMetadataList" and said["metadata"]["resourceVersion"]
    assert [one["metadata"] for one in said["items"]] == [made["metadata"]]
    assert said["items"][0]["kind"] == "PartialObjectMetadata"
    (await yard.ask("GET", yard.at("configmaps"), headers=accept(PARTIAL))).refused(406, "NotAcceptable", "is a list")
    (await yard.ask("GET", yard.at("configmaps", "one"), headers=many)).refused(406, "NotAcceptable", "is not a list")


@check("A refusal is a Status whatever form was asked for.", area=AREA, breaks=swaps(b'"Status"', b'"Table"'))
async def status_always(yard: Subject) -> None:
    for words in (TABLE, PARTIAL):
        (await yard.ask("GET", yard.at("configmaps", "none"), headers=accept(words))).refused(404, "NotFound")


@check(
    "A large answer is compressed for those who take gzip, and for nobody else; a small one never is.",
    area=AREA,
    breaks=unheard("Accept-Encoding"),
)
async def compressed(yard: Subject) -> None:
    big = await yard.map("big", data={"x": "a" * 200_000})
    await yard.map("small")
    path = yard.at("configmaps", "big")
    for words in ("gzip", "gzip, deflate"):
        reply = await yard.ask("GET", path, headers={"Accept-Encoding": words})
        assert (reply.headers["content-encoding"], reply.headers["vary"]) == ("gzip", "Accept-Encoding")
        assert decode(gzip.decompress(reply.body)) == big
        small = await yard.ask("GET", yard.at("configmaps", "small"), headers={"Accept-Encoding": words})
        assert "content-encoding" not in small.headers
    for words in ("identity", "deflate", "gzip;q=0", "br"):
        reply = await yard.ask("GET", path, headers={"Accept-Encoding": words})
        assert "content-encoding" not in reply.headers and reply.json == big, words


@check("No answer may be kept by a cache.", area=AREA, breaks=unsent("Cache-Control"))
async def no_cache(yard: Subject) -> None:
    await yard.map("one")
    for name in ("one", "none"):
        assert (await yard.ask("GET", yard.at("configmaps", name))).headers["cache-control"] == "no-cache, private"


@check(
    "Who may not do something is refused with 403, and told who he is and what he may not.",
    area=AREA,
    breaks=replaced("auth.authorization:require_allowed", lambda *_: None, "lets everybody do everything"),
)
async def forbidden(yard: Subject) -> None:
    await yard.map("one")
    for path, named, verb in ((yard.at("configmaps", "one"), ' "one"', "get"), (yard.at("configmaps"), "", "list")):
        said = (await yard.ask("GET", path, user="nobody")).refused(403, "Forbidden")
        who = f'User "nobody" cannot {verb} resource "configmaps" in API group "" in the namespace "{yard.namespace}"'
        assert said["message"] == f"configmaps{named} is forbidden: {who}"
        assert said["details"] == ({"name": "one", "kind": "configmaps"} if named else {"kind": "configmaps"})


@check(
    "What somebody may not see is not told apart from what is not there.",
    area=AREA,
    breaks=replaced("auth.authorization:require_allowed", lambda *_: None, "lets everybody do everything"),
)
async def no_difference(yard: Subject) -> None:
    for path in (yard.at("configmaps", "none"), yard.at("configmaps", "none", namespace="nowhere")):
        (await yard.ask("GET", path, user="nobody")).refused(403, "Forbidden")


@check("A token that nobody knows is 401 Unauthorized.", area=AREA, breaks=unheard("Authorization") | answers(401, 403))
async def unknown_token(yard: Subject) -> None:
    reply = await yard.ask("GET", yard.at("configmaps"), headers={"Authorization": "Bearer junk"})
    reply.refused(401, "Unauthorized")


@check(
    "Who speaks plain HTTP where TLS is spoken is told so.",
    area=AREA,
    breaks=replaced("http.listeners:_PLAIN", (), "does not know plain HTTP"),
)
async def wrong_door(yard: Subject) -> None:
    host, port = await yard.secure_door()
    for method in ("GET", "HEAD", "POST", "PUT", "OPTIONS"):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(f"{method} /version HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        async with asyncio.timeout(yard.seconds):
            said = await reader.read()
        writer.close()
        assert said == b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n", said
