"""Who may come in: asked of the head of every request, before anything else of it is read.

    Host, Origin   the request was meant for this server, by something on this machine
    Authorization  who asks: the administrator, a ServiceAccount (tokens.py), or nobody

Rules for this file:
- A page in a browser can be made to send requests to loopback under its own name (DNS rebinding). So a Host that is
  not loopback and not one of the server's own names gets 421, and a page from elsewhere (Origin) gets 403.
- Without a token only `OPEN_PATHS` are there, as in a real cluster: they say whether it lives and how old it is.
- A wrong token is 401 everywhere. The comparison takes as long for a good guess as for a bad one.
- Nothing here is logged, and nothing that was sent is repeated but a Host that is a host: it may be half a token.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from trainyard.server import access, errors
from trainyard.server.bootstrap import OPEN_PATHS
from trainyard.server.certificates import ADDRESSES, NAMES
from trainyard.server.errors import Refused
from trainyard.server.rbac import Asked
from trainyard.server.tokens import Tokens
from trainyard.server.users import ADMIN, ANONYMOUS, User, named

if TYPE_CHECKING:
    from aiohttp import web

_NAME = re.compile(r"[-.:\[\]0-9A-Za-z]{1,100}")


class Guard:
    """`token` is the administrator's. Without one, everybody is: for servers within a test."""

    def __init__(self, token: str, tokens: Tokens) -> None:
        self._token = token.encode()
        self._tokens = tokens

    def admit(self, request: web.BaseRequest, path: str) -> User:
        """Who asks. Raises Refused 400, 401, 403 or 421."""
        must_be_here(request)
        return self._acting(request, self.user_of(request.headers.get("Authorization", ""), path))

    def user_of(self, sent: str, path: str) -> User:
        """Who sends that Authorization ("" for none) for that path. Raises Refused 401."""
        user = self._bearer(sent) if sent else None
        if user is None and not self._token:
            user = ADMIN
        if user is None and not sent and path in OPEN_PATHS:
            user = ANONYMOUS
        if user is None:
            raise Refused(401, "Unauthorized", "Unauthorized")
        return user

    def _bearer(self, sent: str) -> User | None:
        scheme, _, token = sent.partition(" ")
        if scheme.lower() != "bearer":
            return None
        token = token.strip(" ")
        if self._token and hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token):
            return ADMIN
        return self._tokens.user_of(token)

    def _acting(self, request: web.BaseRequest, user: User) -> User:
        """Whom the user acts for (`kubectl --as`): only the administrator may."""
        headers = request.headers
        wanted = headers.get("Impersonate-User", "")
        if not wanted:
            return user
        if not user.all_rights:
            raise access.refusal(user, Asked("impersonate", resource="users", name=errors.printable(wanted)))
        return named(errors.printable(wanted), tuple(map(errors.printable, headers.getall("Impersonate-Group", ()))))


def must_be_here(request: web.BaseRequest) -> None:
    """Raises Refused when the request was meant for another server, or comes from a page of another one."""
    if request.version < (1, 0):
        raise errors.bad_request("this is an HTTP/1.1 server")
    _, absolute, named = request.raw_path.partition("://") if request.raw_path[:1] != "/" else ("", "", "")
    for one in (request.headers.get("Host"), named.partition("/")[0] if absolute else None):
        if one is not None and not _is_ours(one):
            raise _misdirected(one)
    origin = request.headers.get("Origin")
    if origin is not None and not _is_ours(origin.partition("://")[2]):
        text = "a page of another origin may not ask this API server; use kubectl, or `kubectl proxy` and its address"
        raise Refused(403, "Forbidden", text)


def _misdirected(host: str) -> Refused:
    what = host if _NAME.fullmatch(host) else "of the request"
    text = f"the Host {what} is not one of this API server; call it 127.0.0.1, localhost or kubernetes.default.svc"
    return Refused(421, "MisdirectedRequest", text)


@lru_cache(maxsize=256)
def _is_ours(authority: str) -> bool:
    """Whether host[:port] names this machine's loopback or the server itself. Any port: `kubectl proxy` has its own."""
    host, _, port = authority.rpartition(":") if _has_port(authority) else (authority, "", "")
    if not (port.isascii() and port.isdigit()) and port:
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
    """An address of IPv6 has colons of its own; with a port it is in brackets."""
    return authority.count(":") == 1 or "]:" in authority
