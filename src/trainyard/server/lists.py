"""Lists and the beginning of watches: which objects, in which form, from which revision.

Rules for this file:
- A list in pages is one consistent snapshot: `continue` carries the revision of the first page. When that has been
  compacted away, the answer is 410, never a mixture.
- What goes out in the stored form is joined bytes; nothing is decoded.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from trainyard.objects import Json, Key, decode, encode
from trainyard.server import errors, listing, tables
from trainyard.server.log import Ahead, Compacted, Log
from trainyard.server.paths import Target
from trainyard.server.requests import Request, Response, Watch
from trainyard.server.resources import Resource
from trainyard.server.selection import Selection, must_parse, one_name, select
from trainyard.server.store import Record, following

Clock = Callable[[], float]

LONGEST_WATCH = 3600.0
INITIAL_END = "k8s.io/initial-events-end"


class Form(NamedTuple):
    """How objects are shown. `show` is None when the stored bytes go out as they are."""

    name: str
    show: Callable[[bytes], bytes] | None
    many: Callable[[Sequence[bytes], Json], bytes]
    more: Callable[[bytes], bytes] | None = None
    """How the second and later objects of a watch are shown, when that differs."""

    def one(self, body: bytes) -> bytes:
        return self.show(body) if self.show else body


def form(resource: Resource, request: Request, clock: Clock, listed: bool | None = False) -> Form:
    """What the Accept header asks for: Tables (kubectl), metadata only, or the objects. Raises Refused 406.

    `listed`: the answer is a list; None: a watch, whose lines are objects.
    """
    if request.accept in ("application/json", "*/*", ""):  # nearly always
        return _whole(resource)
    name = f"{resource.group}/{resource.version}"
    understood = False
    for wanted in request.accept.split(","):
        media, *parameters = [part.strip() for part in wanted.split(";")]
        if media not in ("application/json", "*/*"):
            continue
        understood = True
        shape = next((one[3:] for one in parameters if one.startswith("as=")), "")
        version = next((one[2:] for one in parameters if one.startswith("v=")), "v1")
        group = next((one[2:] for one in parameters if one.startswith("g=")), "meta.k8s.io")
        if shape and (version, group) != ("v1", "meta.k8s.io"):
            continue
        if shape in ("Table",):
            include = request.query.get("includeObject") or "Metadata"
            if include not in tables.INCLUDES:
                text = "must be 'Metadata', 'Object', 'None', or empty"
                shown = errors.printable(include[:80])
                text = f'Unable to convert to Table as requested: includeObject: Invalid value: "{shown}": {text}'
                raise errors.bad_request(text)
            table = tables.Table(resource, include, clock)
            return Form(f"{name} {shape} {include}", table.one, table.many, table.more)
        if shape in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            if listed is not None and listed is not shape.endswith("List"):
                return _other_form(shape, listed)
            if listed is None and shape.endswith("List"):
                return Form(f"{name} nothing", _nothing, _list_of(_nothing, _PARTIAL))
            return Form(f"{name} metadata", _metadata_only, _list_of(_metadata_only, _PARTIAL))
        if not shape:
            return _whole(resource)
    if understood:
        raise errors.Refused(406, "NotAcceptable", "only the following media types are accepted: application/json")
    text = "406: Not Acceptable\n\nAvailable representations: application/json"
    raise errors.Refused(406, "NotAcceptable", text, None if resource.custom else {})


def _other_form(shape: str, listed: bool) -> Form:
    """One form for the other. As in the real server, that is only seen when the answer is made: a write is done."""

    def refuse(*anything: object) -> bytes:
        text = f"you requested {shape}, but the requested object is {'a' if listed else 'not a'} list"
        raise errors.Refused(406, "NotAcceptable", text)

    return Form(shape, refuse, refuse)


@lru_cache(maxsize=256)
def _whole(resource: Resource) -> Form:
    show = _reader(resource)
    kinds = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
    return Form(f"{resource.group}/{resource.version}", show, _list_of(show, kinds, resource))


_PARTIAL = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}


def _reader(resource: Resource) -> Callable[[bytes], bytes] | None:
    read = resource.read
    return None if read is None else lambda body: encode(read(decode(body)))


def _nothing(body: bytes) -> bytes:
    """What a watch that wants each object as a list hears of it, as on the real server."""
    return b""


def _metadata_only(body: bytes) -> bytes:
    kinds = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return encode({**kinds, "metadata": decode(body)["metadata"]})


def _list_of(
    show: Callable[[bytes], bytes] | None, kinds: Json, resource: Resource | None = None
) -> Callable[[Sequence[bytes], Json], bytes]:
    """`resource` is given when the items are whole objects: those of built-in ones do not repeat what they are."""
    custom = resource is not None and resource.custom

    def many(bodies: Sequence[bytes], meta: Json) -> bytes:
        told = {"continue": "", **meta} if custom else meta
        head = encode({**kinds, "metadata": told})[:-1]
        items = list(bodies) if show is None else [show(body) for body in bodies]
        if resource is not None and not custom:
            items = _bare(items, resource)
        if not items:
            return head + (b',"items":null}' if resource is None else b',"items":[]}')
        items[0] = head + b',"items":[' + items[0]  # so that what may be large is copied once
        items[-1] += b"]}"
        return b",".join(items)

    return many


def _bare(bodies: Sequence[bytes], resource: Resource) -> list[bytes]:
    """Objects without kind and apiVersion. They come first in what is stored, so nothing needs to be decoded."""
    start = encode({"kind": resource.kind, "apiVersion": resource.api_version})[:-1] + b","
    length = len(start)

    def slow(body: bytes) -> bytes:
        return encode({name: part for name, part in decode(body).items() if name not in ("kind", "apiVersion")})

    return [b"{" + body[length:] if body.startswith(start) else slow(body) for body in bodies]


def selection(resource: Resource, target: Target, request: Request) -> Selection:
    """What the URL and its selectors choose. A watch of one object by name is a selection, too."""
    query = request.query
    fields = query.get("fieldSelector", "")
    return select(resource, target.namespace, query.get("labelSelector", ""), fields, target.name)


def chosen(log: Log, resource: Resource, target: Target, request: Request) -> list[tuple[Key, Record]]:
    """Everything that is selected, now."""
    wanted = selection(resource, target, request)
    return list(wanted.among(log.view(resource.place, label=wanted.label)))


NEWEST = -1  # the revision of a token that gives up the snapshot


class _Page(NamedTuple):
    revision: int  # 0: now; NEWEST: now, and the pages after it too
    start: Key | None
    limit: int


def list_(log: Log, resource: Resource, target: Target, request: Request, clock: Clock) -> Response:
    shown = form(resource, request, clock, True)
    _rightly_asked(resource, request)
    wanted = selection(resource, target, request)
    page = _page(log, request)
    try:
        view = log.view(resource.place, max(page.revision, 0), wanted.label)
    except Compacted:
        raise (_lost(page.start) if page.start else errors.expired(TOO_OLD)) from None
    except Ahead:
        raise errors.too_new(page.revision, log.revision) from None
    revision = page.revision if page.revision > 0 else log.revision
    meta: Json = {"resourceVersion": str(revision)}
    found = list(islice(wanted.among(view, page.start), page.limit or None))
    if page.limit and len(found) == page.limit and (page.start or not one_name(request.query.get("fieldSelector", ""))):
        # As in the real server: more is what comes after the last, whether it is wanted or not.
        whole = log.view(resource.place, max(page.revision, 0)) if wanted.label else view
        beyond = whole.within(wanted.namespace, following(found[-1][0]))
        if beyond:
            meta["continue"] = _token(revision, beyond[0])
        if beyond and wanted.everything:
            meta["remainingItemCount"] = len(beyond)
    return Response(shown.many([record.body for _, record in found], meta))


def _rightly_asked(resource: Resource, request: Request) -> None:
    """The real server's order: selectors that cannot be read, options, then fields that nobody offers."""
    if "resourceVersionMatch" in request.query:
        select(resource, "", request.query.get("labelSelector", ""), "")
        must_parse(request.query.get("fieldSelector", ""))
    listing.must_be_right(request)


