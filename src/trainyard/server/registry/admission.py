"""Admission of an object before it is stored: decoding, pruning, defaulting, mutation and validation.

The order is the same for every resource: decoding (decoding.py) -> identity (apiVersion, kind, name, namespace) ->
metadata -> prune -> default -> schema validation -> `prepare`, `admit` and `check` of the resource's strategy -> the
check that the server was given for the kind -> generation. The validation rules (CEL) of a CRD are not evaluated.
When the schema validation fails, the cross-field checks do not run: they rely on the types. A write is not refused
for a problem that the stored object has already (ratcheting).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from trainyard.api_types import decoding
from trainyard.api_types.schemas import ANY
from trainyard.objects import GVK, Json, NamespacedName, Problem, decode
from trainyard.objects.json_equal import json_equal
from trainyard.schema import Schema
from trainyard.schema.checks import MAX_DEPTH, TYPE_TEXTS, json_text
from trainyard.schema.compiled import is_too_deep
from trainyard.server.model import errors, schemas
from trainyard.server.model.context import RequestContext
from trainyard.server.model.resources import Check, Registry, Resource
from trainyard.server.registry import metadata, scale

Checks = Mapping[tuple[str, str], Check]
_IDENTITY = ("apiVersion", "kind", "metadata")


class Decoded(NamedTuple):
    """An object of a request body, in its storage version, with the Warnings of the field validation.

    `plain`: what `require_decodable` returned. The type rules are not evaluated again.
    """

    object: Json
    plain: bool = False
    warnings: tuple[str, ...] = ()


class Result(NamedTuple):
    """An object to store, with the Warnings for the client."""

    object: Json
    warnings: tuple[str, ...] = ()


def read_object(resource: Resource, obj: Any, namespace: str, name: str) -> Json:
    """The object of a request body in its storage version, with a well-formed metadata. Raises StatusError 400.

    A custom object of another kind is accepted here: validation reports the wrong kind with all other problems.
    """
    require_decodable(resource, obj)
    return with_identity(resource, obj, namespace, name)


def with_identity(resource: Resource, obj: Json, namespace: str, name: str) -> Json:
    """A decoded object with apiVersion, kind, name and namespace filled in, in its storage version. Raises StatusError
    400 when its name or namespace differs from the URL's."""
    obj = {**obj, **{field: value for field, value in _type_meta(resource).items() if not obj.get(field)}}
    meta = obj.get("metadata") or {}
    if (meta.get("namespace") or namespace) != namespace:
        raise errors.namespace_mismatch()
    if name and (meta.get("name") or name) != name:
        text = f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
        raise errors.bad_request(text)
    obj = {**obj, "metadata": {**meta, **({"name": name} if name else {})}}
    if namespace:
        obj["metadata"]["namespace"] = namespace
    return resource.to_storage(obj) if resource.to_storage else obj


def _type_meta(resource: Resource) -> Json:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


def require_decodable(resource: Resource, obj: Any, shallow: bool = False) -> bool:
    """Raises DecodingError when `obj` cannot be decoded as an object of this resource.

    `shallow`: the caller has already checked that it is not nested too deep.
    Returns True when the object is of a built-in type and `decoding.is_canonical`, so that pruning and the checks of
    unknown fields, required fields and enumerations can be skipped.
    """
    plain, error = decodability(resource, obj, shallow)
    if error:
        raise errors.DecodingError(error)
    return plain


def decodability(resource: Resource, obj: Any, shallow: bool = False) -> tuple[bool, str]:
    """(what `require_decodable` returns, why the object cannot be decoded or "")."""
    if not shallow and is_too_deep(obj):
        return False, f"the object is nested deeper than {MAX_DEPTH} levels; flatten it"
    if not isinstance(obj, dict):
        return False, f"the object provided is unrecognized: it must be a JSON object, got {json_text(obj)}"
    for field, expected in _type_meta(resource).items():
        if not resource.requires_type_meta and obj.get(field) in (None, ""):
            continue
        if not isinstance(obj.get(field), str) or not obj[field]:
            return False, f'Object "{field}" is missing in the body; write "{expected}"'
        if obj[field] != expected and not (resource.definition and field == "kind"):
            text = f"the {field} in the body ({json_text(obj[field])}) does not match the expected one ({expected})"
            return False, text
    is_built_in = not resource.definition
    shape = schemas.schema_of(resource) if is_built_in else ANY
    plain = is_built_in and decoding.is_canonical(obj, shape)
    if plain and shape is not ANY:
        return True, ""  # the check covers metadata, too
    reason = decoding.metadata_decoding_error(obj.get("metadata"))
    if is_built_in and not plain:
        reason = reason or decoding.decoding_error(obj, shape)
    if not is_built_in and resource.schema is not None:
        reason = reason or _unreadable_embedded(resource.schema, obj)
    if not reason:
        return plain, ""
    text = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {reason}'
    return plain, errors.printable(text)


