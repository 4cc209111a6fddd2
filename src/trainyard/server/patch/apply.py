"""Server-side apply: a manager owns the fields in its apply configuration, and gives up those it no longer sends.

    config + live object + owners -> merged object + owners        or a conflict with manager and field

Rules for this file:
- An object that was never applied has no managedFields, so that creates, status patches and updates do not pay for
  ownership. The first apply makes the manager `before-first-apply` the owner of all fields in the live object.
- From then on every create, update and patch through the API moves ownership: a manager that changes a field owns it.
- `kubectl apply --server-side` on an object of client-side apply does not conflict with fields that the annotation
  last-applied-configuration contains.
- An apply that changes nothing keeps the time of its managedFields entry, so that nothing is written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from trainyard.api_types.schemas import META, TypeSchema, built_in
from trainyard.objects import Json, decode, parse_time
from trainyard.objects.numbers import count_text
from trainyard.objects.structs import replace
from trainyard.objects.yaml_reader import ManifestError, load
from trainyard.schema.checks import json_text
from trainyard.schema.compiled import is_too_deep
from trainyard.server.model import errors, schemas
from trainyard.server.model.resources import Resource
from trainyard.server.patch.field_sets import (
    Fields,
    Path,
    SchemaMismatch,
    changed_paths,
    decode_fields_v1,
    encode_fields_v1,
    fields_of,
    merge,
    path_text,
    remove_paths,
    value_at,
)

APPLY = "application/apply-patch+yaml"
BEFORE_FIRST_APPLY = "before-first-apply"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL = "kubectl"
LONGEST_NAME = 128


class FieldManager(NamedTuple):
    """The field manager of a write: its name, the subresource it writes through, and the time (RFC 3339)."""

    manager: str
    subresource: str = ""
    timestamp: str = ""
    force: bool = False


class Owner(msgspec.Struct, frozen=True):
    """One entry of managedFields."""

    manager: str
    operation: str
    version: str
    time: str
    subresource: str
    paths: frozenset[Path]

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The identity of the entry. For Apply entries it does not include the apiVersion."""
        return self.manager, self.operation, "" if self.operation == "Apply" else self.version, self.subresource

    def entry(self) -> Json:
        """The entry in metadata.managedFields."""
        subresource = {"subresource": self.subresource} if self.subresource else {}
        return {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": encode_fields_v1(self.paths),
            **subresource,
        }


def read_config(body: bytes) -> Json:
    """The apply configuration in a request body: YAML or JSON. Raises StatusError 400."""
    try:
        sent = decode(body) if body[:1] == b"{" else _from_yaml(body)
    except ManifestError as error:
        raise errors.bad_request(f"error decoding YAML: {errors.printable(str(error))}") from None
    except ValueError as error:
        raise errors.bad_request(f"error decoding patch: {errors.printable(str(error))}") from None
    if is_too_deep(sent):
        raise errors.bad_request("error decoding patch: it is nested too deep; flatten it")
    if not isinstance(sent, dict):
        raise errors.bad_request("error decoding patch: it must be an object")
    return sent


def _from_yaml(body: bytes) -> Any:
    """The only document; None when there are none or several. This reader has limits: other YAML readers let nested
    aliases fill the memory, and libyaml crashes the process on deep nesting."""
    documents = load(body, "patch")
    return documents[0].value if len(documents) == 1 else None


def create_applied(resource: Resource, config: Json, manager: FieldManager) -> Json:
    """The object that an apply creates, with managedFields. Raises StatusError as `apply` does."""
    schema = schemas.schema_of(resource)
    paths = _own(resource, _typed_fields(resource, config, schema), manager)
    owner = Owner(
        manager.manager, "Apply", resource.api_version, manager.timestamp, manager.subresource, frozenset(paths)
    )
    return {**config, "metadata": {**config["metadata"], "managedFields": managed_fields([owner] if paths else [])}}


