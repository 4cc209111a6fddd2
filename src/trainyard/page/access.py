"""What the page server accepts: a table of routes, limits, and the headers of requests and responses. Pure.

- The Host must be an IP literal of loopback or localhost. A page of the web that has rebound its own DNS name to
  127.0.0.1 has another Host. The port is not compared: `ssh -L` and `kubectl port-forward` may change it.
- Origin and Sec-Fetch-Site, which browsers set themselves, must be those of our own page.
- The listener has no route and no verb but those of ROUTES; there is no list of forbidden ones.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from trainyard.objects.patterns import lazy_pattern
from trainyard.server.http.limits import Limits

LIMITS = Limits(head_seconds=30.0, body_seconds=10.0, max_connections=96)
"""Any local user may connect. So the connections are few beside those of the API server, which the same process serves,
and more than MAX_PAGES."""
MAX_PAGES = 64
MAX_BODY = 1 << 16  # bytes of a request, and of a message of a page

Scope = Literal["public", "key", "session", "write", "ticket"]
"""Who may call a route: anybody, the owner of the cluster (the key), a page with a session, a page with a session that
may change jobs, a link with a ticket."""


class Route(NamedTuple):
    """A route of the listener. `path` has parameters in braces, the last of which may hold slashes; `handler` is the
    name of the method that answers."""

    method: str
    path: str
    scope: Scope
    handler: str


ROUTES = (
    Route("GET", "/ui/", "public", "page"),
    Route("GET", "/ui/static/{version}/{name*}", "public", "asset"),
    Route("POST", "/ui/v1/invitations", "key", "invitation"),
    Route("POST", "/ui/v1/session", "public", "session"),
    Route("GET", "/ui/v1/live", "session", "live"),
    Route("GET", "/ui/v1/compare", "session", "compare"),
    Route("GET", "/ui/v1/jobs/{uid}", "session", "job"),
    Route("GET", "/ui/v1/jobs/{uid}/yaml", "session", "yaml"),
    Route("GET", "/ui/v1/jobs/{uid}/logs", "session", "log_files"),
    Route("GET", "/ui/v1/jobs/{uid}/logs/{file*}", "session", "log"),
    Route("GET", "/ui/v1/jobs/{uid}/series", "session", "series"),
    Route("POST", "/ui/v1/forward", "session", "forward"),
    Route("POST", "/ui/v1/tickets", "session", "ticket"),
    Route("POST", "/ui/v1/actions", "write", "action"),
    Route("GET", "/ui/v1/download/{ticket}", "ticket", "download"),
)


def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\{(\w+)(\*?)\}", lambda part: f"(?P<{part[1]}>{'.+' if part[2] else '[^/]+'})", path))


_PATTERNS = [(route, _pattern(route.path)) for route in ROUTES]


class Refusal(NamedTuple):
    """The status code and the sentence with which a request is refused."""

    status: int
    text: str


def find_route(method: str, path: str) -> tuple[Route, dict[str, str]] | Refusal:
    """The route of a request with its parameters. `path` is percent-decoded."""
    is_known = False
    for route, pattern in _PATTERNS:
        if match := pattern.fullmatch(path):
            if route.method == method:
                return route, match.groupdict()
            is_known = True
    return Refusal(405, f"{method} is not possible here") if is_known else Refusal(404, "there is no such page")


def refusal(headers: Mapping[str, str]) -> Refusal | None:
    """Why a request is refused because of its headers; None if it is not."""
    host = headers.get("Host", "")
    if not _is_loopback(host):
        return Refusal(421, "this address serves only browsers on this machine: use 127.0.0.1 or localhost")
    origin = headers.get("Origin")
    if origin is not None and origin != f"http://{host}":
        return Refusal(403, "requests of other pages are refused")
    if headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
        return Refusal(403, "requests of other pages are refused")
    return None


_HOST = lazy_pattern(r"(localhost|[0-9.]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?")
"""Nothing else may stand in the policy of the page. ipaddress takes any text after a `%` for the zone of an address."""


def _is_loopback(host: str) -> bool:
    match = _HOST.fullmatch(host)
    if match is None or match[1] == "localhost":
        return match is not None
    try:
        return ipaddress.ip_address(match[1].strip("[]")).is_loopback
    except ValueError:
        return False


def response_headers(host: str) -> dict[str, str]:
    """The headers of every response. `host`: the Host of the request, which `refusal` has accepted."""
    policy = (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        f"connect-src 'self' ws://{host}",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
    return {
        "Content-Security-Policy": "; ".join(policy),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
    }
