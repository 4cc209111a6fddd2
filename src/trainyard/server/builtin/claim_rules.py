"""PersistentVolumeClaims: defaulting, validation and warnings of kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator

from trainyard.objects import Json, Problem
from trainyard.objects.json_equal import json_equal
from trainyard.objects.quantities import number
from trainyard.schema.checks import json_text
from trainyard.server import errors
from trainyard.server.builtin.schema_builders import set_defaults, set_defaults_for_zero
from trainyard.server.builtin.validators import selector_problems, validate_enum, validate_name
from trainyard.server.registry.context import RequestContext

MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES = ("Block", "Filesystem")
CLAIM = "PersistentVolumeClaim"
BETA_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
_READ_WRITE_ONCE_POD = "ReadWriteOncePod"
_DATA_SOURCE_KINDS = (("snapshot.storage.k8s.io", "VolumeSnapshot"), ("", CLAIM))


def prepare_claim(new: Json, old: Json | None, site: RequestContext) -> None:
    set_defaults(new, spec={})
    set_defaults(new["spec"], volumeMode="Filesystem")
    _normalize_data_sources(new["spec"], old["spec"] if old is not None else {})
    if old is None:
        new["status"] = {"phase": "Pending"}
    site.warnings.extend(claim_warnings(new))


def _normalize_data_sources(spec: Json, old_spec: Json) -> None:
    """Makes `dataSource` and `dataSourceRef` agree: invalid kinds in `dataSource` are dropped, then the field that is
    set is copied to the other."""
    for field in ("dataSource", "dataSourceRef"):
        if spec.get(field) is not None:
            spec[field] = {"apiGroup": None, "kind": "", "name": "", **spec[field]}
    if (spec.get("dataSourceRef") or {}).get("namespace"):
        del spec["dataSourceRef"]  # the feature gate CrossNamespaceVolumeDataSource is off
    keep_data_source = old_spec.get("dataSource") is not None or _is_valid_source_kind(spec.get("dataSource"))
    if not keep_data_source and spec.get("dataSourceRef") is None:
        spec.pop("dataSource", None)
    source = spec.get("dataSource") or spec.get("dataSourceRef")
    if source is not None:
        set_defaults(spec, dataSource=dict(source), dataSourceRef=dict(source))


def _is_valid_source_kind(source: Json | None) -> bool:
    return source is not None and (source.get("apiGroup") or "", source.get("kind")) in _DATA_SOURCE_KINDS


def check_claim(new: Json, old: Json | None) -> list[Problem]:
    """Problems of a claim. Raises StatusError 403 if there are none and the request of a bound claim grows: no
    StorageClass here supports resizing."""
    problems = list(claim_problems(new, old))
    grows = (
        old is not None
        and _is_bound(old)
        and number(_requested_storage(new["spec"]) or "0") > number(_requested_storage(old["spec"]) or "0")
    )
    if grows and not problems:
        text = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
        raise errors.forbidden("persistentvolumeclaims", "", new["metadata"]["name"], f"{text}support resize")
    return problems


def _is_bound(claim: Json) -> bool:
    return (claim.get("status") or {}).get("phase") == "Bound"


def prepare_status(new: Json, old: Json, sent: Json) -> None:
    set_defaults(new, status={})
    set_defaults_for_zero(new["status"], phase="Pending")


def status_problems(new: Json, old: Json) -> Iterator[Problem]:
    for name, amount in ((new.get("status") or {}).get("capacity") or {}).items():
        if number(str(amount)) < 0:
            yield Problem(
                f"status.capacity[{name}]", f"Invalid value: {json_text(amount)}: must be a valid resource quantity"
            )


def claim_warnings(new: Json) -> Iterator[str]:
    """The warnings about a valid claim, in kube-apiserver's order."""
    if BETA_STORAGE_CLASS in (new["metadata"].get("annotations") or {}):
        text = 'deprecated since v1.8; use "storageClassName" attribute instead'
        yield f"metadata.annotations[{BETA_STORAGE_CLASS}]: {text}"
    for kind in ("requests", "limits"):
        amount = ((new["spec"].get("resources") or {}).get(kind) or {}).get("storage")
        if amount is not None and number(amount).denominator != 1:
            text = f'fractional byte value "{amount}" is invalid, must be an integer'
            yield f"spec.resources.{kind}[storage]: {text}"


