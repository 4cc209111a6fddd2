"""Deleting: at once, after a grace period, or when the last finalizer has gone.

Rules, as the real server has them:
- Preconditions (uid, resourceVersion) are checked first; a mismatch is a Conflict.
- Orphan and Foreground become the finalizers `orphan` and `foregroundDeletion`, for the garbage collector to work off;
  Background leaves dependents to it, too. The server itself never follows an owner reference.
- A deleted object that is still held has a deletionTimestamp; a second delete can only shorten its grace.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from trainyard.objects import Json, Key, Problem, decode, encode, format_time, parse_time
from trainyard.schema.checks import shown
from trainyard.server import decoding, errors, judged, lists
from trainyard.server.paths import Target
from trainyard.server.requests import Request, Response, body_of, dry_run, reply
from trainyard.server.resources import Resource
from trainyard.server.site import Site
from trainyard.server.types import STRING, Shape
from trainyard.server.writes import CLEANUP, DEFINITIONS, NAMESPACES, Writes, held

FINALIZERS = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}
LAST_SECOND = 253402300799  # of the year 9999, beyond which nobody can read a time
KEPT_NAMESPACES = ("default", "kube-system", "kube-public")

LEFT_BEHIND = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


class Options(msgspec.Struct, frozen=True):
    """What a client says about a delete. None: nothing; an empty version or uid is one that nothing has."""

    grace: int | None = None
    propagation: str = ""
    uid: str | None = None
    version: str | None = None
    dry: bool = False
    cascading: bool = False  # the old word for Background, which has an answer of its own


def delete(writes: Writes, resource: Resource, target: Target, request: Request, site: Site) -> Response:
    options = read_options(request)
    key = Key(target.namespace, target.name)
    record = writes.log.get(resource.place, key)
    warnings = _left_behind(resource, options)
    with judged.telling(warnings):
        if record is None:
            raise errors.not_found(resource.plural, resource.group, target.name)
        old: Json = decode(record.body)
        must_be_meant(resource, old, options)
        if resource.place == NAMESPACES and key.name in KEPT_NAMESPACES:
            raise errors.forbidden(NAMESPACES, "", key.name, "this namespace may not be deleted")
    form = lists.form(resource, request, lambda: site.now)
    body, gone = start(writes, resource, old, options, site)
    if gone and options.dry and old["metadata"].get("finalizers") and resource.grace is None:
        # As in the real server, which has lost sight of the object that it would have changed first.
        empty: Json = {} if resource.custom else {"metadata": {}}
        return reply({"kind": resource.kind, "apiVersion": resource.api_version, **empty})
    if gone and resource.grace is None and not resource.returned:
        group = {"group": resource.group} if resource.group else {}
        details = {"name": key.name, **group, "kind": resource.plural, "uid": old["metadata"]["uid"]}
        return reply(errors.success(details))
    with judged.telling(warnings):  # the form may turn out to be the wrong one
        return Response(form.one(body), 202 if options.cascading and not gone else 200, warnings=warnings)


def delete_collection(writes: Writes, resource: Resource, target: Target, request: Request, site: Site) -> Response:
    """Deletes everything that a list with the same parameters shows, and answers with that list."""
    options = read_options(request)
    form = lists.form(resource, request, lambda: site.now, True)
    revision, warnings = writes.log.revision, _left_behind(resource, options)
    chosen = lists.chosen(writes.log, resource, target, request)
    for key, _ in chosen:
        record = writes.log.get(resource.place, key)
        if record is None or (resource.place == NAMESPACES and key.name in KEPT_NAMESPACES):
            continue
        old: Json = decode(record.body)
        with judged.telling(warnings):
            must_be_meant(resource, old, options)
        start(writes, resource, old, options, site)
    bodies = [record.body for _, record in chosen]
    return Response(form.many(bodies, {"resourceVersion": str(revision)}), warnings=warnings)


def _left_behind(resource: Resource, options: Options) -> tuple[str, ...]:
    return (LEFT_BEHIND,) if resource.propagation == "Orphan" and not options.propagation else ()


def start(writes: Writes, resource: Resource, old: Json, options: Options, site: Site) -> tuple[bytes, bool]:
    """Deletes, or marks as deleted. Returns what is left (or was last), and whether it has gone."""
    if resource.grace and _pending(old["metadata"], options):
        return encode(old), False
    new = {**old, "metadata": dict(old["metadata"])}
    meta = new["metadata"]
    _hold(resource, meta, options)
    place = resource.place if resource.place in (NAMESPACES, DEFINITIONS) else ""
    if place:
        _close(new, place)
    grace = resource.grace(old, options.grace) if resource.grace else 0
    _mark(meta, grace, options, site)
    if place:
        meta.pop("deletionGracePeriodSeconds", None)
    if not held(resource, new):
        # What goes at once has never been on its way out, but for those who might have been given time. Who had none
        # left is told as he was.
        late = "deletionTimestamp" in old["metadata"] and not old["metadata"].get("deletionGracePeriodSeconds")
        return writes.remove(resource, new if resource.grace and not late else old, options.dry), True
    body = writes.put(resource, new, old, options.dry)
    if place and not options.dry:
        _empty(writes, place, meta["name"], site)
    return body, False


def _pending(meta: Json, options: Options) -> bool:
    """It has been given time to end, and this delete does not hurry it: then nothing changes, finalizers neither."""
    running = meta.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" not in meta or not running:
        return False
    return options.grace is None or options.grace >= running


def _mark(meta: Json, grace: int, options: Options, site: Site) -> None:
    if "deletionTimestamp" not in meta:
        meta["deletionTimestamp"] = format_time(min(site.now + grace, LAST_SECOND))
        meta["deletionGracePeriodSeconds"] = grace
        if "generation" in meta:
            meta["generation"] += 1
        return
    running = meta.get("deletionGracePeriodSeconds") or 0
    if options.grace is not None and grace < running:
        planned = parse_time(meta["deletionTimestamp"]) or site.now
        began = planned - running if planned < LAST_SECOND else site.now
        meta["deletionTimestamp"] = format_time(began + grace)
        meta["deletionGracePeriodSeconds"] = grace


def _hold(resource: Resource, meta: Json, options: Options) -> None:
    """The finalizer that the propagation asks for, and not the other one."""
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
    """A place that is being deleted says so, and waits for its content."""
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
    """Raises Refused 409 when the preconditions name another object, or another version of it."""
    meta = old["metadata"]
    if options.uid is not None and options.uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise errors.conflict(resource.kind, resource.group, meta["name"], errors.printable(why))
    if options.version is not None and options.version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.version}) does not match the ResourceVersion in record "
            f"({meta['resourceVersion']}). The object might have been modified"
        )
        raise errors.conflict(resource.kind, resource.group, meta["name"], errors.printable(why))


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
    """DeleteOptions from the body, or from the query where the body is silent. Raises Refused 400."""
    sent: Any = body_of(request) if request.body else {}
    if not isinstance(sent, dict):
        raise errors.bad_request(f"the body of a delete must be DeleteOptions, got {shown(sent)}")
    if why := decoding.unreadable(sent, _OPTIONS):
        raise errors.bad_request(f"DeleteOptions: {errors.printable(why)}")
    conditions = sent.get("preconditions") or {}
    kind = sent.get("kind") or "DeleteOptions"
    if kind != "DeleteOptions":
        raise errors.bad_request(f"the body of a delete must be DeleteOptions, got kind {shown(kind)}")
    query = {} if request.body else request.query  # who sends options sends all of them
    policy = sent.get("propagationPolicy", query.get("propagationPolicy"))
    orphan = sent.get("orphanDependents")
    if found := _option_problems(policy, orphan, sent.get("dryRun")):
        raise errors.options_invalid("DeleteOptions", found)
    if policy is None and isinstance(orphan, bool):
        policy = "Orphan" if orphan else "Background"
    return Options(
        grace=_seconds(sent.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))),
        propagation=policy or "",
        uid=conditions.get("uid"),
        version=conditions.get("resourceVersion"),
        dry=bool(sent.get("dryRun")) if request.body else dry_run(request),
        cascading=orphan is False,
    )


def _option_problems(policy: Any, orphan: Any, dry: Any) -> list[Problem]:
    found = []
    if policy is not None and isinstance(orphan, bool):
        text = f"Invalid value: {shown(policy)}: orphanDependents and deletionPropagation cannot be both set"
        found.append(Problem("propagationPolicy", text))
    if policy not in (None, "Background", *FINALIZERS):
        text = f'Unsupported value: {shown(policy)}: supported values: "Foreground", "Background", "Orphan", "nil"'
        found.append(Problem("propagationPolicy", text))
    if dry and set(dry) != {"All"}:
        found.append(Problem("dryRun", f'Unsupported value: {shown(dry)}: supported values: "All"'))
    return found


def _seconds(value: Any) -> int | None:
    """A grace period; a negative one is one second."""
    if value is None:
        return None
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}", value):
        value = int(value)
    if not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise errors.bad_request(f"gracePeriodSeconds: must be a number of seconds, got {shown(value)}")
    return value if value >= 0 else 1
