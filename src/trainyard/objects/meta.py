"""Names, keys and owner references of API objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

Json = dict[str, Any]  # a JSON object as decoded: str keys, any JSON value


class GVK(msgspec.Struct, frozen=True, cache_hash=True):
    """Group, version and kind of a resource. `plural` is the resource name in URLs; group "" is the core group."""

    group: str
    version: str
    kind: str
    plural: str

    @property
    def api_version(self) -> str:
        """`GROUP/VERSION`; only the version in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version


class NamespacedName(NamedTuple):
    """Namespace and name, as `types.NamespacedName` in Go. Cluster-scoped objects have namespace ""."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Ref(NamedTuple):
    """An object by kind and name; the namespace is known from the context."""

    kind: str
    name: str


def as_dict(value: object) -> Json:
    """The value if it is a dict, {} for anything else."""
    return value if isinstance(value, dict) else {}


OWN_FIELDS = "trainyard"
"""The field of the status in which the operator's status is, where the definition of the kind has its own."""


def operator_status(job: Mapping[str, Any]) -> Json:
    """The status of a job as Trainyard's operator writes it: the field OWN_FIELDS of it if there is one, else all of
    it; {} without one."""
    status = as_dict(job.get("status"))
    own = status.get(OWN_FIELDS)
    return own if isinstance(own, dict) else status


def _meta(obj: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = obj.get("metadata")
    return meta if isinstance(meta, dict) else {}


def name_of(obj: Mapping[str, Any]) -> str:
    """`metadata.name`, "" when unset."""
    return str(_meta(obj).get("name") or "")


def namespace_of(obj: Mapping[str, Any]) -> str:
    """`metadata.namespace`, "" when unset or cluster-scoped."""
    return str(_meta(obj).get("namespace") or "")


def uid_of(obj: Mapping[str, Any]) -> str:
    """`metadata.uid`, "" when unset."""
    return str(_meta(obj).get("uid") or "")


def resource_version_of(obj: Mapping[str, Any]) -> str:
    """metadata.resourceVersion, "" when absent."""
    return str(_meta(obj).get("resourceVersion") or "")


def key_of(obj: Mapping[str, Any]) -> NamespacedName:
    """Namespace and name of the object."""
    return NamespacedName(namespace_of(obj), name_of(obj))


def labels_of(obj: Mapping[str, Any]) -> dict[str, str]:
    """`metadata.labels`, {} when unset or malformed."""
    labels = _meta(obj).get("labels")
    return labels if isinstance(labels, dict) else {}


def annotations_of(obj: Mapping[str, Any]) -> dict[str, str]:
    """`metadata.annotations`, {} when there are none."""
    annotations = _meta(obj).get("annotations")
    return annotations if isinstance(annotations, dict) else {}


def is_deleting(obj: Mapping[str, Any]) -> bool:
    """True when the object has a deletionTimestamp."""
    return bool(_meta(obj).get("deletionTimestamp"))


def controller_of(obj: Mapping[str, Any]) -> Json | None:
    """The owner reference with `controller: true`, if there is one."""
    owners = _meta(obj).get("ownerReferences")
    if isinstance(owners, list):
        for owner in owners:
            if isinstance(owner, dict) and owner.get("controller") is True:
                return owner
    return None


def controller_reference(api_version: str, kind: str, name: str, uid: str) -> Json:
    """A controller owner reference: the garbage collector deletes the child once its owner has been deleted."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def templates_of(value: object, path: str) -> Iterator[tuple[str, Json]]:
    """The pod templates of a spec, with their paths. Templates inside a pod template are not searched."""
    if isinstance(value, dict):
        for name, field_value in value.items():
            if name == "template" and isinstance(field_value, dict):
                yield f"{path}.{name}", field_value
            else:
                yield from templates_of(field_value, f"{path}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from templates_of(item, f"{path}[{index}]")


def pod_containers(pod: Json) -> Iterator[tuple[Json, bool]]:
    """Every container of a pod and whether it is an init container, in starting order."""
    spec = pod.get("spec") or {}
    for container in spec.get("initContainers") or []:
        yield container, True
    for container in spec.get("containers") or []:
        yield container, False