def apply(resource: Resource, live: Json, config: Json, manager: FieldManager) -> Json:
    """The result of applying `config` to `live`, with managedFields. Raises StatusError 409 on a conflict with another
    manager, 500 when `config` does not fit the schema."""
    schema = schemas.schema_of(resource)
    sent = _typed_fields(resource, config, schema)
    owned = _own(resource, sent, manager)
    live_fields = fields_of(live, schema)
    owners = owners_of(live) or [_first_owner(resource, live, live_fields, manager)]
    previous = next(
        (owner for owner in owners if owner.key == (manager.manager, "Apply", "", manager.subresource)), None
    )
    other_owners = [owner for owner in owners if owner is not previous]
    # null or {} for a field that is an object already, and null for an absent field, change nothing
    unchanged = {
        path for path in owned if sent[path] in (None, {}) and _is_no_op(sent[path], value_at(live, schema, path))
    }
    changed = changed_paths(live_fields, {path: sent[path] for path in owned - unchanged})
    other_owners = _without_changed_paths(other_owners, changed, manager, live, resource)
    still_owned = {path[:end] for owner in other_owners for path in owner.paths for end in range(1, len(path) + 1)}
    dropped = (previous.paths if previous else frozenset()) - owned - still_owned
    dropped = frozenset(path for path in dropped if value_at(config, schema, path) is None)
    new = merge(live, {field: value for field, value in config.items() if field != "metadata"}, schema)
    metadata = {field: value for field, value in (config.get("metadata") or {}).items() if field in _APPLIED_META}
    new["metadata"] = merge(live["metadata"], metadata, built_in(f"{META}ObjectMeta"))
    new = (
        remove_paths(new, schema, dropped, lambda path: value_at(config, schema, path) is not None) if dropped else new
    )
    owner = Owner(
        manager.manager, "Apply", resource.api_version, manager.timestamp, manager.subresource, frozenset(owned)
    )
    if previous is not None and previous.paths == owner.paths and not changed and not dropped:
        owner = replace(owner, time=previous.time)
    if owned or owners_of(live):  # an apply without fields does not start field management
        new["metadata"]["managedFields"] = managed_fields([*other_owners, owner] if owned else other_owners)
    meta = config.get("metadata") or {}
    for field in ("name", "namespace", "resourceVersion", "uid"):
        if requested := meta.get(field):
            new["metadata"][field] = requested
    if not meta.get("name", True):  # an empty name: validation reports it
        new["metadata"].pop("name", None)
    return dict(new)


def _is_no_op(value: Any, live: Any) -> bool:
    return (value is None and live is None) or (value in (None, {}) and isinstance(live, dict))


_APPLIED_META = ("labels", "annotations", "ownerReferences", "finalizers")


def require_typed(resource: Resource, config: Json) -> None:
    """Raises StatusError 500, as kube-apiserver does, when `config` does not fit the schema."""
    _typed_fields(resource, config, schemas.schema_of(resource))


def _typed_fields(resource: Resource, config: Json, schema: TypeSchema) -> Fields:
    if (config.get("metadata") or {}).get("managedFields"):
        raise errors.bad_request("metadata.managedFields must be nil")
    meta = config.get("metadata") or {}
    who = f"({meta.get('namespace', '')}/{meta.get('name', '')}; {resource.api_version}, Kind={resource.kind})"
    try:
        fields = fields_of(config, schema, strict=True)
    except SchemaMismatch as error:
        raise errors.StatusError(
            500, "", errors.printable(f"failed to create typed patch object {who}: {error}")
        ) from None
    created = meta.get("creationTimestamp")
    if not resource.definition and created is not None and parse_time(created) is None:
        text = (
            f"failed to convert new object {who} to proper version: creationTimestamp {json_text(created)} is no time"
        )
        raise errors.StatusError(500, "", errors.printable(text))
    return fields


def _own(resource: Resource, sent: Fields, writer: FieldManager) -> set[Path]:
    """The paths of a configuration that count: for /status those of the status, else all others."""
    if writer.subresource == "status":
        return {path for path in sent if path[0] == "f:status"}
    return {path for path in sent if path[0] != "f:status" or not resource.status}


def _first_owner(resource: Resource, live: Json, live_fields: Fields, writer: FieldManager) -> Owner:
    """The manager `before-first-apply`, owner of the fields of an object before its first apply."""
    unowned = set(resource.unowned(live)) if resource.unowned else frozenset()
    return Owner(
        BEFORE_FIRST_APPLY, "Update", resource.api_version, writer.timestamp, "", frozenset(live_fields) - unowned
    )


def _without_changed_paths(
    owners: list[Owner], changed: set[Path], writer: FieldManager, live: Json, resource: Resource
) -> list[Owner]:
    """The `owners`, all but the writer, without the changed paths. Raises StatusError 409 when one of them owns such a
    path, without force."""
    contested = changed - _last_applied_paths(live, resource) if writer.manager == _KUBECTL else changed
    conflicts = [(owner, sorted(owner.paths & contested)) for owner in owners if owner.paths & contested]
    if conflicts and not writer.force:
        raise _conflict(conflicts)
    remaining = [replace(owner, paths=owner.paths - changed) for owner in owners]
    return [owner for owner in remaining if owner.paths]


