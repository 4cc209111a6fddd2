"""Requests and responses as tables: the request of each verb, the result of each response."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trainyard.client import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Selectors,
    Unavailable,
    path_of,
)
from trainyard.client import request as requests
from trainyard.client.request import ALL_OBJECTS, JSON, MERGE_PATCH, ApiRequest, LineSplitter, request_info
from trainyard.objects import GVK, decode, encode
from trainyard.objects.resources import JOB, NAMESPACE, NODE, POD

TFJOB = GVK("tensorflow.org", "v1alpha1", "TfJob", "tfjobs")

PATHS = [
    (POD, "", "", "", "/api/v1/pods"),
    (POD, "team", "", "", "/api/v1/namespaces/team/pods"),
    (POD, "team", "a", "", "/api/v1/namespaces/team/pods/a"),
    (POD, "team", "a", "status", "/api/v1/namespaces/team/pods/a/status"),
    (JOB, "team", "a", "", "/apis/batch/v1/namespaces/team/jobs/a"),
    (NODE, "", "local", "", "/api/v1/nodes/local"),
    (POD, "team", "a/b?c#d%20é", "", "/api/v1/namespaces/team/pods/a%2Fb%3Fc%23d%2520%C3%A9"),
]


@pytest.mark.parametrize(("gvk", "namespace", "name", "subresource", "path"), PATHS)
def test_a_path_names_group_namespace_resource_and_object(
    gvk: GVK, namespace: str, name: str, subresource: str, path: str
) -> None:
    assert path_of(gvk, namespace, name, subresource) == path


BIND = {"metadata": {"name": "p"}, "target": {"name": "local"}}
ONE = Selectors("a in (b,c)", "spec.nodeName=x")
EVERY = Selectors()

BUILT = [
    (requests.get(POD, "n", "p"), "GET", "/api/v1/namespaces/n/pods/p", None, ""),
    (requests.list_objects(POD, "", EVERY), "GET", "/api/v1/pods", None, ""),
    (
        requests.list_objects(POD, "n", ONE, 500, "to/ken="),
        "GET",
        "/api/v1/namespaces/n/pods?labelSelector=a+in+%28b%2Cc%29&fieldSelector=spec.nodeName%3Dx&limit=500&continue=to%2Fken%3D",
        None,
        "",
    ),
    (
        requests.watch(POD, "", "41", EVERY, 300),
        "GET",
        "/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion=41&timeoutSeconds=300",
        None,
        "",
    ),
    (requests.create(POD, "n", {"a": 1}), "POST", "/api/v1/namespaces/n/pods", {"a": 1}, JSON),
    (requests.create(POD, "n", BIND, "binding"), "POST", "/api/v1/namespaces/n/pods/p/binding", BIND, JSON),
    (requests.replace(POD, "n", "p", {"a": 1}), "PUT", "/api/v1/namespaces/n/pods/p", {"a": 1}, JSON),
    (
        requests.patch(POD, "n", "p", {"a": None}, "status"),
        "PATCH",
        "/api/v1/namespaces/n/pods/p/status",
        {"a": None},
        MERGE_PATCH,
    ),
    (
        requests.delete(JOB, "n", "j", "u1", "Background", None),
        "DELETE",
        "/apis/batch/v1/namespaces/n/jobs/j",
        {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": "u1"},
        },
        JSON,
    ),
    (
        requests.delete(POD, "n", "p", "", "", 0),
        "DELETE",
        "/api/v1/namespaces/n/pods/p",
        {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0},
        JSON,
    ),
    (
        requests.logs("n", "p", {"container": "c", "follow": "true", "previous": ""}),
        "GET",
        "/api/v1/namespaces/n/pods/p/log?container=c&follow=true",
        None,
        "",
    ),
]


@pytest.mark.parametrize(("request_", "method", "target", "body", "content_type"), BUILT)
def test_a_verb_becomes_a_request(
    request_: ApiRequest, method: str, target: str, body: object, content_type: str
) -> None:
    assert (request_.method, request_.target, request_.content_type) == (method, target, content_type)
    assert (None if request_.body is None else decode(request_.body)) == body


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_change_the_path_is_never_sent(name: str) -> None:
    builders: tuple[Callable[[], object], ...] = (
        lambda: requests.delete(POD, "n", name, "", "", None),
        lambda: requests.get(POD, "n", name),
        lambda: requests.patch(POD, "n", name, {}),
    )
    for build in builders:
        with pytest.raises(ValueError, match=r"Pod"):
            build()


def status(code: int, reason: str, **more: object) -> bytes:
    return encode({"kind": "Status", "code": code, "reason": reason, "message": f"{reason}!", **more})


ANSWERS = [
    (409, status(409, "Conflict"), Conflict, "Conflict"),
    (409, status(409, "AlreadyExists"), AlreadyExists, "AlreadyExists"),
    (409, b"a proxy's page", Conflict, "Conflict"),
    (404, status(404, "NotFound"), NotFound, "NotFound"),
    (404, b"404 page not found\n", NotFound, "NotFound"),
    (410, status(410, "Expired"), Gone, "Expired"),
    (422, status(422, "Invalid"), Invalid, "Invalid"),
    (403, status(403, "Forbidden"), Forbidden, "Forbidden"),
    (429, status(429, "TooManyRequests"), Unavailable, "TooManyRequests"),
    (500, b"", Unavailable, "InternalError"),
    (502, b"<html>bad gateway</html>", Unavailable, "Unknown"),
    (503, status(503, "ServiceUnavailable"), Unavailable, "ServiceUnavailable"),
    (401, status(401, "Unauthorized"), ApiError, "Unauthorized"),
    (413, b"", ApiError, "RequestEntityTooLarge"),
    (302, b"", ApiError, "Unknown"),
    (400, b'"\xff\x00', ApiError, "BadRequest"),
    (400, b"[" * 100_000, ApiError, "BadRequest"),
]


@pytest.mark.parametrize(("code", "body", "branch", "reason"), ANSWERS)
def test_an_answer_falls_into_its_branch(code: int, body: bytes, branch: type[ApiError], reason: str) -> None:
    with pytest.raises(ApiError) as caught:
        requests.check_response(requests.get(POD, "n", "p"), code, {}, body)
    assert type(caught.value) is branch
    assert (caught.value.code, caught.value.reason) == (code, reason)
    assert caught.value.message and len(str(caught.value)) < 400


def test_a_message_without_a_status_names_the_request() -> None:
    with pytest.raises(ApiError, match=r"GET /api/v1/namespaces/n/pods/p: bad gateway"):
        requests.check_response(requests.get(POD, "n", "p"), 502, {}, b"bad gateway")


@pytest.mark.parametrize(
    ("headers", "details", "expected"),
    [
        ({"Retry-After": "7"}, {}, 7.0),
        ({}, {"retryAfterSeconds": 3}, 3.0),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, {"retryAfterSeconds": 2}, 2.0),
        ({"Retry-After": "-1"}, {}, None),
        ({"Retry-After": "nan"}, {}, None),
        ({"Retry-After": "1800"}, {}, 30.0),  # the page of a load balancer: not half an hour without a request
        ({}, {}, None),
    ],
)
def test_a_valid_retry_after_is_parsed(
    headers: dict[str, str], details: dict[str, object], expected: float | None
) -> None:
    with pytest.raises(Unavailable) as caught:
        requests.check_response(
            requests.get(POD, "n", "p"), 429, headers, status(429, "TooManyRequests", details=details)
        )
    assert caught.value.retry_after == expected


@pytest.mark.parametrize("body", [b"", b'{"a":', b"[]", b"null"])
def test_a_truncated_response_means_that_the_outcome_is_unknown(body: bytes) -> None:
    with pytest.raises(Unavailable):
        requests.decode_object(requests.get(POD, "n", "p"), body)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_lines_do_not_depend_on_how_the_stream_was_cut(size: int) -> None:
    stream = b'{"a":1}\n\n{"b":"' + "é".encode() * 9 + b'"}\r\n{"half":'
    lines = LineSplitter()
    got = [line for at in range(0, len(stream), size) for line in lines.feed(stream[at : at + size])]
    assert [decode(line) for line in got] == [{"a": 1}, {"b": "é" * 9}]


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (requests.get(POD, "n", "p"), "get pods"),
        (requests.get(POD, "n", "p", "log"), "get pods/log"),
        (requests.list_objects(POD, "", ALL_OBJECTS, 0, ""), "list pods"),
        (requests.list_objects(POD, "n", ALL_OBJECTS, 5, "more"), "list pods"),
        (requests.watch(POD, "n", "7", ALL_OBJECTS, 60), "watch pods"),
        (requests.create(POD, "n", {"metadata": {"name": "p"}}), "create pods"),
        (requests.patch(TFJOB, "n", "j", {}, "status"), "patch tfjobs/status"),
        (requests.replace(TFJOB, "n", "j", {}), "update tfjobs"),
        (requests.delete(TFJOB, "n", "j", "", "Background", None), "delete tfjobs"),
        (requests.get(NAMESPACE, "", "n"), "get namespaces"),
        (requests.list_objects(NAMESPACE, "", ALL_OBJECTS, 0, ""), "list namespaces"),
        (ApiRequest("GET", "/version"), "get "),
        (ApiRequest("GET", "/apis/apps/v1"), "get "),
    ],
)
def test_a_request_has_the_verb_and_resource_of_rbac(request_: ApiRequest, name: str) -> None:
    assert " ".join(request_info(request_)) == name
