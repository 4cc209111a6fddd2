"""Views: how a watch and a store decode objects of any type and read their metadata.

Rules for this file:
- Decoding has two steps: first the envelope (list page, watch event), with its objects left as bytes, then each object
  by the view's decoder. The object of a BOOKMARK or an ERROR event never reaches that decoder.
- An object that cannot be decoded is logged and skipped; it never stops the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import msgspec

from trainyard.client import Unavailable
from trainyard.objects import Json, Key, controller_of, decode, key_of, revision_of, uid_of

log = logging.getLogger(__name__)

T = TypeVar("T")


class ObjectAdapter(msgspec.Struct, Generic[T], frozen=True):
    """Decodes an object; reads its key, uid, resourceVersion and index value, and whether it is being deleted."""

    decode: Callable[[bytes], T]
    key: Callable[[T], Key]
    uid: Callable[[T], str]
    revision: Callable[[T], str]
    index: Callable[[T], str]
    deleting: Callable[[T], bool]


def owner_uid(obj: Json) -> str:
    """The uid of the controller owner, "" when there is none."""
    return str((controller_of(obj) or {}).get("uid") or "")


def is_deleting(obj: Json) -> bool:
    return bool((obj.get("metadata") or {}).get("deletionTimestamp"))


def dict_adapter(
    index: Callable[[Json], str] = owner_uid, api_version: str = "", kind: str = ""
) -> ObjectAdapter[Json]:
    """Objects as dicts without `managedFields`. The items of a list do not always say what they are: we fill it in."""

    def read(raw: bytes) -> Json:
        obj = decode(raw)
        if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
            raise ValueError("not an object with metadata")
        obj["metadata"].pop("managedFields", None)
        if kind:
            obj.setdefault("apiVersion", api_version)
            obj.setdefault("kind", kind)
        return obj

    return ObjectAdapter(read, key_of, uid_of, revision_of, index, is_deleting)


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(name="continue", default=None)


class _ListPage(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class _WatchEvent(msgspec.Struct):
    type: str = ""
    object: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))


class _BookmarkOrStatus(msgspec.Struct, rename="camel"):
    """The little that is read from the object of a BOOKMARK or an ERROR."""

    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    code: int = 0
    reason: str = ""
    message: str = ""


_list_decoder = msgspec.json.Decoder(_ListPage)
_event_decoder = msgspec.json.Decoder(_WatchEvent)
_last_object_decoder = msgspec.json.Decoder(_BookmarkOrStatus)


def split_list(body: bytes) -> tuple[list[bytes], str, str]:
    """A list's objects (still bytes), its revision, and the token of the next page ("" on the last)."""
    try:
        page = _list_decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise Unavailable(0, "BadAnswer", f"a list could not be read: {error}") from None
    return [bytes(raw) for raw in page.items or []], page.metadata.resource_version, page.metadata.continue_ or ""


def split_watch_event(line: bytes) -> tuple[str, bytes]:
    """A watch line's type and its object, still bytes."""
    try:
        cut = _event_decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise Unavailable(0, "BadAnswer", f"a watch line could not be read: {error}") from None
    return cut.type, bytes(cut.object)


def read_bookmark(raw: bytes) -> str:
    """The revision that a bookmark names."""
    return _decode_bookmark_or_status(raw).metadata.resource_version


def read_error(raw: bytes) -> tuple[int, str]:
    """The code and the text of an error line."""
    said = _decode_bookmark_or_status(raw)
    return said.code, said.message or said.reason


def _decode_bookmark_or_status(raw: bytes) -> _BookmarkOrStatus:
    try:
        return _last_object_decoder.decode(raw)
    except msgspec.MsgspecError as error:
        raise Unavailable(0, "BadAnswer", f"a watch line could not be read: {error}") from None


def decode_each(view: ObjectAdapter[T], raws: list[bytes], resource: str) -> Iterator[T]:
    """Every object that can be decoded. The others are said and left out."""
    for raw in raws:
        try:
            yield view.decode(raw)
        except Exception:
            log.exception("object left out: it could not be decoded resource=%s starts=%r", resource, raw[:120])