def _page(log: Log, request: Request) -> _Page:
    query = request.query
    asked, match = listing.revision_of(request), query.get("resourceVersionMatch", "")
    # "0" is whatever is at hand, and that comes whole.
    limit = 0 if query.get("resourceVersion") == "0" else listing.number(request, "limit")
    if query.get("continue"):
        revision, start = _read_token(query["continue"])
        if asked:
            raise errors.bad_request("specifying resource version is not allowed when using continue")
        return _Page(revision, start, limit)
    exact = match == "Exact" or (limit and not match)
    if asked > log.revision:
        direct = exact and one_name(query.get("fieldSelector", ""))  # no cache that could catch up
        raise errors.too_new(asked, log.revision, again=not direct)
    return _Page(asked if exact else 0, None, limit)


TOO_OLD = "The resourceVersion for the provided list is too old."
LOST = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


def _lost(start: Key) -> errors.Refused:
    """The snapshot of that token is gone. Another token goes on from there, with what is there by then."""
    return errors.Refused(410, "Expired", LOST, metadata={"continue": _token(NEWEST, start)})


def _token(revision: int, start: Key) -> str:
    return base64.urlsafe_b64encode(encode({"rv": revision, "start": list(start)})).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, Key]:
    try:
        sent: Any = decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        revision, (namespace, name) = sent["rv"], sent["start"]
    except (ValueError, TypeError, KeyError, binascii.Error):
        raise errors.bad_request("continue key is not valid; send back what the last page gave") from None
    numbered = type(revision) is int and (revision > 0 or revision == NEWEST)
    if not (numbered and isinstance(namespace, str) and isinstance(name, str)):
        raise errors.bad_request("continue key is not valid; send back what the last page gave")
    return revision, Key(namespace, name)


def watch(log: Log, resource: Resource, target: Target, request: Request, clock: Clock) -> Watch:
    listing.must_be_right(request)
    wanted = selection(resource, target, request)
    asked = listing.revision_of(request)
    if asked > log.revision:
        raise errors.too_new(asked, log.revision)
    shown = form(resource, request, clock, None)
    send, end = listing.initial(request)
    initial: tuple[bytes, ...] = ()
    if send:
        found = [record.body for _, record in wanted.among(log.view(resource.place, label=wanted.label))]
        told = (shown.more(body) if shown.more and at else shown.one(body) for at, body in enumerate(found))
        initial = tuple(b'{"type":"ADDED","object":' + body + b"}\n" for body in told if body)
    later = (shown.more, f"{shown.name} more") if shown.more else None
    if later and initial:
        shown, later = Form(later[1], later[0], shown.many), None
    return Watch(
        resource,
        wanted,
        revision=log.revision if send or not asked else asked,
        show=shown.show,
        view=shown.name,
        later=later,
        initial=initial,
        initial_end=end,
        bookmarks=request.flag("allowWatchBookmarks"),
        seconds=min(float(listing.number(request, "timeoutSeconds")) or LONGEST_WATCH, LONGEST_WATCH),
    )