def claim_problems(new: Json, old: Json | None) -> Iterator[Problem]:
    spec = new["spec"]
    yield from _mode_problems(spec.get("accessModes") or [])
    yield from selector_problems(spec.get("selector") or {}, "spec.selector")
    size = _requested_storage(spec)
    if size is None:
        yield Problem("spec.resources[storage]", "Required value")
    elif number(size) <= 0:
        yield Problem("spec.resources[storage]", f"Invalid value: {json_text(size)}: must be greater than zero")
    for field in ("storageClassName", "volumeAttributesClassName"):
        if name := spec.get(field):
            yield from validate_name(name, f"spec.{field}", "subdomain")
    yield from validate_enum(spec["volumeMode"], VOLUME_MODES, "spec.volumeMode")
    yield from _source_problems(spec)
    if old is not None:
        yield from _update_problems(new, old)


def _mode_problems(modes: list[str]) -> Iterator[Problem]:
    if not modes:
        yield Problem("spec.accessModes", "Required value: at least 1 access mode is required")
    for mode in modes:
        yield from validate_enum(mode, MODES, "spec.accessModes")
    known_modes = {mode for mode in modes if mode in MODES}
    if _READ_WRITE_ONCE_POD in known_modes and len(known_modes) > 1:
        yield Problem("spec.accessModes", f"Forbidden: may not use {_READ_WRITE_ONCE_POD} with other access modes")


def _source_problems(spec: Json) -> Iterator[Problem]:
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    for field in ("dataSource", "dataSourceRef"):
        if spec.get(field) is not None:
            yield from _data_source_problems(spec[field], f"spec.{field}")
    if source is not None and reference is not None and source != reference:
        yield Problem("spec", "Invalid value: {}: must match dataSourceRef")


def _data_source_problems(source: Json, path: str) -> Iterator[Problem]:
    for field in ("name", "kind"):
        if not source[field]:
            yield Problem(f"{path}.{field}", "Required value")
    if group := source["apiGroup"]:
        yield from validate_name(group, f"{path}.apiGroup", "subdomain")
    elif source["kind"] != CLAIM:
        text = f"must be '{CLAIM}' when referencing the default apiGroup"
        yield Problem(path, f"Invalid value: {json_text(source['kind'])}: {text}")


def _update_problems(new: Json, old: Json) -> Iterator[Problem]:
    """Problems of an update. The spec is immutable, but a missing volumeName or storageClassName can be set."""
    bound = _is_bound(old)
    spec, old_spec = new["spec"], old["spec"]
    if not json_equal(_immutable_fields(spec, old_spec, bound), _immutable_fields(old_spec, old_spec, bound)):
        text = "is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        yield Problem("spec", f"Forbidden: spec {text}")
    size, old_size = number(_requested_storage(spec) or "0"), number(_requested_storage(old_spec) or "0")
    capacity = ((old.get("status") or {}).get("capacity") or {}).get("storage")
    if size < old_size and size <= number(capacity or "0"):
        text = "field can not be less than status.capacity"
        yield Problem("spec.resources.requests.storage", f"Forbidden: {text}")
    if (name := _beta_storage_class(new)) != (old_name := _beta_storage_class(old)) and (
        name or spec.get("storageClassName") != old_name
    ):
        yield Problem(
            f"metadata.annotations.{BETA_STORAGE_CLASS}", f"Invalid value: {json_text(name or '')}: field is immutable"
        )
    if spec["volumeMode"] != old_spec.get("volumeMode"):
        yield Problem("volumeMode", f"Invalid value: {json_text(spec['volumeMode'])}: field is immutable")


def _immutable_fields(spec: Json, old_spec: Json, bound: bool) -> Json:
    """The immutable fields of the spec, given the stored spec."""
    mutable = [name for name in ("volumeName",) if not old_spec.get(name)]
    mutable += [name for name in ("storageClassName",) if old_spec.get(name) is None]
    mutable += ["volumeAttributesClassName"] if bound else []
    fields = {name: value for name, value in spec.items() if name not in mutable}
    if bound and (resources := fields.get("resources")):
        fields["resources"] = {name: value for name, value in resources.items() if name != "requests"}
    return fields


def _beta_storage_class(claim: Json) -> str | None:
    name: str | None = (claim["metadata"].get("annotations") or {}).get(BETA_STORAGE_CLASS)
    return name


def _requested_storage(spec: Json) -> str | None:
    quantity = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    return None if quantity is None else str(quantity)
