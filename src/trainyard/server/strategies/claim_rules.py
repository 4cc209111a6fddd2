"""PersistentVolumeClaims: what the real server fills in, refuses and warns of."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.objects import Json, Problem
from trainyard.schema.checks import shown
from trainyard.server import errors
from trainyard.server.quantities import number
from trainyard.server.same import same
from trainyard.server.site import Site
from trainyard.server.strategies.refusing import named, one_of, selector_problems
from trainyard.server.strategies.shapes import fill, fill_empty

MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")
CLAIM = "PersistentVolumeClaim"
OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
_ALONE = "ReadWriteOncePod"
_SOURCES = (("snapshot.storage.k8s.io", "VolumeSnapshot"), ("", CLAIM))


def prepare_claim(new: Json, old: Json | None, site: Site) -> None:
    fill(new, spec={})
    fill(new["spec"], volumeMode="Filesystem")
    _settle_sources(new["spec"], old["spec"] if old is not None else {})
    if old is None:
        new["status"] = {"phase": "Pending"}
    site.warnings.extend(claim_warnings(new))


def _settle_sources(spec: Json, before: Json) -> None:
    """What a volume is a copy of is said in two places. What only one of them can say is dropped or copied."""
    for field in ("dataSource", "dataSourceRef"):
        if spec.get(field) is not None:
            spec[field] = {"apiGroup": None, "kind": "", "name": "", **spec[field]}
    if (spec.get("dataSourceRef") or {}).get("namespace"):
        del spec["dataSourceRef"]  # claims of other namespaces are not enabled
    said = before.get("dataSource") is not None or _known(spec.get("dataSource"))
    if not said and spec.get("dataSourceRef") is None:
        spec.pop("dataSource", None)
    source = spec.get("dataSource") or spec.get("dataSourceRef")
    if source is not None:
        fill(spec, dataSource=dict(source), dataSourceRef=dict(source))


def _known(source: Json | None) -> bool:
    return source is not None and (source.get("apiGroup") or "", source.get("kind")) in _SOURCES


def check_claim(new: Json, old: Json | None) -> list[Problem]:
    """Raises Refused 403 when all else is right and a volume should grow: no class of volumes here can."""
    found = list(claim_problems(new, old))
    grows = old is not None and _is_bound(old) and number(_size(new["spec"]) or "0") > number(_size(old["spec"]) or "0")
    if grows and not found:
        why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
        raise errors.forbidden("persistentvolumeclaims", "", new["metadata"]["name"], f"{why}support resize")
    return found


def _is_bound(claim: Json) -> bool:
    return (claim.get("status") or {}).get("phase") == "Bound"


def prepare_status(new: Json, old: Json, sent: Json) -> None:
    fill(new, status={})
    fill_empty(new["status"], phase="Pending")


def status_problems(new: Json, old: Json) -> Iterator[Problem]:
    for name, amount in ((new.get("status") or {}).get("capacity") or {}).items():
        if number(str(amount)) < 0:
            yield Problem(
                f"status.capacity[{name}]", f"Invalid value: {shown(amount)}: must be a valid resource quantity"
            )


def claim_warnings(new: Json) -> Iterator[str]:
    """The sentences about a claim that is taken, in the real server's order."""
    if OLD_CLASS in (new["metadata"].get("annotations") or {}):
        yield f'metadata.annotations[{OLD_CLASS}]: deprecated since v1.8; use "storageClassName" attribute instead'
    for word in ("requests", "limits"):
        amount = ((new["spec"].get("resources") or {}).get(word) or {}).get("storage")
        if amount is not None and number(amount).denominator != 1:
            why = f'fractional byte value "{amount}" is invalid, must be an integer'
            yield f"spec.resources.{word}[storage]: {why}"


def claim_problems(new: Json, old: Json | None) -> Iterator[Problem]:
    spec = new["spec"]
    yield from _mode_problems(spec.get("accessModes") or [])
    yield from selector_problems(spec.get("selector") or {}, "spec.selector")
    size = _size(spec)
    if size is None:
        yield Problem("spec.resources[storage]", "Required value")
    elif number(size) <= 0:
        yield Problem("spec.resources[storage]", f"Invalid value: {shown(size)}: must be greater than zero")
    for field in ("storageClassName", "volumeAttributesClassName"):
        if name := spec.get(field):
            yield from named(name, f"spec.{field}", "subdomain")
    yield from one_of(spec["volumeMode"], VOLUME_MODES, "spec.volumeMode")
    yield from _source_problems(spec)
    if old is not None:
        yield from _changes(new, old)


def _mode_problems(modes: list[str]) -> Iterator[Problem]:
    if not modes:
        yield Problem("spec.accessModes", "Required value: at least 1 access mode is required")
    for mode in modes:
        yield from one_of(mode, MODES, "spec.accessModes")
    known = {mode for mode in modes if mode in MODES}
    if _ALONE in known and len(known) > 1:
        yield Problem("spec.accessModes", f"Forbidden: may not use {_ALONE} with other access modes")


def _source_problems(spec: Json) -> Iterator[Problem]:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    for field in ("dataSource", "dataSourceRef"):
        if spec.get(field) is not None:
            yield from _one_source(spec[field], f"spec.{field}")
    if source is not None and reference is not None and source != reference:
        yield Problem("spec", "Invalid value: {}: must match dataSourceRef")


def _one_source(source: Json, path: str) -> Iterator[Problem]:
    for word in ("name", "kind"):
        if not source[word]:
            yield Problem(f"{path}.{word}", "Required value")
    if group := source["apiGroup"]:
        yield from named(group, f"{path}.apiGroup", "subdomain")
    elif source["kind"] != CLAIM:
        text = f"must be '{CLAIM}' when referencing the default apiGroup"
        yield Problem(path, f"Invalid value: {shown(source['kind'])}: {text}")


def _changes(new: Json, old: Json) -> Iterator[Problem]:
    """What may not be written over. A volume, and a class where none was named, may still be named."""
    bound = _is_bound(old)
    spec, before = new["spec"], old["spec"]
    if not same(_fixed(spec, before, bound), _fixed(before, before, bound)):
        text = "is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        yield Problem("spec", f"Forbidden: spec {text}")
    size, least = number(_size(spec) or "0"), number(_size(before) or "0")
    held = ((old.get("status") or {}).get("capacity") or {}).get("storage")
    if size < least and size <= number(held or "0"):
        text = "field can not be less than status.capacity"
        yield Problem("spec.resources.requests.storage", f"Forbidden: {text}")
    if (name := _old_class(new)) != (known := _old_class(old)) and (name or spec.get("storageClassName") != known):
        yield Problem(f"metadata.annotations.{OLD_CLASS}", f"Invalid value: {shown(name or '')}: field is immutable")
    if spec["volumeMode"] != before.get("volumeMode"):
        yield Problem("volumeMode", f"Invalid value: {shown(spec['volumeMode'])}: field is immutable")


def _fixed(spec: Json, before: Json, bound: bool) -> Json:
    """What has to stay as it was before."""
    free = [name for name in ("volumeName",) if not before.get(name)]
    free += [name for name in ("storageClassName",) if before.get(name) is None]
    free += ["volumeAttributesClassName"] if bound else []
    kept = {name: part for name, part in spec.items() if name not in free}
    if bound and (resources := kept.get("resources")):
        kept["resources"] = {name: part for name, part in resources.items() if name != "requests"}
    return kept


def _old_class(claim: Json) -> str | None:
    name: str | None = (claim["metadata"].get("annotations") or {}).get(OLD_CLASS)
    return name


def _size(spec: Json) -> str | None:
    found = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    return None if found is None else str(found)
