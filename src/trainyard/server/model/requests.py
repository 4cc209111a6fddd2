"""Requests and responses as values, so that the verbs do not depend on a web framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from trainyard.objects import Json, Problem, decode, encode
from trainyard.schema import MAX_DEPTH
from trainyard.server.model import errors, protobuf
from trainyard.server.model.resources import Resource
from trainyard.server.model.selection import Selection
from trainyard.server.model.users import ADMIN, User

JSON = "application/json"
INITIAL_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends the initial events of a watch."""


_NOTHING: Mapping[str, str] = MappingProxyType({})


class Request(NamedTuple):
    """A decoded HTTP request. `path` is raw (percent-encoded), `query` has the first value of each parameter,
    `content_type` has no parameters.

    `protocols` are the subprotocols of a WebSocket upgrade, None when the request is no upgrade. `query_string` is the
    raw query, for parameters with several values.
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
    """The client's User-Agent: the default field manager for managedFields."""
    etag: str = ""
    """If-None-Match: the ETags of the client's cached responses."""

    def flag(self, name: str) -> bool:
        """A boolean query parameter: present, and not a false value in Go (0, f, false) or empty."""
        return self.query.get(name, "false").lower() not in ("", "0", "f", "false")


class Response(NamedTuple):
    """A complete response. `warnings` become Warning headers, which kubectl prints."""

    body: bytes
    code: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = _NOTHING
    warnings: tuple[str, ...] = ()


class Watch(msgspec.Struct, frozen=True):
    """A streaming response: the watch events of a selection after a revision, one line each.

    `initial` are lines to send first (existing objects). `encode` converts the stored bytes of an object to the
    requested representation; `representation` names it, so that watches of one representation share the encoded events.
    """

    resource: Resource
    selection: Selection
    revision: int
    encode: Callable[[bytes], bytes] | None
    representation: str
    later: tuple[Callable[[bytes], bytes], str] | None = None
    """`encode` and `representation` from the second line on, when they differ: a Table has its columns in the first
    only."""
    initial: tuple[bytes, ...] = ()
    initial_end: bool = False
    bookmarks: bool = False
    seconds: float = 3600.0


class KubeletProxy(msgspec.Struct, frozen=True):
    """A response of a kubelet: the URL to forward the request to."""

    url: str


class Tunnel(msgspec.Struct, frozen=True):
    """A WebSocket to a kubelet: its URL, and the subprotocols that the client accepts, preferred first."""

    url: str
    protocols: tuple[str, ...]


class PodProxy(msgspec.Struct, frozen=True):
    """A response of a program in a pod. `socket_url` is the URL where the pod's node returns the path of the program's
    socket, `path` the path (with query) for the program, `prefix` the part before it in the client's URL.
    """

    socket_url: str
    path: str
    prefix: str
    host: str
    secure: bool
    description: str
    """A description of the program for error messages."""


Answer = Response | Watch | KubeletProxy | Tunnel | PodProxy


def reply(obj: Json, code: int = 200) -> Response:
    """A response with a JSON object."""
    return Response(encode(obj), code)


MAX_BODY = 3 * 1024 * 1024
"""Maximum size of a request body, bytes."""


def decode_body(request: Request, accepted: str = JSON, decode_json: Callable[[bytes], Any] = decode) -> Any:
    """The decoded body; JSON is decoded by `decode_json`. Raises StatusError 415, 413 or 400."""
    if len(request.body) > MAX_BODY:
        text = f"Request entity too large: limit is {MAX_BODY}"
        raise errors.StatusError(413, "RequestEntityTooLarge", text)
    try:
        if request.content_type == protobuf.CONTENT_TYPE and accepted == JSON:
            return protobuf.decode(request.body)
        if request.content_type in (accepted, ""):
            return decode_json(request.body)
    except ValueError as error:
        raise errors.bad_request(f"the object provided is unrecognized: {errors.printable(str(error))}") from None
    raise errors.unsupported_media_type((accepted,), request.content_type)


def is_shallow(request: Request) -> bool:
    """Whether the JSON body has too few brackets to be nested too deep. Counting is faster than a walk."""
    if request.content_type == protobuf.CONTENT_TYPE:
        return False
    return request.body.count(b"{") + request.body.count(b"[") <= MAX_DEPTH


_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}


def options_kind(request: Request) -> str:
    """The kind of a request's options in error messages."""
    return _OPTIONS.get(request.method, "ListOptions")


def dry_run_problems(request: Request) -> list[Problem]:
    """A problem when the query has a dryRun other than `All`."""
    value = request.query.get("dryRun", "")
    if value in ("", "All"):
        return []
    return [Problem("dryRun", f'Unsupported value: ["{errors.printable(value)}"]: supported values: "All"')]


def is_dry_run(request: Request) -> bool:
    """Whether the request is a dry run: everything is processed but nothing stored. Raises StatusError 422."""
    if problems := dry_run_problems(request):
        raise errors.options_invalid(options_kind(request), problems)
    return bool(request.query.get("dryRun"))
