"""All writes: an object is encoded with its resourceVersion and appended to the log.

Also the deletion of containers: namespaces contain objects, CustomResourceDefinitions contain custom objects. While a
container is terminating no object can be created in it; when its last object is removed, it is removed, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainyard.objects import Json, NamespacedName, decode, encode, format_time, labels_of
from trainyard.objects.json_equal import json_equal
from trainyard.server.model import errors
from trainyard.server.model.resources import DEFINITIONS, Registry, Resource
from trainyard.server.model.store import Record
from trainyard.server.storage.log import RevisionLog

NAMESPACES = "namespaces"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


class Writes:
    """The write side of the log."""

    def __init__(self, log: RevisionLog, registry: Registry) -> None:
        self.log, self.registry = log, registry

    def require_creatable(self, namespace: str, resource: Resource, name: str) -> None:
        """Raises StatusError 403, 404 or 405 when objects cannot be created: the namespace does not exist or is
        terminating, or the CRD is terminating."""
        if resource.definition and _is_terminating(self.log.get(DEFINITIONS, NamespacedName("", resource.definition))):
            text = "create not allowed while custom resource definition is terminating"
            raise errors.not_supported("create", resource.plural, resource.group, text)
        if not namespace:
            return
        record = self.log.get(NAMESPACES, NamespacedName("", namespace))
        if record is None:
            raise errors.not_found(NAMESPACES, "", errors.printable(namespace))
        if _is_terminating(record):
            reason = f"unable to create new content in namespace {namespace} because it is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": f"namespace {namespace} is being terminated"}
            causes = [{**cause, "field": "metadata.namespace"}]
            raise errors.forbidden(resource.plural, resource.group, name, reason, causes=causes)

    def put(self, resource: Resource, new: Json, old: Json | None, dry: bool = False) -> bytes:
        """Store `new` in place of `old`; return the stored bytes. Without a difference nothing is written. An update
        that removes the last finalizer of a deleted object removes the object."""
        new = {"kind": new["kind"], "apiVersion": new["apiVersion"], **new}  # first, so that lists can cut them off
        meta = new["metadata"]
        key = NamespacedName(meta.get("namespace", ""), meta["name"])
        before = self.log.get(resource.storage_key, key) if old is not None else None
        if old is not None and before is not None:
            meta["resourceVersion"] = old["metadata"]["resourceVersion"]
            if json_equal(new, old):
                return before.body
            if "deletionTimestamp" in meta and not has_finalizers_or_grace(resource, new):
                self.remove(resource, old, dry)
                return encode(new)  # the client gets the object as it sent it; watches get it as it was stored
        if dry:
            return encode(new)
        revision = self.log.revision + 1
        meta["resourceVersion"] = str(revision)
        body = _encode_to_keep(new)
        labels: Mapping[str, str] = labels_of(new)
        fields: Mapping[str, str] = resource.fields(new)
        if before is not None:  # the history has thousands of versions, most of them with the same labels
            labels = before.labels if before.labels == labels else labels
            fields = before.fields if before.fields == fields else fields
        record = Record(revision, body, labels, fields)
        self.log.append(resource.storage_key, key, record, before.revision if before else 0)
        return body

    def remove(self, resource: Resource, obj: Json, dry: bool = False) -> bytes:
        """Remove the object. Returns its last state, with the revision of the deletion. Raises StatusError 404."""
        meta = obj["metadata"]
        key = NamespacedName(meta.get("namespace", ""), meta["name"])
        record = self.log.get(resource.storage_key, key)
        if record is None:
            raise errors.not_found(resource.plural, resource.group, key.name)
        if dry:
            return encode(obj)
        last = _encode_to_keep({**obj, "metadata": {**meta, "resourceVersion": str(self.log.revision + 1)}})
        self.log.append(resource.storage_key, key, None, record.revision, last)
        self._finish_container(resource, key)
        return last

    def expire_objects(self, now: float) -> None:
        """Delete the objects whose resource gives them a lifetime, as kube-apiserver deletes Events after an hour.
        `now`: Unix seconds."""
        for resource in self.registry.all():
            if not resource.lifetime_seconds:
                continue
            eldest = format_time(now - resource.lifetime_seconds)
            records = sorted((record for _, record in self.log.list(resource.storage_key)), key=lambda r: r.revision)
            for number, record in enumerate(records):
                is_too_many = 0 < resource.max_objects < len(records) - number
                if record.fields.get("created", eldest) < eldest or is_too_many:
                    self.remove(resource, decode(record.body))

    def objects_in(self, container: Resource, name: str) -> Iterator[tuple[Resource, NamespacedName]]:
        """The objects in a namespace, or the custom objects of a CRD."""
        visited: set[str] = set()
        for resource in self.registry.all():
            if resource.storage_key in visited:
                continue
            visited.add(resource.storage_key)
            if container.contents == "definition" and resource.definition == name:
                yield from ((resource, key) for key in self.log.view(resource.storage_key).keys_in(""))
            if container.contents == "namespace" and resource.namespaced:
                yield from ((resource, key) for key in self.log.view(resource.storage_key).keys_in(name))

    def finish_if_empty(self, container: Resource, name: str) -> None:
        """Remove the server's finalizer of a terminating and empty namespace or CRD, which then is removed. Other
        finalizers are removed by their owners."""
        record = self.log.get(container.storage_key, NamespacedName("", name))
        if record is None or not _is_terminating(record) or any(self.objects_in(container, name)):
            return
        old: Json = decode(record.body)
        new = {**old, "metadata": dict(old["metadata"])}
        if container.contents == "namespace":
            kept = [finalizer for finalizer in old["spec"].get("finalizers") or () if finalizer != "kubernetes"]
            new["spec"] = {**old["spec"], "finalizers": kept}
        else:
            kept = [finalizer for finalizer in old["metadata"].get("finalizers") or () if finalizer != CLEANUP]
            new["metadata"]["finalizers"] = kept
        self.put(container, new, old)

    def _finish_container(self, resource: Resource, key: NamespacedName) -> None:
        if key.namespace:
            self.finish_if_empty(self.registry.container("namespace"), key.namespace)
        if resource.definition:
            self.finish_if_empty(self.registry.container("definition"), resource.definition)


def _is_terminating(record: Record | None) -> bool:
    """Whether a namespace or CRD is terminating."""
    return record is not None and record.fields.get("status.phase") == "Terminating"


def has_finalizers_or_grace(resource: Resource, obj: Json) -> bool:
    """Whether a deleted object must be kept: it has finalizers, or its grace period runs."""
    meta = obj["metadata"]
    if meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return True
    return resource.contents == "namespace" and bool((obj.get("spec") or {}).get("finalizers"))


def _encode_to_keep(obj: Json) -> bytes:
    """The object as JSON, in memory of its own size: the log keeps thousands of them, and behind what `encode` returns
    the encoder leaves a sixth to a half of the memory unused."""
    return bytes(memoryview(encode(obj)))
