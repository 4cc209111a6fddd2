"""A request and its answers as values, so that no verb knows a web framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from trainyard.objects import Json, Problem, decode, encode
from trainyard.schema import DEPTH
from trainyard.server import errors, protobuf
from trainyard.server.resources import Resource
from trainyard.server.selection import Selection
from trainyard.server.users import ADMIN, User

JSON = "application/json"


_NOTHING: Mapping[str, str] = MappingProxyType({})


class Request(NamedTuple):
    """`path` is raw (quoted), `query` has the first value of each name, `content_type` has no parameters.

    `protocols` is what a WebSocket upgrade offers, None when the request is none. `query_string` is the query as it
    came, for those who need all values of a name.
    """

    method: str
    path: str
    query: Mapping[str, str] = _NOTHING
    body: bytes = b""
    content_type: str = ""
    accept: str = ""
    user: User = ADMIN
    query_string: str = ""
    protocols: tuple[str, ...] | None = None
    agent: str = ""
    """The client's User-Agent: who writes, for managedFields, when he does not say it himself."""
    etag: str = ""
    """If-None-Match: the ETags of what the client has already."""

    def flag(self, name: str) -> bool:
        """A boolean parameter: given, and not one of Go's words for false."""
        return self.query.get(name, "false").lower() not in ("", "0", "f", "false")


class Response(NamedTuple):
    """A whole answer. `warnings` are sentences that a person's tool shows (kubectl prints them)."""

    body: bytes
    code: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = _NOTHING
    warnings: tuple[str, ...] = ()


class Watch(msgspec.Struct, frozen=True):
    """An answer without end: the changes of a selection after a revision, one line each.

    `initial` are lines to send first (objects that are there already). `show` makes the object of a line from its
    stored bytes; `view` names that form, so that watchers of one form share what is encoded.
    """

    resource: Resource
    selection: Selection
    revision: int
    show: Callable[[bytes], bytes] | None
    view: str
    later: tuple[Callable[[bytes], bytes], str] | None = None
    """`show` and `view` from the second line on, when they differ: a table names its columns once."""
    initial: tuple[bytes, ...] = ()
    initial_end: bool = False
    bookmarks: bool = False
    seconds: float = 3600.0


class Elsewhere(msgspec.Struct, frozen=True):
    """An answer that the kubelet of a node gives: the URL to ask."""

    url: str


class Tunnel(msgspec.Struct, frozen=True):
    """A WebSocket whose other end is a kubelet: the URL to ask, and the subprotocols the client takes, best first."""

    url: str
    protocols: tuple[str, ...]


class Inside(msgspec.Struct, frozen=True):
    """An answer that a program in a pod gives. `door` is the URL under which its node names the socket that leads
    there, `path` what to ask the program (with the query), `prefix` what stands before that in the client's URL.
    """

    door: str
    path: str
    prefix: str
    host: str
    secure: bool
    what: str
    """Whom we try to reach, in words."""


Answer = Response | Watch | Elsewhere | Tunnel | Inside


def reply(obj: Json, code: int = 200) -> Response:
    return Response(encode(obj), code)


LARGEST = 3 * 1024 * 1024
"""Bytes of a request's body."""


def body_of(request: Request, accepted: str = JSON) -> Any:
    """The decoded body. Raises Refused 415, 413 or 400."""
    if len(request.body) > LARGEST:
        text = f"Request entity too large: limit is {LARGEST}"
        raise errors.Refused(413, "RequestEntityTooLarge", text)
    try:
        if request.content_type == protobuf.CONTENT_TYPE and accepted == JSON:
            return protobuf.read(request.body)
        if request.content_type in (accepted, ""):
            return decode(request.body)
    except ValueError as error:
        raise errors.bad_request(f"the object provided is unrecognized: {errors.printable(str(error))}") from None
    raise errors.unsupported_media_type((accepted,), request.content_type)


def shallow(request: Request) -> bool:
    """Whether the JSON in its body has so few brackets that it cannot be too deep. To count is quicker than to walk."""
    if request.content_type == protobuf.CONTENT_TYPE:
        return False
    return request.body.count(b"{") + request.body.count(b"[") <= DEPTH


_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}


def options_kind(request: Request) -> str:
    """What the parameters of a request are called in its refusal."""
    return _OPTIONS.get(request.method, "ListOptions")


def dry_run_problems(request: Request) -> list[Problem]:
    asked = request.query.get("dryRun", "")
    if asked in ("", "All"):
        return []
    return [Problem("dryRun", f'Unsupported value: ["{errors.printable(asked)}"]: supported values: "All"')]


def dry_run(request: Request) -> bool:
    """Whether everything should happen but the write. Raises Refused 422."""
    if found := dry_run_problems(request):
        raise errors.options_invalid(options_kind(request), found)
    return bool(request.query.get("dryRun"))
