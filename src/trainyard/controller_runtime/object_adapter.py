"""Object adapters: how a reflector and a store decode objects of one type and read their metadata.

Rules for this file:
- Decoding has two steps: first the envelope (list page, watch event), with its objects left as bytes, then each object
  by the adapter's `decode`. The object of a BOOKMARK or an ERROR event is never passed to the adapter.
- An object that cannot be decoded is logged and skipped; the other objects of the page are still decoded.
"""

from __future__ import annotations

import logging
import sys
import weakref
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Generic, TypeVar

import msgspec

from trainyard.client import Unavailable
from trainyard.objects import (
    Json,
    NamespacedName,
    controller_of,
    decode,
    encode,
    is_deleting,
    key_of,
    namespace_of,
    operator_status,
    resource_version_of,
    uid_of,
)
from trainyard.objects.managed_fields import keep_first_write

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_UNPACKED = 128  # objects that are not packed yet; one of 11 KiB is a large one


class ObjectAdapter(msgspec.Struct, Generic[T], frozen=True):
    """Functions for one type of object: `decode` parses its JSON and may raise any exception; the others return its
    key, uid, resourceVersion (`revision`) and index value, and whether it has a deletionTimestamp."""

    decode: Callable[[bytes], T]
    key: Callable[[T], NamespacedName]
    uid: Callable[[T], str]
    revision: Callable[[T], str]
    index: Callable[[T], str]
    is_deleting: Callable[[T], bool]


def owner_uid(obj: Json) -> str:
    """The uid of the object's controller owner, "" when it has none."""
    return str((controller_of(obj) or {}).get("uid") or "")


def dict_adapter(
    index: Callable[[Json], str] = owner_uid, api_version: str = "", kind: str = "", first_write: bool = False
) -> ObjectAdapter[Json]:
    """An adapter for objects as dicts, without `managedFields`, of which `first_write` keeps a part (managed_fields).
    List items may lack apiVersion and kind: they are set to `api_version` and `kind`, unless `kind` is ""."""

    def decode_dict(raw: bytes) -> Json:
        obj = decode(raw)
        if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
            raise ValueError("not an object with metadata")
        if first_write:
            keep_first_write(obj["metadata"])
        else:
            obj["metadata"].pop("managedFields", None)
        if kind:
            obj.setdefault("apiVersion", api_version)
            obj.setdefault("kind", kind)
        return obj

    return ObjectAdapter(decode_dict, key_of, uid_of, resource_version_of, index, is_deleting)


