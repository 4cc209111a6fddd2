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

from trainyard.objects import Json, NamespacedName, Problem, decode, encode, format_time, parse_time
from trainyard.schema.checks import json_text
from trainyard.server import decoding, errors, judged, lists
from trainyard.server.paths import Target
from trainyard.server.requests import Request, Response, body_of, dry_run, reply
from trainyard.server.resources import Resource
from trainyard.server.site import Site
from trainyard.server.types import STRING, Shape
from trainyard.server.writes import CLEANUP, DEFINITIONS, NAMESPACES, Writes, held

FINALIZERS = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}
LAST_SECOND = 253402300799  # the end of the year 9999, the last one with four digits
KEPT_NAMESPACES = ("default", "kube-system", "kube-public")

LEFT_BEHIND = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


class Options(msgspec.Struct, frozen=True):
    """DeleteOptions. None: not set. An empty version or uid is a precondition that no object meets."""

    grace: int | None = None
    propagation: str = ""
    uid: str | None = None
    version: str | None = None
    dry: bool = False
    cascading: bool = False  # orphanDependents: false, the deprecated form of Background; it is answered with 202


def delete(writes: Writes, resource: Resource, target: Target, request: Request, site: Site) -> Response:
    options = read_options(request)
    key = NamespacedName(target.namespace, target.name)
    record = writes.log.get(resource.place, key)
    warnings = _orphan_warnings(resource, options)
    with judged.telling(warnings):
        if record is None:
            raise errors.not_found(resource.plural, resource.group, target.name)
        old: Json = decode(record.body)
        must_be_meant(resource, old, options)
        if resource.place == NAMESPACES and key.name in KEPT_NAMESPACES:
            raise errors.forbidden(NAMESPACES, "", key.name, "this namespace may not be deleted")
    form = lists.form(resource, request, lambda: site.now)
    body, removed = start(writes, resource, old, options, site)
    if removed and options.dry and old["metadata"].get("finalizers") and resource.grace is None:
        # As in kube-apiserver: a dry run that would remove finalizers first returns an empty object.
        empty: Json = {} if resource.custom else {"metadata": {}}
        return reply({"kind": resource.kind, "apiVersion": resource.api_version, **empty})
    if removed and resource.grace is None and not resource.returned:
        group_detail = {"group": resource.group} if resource.group else {}
        details = {"name": key.name, **group_detail, "kind": resource.plural, "uid": old["metadata"]["uid"]}
        return reply(errors.success(details))
    with judged.telling(warnings):  # the conversion to the requested form may fail
        return Response(form.one(body), 202 if options.cascading and not removed else 200, warnings=warnings)


def delete_collection(writes: Writes, resource: Resource, target: Target, request: Request, site: Site) -> Response:
    """Deletes the objects that a list with the same parameters returns, and answers with that list."""
    options = read_options(request)
    form = lists.form(resource, request, lambda: site.now, True)
    revision, warnings = writes.log.revision, _orphan_warnings(resource, options)
    selected = lists.chosen(writes.log, resource, target, request)
    for key, _ in selected:
        record = writes.log.get(resource.place, key)
        if record is None or (resource.place == NAMESPACES and key.name in KEPT_NAMESPACES):
            continue
        old: Json = decode(record.body)
        with judged.telling(warnings):
            must_be_meant(resource, old, options)
        start(writes, resource, old, options, site)
    bodies = [record.body for _, record in selected]
    return Response(form.many(bodies, {"resourceVersion": str(revision)}), warnings=warnings)


def _orphan_warnings(resource: Resource, options: Options) -> tuple[str, ...]:
    return (LEFT_BEHIND,) if resource.propagation == "Orphan" and not options.propagation else ()


def start(writes: Writes, resource: Resource, old: Json, options: Options, site: Site) -> tuple[bytes, bool]:
    """Removes the object, or sets its deletionTimestamp. Returns the stored (or last) object, encoded, and whether it
    was removed."""
    if resource.grace and _is_pending(old["metadata"], options):
        return encode(old), False
    new = {**old, "metadata": dict(old["metadata"])}
    meta = new["metadata"]
    _set_propagation_finalizer(resource, meta, options)
    content_kind = resource.place if resource.place in (NAMESPACES, DEFINITIONS) else ""
    if content_kind:
        _close(new, content_kind)
    grace = resource.grace(old, options.grace) if resource.grace else 0
    _set_deletion_timestamp(meta, grace, options, site)
    if content_kind:
        meta.pop("deletionGracePeriodSeconds", None)
    if not held(resource, new):
        # An object that is removed at once is returned as stored. For kinds with a grace period it has a
        # deletionTimestamp, unless an earlier delete had already reduced the period to 0.
        grace_over = "deletionTimestamp" in old["metadata"] and not old["metadata"].get("deletionGracePeriodSeconds")
        return writes.remove(resource, new if resource.grace and not grace_over else old, options.dry), True
    body = writes.put(resource, new, old, options.dry)
    if content_kind and not options.dry:
        _empty(writes, content_kind, meta["name"], site)
    return body, False


