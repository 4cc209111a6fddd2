"""DELETE: removes an object at once, after its grace period, or when its last finalizer is removed.

Rules, as in kube-apiserver:
- Preconditions (uid, resourceVersion) are checked first; a mismatch is a Conflict.
- The propagation policies Orphan and Foreground set the finalizers `orphan` and `foregroundDeletion`, which the garbage
  collector processes; with Background it deletes the dependents later. The server never follows owner references.
- A deleted object with finalizers or a grace period has a deletionTimestamp; another delete can only shorten the grace
  period.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from trainyard.api_types import decoding
from trainyard.api_types.schemas import STRING, TypeSchema
from trainyard.objects import Json, NamespacedName, Problem, decode, encode, format_time, parse_time
from trainyard.schema.checks import json_text
from trainyard.server.model import errors
from trainyard.server.model.context import RequestContext
from trainyard.server.model.paths import Target
from trainyard.server.model.requests import Request, Response, decode_body, is_dry_run, reply
from trainyard.server.model.resources import Resource
from trainyard.server.registry import lists
from trainyard.server.registry.writes import CLEANUP, Writes, has_finalizers_or_grace

FINALIZERS = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}
MAX_TIMESTAMP = 253402300799  # the end of the year 9999, the last one with four digits

ORPHAN_WARNING = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


class DeleteOptions(msgspec.Struct, frozen=True):
    """DeleteOptions. None: not set. An empty version or uid is a precondition that no object meets."""

    grace_period: int | None = None
    propagation: str = ""
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False
    deprecated_background: bool = (
        False  # orphanDependents: false, the deprecated form of Background; it is answered with 202
    )


def delete(writes: Writes, resource: Resource, target: Target, request: Request, context: RequestContext) -> Response:
    """DELETE of an object: removes it, or sets deletionTimestamp while it has finalizers or a grace period. Raises
    StatusError 400, 403, 404, 409."""
    options = read_options(request)
    key = NamespacedName(target.namespace, target.name)
    record = writes.log.get(resource.storage_key, key)
    warnings = _orphan_warnings(resource, options)
    if record is None:
        raise errors.not_found(resource.plural, resource.group, target.name)
    old: Json = decode(record.body)
    check_preconditions(resource, old, options)
    if _is_protected(resource, key.name):
        text = f"this {resource.kind.lower()} may not be deleted"
        raise errors.forbidden(resource.plural, resource.group, key.name, text)
    representation = lists.representation(resource, request, lambda: context.now)
    body, removed = begin_deletion(writes, resource, old, options, context)
    if removed and resource.grace_period is None and not resource.returns_deleted:
        group_detail = {"group": resource.group} if resource.group else {}
        details = {"name": key.name, **group_detail, "kind": resource.plural, "uid": old["metadata"]["uid"]}
        return reply(errors.success(details))
    code = 202 if options.deprecated_background and not removed else 200
    return Response(representation.encode_object(body), code, warnings=warnings)


def delete_collection(
    writes: Writes, resource: Resource, target: Target, request: Request, context: RequestContext
) -> Response:
    """Delete the objects that a list with the same parameters returns, and answer with that list."""
    options = read_options(request)
    representation = lists.representation(resource, request, lambda: context.now, True)
    revision, warnings = writes.log.revision, _orphan_warnings(resource, options)
    selected = lists.selected_objects(writes.log, resource, target, request)
    for key, _ in selected:
        record = writes.log.get(resource.storage_key, key)
        if record is None or _is_protected(resource, key.name):
            continue
        old: Json = decode(record.body)
        check_preconditions(resource, old, options)
        begin_deletion(writes, resource, old, options, context)
    bodies = [record.body for _, record in selected]
    return Response(representation.encode_list(bodies, {"resourceVersion": str(revision)}), warnings=warnings)


def _orphan_warnings(resource: Resource, options: DeleteOptions) -> tuple[str, ...]:
    return (ORPHAN_WARNING,) if resource.propagation == "Orphan" and not options.propagation else ()


def begin_deletion(
    writes: Writes, resource: Resource, old: Json, options: DeleteOptions, context: RequestContext
) -> tuple[bytes, bool]:
    """Remove the object, or set its deletionTimestamp. Returns the stored (or last) object, encoded, and whether it
    was removed."""
    if resource.grace_period and _is_pending(old["metadata"], options):
        return encode(old), False
    new = {**old, "metadata": dict(old["metadata"])}
    meta = new["metadata"]
    _set_propagation_finalizer(resource, meta, options)
    if resource.contents:
        _close(resource, new)
    grace = resource.grace_period(old, options.grace_period) if resource.grace_period else 0
    _set_deletion_timestamp(meta, grace, options, context)
    if resource.contents:
        meta.pop("deletionGracePeriodSeconds", None)
    if not has_finalizers_or_grace(resource, new):
        # An object that is removed at once is returned as stored. For kinds with a grace period it has a
        # deletionTimestamp, unless an earlier delete had already reduced the period to 0.
        grace_over = "deletionTimestamp" in old["metadata"] and not old["metadata"].get("deletionGracePeriodSeconds")
        return writes.remove(resource, new if resource.grace_period and not grace_over else old, options.dry_run), True
    body = writes.put(resource, new, old, options.dry_run)
    if resource.contents and not options.dry_run:
        _empty(writes, resource, meta["name"], context)
    return body, False


def _is_pending(meta: Json, options: DeleteOptions) -> bool:
    """Whether its grace period runs and this delete does not shorten it: then nothing changes, not even finalizers."""
    grace = meta.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" not in meta or not grace:
        return False
    return options.grace_period is None or options.grace_period >= grace


def _set_deletion_timestamp(meta: Json, grace: int, options: DeleteOptions, context: RequestContext) -> None:
    if "deletionTimestamp" not in meta:
        meta["deletionTimestamp"] = format_time(min(context.now + grace, MAX_TIMESTAMP))
        meta["deletionGracePeriodSeconds"] = grace
        if "generation" in meta:
            meta["generation"] += 1
        return
    current_grace = meta.get("deletionGracePeriodSeconds") or 0
    if options.grace_period is not None and grace < current_grace:
        planned = parse_time(meta["deletionTimestamp"]) or context.now
        began = planned - current_grace if planned < MAX_TIMESTAMP else context.now
        meta["deletionTimestamp"] = format_time(began + grace)
        meta["deletionGracePeriodSeconds"] = grace


def _set_propagation_finalizer(resource: Resource, meta: Json, options: DeleteOptions) -> None:
    """Set the finalizer of the propagation policy and remove the other one."""
    finalizers = list(meta.get("finalizers") or ())
    policy = options.propagation
    if not policy:
        if any(name in finalizers for name in FINALIZERS.values()):
            return
        policy = resource.propagation
    kept = [name for name in finalizers if name not in FINALIZERS.values()]
    if policy in FINALIZERS:
        kept.append(FINALIZERS[policy])
    meta.pop("finalizers", None)
    if kept:
        meta["finalizers"] = kept


def _is_protected(resource: Resource, name: str) -> bool:
    return name in resource.protected_names


def _close(container: Resource, new: Json) -> None:
    """Mark a namespace or CRD as terminating: its phase, or the cleanup finalizer."""
    new["status"] = dict(new.get("status") or {})
    if container.contents == "namespace":
        new["status"]["phase"] = "Terminating"
    else:
        finalizers = new["metadata"].get("finalizers") or []
        new["metadata"]["finalizers"] = [*(name for name in finalizers if name != CLEANUP), CLEANUP]


def _empty(writes: Writes, container: Resource, name: str, context: RequestContext) -> None:
    for resource, key in list(writes.objects_in(container, name)):
        record = writes.log.get(resource.storage_key, key)
        if record is not None:
            begin_deletion(writes, resource, decode(record.body), DeleteOptions(propagation="Background"), context)
    writes.finish_if_empty(container, name)


def check_preconditions(resource: Resource, old: Json, options: DeleteOptions) -> None:
    """Raises StatusError 409 when uid or resourceVersion of the preconditions differ from the object's."""
    meta = old["metadata"]
    if options.uid is not None and options.uid != meta["uid"]:
        reason = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise errors.conflict(resource.kind, resource.group, meta["name"], errors.printable(reason))
    if options.resource_version is not None and options.resource_version != meta["resourceVersion"]:
        reason = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion"
            f" in record ({meta['resourceVersion']}). The object might have been modified"
        )
        raise errors.conflict(resource.kind, resource.group, meta["name"], errors.printable(reason))


