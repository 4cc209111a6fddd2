"""Lists and the start of watches: the selected objects, their representation, and the revision.

Rules for this file:
- A paginated list is one consistent snapshot: the `continue` token contains the revision of the first page. When that
  revision has been compacted, the answer is 410, never a mix of revisions.
- Objects that are returned in their stored form are joined as bytes, without decoding.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from trainyard.objects import Json, NamespacedName, decode, encode, key_of, labels_of
from trainyard.server.model import errors
from trainyard.server.model.context import RequestContext
from trainyard.server.model.paths import Target
from trainyard.server.model.requests import Request, Response, Watch
from trainyard.server.model.resources import Resource
from trainyard.server.model.selection import Selection, name_in_field_selector, require_field_selector, select
from trainyard.server.model.store import Record, View, next_key
from trainyard.server.registry import list_options, tables
from trainyard.server.storage.log import RevisionLog

Clock = Callable[[], float]

LONGEST_WATCH = 3600.0


class Representation(NamedTuple):
    """A representation of objects (JSON, Table, PartialObjectMetadata). `show` converts a stored object; None when the
    stored bytes are returned as they are. `encode_list` makes a list of (stored objects, list metadata)."""

    name: str
    show: Callable[[bytes], bytes] | None
    encode_list: Callable[[Sequence[bytes], Json], bytes]
    show_later: Callable[[bytes], bytes] | None = None
    """`show` for the second and later objects of a watch, when it differs."""

    def encode_object(self, body: bytes) -> bytes:
        """The stored object in this representation."""
        return self.show(body) if self.show else body


def representation(resource: Resource, request: Request, clock: Clock, listed: bool | None = False) -> Representation:
    """The representation that the Accept header asks for: Table (kubectl), PartialObjectMetadata, or whole objects.
    Raises StatusError 400, 406.

    `listed`: the response is a list; None: a watch, whose events contain single objects.
    """
    if request.accept in ("application/json", "*/*", ""):  # the common case
        return _object_form(resource)
    name = f"{resource.group}/{resource.version}"
    understood = False
    for media_range in request.accept.split(","):
        media, *parameters = [part.strip() for part in media_range.split(";")]
        if media not in ("application/json", "*/*"):
            continue
        understood = True
        shape = next((parameter[3:] for parameter in parameters if parameter.startswith("as=")), "")
        version = next((parameter[2:] for parameter in parameters if parameter.startswith("v=")), "v1")
        group = next((parameter[2:] for parameter in parameters if parameter.startswith("g=")), "meta.k8s.io")
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
            return Representation(
                f"{name} {shape} {include}", table.encode_object, table.encode_list, table.encode_later
            )
        if shape in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            if listed is not None and listed is not shape.endswith("List"):
                return _mismatched_form(shape, listed)
            if listed is None and shape.endswith("List"):
                return Representation(f"{name} nothing", _empty_body, _list_of(_empty_body, _PARTIAL))
            return Representation(f"{name} metadata", _metadata_only, _list_of(_metadata_only, _PARTIAL))
        if not shape:
            return _object_form(resource)
    if understood:
        raise errors.StatusError(406, "NotAcceptable", "only the following media types are accepted: application/json")
    text = "406: Not Acceptable\n\nAvailable representations: application/json"
    raise errors.StatusError(406, "NotAcceptable", text, {})


def _mismatched_form(shape: str, listed: bool) -> Representation:
    """A list form for a single object, or the reverse: 406. As in kube-apiserver it is raised when the response is
    encoded, so a write has already happened."""

    def refuse(*arguments: object) -> bytes:
        text = f"you requested {shape}, but the requested object is {'a' if listed else 'not a'} list"
        raise errors.StatusError(406, "NotAcceptable", text)

    return Representation(shape, refuse, refuse)


@lru_cache(maxsize=256)
def _object_form(resource: Resource) -> Representation:
    show = _converter(resource)
    kinds = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
    return Representation(f"{resource.group}/{resource.version}", show, _list_of(show, kinds, resource))


_PARTIAL = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}


def _converter(resource: Resource) -> Callable[[bytes], bytes] | None:
    read = resource.from_storage
    return None if read is None else lambda body: encode(read(decode(body)))


def _empty_body(body: bytes) -> bytes:
    """The event object of a watch that asks for PartialObjectMetadataList: empty, as in kube-apiserver."""
    return b""


def _metadata_only(body: bytes) -> bytes:
    kinds = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return encode({**kinds, "metadata": decode(body)["metadata"]})


def _list_of(
    show: Callable[[bytes], bytes] | None, kinds: Json, resource: Resource | None = None
) -> Callable[[Sequence[bytes], Json], bytes]:
    """An encoder of lists. `resource` is set when the items are whole objects."""
    with_type_meta = resource is not None and resource.lists_type_meta

    def many(bodies: Sequence[bytes], meta: Json) -> bytes:
        list_meta = {"continue": "", **meta} if with_type_meta else meta
        head = encode({**kinds, "metadata": list_meta})[:-1]
        items = list(bodies) if show is None else [show(body) for body in bodies]
        if resource is not None and not with_type_meta:
            items = _without_type_meta(items, resource)
        if not items:
            return head + (b',"items":null}' if resource is None else b',"items":[]}')
        items[0] = head + b',"items":[' + items[0]  # joined once, so that a large list is copied once
        items[-1] += b"]}"
        return b",".join(items)

    return many


def _without_type_meta(bodies: Sequence[bytes], resource: Resource) -> list[bytes]:
    """Objects without kind and apiVersion. Stored objects start with these two, so no decoding is needed."""
    type_meta = encode({"kind": resource.kind, "apiVersion": resource.api_version})[:-1] + b","
    length = len(type_meta)

    def decoded_without(body: bytes) -> bytes:
        return encode({name: part for name, part in decode(body).items() if name not in ("kind", "apiVersion")})

    return [b"{" + body[length:] if body.startswith(type_meta) else decoded_without(body) for body in bodies]


def selection(resource: Resource, target: Target, request: Request) -> Selection:
    """The selection by namespace, name, and label and field selectors of a request. Raises StatusError 400."""
    query = request.query
    fields = query.get("fieldSelector", "")
    return select(resource, target.namespace, query.get("labelSelector", ""), fields, target.name)


def selected_objects(
    log: RevisionLog, resource: Resource, target: Target, request: Request
) -> list[tuple[NamespacedName, Record]]:
    """All selected objects at the current revision."""
    selected = selection(resource, target, request)
    return list(selected.select_from(log.view(resource.storage_key, label=selected.label)))


NEWEST = -1  # the revision in a continue token that drops the consistent snapshot


class _Page(NamedTuple):
    revision: int  # 0: the current one; NEWEST: the current one for this and all later pages
    start: NamespacedName | None
    limit: int


def list_objects(log: RevisionLog, resource: Resource, target: Target, request: Request, clock: Clock) -> Response:
    """The list, or one page of it with `limit` and `continue`. Raises StatusError 400, 406, 410, 504."""
    shown = representation(resource, request, clock, True)
    _validate_options(resource, request)
    selected = selection(resource, target, request)
    page = _page(log, request)
    revision = page.revision if page.revision > 0 else log.revision
    if revision < log.floor:
        raise _continue_expired(page.start) if page.start else errors.expired(TOO_OLD)
    if revision > log.revision:
        raise errors.too_new(revision, log.revision)
    view = log.view(resource.storage_key, max(page.revision, 0), selected.label)
    meta: Json = {"resourceVersion": str(revision)}
    items = list(islice(selected.select_from(view, page.start), page.limit or None))
    if (
        page.limit
        and len(items) == page.limit
        and (page.start or not name_in_field_selector(request.query.get("fieldSelector", "")))
    ):
        # As in kube-apiserver: there is a next page when any object follows, selected or not.
        unfiltered = log.view(resource.storage_key, max(page.revision, 0)) if selected.label else view
        remaining = unfiltered.keys_in(selected.namespace, next_key(items[-1][0]))
        if remaining:
            meta["continue"] = _token(revision, remaining[0])
        if remaining and selected.is_unfiltered:
            meta["remainingItemCount"] = len(remaining)
    return Response(shown.encode_list([record.body for _, record in items], meta))


def read_computed(resource: Resource, verb: str, target: Target, request: Request, context: RequestContext) -> Response:
    """A get or list of a resource whose objects are computed. Raises StatusError 400, 404, 405, 406."""
    if resource.computed is None or verb not in ("get", "list") or target.subresource:
        raise errors.method_not_allowed()
    shown = representation(resource, request, lambda: context.now, verb == "list")
    selected = selection(resource, target, request)
    records = {key_of(obj): Record(0, encode(obj), labels_of(obj), {}) for obj in resource.computed.objects(context)}
    chosen = [record.body for _, record in selected.select_from(View(sorted(records), records))]
    if verb == "list":
        return Response(shown.encode_list(chosen, {}))
    if not chosen:
        raise resource.computed.not_found(NamespacedName(target.namespace, target.name), context)
    return Response(shown.encode_object(chosen[0]))


def _validate_options(resource: Resource, request: Request) -> None:
    """Check in kube-apiserver's order: syntax of the selectors, options; unsupported fields follow in `selection`."""
    if "resourceVersionMatch" in request.query:
        select(resource, "", request.query.get("labelSelector", ""), "")
        require_field_selector(request.query.get("fieldSelector", ""))
    list_options.validate(request)