def _is_pending(meta: Json, options: Options) -> bool:
    """Whether its grace period runs and this delete does not shorten it: then nothing changes, not even finalizers."""
    grace = meta.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" not in meta or not grace:
        return False
    return options.grace is None or options.grace >= grace


def _set_deletion_timestamp(meta: Json, grace: int, options: Options, site: Site) -> None:
    if "deletionTimestamp" not in meta:
        meta["deletionTimestamp"] = format_time(min(site.now + grace, LAST_SECOND))
        meta["deletionGracePeriodSeconds"] = grace
        if "generation" in meta:
            meta["generation"] += 1
        return
    current_grace = meta.get("deletionGracePeriodSeconds") or 0
    if options.grace is not None and grace < current_grace:
        planned = parse_time(meta["deletionTimestamp"]) or site.now
        began = planned - current_grace if planned < LAST_SECOND else site.now
        meta["deletionTimestamp"] = format_time(began + grace)
        meta["deletionGracePeriodSeconds"] = grace


def _set_propagation_finalizer(resource: Resource, meta: Json, options: Options) -> None:
    """Sets the finalizer of the propagation policy and removes the other one."""
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


def _close(new: Json, place: str) -> None:
    """Marks a namespace or CRD as terminating: its phase, or the cleanup finalizer."""
    new["status"] = dict(new.get("status") or {})
    if place == NAMESPACES:
        new["status"]["phase"] = "Terminating"
    else:
        finalizers = new["metadata"].get("finalizers") or []
        new["metadata"]["finalizers"] = [*(name for name in finalizers if name != CLEANUP), CLEANUP]


def _empty(writes: Writes, place: str, name: str, site: Site) -> None:
    for resource, key in list(writes.contents(place, name)):
        record = writes.log.get(resource.place, key)
        if record is not None:
            start(writes, resource, decode(record.body), Options(propagation="Background"), site)
    writes.settle(place, name)


def must_be_meant(resource: Resource, old: Json, options: Options) -> None:
    """Raises Refused 409 when uid or resourceVersion of the preconditions differ from the object's."""
    meta = old["metadata"]
    if options.uid is not None and options.uid != meta["uid"]:
        reason = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise errors.conflict(resource.kind, resource.group, meta["name"], errors.printable(reason))
    if options.version is not None and options.version != meta["resourceVersion"]:
        reason = (
            f"the ResourceVersion in the precondition ({options.version}) does not match the ResourceVersion in record "
            f"({meta['resourceVersion']}). The object might have been modified"
        )
        raise errors.conflict(resource.kind, resource.group, meta["name"], errors.printable(reason))


_STRINGS, _BOOLEAN = Shape("list", item=STRING), Shape("boolean")
_CONDITIONS = Shape("object", own={"uid": STRING, "resourceVersion": STRING})
_OPTIONS = Shape(
    "object",
    own={
        "apiVersion": STRING,
        "kind": STRING,
        "gracePeriodSeconds": Shape("integer", format="int64"),
        "preconditions": _CONDITIONS,
        "orphanDependents": _BOOLEAN,
        "propagationPolicy": STRING,
        "dryRun": _STRINGS,
        "ignoreStoreReadErrorWithClusterBreakingPotential": _BOOLEAN,
    },
)


def read_options(request: Request) -> Options:
    """DeleteOptions from the body, or from the query when there is no body. Raises Refused 400 or 422."""
    sent: Any = body_of(request) if request.body else {}
    if not isinstance(sent, dict):
        raise errors.bad_request(f"the body of a delete must be DeleteOptions, got {json_text(sent)}")
    if error := decoding.unreadable(sent, _OPTIONS):
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
    return Options(
        grace=_seconds(sent.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))),
        propagation=policy or "",
        uid=preconditions.get("uid"),
        version=preconditions.get("resourceVersion"),
        dry=bool(sent.get("dryRun")) if request.body else dry_run(request),
        cascading=orphan is False,
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
    """gracePeriodSeconds as a number of seconds; a negative one becomes 1. Raises Refused 400."""
    if value is None:
        return None
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}", value):
        value = int(value)
    if not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise errors.bad_request(f"gracePeriodSeconds: must be a number of seconds, got {json_text(value)}")
    return value if value >= 0 else 1