def _unreadable_embedded(schema: Schema, obj: Json) -> str:
    """Why an embedded object (x-kubernetes-embedded-resource) cannot be decoded, "" when all can be."""
    for path, embedded in schema.embedded(obj):
        for field in ("apiVersion", "kind"):
            if not isinstance(embedded.get(field, ""), str):
                return f"{path}.{field}: Invalid value: {json_text(embedded[field])}: must be a string"
        meta = embedded.get("metadata")
        if meta is not None and (reason := decoding.metadata_decoding_error(meta)):
            return f"{path}.metadata: Invalid value: {json_text(meta)}: {reason}"
    return ""


def create(resource: Resource, decoded: Decoded, context: RequestContext, checks: Checks) -> Result:
    """The object as it is stored by a create. Raises StatusError 422 with every problem."""
    obj = decoded.object
    meta = metadata.sanitized(obj["metadata"], None)
    new = {**obj, "metadata": meta}
    if resource.status and not resource.status_on_create:
        new.pop("status", None)
    meta["uid"] = metadata.new_uid()
    meta["creationTimestamp"] = context.timestamp
    if resource.generation:
        meta["generation"] = 1
    elif isinstance(sent := obj["metadata"].get("generation"), int) and sent:
        meta["generation"] = sent  # this resource does not manage its generation
    new, problems = _decode_and_validate(resource, new, None, context, checks, decoded.plain)
    if new["kind"] == resource.kind:
        problems = metadata.problems(meta, resource.name_rule, any_finalizer=resource.any_finalizer) + problems
    _raise_if_invalid(resource, new, problems)
    return Result(new, (*decoded.warnings, *resource.warnings(new, None)))


def update(resource: Resource, decoded: Decoded, old: Json, context: RequestContext, checks: Checks) -> Result:
    """The object as it is stored by an update of `old`. The status of `old` is kept when the resource has the
    subresource /status. Raises StatusError 422 with every problem."""
    obj = decoded.object
    new = {**obj, "metadata": metadata.sanitized(obj["metadata"], old["metadata"])}
    if resource.status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    new, shape_problems = _decode_and_validate(resource, new, old, context, checks, decoded.plain)
    if new["kind"] != resource.kind:
        _raise_if_invalid(resource, new, shape_problems)
    problems = metadata.problems(new["metadata"], resource.name_rule, any_finalizer=resource.any_finalizer)
    problems += _changed_finalizers(new, old) + metadata.immutable_problems(obj["metadata"], old["metadata"])
    problems += [problem for path in resource.immutable for problem in _changed(new, old, path)]
    _raise_if_invalid(resource, new, problems + shape_problems)
    if resource.generation and not json_equal(_spec(resource, new), _spec(resource, old)):
        new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
    return Result(new, (*decoded.warnings, *resource.warnings(new, old)))


def reviewed(
    registry: Registry, resource: Resource, admitted: Result, old: Json | None, context: RequestContext
) -> Result:
    """What the admission webhook of the resource makes of an object. Raises StatusError 403."""
    reviewer = registry.reviewers.get((resource.group, resource.kind))
    if reviewer is None:
        return admitted

    def read(gvk: GVK, key: NamespacedName) -> Json | None:
        other = registry.find(gvk.group, gvk.version, gvk.plural)
        record = context.log.get(other.storage_key, key) if other else None
        return decode(record.body) if record else None

    review = reviewer(admitted.object, old, read, context.now)
    if review.refusal:
        raise errors.StatusError(403, "Forbidden", review.refusal)
    return Result(review.object, (*admitted.warnings, *review.warnings))


def update_status(resource: Resource, decoded: Decoded, old: Json) -> Result:
    """The object as it is stored by an update of the /status of `old`: only the status changes. Raises StatusError 422
    with every problem."""
    obj = decoded.object
    if resource.status_keeps_metadata:
        new = {name: part for name, part in old.items() if name != "status"}
        new["metadata"] = dict(old["metadata"])
    else:
        new = {name: part for name, part in old.items() if name not in ("metadata", "status")}
        new["metadata"] = metadata.sanitized(obj["metadata"], old["metadata"])
        if resource.prepare_status is None:
            # /status cannot change these.
            _keep_stored(new["metadata"], old["metadata"], "ownerReferences", "finalizers")
    _raise_if_invalid(resource, obj, _kind_problems(resource, obj))
    status = obj.get("status")
    if status is not None:
        new["status"] = status
    if resource.definition and resource.schema is not None:
        new = _stored_shape(resource, new)
        _raise_if_invalid(resource, new, _custom_status_problems(resource, resource.schema, new))
    elif not isinstance(status, dict | None):
        text = f"Invalid value: {json_text(status)}: must be {TYPE_TEXTS['object']}"
        _raise_if_invalid(resource, new, [Problem("status", text)])
    if not resource.status_keeps_metadata:
        if resource.prepare_status is not None:
            resource.prepare_status(new, old, obj)
        problems = metadata.problems(new["metadata"], resource.name_rule) + _changed_finalizers(new, old)
        problems += metadata.uid_problems(obj["metadata"], old["metadata"])
        _raise_if_invalid(
            resource, new, problems + list(resource.check_status(new, old) if resource.check_status else ())
        )
    return Result(new, decoded.warnings)