def _page(log: RevisionLog, request: Request) -> _Page:
    query = request.query
    requested, match = list_options.revision_of(request), query.get("resourceVersionMatch", "")
    # With resourceVersion "0" kube-apiserver ignores the limit.
    limit = 0 if query.get("resourceVersion") == "0" else list_options.int_parameter(request, "limit")
    if query.get("continue"):
        revision, start = _read_token(query["continue"])
        if requested:
            raise errors.bad_request("specifying resource version is not allowed when using continue")
        return _Page(revision, start, limit)
    exact = match == "Exact" or (limit and not match)
    if requested > log.revision:
        # Such a list does not use the watch cache, so there is no retry.
        by_name = exact and name_in_field_selector(query.get("fieldSelector", ""))
        raise errors.too_new(requested, log.revision, retry=not by_name)
    return _Page(requested if exact else 0, None, limit)


TOO_OLD = "The resourceVersion for the provided list is too old."
CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


def _continue_expired(start: NamespacedName) -> errors.StatusError:
    """410: the snapshot of a continue token was compacted. The response has a token to continue without consistency."""
    return errors.StatusError(410, "Expired", CONTINUE_EXPIRED, metadata={"continue": _token(NEWEST, start)})


def _token(revision: int, start: NamespacedName) -> str:
    return base64.urlsafe_b64encode(encode({"rv": revision, "start": list(start)})).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, NamespacedName]:
    try:
        payload: Any = decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        revision, (namespace, name) = payload["rv"], payload["start"]
    except (ValueError, TypeError, KeyError, binascii.Error):
        raise errors.bad_request("continue key is not valid; send back what the last page gave") from None
    numbered = type(revision) is int and (revision > 0 or revision == NEWEST)
    if not (numbered and isinstance(namespace, str) and isinstance(name, str)):
        raise errors.bad_request("continue key is not valid; send back what the last page gave")
    return revision, NamespacedName(namespace, name)


