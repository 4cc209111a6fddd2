"""The verbs: one request in, one answer out, nothing in between. The middle of a request's way: http -> verbs -> log.

Rules for this file:
- No await: between reading the log and appending to it nobody else gets a turn. That is the server's only lock.
- A verb never asks which resource it has; the strategy in the table says what differs.
- A write that changes nothing appends nothing, so nobody wakes himself for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from trainyard.objects import Json, Key, Problem, decode, format_time
from trainyard.server import admission, deletion, discovery, errors, lists, metadata, patches, subresources
from trainyard.server.definitions import Definitions
from trainyard.server.log import Log
from trainyard.server.paths import Target, parse
from trainyard.server.requests import Answer, Request, Response, body_of, dry_run
from trainyard.server.resources import Registry, Resource
from trainyard.server.site import Addresses, Site
from trainyard.server.writes import Writes

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
EVENT_SECONDS = 3600.0
_TRIES = 8  # names to try for a generateName


class Verbs:
    """The API of one cluster. `answer` raises `Refused` when the answer is a Status."""

    def __init__(self, log: Log, registry: Registry, checks: admission.Checks, now: Callable[[], float]) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._log, self._registry, self._checks, self._now = log, registry, checks, now
        self._addresses = Addresses()
        log.follow(self._addresses.saw)
        log.follow(Definitions(registry).saw)
        self.writes = Writes(log, registry)

    def site(self) -> Site:
        now = self._now()
        return Site(now, format_time(now), self._addresses)

    def expire(self) -> None:
        """Events are forgotten after an hour, as in a real cluster."""
        eldest = format_time(self._now() - EVENT_SECONDS)
        resource = self._registry.find("", "v1", "events")
        for _, record in self._log.list("events"):
            if resource and record.fields.get("created", eldest) < eldest:
                self.writes.remove(resource, decode(record.body))

    def answer(self, request: Request) -> Answer:
        target = parse(request.path)
        if target is None:
            if (found := discovery.answer(self._registry, request.path)) is None:
                raise errors.no_such_path()
            if request.method not in ("GET", "HEAD"):
                raise errors.method_not_allowed()
            return found
        resource = self._registry.find(target.group, target.version, target.plural)
        if resource is None or (target.namespace and not resource.namespaced):
            raise errors.no_such_path()
        verb = _verb(request, target)
        named = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
        self.counts[verb, named] += 1
        return self._perform(verb, resource, target, request)

    def _perform(self, verb: str, resource: Resource, target: Target, request: Request) -> Answer:
        if target.subresource and target.subresource != "status":
            return subresources.answer(self.writes, resource, target, request, self.site())
        if target.subresource and not resource.status:
            raise errors.no_such_path()
        if verb == "get":
            return self._get(resource, target, request)
        if verb in ("list", "watch"):
            answer = lists.watch if verb == "watch" else lists.list_
            return answer(self._log, resource, target, request, self._now)
        if target.namespace == "" and resource.namespaced and verb != "deletecollection":
            raise errors.method_not_allowed()
        if verb == "create":
            return self._create(resource, target, request)
        if verb in ("update", "patch"):
            return self._update(resource, target, request, verb)
        if target.subresource:
            raise errors.method_not_allowed()
        if verb == "delete":
            return deletion.delete(self.writes, resource, target, request, self.site())
        return deletion.delete_collection(self.writes, resource, target, request, self.site())

    def _get(self, resource: Resource, target: Target, request: Request) -> Answer:
        record = self._log.get(resource.place, Key(target.namespace, target.name))
        if record is None:
            raise errors.not_found(resource.plural, resource.group, target.name)
        return Response(lists.form(resource, request, self._now).one(record.body))

    def _create(self, resource: Resource, target: Target, request: Request) -> Answer:
        if target.name:
            raise errors.method_not_allowed()
        obj = admission.read_object(resource, body_of(request), target.namespace, "")
        if obj["metadata"].get("resourceVersion"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        self.writes.must_accept(target.namespace)
        meta = obj["metadata"]
        prefix = meta.get("generateName") or ""
        if not meta.get("name") and not prefix:
            text = "name or generateName is required"
            raise errors.invalid(
                resource.kind, resource.group, "", [Problem("metadata.name", f"Required value: {text}")]
            )
        tries = 1 if meta.get("name") else _TRIES
        for _ in range(tries):
            if prefix and tries > 1:
                meta["name"] = metadata.generated(prefix)
            if self._log.get(resource.place, Key(target.namespace, meta["name"])) is None:
                break
        else:
            raise errors.already_exists(resource.plural, resource.group, meta["name"])
        form = lists.form(resource, request, self._now)
        new = admission.create(resource, obj, self.site(), self._checks)
        body = self.writes.put(resource, new, None, dry=dry_run(request))
        return Response(form.one(body), 201)

    def _update(self, resource: Resource, target: Target, request: Request, verb: str) -> Answer:
        key = Key(target.namespace, target.name)
        record = self._log.get(resource.place, key)
        if record is None:
            raise errors.not_found(resource.plural, resource.group, target.name)
        form = lists.form(resource, request, self._now)
        old: Json = decode(record.body)
        sent = body_of(request) if verb == "update" else self._patched(resource, record.body, target, request)
        obj = admission.read_object(resource, sent, target.namespace, target.name)
        self._must_be_current(resource, obj["metadata"], old, verb)
        if target.subresource:
            new = admission.update_status(resource, obj, old)
        else:
            new = admission.update(resource, obj, old, self.site(), self._checks)
        body = self.writes.put(resource, new, old, dry=dry_run(request))
        return Response(form.one(body))

    def _patched(self, resource: Resource, stored: bytes, target: Target, request: Request) -> Any:
        current = decode(stored)
        if resource.read:
            current = resource.read(current)
        try:
            if request.content_type == MERGE:
                return patches.merge(current, body_of(request, MERGE))
            if request.content_type == JSON_PATCH:
                return patches.apply(current, body_of(request, JSON_PATCH))
        except patches.BadPatch as error:
            raise errors.bad_request(errors.printable(str(error))) from None
        except patches.PatchFailed as error:
            raise errors.Refused(422, "Invalid", errors.printable(str(error))) from None
        raise errors.unsupported_media_type((JSON_PATCH, MERGE), request.content_type)

    def _must_be_current(self, resource: Resource, meta: Json, old: Json, verb: str) -> None:
        """The fence: whoever names a version or a uid means exactly that object."""
        name, current = old["metadata"]["name"], old["metadata"]
        if (uid := meta.get("uid")) and uid != current["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current['uid']}"
            raise errors.conflict(resource.plural, resource.group, name, errors.printable(why))
        version = meta.get("resourceVersion")
        if not version and resource.custom and verb == "update":
            text = "must be specified for an update; read the object first and send its version back"
            problem = Problem("metadata.resourceVersion", f"Invalid value: 0: {text}")
            raise errors.invalid(resource.kind, resource.group, name, [problem])
        if version and version != current["resourceVersion"]:
            if not version.isascii() or not version.isdigit():
                problem = Problem("metadata.resourceVersion", "Invalid value: must be the version the server gave")
                raise errors.invalid(resource.kind, resource.group, name, [problem])
            raise errors.conflict(resource.plural, resource.group, name, errors.MODIFIED)


def _verb(request: Request, target: Target) -> str:
    if request.method in ("GET", "HEAD"):
        if request.flag("watch") and not target.subresource:
            return "watch"
        return "get" if target.name else "list"
    if request.method == "DELETE":
        return "delete" if target.name else "deletecollection"
    verb = {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(request.method)
    if verb is None or (verb in ("update", "patch") and not target.name):
        raise errors.method_not_allowed()
    return verb