_STRINGS, _BOOLEAN = TypeSchema("list", item=STRING), TypeSchema("boolean")
_CONDITIONS = TypeSchema("object", own_fields={"uid": STRING, "resourceVersion": STRING})
_OPTIONS = TypeSchema(
    "object",
    own_fields={
        "apiVersion": STRING,
        "kind": STRING,
        "gracePeriodSeconds": TypeSchema("integer", format="int64"),
        "preconditions": _CONDITIONS,
        "orphanDependents": _BOOLEAN,
        "propagationPolicy": STRING,
        "dryRun": _STRINGS,
        "ignoreStoreReadErrorWithClusterBreakingPotential": _BOOLEAN,
    },
)


def read_options(request: Request) -> DeleteOptions:
    """DeleteOptions from the body, or from the query when there is no body. Raises StatusError 400 or 422."""
    sent: Any = decode_body(request) if request.body else {}
    if not isinstance(sent, dict):
        raise errors.bad_request(f"the body of a delete must be DeleteOptions, got {json_text(sent)}")
    if error := decoding.decoding_error(sent, _OPTIONS):
        raise errors.bad_request(f"DeleteOptions: {errors.printable(error)}")
    preconditions = sent.get("preconditions") or {}
    kind = sent.get("kind") or "DeleteOptions"
    if kind != "DeleteOptions":
        raise errors.bad_request(f"the body of a delete must be DeleteOptions, got kind {json_text(kind)}")
    query = {} if request.body else request.query  # a body replaces the query
    policy = sent.get("propagationPolicy", query.get("propagationPolicy"))
    orphan = sent.get("orphanDependents")
    if problems := _option_problems(policy, orphan, sent.get("dryRun")):
        raise errors.options_invalid("DeleteOptions", problems)
    if policy is None and isinstance(orphan, bool):
        policy = "Orphan" if orphan else "Background"
    return DeleteOptions(
        grace_period=_seconds(sent.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))),
        propagation=policy or "",
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        dry_run=bool(sent.get("dryRun")) if request.body else is_dry_run(request),
        deprecated_background=orphan is False,
    )


def _option_problems(policy: Any, orphan: Any, dry: Any) -> list[Problem]:
    problems = []
    if policy is not None and isinstance(orphan, bool):
        text = f"Invalid value: {json_text(policy)}: orphanDependents and deletionPropagation cannot be both set"
        problems.append(Problem("propagationPolicy", text))
    if policy not in (None, "Background", *FINALIZERS):
        text = f'Unsupported value: {json_text(policy)}: supported values: "Foreground", "Background", "Orphan", "nil"'
        problems.append(Problem("propagationPolicy", text))
    if dry and set(dry) != {"All"}:
        problems.append(Problem("dryRun", f'Unsupported value: {json_text(dry)}: supported values: "All"'))
    return problems


def _seconds(value: Any) -> int | None:
    """gracePeriodSeconds as a number of seconds; a negative one becomes 1. Raises StatusError 400."""
    if value is None:
        return None
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}", value):
        value = int(value)
    if not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise errors.bad_request(f"gracePeriodSeconds: must be a number of seconds, got {json_text(value)}")
    return value if value >= 0 else 1
