"""Paths, methods, representations of responses, and gzip."""

from __future__ import annotations

import asyncio
import gzip

from tests.conformance import Cluster, check
from tests.conformance.checks.crud import config_map
from tests.conformance.mutations import (
    answers,
    ignores_header,
    replaced,
    sets,
    swaps,
    without,
    without_header,
)
from trainyard.objects import decode

AREA = "answers"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
NO_RESOURCE = "the server could not find the requested resource"


def accept(media_type: str) -> dict[str, str]:
    return {"Accept": media_type}


@check(
    "An unknown resource or version of a known group gives 404 and a Status with empty details.",
    area=AREA,
    mutation=sets("details", {"kind": "x"}),
)
async def unknown_resource(cluster: Cluster) -> None:
    paths = (
        "/api/v1/nonsense",
        "/apis/batch/v1/nonsense",
        "/apis/batch/v9/jobs",
        "/api/v2/pods",
        cluster.path("configmaps", "a", "status"),
        cluster.path("configmaps", "a", "x"),
    )
    for path in (*paths, f"/api/v1/namespaces/{cluster.namespace}/nodes"):
        error = (await cluster.request("GET", path)).expect_error(404, "NotFound", NO_RESOURCE)
        assert error["details"] == {}, path


@check("An unknown group or path gives 404 in plain text.", area=AREA, mutation=swaps(b"404 page not found", b"{}"))
async def unknown_path(cluster: Cluster) -> None:
    for path in ("/nonsense", "/apis/nonsense/v1/things"):
        response = await cluster.request("GET", path)
        assert response.code == 404 and response.body == b"404 page not found\n", (path, response)
        assert response.headers["content-type"].startswith("text/plain")


@check("A method that a path does not support gives 405 MethodNotAllowed.", area=AREA, mutation=answers(405, 200))
async def methods(cluster: Cluster) -> None:
    await cluster.create_config_map("one")
    object_path, collection_path = cluster.path("configmaps", "one"), cluster.path("configmaps")
    for method, path in (
        ("POST", object_path),
        ("PUT", collection_path),
        ("PATCH", collection_path),
        ("OPTIONS", object_path),
        ("OPTIONS", collection_path),
        ("TRACE", collection_path),
        ("PUT", "/api/v1/configmaps"),
        ("DELETE", cluster.path("pods", "x", "status")),
        ("POST", "/version"),
    ):
        body = config_map("one") if method in ("POST", "PUT", "PATCH") else None
        error = (await cluster.request(method, path, body)).expect_error(
            405, "MethodNotAllowed", "does not allow this method"
        )
        assert error["details"] == {}, (method, path)


@check("HEAD on an object gives 405, whether or not the object exists.", area=AREA, mutation=answers(405, 200))
async def head(cluster: Cluster) -> None:
    await cluster.create_config_map("one")
    for name in ("one", "none"):
        response = await cluster.request("HEAD", cluster.path("configmaps", name))
        assert response.code == 405 and response.body == b""