def _custom_status_problems(resource: Resource, schema: Schema, new: Json) -> list[Problem]:
    """The problems of an update of a custom resource's /status. A spec that was valid under an older CRD must not block
    it: only problems of the status count."""
    problems = [problem for problem in schema.validate(new, depth_checked=True) if problem.path.startswith("status")]
    if resource.scale is not None:
        problems += scale.problems(resource.scale, new, status_only=True)
    return problems


def _keep_stored(meta: Json, old: Json, *names: str) -> None:
    for name in names:
        meta.pop(name, None)
        if name in old:
            meta[name] = old[name]


def _stored_shape(resource: Resource, obj: Json) -> Json:
    schema = resource.schema
    if schema is None:
        return obj
    return dict(schema.default(schema.prune(obj) if resource.prune else obj))


def _decode_and_validate(
    resource: Resource, new: Json, old: Json | None, context: RequestContext, checks: Checks, plain: bool
) -> tuple[Json, list[Problem]]:
    new = _stored_shape(resource, new)
    if problems := _kind_problems(resource, new):
        return new, problems
    if resource.schema is not None and (problems := resource.schema.validate(new, depth_checked=True)):
        problems = _made_worse(resource.schema, problems, new, old) + _scale_problems(resource, new)
        if problems or (resource.group, resource.kind) not in checks:
            return new, problems
    resource.prepare(new, old, context)
    resource.admit(new, old, context)
    problems = [*resource.check(new, old), *_scale_problems(resource, new)]
    if not plain:
        reported = {problem.path for problem in problems if not problem.text.startswith(("Forbidden", "Not found"))}
        problems += [problem for problem in type_problems(resource, new) if problem.path not in reported]
    if check := checks.get((resource.group, resource.kind)):
        problems += check(new, old)
    return new, problems


def type_problems(resource: Resource, new: Json) -> Iterator[Problem]:
    """The problems that the type of a built-in resource tells. Its status is left to the controllers."""
    if resource.to_storage is not None or resource.schema is not None:
        return  # the fields of another version; those of a CRD
    fields = {name: part for name, part in new.items() if name != "status"} | {"metadata": {}}
    yield from decoding.type_problems(fields, schemas.schema_of(resource))


def _scale_problems(resource: Resource, obj: Json) -> list[Problem]:
    return list(scale.problems(resource.scale, obj)) if resource.definition and resource.scale is not None else []


def _kind_problems(resource: Resource, obj: Json) -> list[Problem]:
    if obj["kind"] == resource.kind:
        return []
    return [Problem("kind", f"Invalid value: {json_text(obj['kind'])}: must be {resource.kind}")]


def _made_worse(schema: Schema, problems: list[Problem], new: Json, old: Json | None) -> list[Problem]:
    """The problems that this write introduces. Problems of the stored object count only where the write changes the
    value (ratcheting).

    A missing required field counts when the write changes the object that lacks it.
    """
    stored_problems = set() if old is None else set(schema.validate(old))

    def untouched(problem: Problem) -> bool:
        missing = problem.text.startswith("Required value")
        path = problem.path.rpartition(".")[0] if missing else problem.path
        return json_equal(_value_at(new, path), _value_at(old, path))

    return [problem for problem in problems if problem not in stored_problems or not untouched(problem)]


def _raise_if_invalid(resource: Resource, obj: Json, problems: list[Problem]) -> None:
    """Raises StatusError 422 when there are problems."""
    if problems:
        name = obj["metadata"].get("name") or obj["metadata"].get("generateName") or ""
        # The group of the storage version.
        group = str(obj["apiVersion"]).rpartition("/")[0] if resource.to_storage else resource.group
        raise errors.invalid(obj["kind"], group, name, [*dict.fromkeys(problems)])


def _changed_finalizers(new: Json, old: Json) -> list[Problem]:
    if "deletionTimestamp" not in old["metadata"]:
        return []
    added = set(new["metadata"].get("finalizers") or ()) - set(old["metadata"].get("finalizers") or ())
    if not added:
        return []
    text = "no new finalizers can be added if the object is being deleted, found new finalizers"
    return [Problem("metadata.finalizers", f"Forbidden: {text} {json_text(sorted(added))}")]


def _changed(new: Json, old: Json, path: str) -> list[Problem]:
    before, after = _value_at(old, path), _value_at(new, path)
    if json_equal(before, after):
        return []
    return [Problem(path, f"Invalid value: {json_text(after)}: field is immutable")]


def _value_at(obj: Any, path: str) -> Any:
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(obj, list):
            obj = obj[int(step)] if step.isdigit() and int(step) < len(obj) else None
        else:
            obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


def _spec(resource: Resource, obj: Json) -> Json:
    """The part of an object whose changes increase metadata.generation."""
    excluded = (*_IDENTITY, "status") if resource.status else _IDENTITY
    return {name: part for name, part in obj.items() if name not in excluded}
