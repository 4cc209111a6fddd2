from __future__ import annotations

from typing import get_args

import pytest

from trainyard.page.access import ROUTES, Scope, refusal, response_headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "127.0.0.1:4000"},
        {"Host": "localhost:4000"},
        {"Host": "[::1]:4000"},
        {"Host": "localhost"},
        {"Host": "127.0.0.1:8080", "Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "same-origin"},
        {"Host": "localhost:4000", "Sec-Fetch-Site": "none"},
    ],
)
def test_a_browser_on_this_machine_is_served(headers: dict[str, str]) -> None:
    assert refusal(headers) is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 421),
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:4000"}, 421),
        ({"Host": "127.0.0.1.evil.example:4000"}, 421),
        ({"Host": "localhost.evil.example"}, 421),
        ({"Host": "10.0.0.5:4000"}, 421),
        ({"Host": "0.0.0.0:4000"}, 421),
        ({"Host": "::1%;script-src *"}, 421),  # a zone, as ipaddress reads it
        ({"Host": "[::1%25lo]:4000"}, 421),
        ({"Host": "[::1%lo]"}, 421),
        ({"Host": "127.0.0.1:4000;script-src *"}, 421),
        ({"Host": "127.0.0.1:\u0663"}, 421),  # a digit, but not of a port
        ({"Host": "]127.0.0.1["}, 421),
        ({"Host": "localhost "}, 421),
        ({"Host": "127.0.0.1:4000", "Origin": "http://evil.example"}, 403),
        ({"Host": "127.0.0.1:4000", "Origin": "http://127.0.0.1:4001"}, 403),  # the web server of a pod
        ({"Host": "127.0.0.1:4000", "Origin": "https://127.0.0.1:4000"}, 403),
        ({"Host": "127.0.0.1:4000", "Origin": "null"}, 403),
        ({"Host": "127.0.0.1:4000", "Sec-Fetch-Site": "same-site"}, 403),  # another port of this host
        ({"Host": "127.0.0.1:4000", "Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_any_other_page_is_refused(headers: dict[str, str], status: int) -> None:
    refused = refusal(headers)
    assert refused is not None and refused[0] == status


def test_what_changes_a_job_is_one_route_with_a_scope_of_its_own() -> None:
    """The others that are no GET change nothing but sessions, tickets and forwards."""
    assert {(route.path, route.scope) for route in ROUTES if route.method != "GET"} == {
        ("/ui/v1/invitations", "key"),
        ("/ui/v1/session", "public"),
        ("/ui/v1/tickets", "session"),
        ("/ui/v1/forward", "session"),
        ("/ui/v1/actions", "write"),
    }
    assert {route.scope for route in ROUTES} == set(get_args(Scope))
    assert {route.path for route in ROUTES if route.scope == "public"} == {
        "/ui/",
        "/ui/static/{version}/{name*}",
        "/ui/v1/session",
    }


def test_the_page_may_connect_to_its_own_port_alone() -> None:
    policy = response_headers("127.0.0.1:4000")["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "connect-src 'self' ws://127.0.0.1:4000;" in policy
    assert "unsafe" not in policy and "*" not in policy


def test_no_page_shows_ours_in_a_frame() -> None:
    """A click on a page of others could be one on our button."""
    headers = response_headers("127.0.0.1:4000")
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"] and headers["X-Frame-Options"] == "DENY"