@check("A trailing slash in a path is ignored.", area=AREA, mutation=answers(200, 404))
async def trailing_slash(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one")
    assert (await cluster.request("GET", cluster.path("configmaps", "one") + "/")).expect(200) == created
    assert (await cluster.request("GET", cluster.path("configmaps") + "/")).expect(200)["kind"] == "ConfigMapList"


@check(
    "The name .. is rejected with 400; an encoded slash in a name gives 404.",
    area=AREA,
    mutation=answers(400, 404) | answers(404, 400),
)
async def invalid_path_names(cluster: Cluster) -> None:
    path = cluster.path("configmaps")
    (await cluster.request("GET", f"{path}/%2e%2e")).expect_error(400, "BadRequest", 'Name parameter invalid: ".."')
    (await cluster.request("GET", f"{path}/a%2fb")).expect_error(404, "NotFound", NO_RESOURCE)


@check("/healthz, /livez and /readyz return ok.", area=AREA, mutation=swaps(b"ok", b"no"))
async def health(cluster: Cluster) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        response = await cluster.request("GET", path)
        assert (response.code, response.body) == (200, b"ok"), path


@check("/version has major, minor and gitVersion.", area=AREA, mutation=without("minor"))
async def server_version(cluster: Cluster) -> None:
    version = (await cluster.request("GET", "/version")).expect(200)
    assert (
        version["major"] == "1"
        and version["minor"].isdigit()
        and version["gitVersion"].startswith(f"v1.{version['minor']}.")
    )


@check(
    "Responses are JSON when Accept allows JSON, allows anything, or is missing.", area=AREA, mutation=answers(200, 406)
)
async def json_media_types(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one")
    for media_type in (
        "application/json", "*/*", "", "application/json;q=0.5", "text/html,application/json;q=0.1",
        "text/html;q=0.9,*/*;q=0.1", "application/json;charset=utf-8", "application/json;stream=watch",
        "application/json;as=Foo;v=v1;g=meta.k8s.io,application/json",
    ):  # fmt: skip
        response = await cluster.request("GET", cluster.path("configmaps", "one"), headers=accept(media_type))
        assert response.expect(200) == created, media_type
        assert response.headers["content-type"] == "application/json"


@check(
    "An unsupported Accept header gives 406 NotAcceptable, in JSON, even for objects that do not exist.",
    area=AREA,
    mutation=ignores_header("Accept"),
)
async def not_acceptable(cluster: Cluster) -> None:
    await cluster.create_config_map("one")
    for media_type in ("text/html", "application/xml", "application/cbor", "junk", "application/*"):
        for path in (cluster.path("configmaps", "one"), cluster.path("configmaps"), cluster.path("configmaps", "none")):
            (await cluster.request("GET", path, headers=accept(media_type))).expect_error(
                406, "NotAcceptable", "406: Not Acceptable"
            )


@check("An unknown representation (as=Foo, a wrong group) gives 406.", area=AREA, mutation=ignores_header("Accept"))
async def unknown_representation(cluster: Cluster) -> None:
    await cluster.create_config_map("one")
    for parameters in ("as=Foo;v=v1;g=meta.k8s.io", "as=Table;v=v1;g=wrong", "as=Table;v=v9;g=meta.k8s.io"):
        response = await cluster.request(
            "GET", cluster.path("configmaps", "one"), headers=accept(f"application/json;{parameters}")
        )
        response.expect_error(406, "NotAcceptable", "only the following media types are accepted: application/json")


@check("A write with an unsupported Accept header gives 406.", area=AREA, mutation=ignores_header("Accept"))
async def refused_write(cluster: Cluster) -> None:
    response = await cluster.request("POST", cluster.path("configmaps"), config_map("one"), headers=accept("text/html"))
    response.expect_error(406, "NotAcceptable")


@check("PartialObjectMetadata returns only the metadata of an object.", area=AREA, mutation=ignores_header("Accept"))
async def partial(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one", data={"a": "b"})
    partial_object = (await cluster.request("GET", cluster.path("configmaps", "one"), headers=accept(PARTIAL))).expect(
        200
    )
    assert partial_object == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": created["metadata"],
    }
    response = await cluster.request("POST", cluster.path("configmaps"), config_map("two"), headers=accept(PARTIAL))
    assert response.expect(201)["kind"] == "PartialObjectMetadata"


@check(
    "PartialObjectMetadataList returns only the metadata of a list; it is 406 for objects.",
    area=AREA,
    mutation=ignores_header("Accept"),
)
async def partial_list(cluster: Cluster) -> None:
    created = await cluster.create_config_map("one", labels={"l": "x"})
    accept_list = accept(PARTIAL.replace("Metadata;", "MetadataList;"))
    partial_list = (
        await cluster.request("GET", cluster.path("configmaps"), headers=accept_list, labelSelector="l=x")
    ).expect(200)
    assert partial_list["kind"] == "PartialObjectMetadataList" and partial_list["metadata"]["resourceVersion"]
    assert [item["metadata"] for item in partial_list["items"]] == [created["metadata"]]
    assert partial_list["items"][0]["kind"] == "PartialObjectMetadata"
    (await cluster.request("GET", cluster.path("configmaps"), headers=accept(PARTIAL))).expect_error(
        406, "NotAcceptable", "is a list"
    )
    (await cluster.request("GET", cluster.path("configmaps", "one"), headers=accept_list)).expect_error(
        406, "NotAcceptable", "is not a list"
    )


@check(
    "An error is a Status, whatever representation was requested.", area=AREA, mutation=swaps(b'"Status"', b'"Table"')
)
async def errors_are_statuses(cluster: Cluster) -> None:
    for media_type in (TABLE, PARTIAL):
        (await cluster.request("GET", cluster.path("configmaps", "none"), headers=accept(media_type))).expect_error(
            404, "NotFound"
        )


@check(
    "A large response is compressed only if the client accepts gzip; a small one never is.",
    area=AREA,
    mutation=ignores_header("Accept-Encoding"),
)
async def compressed(cluster: Cluster) -> None:
    large_obj = await cluster.create_config_map("big", data={"x": "a" * 200_000})
    await cluster.create_config_map("small")
    path = cluster.path("configmaps", "big")
    for encoding in ("gzip", "gzip, deflate"):
        response = await cluster.request("GET", path, headers={"Accept-Encoding": encoding})
        assert (response.headers["content-encoding"], response.headers["vary"]) == ("gzip", "Accept-Encoding")
        assert decode(gzip.decompress(response.body)) == large_obj
        small_response = await cluster.request(
            "GET", cluster.path("configmaps", "small"), headers={"Accept-Encoding": encoding}
        )
        assert "content-encoding" not in small_response.headers
    for encoding in ("identity", "deflate", "gzip;q=0", "br"):
        response = await cluster.request("GET", path, headers={"Accept-Encoding": encoding})
        assert "content-encoding" not in response.headers and response.json == large_obj, encoding


@check("Responses forbid caching.", area=AREA, mutation=without_header("Cache-Control"))
async def cache_control(cluster: Cluster) -> None:
    await cluster.create_config_map("one")
    for name in ("one", "none"):
        assert (await cluster.request("GET", cluster.path("configmaps", name))).headers[
            "cache-control"
        ] == "no-cache, private"


@check(
    "A forbidden request gives 403 with the user, verb and resource in the message.",
    area=AREA,
    mutation=replaced("auth.authorization:require_allowed", lambda *_: None, "allows everything to everybody"),
)
async def forbidden(cluster: Cluster) -> None:
    await cluster.create_config_map("one")
    for path, quoted_name, verb in (
        (cluster.path("configmaps", "one"), ' "one"', "get"),
        (cluster.path("configmaps"), "", "list"),
    ):
        error = (await cluster.request("GET", path, user="nobody")).expect_error(403, "Forbidden")
        denial = (
            f'User "nobody" cannot {verb} resource "configmaps" in API group "" in the namespace "{cluster.namespace}"'
        )
        assert error["message"] == f"configmaps{quoted_name} is forbidden: {denial}"
        assert error["details"] == ({"name": "one", "kind": "configmaps"} if quoted_name else {"kind": "configmaps"})


@check(
    "A forbidden object gives 403 whether or not it exists.",
    area=AREA,
    mutation=replaced("auth.authorization:require_allowed", lambda *_: None, "allows everything to everybody"),
)
async def forbidden_before_not_found(cluster: Cluster) -> None:
    for path in (cluster.path("configmaps", "none"), cluster.path("configmaps", "none", namespace="nowhere")):
        (await cluster.request("GET", path, user="nobody")).expect_error(403, "Forbidden")


@check(
    "An unknown token gives 401 Unauthorized.", area=AREA, mutation=ignores_header("Authorization") | answers(401, 403)
)
async def unknown_token(cluster: Cluster) -> None:
    response = await cluster.request("GET", cluster.path("configmaps"), headers={"Authorization": "Bearer junk"})
    response.expect_error(401, "Unauthorized")


@check(
    "A plain HTTP request to the TLS port gives 400 with an explanation.",
    area=AREA,
    mutation=replaced("http.listeners:_PLAIN", (), "does not detect plain HTTP"),
)
async def plain_http_on_tls_port(cluster: Cluster) -> None:
    host, port = await cluster.tls_address()
    for method in ("GET", "HEAD", "POST", "PUT", "OPTIONS"):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(f"{method} /version HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        async with asyncio.timeout(cluster.timeout):
            answer = await reader.read()
        writer.close()
        assert answer == b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n", answer
