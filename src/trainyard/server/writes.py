"""Every write ends here: an object becomes bytes with its number inside, and the log's next entry.

Also the rule of places: a namespace holds objects, a CustomResourceDefinition holds instances. While a place is being
deleted nothing new goes in, and when the last of its content has gone, it goes too.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.objects import Json, Key, decode, encode, labels_of
from trainyard.server import errors
from trainyard.server.log import Log
from trainyard.server.resources import Registry, Resource
from trainyard.server.same import same
from trainyard.server.store import Record

NAMESPACES = "namespaces"
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


class Writes:
    """The log, seen from a verb that has made up its mind."""

    def __init__(self, log: Log, registry: Registry) -> None:
        self.log, self.registry = log, registry

    def must_accept(self, namespace: str, resource: Resource, name: str) -> None:
        """Raises Refused when nothing can be made in that namespace, or of that definition."""
        if resource.custom and _ends(self.log.get(DEFINITIONS, Key("", resource.place))):
            refused = errors.not_supported("create", resource.plural, resource.group)
            refused.message = "create not allowed while custom resource definition is terminating"
            raise refused
        if not namespace:
            return
        record = self.log.get(NAMESPACES, Key("", namespace))
        if record is None:
            raise errors.not_found(NAMESPACES, "", errors.printable(namespace))
        if _ends(record):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": f"namespace {namespace} is being terminated"}
            causes = [{**cause, "field": "metadata.namespace"}]
            raise errors.forbidden(resource.plural, resource.group, name, why, causes=causes)

    def put(self, resource: Resource, new: Json, old: Json | None, dry: bool = False) -> bytes:
        """Writes `new` over `old` and returns what is stored then. No difference, no write."""
        new = {"kind": new["kind"], "apiVersion": new["apiVersion"], **new}  # first: lists leave them out
        meta = new["metadata"]
        key = Key(meta.get("namespace", ""), meta["name"])
        before = self.log.get(resource.place, key) if old is not None else None
        if old is not None and before is not None:
            meta["resourceVersion"] = old["metadata"]["resourceVersion"]
            if same(new, old):
                return before.body
            if "deletionTimestamp" in meta and not held(resource, new):
                self.remove(resource, old, dry)
                return encode(new)  # who lets it go hears what he wrote; who watches, what there was
        if dry:
            return encode(new)
        revision = self.log.revision + 1
        meta["resourceVersion"] = str(revision)
        body = encode(new)
        fields = resource.fields(new)
        record = Record(revision, body, labels_of(new), fields)
        self.log.append(resource.place, key, record, before.revision if before else 0)
        return body

    def remove(self, resource: Resource, obj: Json, dry: bool = False) -> bytes:
        """The object goes now. Returns its last form, which carries the number of the deletion."""
        meta = obj["metadata"]
        key = Key(meta.get("namespace", ""), meta["name"])
        record = self.log.get(resource.place, key)
        if record is None:
            raise errors.not_found(resource.plural, resource.group, key.name)
        if dry:
            return encode(obj)
        last = encode({**obj, "metadata": {**meta, "resourceVersion": str(self.log.revision + 1)}})
        self.log.append(resource.place, key, None, record.revision, last)
        self._left(resource.place, key)
        return last

    def contents(self, place: str, name: str) -> Iterator[tuple[Resource, Key]]:
        """What is in a namespace, or of a definition."""
        seen: set[str] = set()
        for resource in self.registry.all():
            if resource.place in seen:
                continue
            seen.add(resource.place)
            if place == DEFINITIONS and resource.custom and resource.place == name:
                yield from ((resource, key) for key in self.log.view(resource.place).within(""))
            if place == NAMESPACES and resource.namespaced:
                yield from ((resource, key) for key in self.log.view(resource.place).within(name))

    def settle(self, place: str, name: str) -> None:
        """Lets a place go that is being deleted and is empty."""
        record = self.log.get(place, Key("", name))
        if record is None or not _ends(record) or any(self.contents(place, name)):
            return
        old: Json = decode(record.body)
        resource = next(one for one in self.registry.all() if one.place == place)
        new = {**old, "metadata": dict(old["metadata"])}
        if place == NAMESPACES:
            spec = old.get("spec") or {}
            # Those of others are theirs to take away.
            left = [one for one in spec.get("finalizers") or () if one != "kubernetes"]
            new["spec"] = {**spec, "finalizers": left}
        else:
            left = [one for one in old["metadata"].get("finalizers") or () if one != CLEANUP]
            new["metadata"]["finalizers"] = left
        self.put(resource, new, old)

    def _left(self, place: str, key: Key) -> None:
        if key.namespace:
            self.settle(NAMESPACES, key.namespace)
        if "." in place:
            self.settle(DEFINITIONS, place)


def _ends(place: Record | None) -> bool:
    """Whether it is being deleted."""
    return place is not None and place.fields.get("status.phase") == "Terminating"


def held(resource: Resource, obj: Json) -> bool:
    """Whether something still keeps a deleted object: a finalizer, or a grace period that runs."""
    meta = obj["metadata"]
    if meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return True
    return resource.place == NAMESPACES and bool((obj.get("spec") or {}).get("finalizers"))