def watch(log: RevisionLog, resource: Resource, target: Target, request: Request, clock: Clock) -> Watch:
    """The watch from the requested resourceVersion, with the initial events that the request asks for. Raises
    StatusError 400, 406, 504."""
    list_options.validate(request)
    selected = selection(resource, target, request)
    requested = list_options.revision_of(request)
    if requested > log.revision:
        raise errors.too_new(requested, log.revision)
    shown = representation(resource, request, clock, None)
    send, end = list_options.initial_events(request)
    initial: tuple[bytes, ...] = ()
    if send:
        bodies = [
            record.body for _, record in selected.select_from(log.view(resource.storage_key, label=selected.label))
        ]
        shown_bodies = (
            shown.show_later(body) if shown.show_later and index else shown.encode_object(body)
            for index, body in enumerate(bodies)
        )
        initial = tuple(b'{"type":"ADDED","object":' + body + b"}\n" for body in shown_bodies if body)
    later_form = (shown.show_later, f"{shown.name} more") if shown.show_later else None
    if later_form and initial:
        shown, later_form = Representation(later_form[1], later_form[0], shown.encode_list), None
    return Watch(
        resource,
        selected,
        revision=log.revision if send or not requested else requested,
        encode=shown.show,
        representation=shown.name,
        later=later_form,
        initial=initial,
        initial_end=end,
        bookmarks=request.flag("allowWatchBookmarks"),
        seconds=min(float(list_options.int_parameter(request, "timeoutSeconds")) or LONGEST_WATCH, LONGEST_WATCH),
    )
