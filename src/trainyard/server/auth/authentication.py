"""Authentication: checks the head of every request before its body is read.

    Host, Origin   the request is meant for this server and does not come from a foreign web page
    Authorization  the user: the administrator, a ServiceAccount (tokens.py), or anonymous

Rules for this file:
- A web page can make a browser send requests to loopback under the page's host name (DNS rebinding). So a Host that is
  neither loopback nor a name of this server gets 421, and a foreign Origin gets 403.
- Anonymous requests can only reach `OPEN_PATHS` (health, version), as in a default cluster.
- An invalid token gets 401 on every path. Tokens are compared in constant time.
- Nothing is logged here, and error messages repeat no input but a well-formed Host: other input may contain a token.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from trainyard.server.auth import authorization
from trainyard.server.auth.certificates import ADDRESSES, NAMES
from trainyard.server.auth.rbac import Attributes
from trainyard.server.auth.tokens import TokenAuthority
from trainyard.server.model import errors
from trainyard.server.model.errors import StatusError
from trainyard.server.model.paths import OPEN_PATHS
from trainyard.server.model.users import ADMIN, ANONYMOUS, User, impersonated_user

if TYPE_CHECKING:
    from aiohttp import web

_NAME = re.compile(r"[-.:\[\]0-9A-Za-z]{1,100}")


class Authenticator:
    """`token` is the administrator's. With "" every request is the administrator's: for servers within a test."""

    def __init__(self, token: str, tokens: TokenAuthority) -> None:
        self._token = token.encode()
        self._tokens = tokens

    def authenticate(self, request: web.BaseRequest, path: str) -> User:
        """The authenticated user of a request. Raises StatusError 400, 401, 403 or 421."""
        check_host_and_origin(request)
        return self._impersonated(request, self.user_of(request.headers.get("Authorization", ""), path))

    def user_of(self, sent: str, path: str) -> User:
        """The user of an Authorization header ("" for none) on that path. Raises StatusError 401."""
        user = self._bearer_user(sent) if sent else None
        if user is None and not self._token:
            user = ADMIN
        if user is None and not sent and path in OPEN_PATHS:
            user = ANONYMOUS
        if user is None:
            raise StatusError(401, "Unauthorized", "Unauthorized")
        return user

    def _bearer_user(self, sent: str) -> User | None:
        scheme, _, token = sent.partition(" ")
        if scheme.lower() != "bearer":
            return None
        token = token.strip(" ")
        if self._token and hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token):
            return ADMIN
        return self._tokens.validate(token)

    def _impersonated(self, request: web.BaseRequest, user: User) -> User:
        """The user after impersonation (`kubectl --as`), which only the administrator may use. Raises StatusError
        403."""
        headers = request.headers
        impersonated = headers.get("Impersonate-User", "")
        if not impersonated:
            return user
        if not user.is_admin:
            raise authorization.forbidden_error(
                user, Attributes("impersonate", resource="users", name=errors.printable(impersonated))
            )
        return impersonated_user(
            errors.printable(impersonated), tuple(map(errors.printable, headers.getall("Impersonate-Group", ())))
        )


def check_host_and_origin(request: web.BaseRequest) -> None:
    """Raises StatusError 421 when the Host is not this server, 403 for a foreign Origin, 400 for HTTP/0.9."""
    if request.version < (1, 0):
        raise errors.bad_request("this is an HTTP/1.1 server")
    _, is_absolute, rest = request.raw_path.partition("://") if request.raw_path[:1] != "/" else ("", "", "")
    for authority in (request.headers.get("Host"), rest.partition("/")[0] if is_absolute else None):
        if authority is not None and not _is_own_host(authority):
            raise _misdirected(authority)
    origin = request.headers.get("Origin")
    if origin is not None and not _is_own_host(origin.partition("://")[2]):
        text = "a page of another origin may not ask this API server; use kubectl, or `kubectl proxy` and its address"
        raise StatusError(403, "Forbidden", text)


def _misdirected(host: str) -> StatusError:
    subject = host if _NAME.fullmatch(host) else "of the request"
    text = f"the Host {subject} is not one of this API server; call it 127.0.0.1, localhost or kubernetes.default.svc"
    return StatusError(421, "MisdirectedRequest", text)


@lru_cache(maxsize=256)
def _is_own_host(authority: str) -> bool:
    """Whether host[:port] names this machine's loopback or the server itself. Any port: `kubectl proxy` has its own."""
    host, _, port = authority.rpartition(":") if _has_port(authority) else (authority, "", "")
    if not (port.isascii() and port.isdigit()) and port:
        return False
    if "%" in host:  # ipaddress takes any text after it for the zone of an address
        return False
    host = host.lower().removesuffix(".")
    if host in NAMES:
        return True
    try:
        address = ipaddress.ip_address(host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host)
    except ValueError:
        return False
    return address.is_loopback or str(address) in ADDRESSES


def _has_port(authority: str) -> bool:
    """Whether there is a port: an IPv6 address contains colons; with a port it is in brackets."""
    return authority.count(":") == 1 or "]:" in authority
