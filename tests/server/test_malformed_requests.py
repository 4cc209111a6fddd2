"""The server answers or closes every malformed request, continues, and its log stays valid."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server import malformed_requests
from tests.server.malformed_request_cases import BODIES, BREAKS, CORE, TOKEN, case, request
from tests.server.malformed_requests import Barrage, Broken, place
from trainyard.objects import NamespacedName
from trainyard.server import RevisionLog
from trainyard.server.storage.disk import DiskLog

pytestmark = pytest.mark.slow

MAPS = f"{CORE}/configmaps"
MAP = b'{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "%b"}, "data": {"a": "b"}}'
SECONDS = 6.0


@pytest.fixture
def barrage() -> Iterator[Barrage]:
    """A server under fire. Afterwards it must serve as ever, its log must be sound, and it must not have complained."""
    with malformed_requests.target() as (server, complaints, _):
        shooting = Barrage(place(server))
        shooting.furnish()
        yield shooting
        assert_server_works(shooting)
        malformed_requests.sound(server.log)
        assert not complaints.lines, complaints.lines[0]


def assert_server_works(barrage: Barrage) -> None:
    """An object can be made, read, changed and deleted."""
    path = f"{MAPS}/afterwards"
    patch = request("PATCH", path, b'{"data": {"a": "c"}}', "application/merge-patch+json")
    requests = [request("POST", MAPS, MAP % b"afterwards"), request("GET", path), patch, request("DELETE", path)]
    assert [barrage.answer(raw).code for raw in requests] == [201, 200, 200, 200]


def test_malformed_requests_do_not_break_the_server(barrage: Barrage) -> None:
    number, until = 0, time.monotonic() + SECONDS
    while time.monotonic() < until:
        barrage.send(case(20261122, number))
        number += 1
    assert number > 200 and {200, 201, 400, 404, 409, 431} <= set(barrage.codes), barrage.codes


def test_a_request_may_end_at_any_byte(barrage: Barrage) -> None:
    whole = request("POST", MAPS, MAP % b"cut")
    for end in range(len(whole)):
        replies = barrage.send(whole[:end], pause=0.002)
        assert all(reply.code == 400 for reply in replies), (whole[:end], replies)
    assert barrage.answer(request("GET", f"{MAPS}/cut")).code == 404
    chunked = whole.replace(b"Content-Length: %d" % len(MAP % b"cut"), b"Transfer-Encoding: chunked")
    head, _, body = chunked.partition(b"\r\n\r\n")
    pieces = head + b"\r\n\r\n" + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    for end in range(len(head), len(pieces), 7):
        assert all(reply.code == 400 for reply in barrage.send(pieces[:end], pause=0.002))
    assert barrage.answer(request("GET", f"{MAPS}/cut")).code == 404
    assert barrage.answer(pieces).code == 201


@pytest.mark.parametrize("kind", ["application/json", "application/merge-patch+json", "application/yaml"])
def test_every_odd_body_is_accepted_or_refused_with_its_field(barrage: Barrage, kind: str) -> None:
    method, path = ("PATCH", f"{MAPS}/a") if "patch" in kind else ("POST", MAPS)
    barrage.send(request("POST", MAPS, MAP % b"a"))
    for body in BODIES:
        for reply in barrage.send(request(method, path, body, kind)):
            assert reply.code < 300 or 400 <= reply.code < 500, (body[:100], reply)


def test_pipelined_requests_are_answered_in_order(barrage: Barrage) -> None:
    kept = [request("GET", path).replace(b"Connection: close\r\n", b"") for path in ("/version", "/nowhere", "/readyz")]
    many = barrage.send(b"".join(kept * 30) + request("GET", "/version"), pause=5.0)
    assert [reply.code for reply in many] == [200, 404, 200] * 30 + [200]


def test_a_wrong_content_length_does_not_make_a_request_of_the_rest(barrage: Barrage) -> None:
    """Request smuggling: a proxy and the server must agree on where a request ends."""
    body = MAP % b"lie"
    hidden = request("DELETE", "/api/v1/namespaces/default")
    for head in (b"Content-Length: 5\r\nContent-Length: 6", b"Content-Length: 5\r\nTransfer-Encoding: chunked",
                 b"Content-Length: -5", b"Content-Length: 5, 5", b"Transfer-Encoding: chunked, identity"):  # fmt: skip
        raw = request("POST", MAPS, body).replace(b"Content-Length: %d" % len(body), head)
        codes = [reply.code for reply in barrage.send(raw + hidden)]
        assert codes[:1] in ([400], []) and 200 not in codes, (head, codes)
    listed = barrage.answer(request("GET", "/api/v1/namespaces/default"))
    assert json.loads(listed.body)["status"]["phase"] == "Active"


def test_after_malformed_requests_the_log_on_disk_has_the_acknowledged_objects(tmp_path: Path) -> None:
    async def stored_records(log: RevisionLog) -> dict[str, dict[NamespacedName, bytes]]:
        objects = malformed_requests.stored(log)
        if isinstance(log, DiskLog):
            log.close()
        return {store: {key: record.body for key, record in those.items()} for store, those in objects.items()}

    async def opened() -> RevisionLog:
        return DiskLog(tmp_path)

    with malformed_requests.target(lambda: DiskLog(tmp_path)) as (server, complaints, do):
        shooting = Barrage(place(server))
        shooting.furnish()
        for number in range(400):
            shooting.send(case(7, number))
        assert_server_works(shooting)
        assert not complaints.lines, complaints.lines[0]
        do(server.stop())
        before = do(stored_records(server.log))
        assert do(stored_records(do(opened()))) == before and len(before) >= 5


LINE = st.sampled_from((b"0\r\n\r\n", b"GET", b"POST", b" ", b"/", b"/version", MAPS.encode(), b"?watch=1",
                        b" HTTP/1.1", b"\r\n",
                        b"Host: localhost", b"Content-Length: 3", b"Transfer-Encoding: chunked", b":", b"\x00", b"\n",
                        b"Connection: close", b"{}", b"\xff", b"3\r\n{}\n\r\n"))  # fmt: skip


@pytest.fixture(scope="module")
def under_fire() -> Iterator[Barrage]:
    with malformed_requests.target() as (server, complaints, _):
        shooting = Barrage(place(server))
        yield shooting
        assert_server_works(shooting)
        malformed_requests.sound(server.log)
        assert not complaints.lines, complaints.lines[0]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(LINE | st.binary(max_size=6), max_size=12).map(b"".join))
def test_any_pieces_in_any_order_are_survived(under_fire: Barrage, raw: bytes) -> None:
    under_fire.send(raw)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(BODIES[1:]), st.binary(max_size=40), st.sampled_from(("POST", "PUT", "DELETE")))
def test_random_bytes_in_a_body_are_survived(under_fire: Barrage, body: bytes, rubbish: bytes, method: str) -> None:
    half = len(body[:2000]) // 2
    under_fire.send(request(method, MAPS, body[:half] + rubbish + body[half:2000]))


def test_the_checker_detects_forbidden_responses() -> None:
    """The checks of this file can fail."""
    for response in (b"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 404 x\r\nContent-Length: 2\r\n\r\n{}",
                 b"HTTP/1.1 200 x\r\nContent-Length: 21\r\n\r\n" + TOKEN.encode(),
                 b"Traceback (most\r\n\r\n"):  # fmt: skip
        with pytest.raises(Broken):
            Barrage(("", 0)).judge(response, b"")
    assert len(BREAKS) >= 10 and case(1, 2) == case(1, 2) != case(1, 3)