class PackedObject(msgspec.Struct, weakref=True, eq=False):
    """An object of which a store has thousands: packed, it takes 2 KiB instead of the 11 KiB of its dict. The objects
    that were made or unpacked last are not packed yet: packing takes 17 us, and `unpack` 10.

    `conditions`: type and reason of each entry of `status.conditions` that is true, in their order.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    deleting: bool
    conditions: tuple[tuple[str, str], ...]
    _obj: Json | None = None  # None: packed
    _packed: bytes = b""

    @classmethod
    def of(cls, obj: Json) -> PackedObject:
        """An object that has metadata. The caller must not edit it later."""
        key = key_of(obj)
        packed_object = cls(
            sys.intern(key.namespace),
            key.name,
            sys.intern(uid_of(obj)),  # as in the records of its children
            resource_version_of(obj),
            is_deleting(obj),
            _shared_conditions(_true_conditions(obj)),
            obj,
        )
        _pack_later(packed_object)
        return packed_object

    @property
    def key(self) -> NamespacedName:
        """Namespace and name."""
        return NamespacedName(self.namespace, self.name)

    def unpack(self) -> Json:
        """The object. It must not be edited: other callers get the same dict."""
        if self._obj is None:
            self._obj = decode(zlib.decompress(self._packed))
        _pack_later(self)
        return self._obj

    def pack(self) -> None:
        """Keep the packed form only."""
        # Copied: what zlib returns is followed by the unused rest of a block of 16 KiB.
        self._packed = self._packed or bytes(memoryview(zlib.compress(encode(self._obj), 1)))
        self._obj = None


_unpacked: OrderedDict[int, weakref.ref[PackedObject]] = OrderedDict()  # by id(), the last used one last


def _pack_later(packed_object: PackedObject) -> None:
    """Pack the object when MAX_UNPACKED others have been used after it; never if it is freed before, as the earlier
    versions of a job that changes are."""
    number = id(packed_object)
    if number in _unpacked:
        _unpacked.move_to_end(number)
        return
    _unpacked[number] = weakref.ref(packed_object, lambda _: _unpacked.pop(number, None))
    while len(_unpacked) > MAX_UNPACKED:
        _, oldest = _unpacked.popitem(last=False)
        if (unused_object := oldest()) is not None:
            unused_object.pack()


@lru_cache(maxsize=1024)
def _shared_conditions(conditions: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """One tuple in memory for all objects with these conditions."""
    return conditions


def _true_conditions(obj: Json) -> tuple[tuple[str, str], ...]:
    conditions = operator_status(obj).get("conditions")
    listed = conditions if isinstance(conditions, list) else []
    return tuple(
        (str(condition.get("type")), str(condition.get("reason") or ""))
        for condition in listed
        if isinstance(condition, dict) and condition.get("status") == "True"
    )


def packed_adapter(api_version: str = "", kind: str = "", first_write: bool = False) -> ObjectAdapter[PackedObject]:
    """As dict_adapter, for packed objects, indexed by namespace."""
    decode_dict = dict_adapter(namespace_of, api_version, kind, first_write).decode
    return ObjectAdapter(
        decode=lambda raw: PackedObject.of(decode_dict(raw)),
        key=lambda obj: obj.key,
        uid=lambda obj: obj.uid,
        revision=lambda obj: obj.resource_version,
        index=lambda obj: obj.namespace,
        is_deleting=lambda obj: obj.deleting,
    )


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
    """The fields read from the object of a BOOKMARK (metadata) or an ERROR event (a Status: code, reason, message)."""

    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    code: int = 0
    reason: str = ""
    message: str = ""


_list_decoder = msgspec.json.Decoder(_ListPage)
_event_decoder = msgspec.json.Decoder(_WatchEvent)
_bookmark_or_status_decoder = msgspec.json.Decoder(_BookmarkOrStatus)


def decode_list_page(body: bytes) -> tuple[Iterator[bytes], str, str]:
    """Split one page of a list into its objects (still encoded, each copied when it is read), its resourceVersion, and
    the continue token of the next page ("" on the last). Raises Unavailable when the body is not a list."""
    try:
        page = _list_decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise Unavailable(0, "BadAnswer", f"a list could not be read: {error}") from None
    return map(bytes, page.items or ()), page.metadata.resource_version, page.metadata.continue_ or ""


def decode_watch_event(line: bytes) -> tuple[str, bytes]:
    """The type and the object (still encoded) of one line of a watch. Raises Unavailable when it is not a watch
    event."""
    try:
        event = _event_decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise Unavailable(0, "BadAnswer", f"a watch line could not be read: {error}") from None
    return event.type, bytes(event.object)


def decode_bookmark(raw: bytes) -> str:
    """The resourceVersion of a BOOKMARK event's object. Raises Unavailable when it cannot be decoded."""
    return _decode_bookmark_or_status(raw).metadata.resource_version


def decode_status(raw: bytes) -> tuple[int, str]:
    """The code and the message (or else the reason) of the Status of an ERROR event. Raises Unavailable when it cannot
    be decoded."""
    status = _decode_bookmark_or_status(raw)
    return status.code, status.message or status.reason


def _decode_bookmark_or_status(raw: bytes) -> _BookmarkOrStatus:
    try:
        return _bookmark_or_status_decoder.decode(raw)
    except msgspec.MsgspecError as error:
        raise Unavailable(0, "BadAnswer", f"a watch line could not be read: {error}") from None


def decode_objects(adapter: ObjectAdapter[T], raw_objects: Iterable[bytes], resource: str) -> Iterator[T]:
    """Decode the objects with the adapter. Objects that cannot be decoded are logged and skipped."""
    for raw in raw_objects:
        try:
            yield adapter.decode(raw)
        except Exception:
            log.exception("object ignored: it cannot be decoded resource=%s starts=%r", resource, raw[:120])