def _last_applied_paths(live: Json, resource: Resource) -> set[Path]:
    """The paths in the annotation last-applied-configuration whose live value is unchanged: kubectl owns these."""
    text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    if not isinstance(text, str):
        return set()
    try:
        schema = schemas.schema_of(resource)
        last_applied = fields_of(decode(text.encode()), schema)
        return set(last_applied) - changed_paths(fields_of(live, schema), last_applied)
    except (ValueError, TypeError, AttributeError):
        return set()


def _conflict(conflicts: list[tuple[Owner, list[Path]]]) -> errors.StatusError:
    causes, texts = [], []
    for owner, paths in conflicts:
        using = f" using {owner.version}" if owner.operation == "Update" else ""
        subresource = f' with subresource "{owner.subresource}"' if owner.subresource else ""
        manager = f'"{owner.manager}"{subresource}{using}'
        for path in paths:
            message = f"conflict with {manager}"
            causes.append({"reason": "FieldManagerConflict", "message": message, "field": path_text(path)})
        single = f"conflict with {manager}: {path_text(paths[0])}"
        several = f"conflicts with {manager}:\n" + "\n".join(f"- {path_text(path)}" for path in paths)
        texts.append(single if len(paths) == 1 else several)
    count = count_text(len(causes), "conflict")
    listed = "\n".join(texts)
    return errors.StatusError(409, "Conflict", f"Apply failed with {count}: {listed}", {"causes": causes})


def owners_of(obj: Json) -> list[Owner]:
    """The valid entries of managedFields."""
    listed = obj["metadata"].get("managedFields")
    return [_owner(entry) for entry in (listed if isinstance(listed, list) else ()) if _readable(entry)]


def _readable(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("manager"), str)
        and entry.get("operation") in ("Apply", "Update")
    )


def _owner(entry: Json) -> Owner:
    version, time, subresource = (str(entry.get(name) or "") for name in ("apiVersion", "time", "subresource"))
    return Owner(
        entry["manager"],
        entry["operation"],
        version,
        time,
        subresource,
        frozenset(decode_fields_v1(entry.get("fieldsV1"))),
    )


def managed_fields(owners: list[Owner]) -> list[Json]:
    """managedFields: Apply entries first, then by time."""
    return [owner.entry() for owner in sorted(owners, key=lambda owner: (owner.operation, owner.time, *owner.key))]


def set_managed_fields(
    resource: Resource, content_type: str, objects: tuple[Json, Json, Json], manager: FieldManager
) -> None:
    """Set managedFields in `new` of (old, sent, new). An object that was never applied gets none."""
    old, sent, new = objects
    sent_fields = sent["metadata"].get("managedFields")
    if content_type == APPLY:
        new["metadata"].pop("managedFields", None)
        if sent_fields:
            new["metadata"]["managedFields"] = sent_fields
    elif "managedFields" in old["metadata"]:
        track_update(resource, old, new, manager, sent_fields)
    else:
        new["metadata"].pop("managedFields", None)


def track_update(resource: Resource, old: Json, new: Json, manager: FieldManager, sent: Any = None) -> None:
    """Move ownership in `new` after an update of an object with managedFields. `sent` is the managedFields of the
    request body."""
    owners = owners_of(old)
    if isinstance(sent, list) and sent != old["metadata"].get("managedFields"):
        if sent == [{}]:
            owners = []
        elif sent_owners := owners_of({"metadata": {"managedFields": sent}}):
            owners = sent_owners
    if not owners:
        new["metadata"].pop("managedFields", None)
        return
    schema = schemas.schema_of(resource)
    before, after = fields_of(old, schema), fields_of(new, schema)
    changed, removed_paths = changed_paths(before, after), set(before) - set(after)
    writer = Owner(
        manager.manager, "Update", resource.api_version, manager.timestamp, manager.subresource, frozenset(changed)
    )
    remaining = []
    for owner in owners:
        if changed and owner.key == writer.key:
            writer = replace(writer, paths=writer.paths | (owner.paths - removed_paths))
        else:
            remaining.append(replace(owner, paths=owner.paths - changed - removed_paths))
    owners = [owner for owner in (*remaining, writer) if owner.paths]
    new["metadata"].pop("managedFields", None)
    if owners:
        new["metadata"]["managedFields"] = managed_fields(owners)
