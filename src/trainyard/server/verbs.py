"""The verbs: each request is executed as one synchronous function call. The path of a request is http -> verbs -> log.

Rules for this file:
- No await: no other task runs between a read of the log and the append. This is the server's only lock.
- A verb never tests for a specific resource; the strategy in the registry has all that differs.
- Authorization comes first: to a user without permission, existing and missing objects look the same.
- A write that changes nothing appends nothing, so that a controller does not trigger itself forever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from trainyard.objects import Json, NamespacedName, Problem, decode, encode, format_time
from trainyard.server import (
    absent,
    access,
    admission,
    apply,
    deletion,
    discovery,
    errors,
    judged,
    lists,
    metadata,
    patching,
    scale,
    strictness,
)
from trainyard.server import subresources as below
from trainyard.server.definitions import Definitions
from trainyard.server.log import Log
from trainyard.server.paths import Target, parse
from trainyard.server.rbac import Asked
from trainyard.server.requests import Answer, Request, Response, body_of, dry_run, reply, shallow
from trainyard.server.resources import Registry, Resource
from trainyard.server.site import Addresses, Site
from trainyard.server.tokens import Tokens
from trainyard.server.types import ANY
from trainyard.server.users import User
from trainyard.server.writes import NAMESPACES, Writes

EVENT_SECONDS = 3600.0
MOST_EVENTS = 4000
NO_PAGE = Response(b"404 page not found\n", 404, "text/plain", {"Content-Type": "text/plain; charset=utf-8"})
_NAME_ATTEMPTS = 8  # attempts to find a free name for generateName


class Verbs:
    """The API of one cluster. `answer` raises `Refused` when the answer is a Status."""

    def __init__(
        self, log: Log, registry: Registry, checks: admission.Checks, now: Callable[[], float], key: bytes = b""
    ) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._log, self._registry, self._checks, self._now = log, registry, checks, now
        self._addresses = Addresses()
        log.follow(self._addresses.saw)
        log.follow(Definitions(registry).saw)
        self.writes = Writes(log, registry)
        self.tokens = Tokens(log, now, key)
        self.reachable = False
        """Pods can reach this server (TLS listener), so they get tokens."""

    def site(self, user: User) -> Site:
        return Site(self._now(), self._addresses, self._log, user, self.reachable, whose=self.tokens.user_of)

    def expire(self) -> None:
        """Deletes Events after an hour, as kube-apiserver does, and the oldest ones beyond MOST_EVENTS, because this
        process holds them in memory."""
        eldest = format_time(self._now() - EVENT_SECONDS)
        resource = self._registry.find("", "v1", "events")
        if resource is None:
            return
        records = sorted((record for _, record in self._log.list("events")), key=lambda record: record.revision)
        for number, record in enumerate(records):
            if record.fields.get("created", eldest) < eldest or number < len(records) - MOST_EVENTS:
                self.writes.remove(resource, decode(record.body))

    def answer(self, request: Request) -> Answer:
        target = parse(request.path)
        if target is None:
            return self._discovery(request)
        if not request.user.all_rights:
            access.must_allow(self._log, request.user, access.asked_of(_verb(request, target), target, request))
        resource = self._registry.find(target.group, target.version, target.plural)
        if resource is None and (unsupported := absent.refusal(target.group, target.plural)):
            raise unsupported
        if resource is None and not self._registry.serves(target.group):
            return NO_PAGE
        if resource is None or (target.namespace and not resource.namespaced) or "/" in target.name:
            raise errors.no_such_path()
        if target.name in (".", ".."):
            raise errors.bad_request(f"Name parameter invalid: \"{target.name}\": may not be '{target.name}'")
        verb = _verb(request, target)
        if verb in ("update", "patch") and not target.name:
            raise errors.bad_request("name must be provided") if resource.custom else errors.method_not_allowed()
        is_known_subresource = target.subresource in (
            "status",
            "scale",
            *resource.subresources,
        )  # unknown subresources must not add counters
        self.counts[verb, f"{target.plural}/{target.subresource}" if is_known_subresource else target.plural] += 1
        return self._dispatch(verb, resource, target, request)

    def _discovery(self, request: Request) -> Answer:
        if not request.user.all_rights:
            verbs = {"GET": "get", "HEAD": "head"}
            verb = verbs.get(request.method, request.method.lower())
            access.must_allow(self._log, request.user, Asked(verb, path=request.path))
        if (answer := discovery.answer(self._registry, request)) is None:
            return NO_PAGE
        if request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()
        return answer

    def _dispatch(self, verb: str, resource: Resource, target: Target, request: Request) -> Answer:
        if resource.respond:
            return self._respond(verb, resource, target, request)
        lacks_status = target.subresource == "status" and not resource.status
        is_status_or_scale = (
            target.name and not lacks_status and (target.subresource == "status" or _is_scale(resource, target))
        )
        if resource.custom and is_status_or_scale and verb in ("create", "delete"):
            raise errors.not_supported(verb, resource.plural, resource.group)
        if target.subresource == "scale" and resource.scale and target.name:
            judged.first(resource, target, request, self._now)
            return self._scale(verb, resource, target, request)
        if resource.custom and target.name and (lacks_status or target.subresource not in ("", "status")):
            raise errors.not_found(resource.plural, resource.group, target.name)
        if lacks_status:
            raise errors.no_such_path()
        judged.first(resource, target, request, self._now)
        if target.subresource and target.subresource != "status":
            return below.answer(
                below.Seat(self.writes, self.tokens, self.site(request.user)), resource, target, request
            )
        if verb == "get":
            return self._get(resource, target, request)
        if verb in ("list", "watch"):
            answer = lists.watch if verb == "watch" else lists.list_
            return answer(self._log, resource, target, request, self._now)
        if target.namespace == "" and resource.namespaced:
            raise errors.method_not_allowed()
        if verb == "deletecollection" and resource.place == NAMESPACES:
            raise errors.method_not_allowed()
        if verb == "create":
            return self._create(resource, target, request)
        if verb in ("update", "patch"):
            return self._update(resource, target, request, verb)
        if target.subresource:
            raise errors.method_not_allowed()
        if verb == "delete":
            return deletion.delete(self.writes, resource, target, request, self.site(request.user))
        return deletion.delete_collection(self.writes, resource, target, request, self.site(request.user))

    def _get(self, resource: Resource, target: Target, request: Request) -> Answer:
        form = lists.form(resource, request, self._now)
        record = self._log.get(resource.place, NamespacedName(target.namespace, target.name))
        if record is None:
            raise errors.not_found(resource.plural, resource.group, target.name)
        return Response(form.one(record.body))

    def _create(self, resource: Resource, target: Target, request: Request) -> Answer:
        if target.name and not resource.custom:
            raise errors.method_not_allowed()
        sent = body_of(request)
        plain = admission.must_be_readable(resource, sent, shallow(request))
        warnings = strictness.said(resource, request, sent, plain=plain)
        with judged.telling(warnings):
            obj = admission.placed(resource, sent, target.namespace, "")
        warnings += strictness.owned_twice(request, sent)
        with judged.telling(warnings):
            obj = obj if plain else strictness.known(resource, obj)
            self.writes.must_accept(target.namespace, resource, obj["metadata"].get("name") or "")
            meta = obj["metadata"]
            if not meta.get("name") and (prefix := meta.get("generateName")):
                meta["name"] = self._generate_name(resource, target.namespace, prefix)
            form = lists.form(resource, request, self._now)
            site, version, dry = self.site(request.user), meta.get("resourceVersion"), dry_run(request)
            new = admission.create(resource, obj, site, self._checks)
        with judged.telling((*warnings, *site.warnings)):
            if version and not dry:
                raise errors.Refused(500, "", "resourceVersion should not be set on objects to be created")
            if self._log.get(resource.place, NamespacedName(target.namespace, meta["name"])) is not None:
                raise errors.already_exists(resource.plural, resource.group, meta["name"])
            if version:
                new["metadata"]["resourceVersion"] = version  # dry run: the resourceVersion is not checked
            body = self.writes.put(resource, new, None, dry=dry)
            return Response(form.one(body), 201, warnings=(*warnings, *site.warnings))

    def _generate_name(self, resource: Resource, namespace: str, prefix: str) -> str:
        """A free name for generateName; after _NAME_ATTEMPTS possibly one in use."""
        for _ in range(_NAME_ATTEMPTS):
            name = metadata.generated(prefix)
            if self._log.get(resource.place, NamespacedName(namespace, name)) is None:
                break
        return name

    def _create_by_apply(self, resource: Resource, target: Target, request: Request) -> Answer:
        """Server-side apply of an object that does not exist: creates it."""
        site = self.site(request.user)
        config = patching.config(resource, request)
        apply.must_be_typed(resource, config)
        judged.must_be_named(target, config)
        config["metadata"].pop("creationTimestamp", None)  # it may have any type; the server sets its own
        obj = strictness.known(resource, admission.read_object(resource, config, target.namespace, target.name))
        self.writes.must_accept(target.namespace, resource, obj["metadata"].get("name") or "")
        form = lists.form(resource, request, self._now)
        owned = apply.first(resource, obj, patching.who(request, "", site.stamp))
        new = admission.create(resource, owned, site, self._checks)
        if owned["metadata"]["managedFields"]:
            new["metadata"]["managedFields"] = owned["metadata"]["managedFields"]
        body = self.writes.put(resource, new, None, dry=dry_run(request))
        return Response(form.one(body), 201, warnings=tuple(site.warnings))

    def _update(self, resource: Resource, target: Target, request: Request, verb: str) -> Answer:
        obj, warnings = judged.body(resource, target, request) if verb == "update" else (None, ())
        if verb == "patch" and request.content_type != patching.APPLY:
            body_of(request, request.content_type)
        with judged.telling(warnings):
            record = self._log.get(resource.place, NamespacedName(target.namespace, target.name))
            if record is None and patching.applies(request, target.subresource):
                return self._create_by_apply(resource, target, request)
            if record is None:
                raise errors.not_found(resource.plural, resource.group, target.name)
        old: Json = decode(record.body)
        site = self.site(request.user)
        writer = patching.who(request, target.subresource, site.stamp)
        if obj is None:
            obj, warnings = self._patched(resource, target, request, record.body, writer)
        with judged.telling(warnings):
            return self._store_update(resource, target, request, (old, obj), (writer, site, warnings))

    def _patched(
        self, resource: Resource, target: Target, request: Request, stored: bytes, writer: apply.Who
    ) -> tuple[Json, tuple[str, ...]]:
        """The patched object, and the warnings about it. Raises Refused."""
        sent = patching.patched(resource, stored, request, writer)
        try:
            plain = admission.must_be_readable(resource, sent)
        except errors.Unreadable as error:
            raise errors.patch_invalid(error.message) from None
        applies = request.content_type == patching.APPLY  # apply itself has refused undeclared fields
        warnings = () if applies else strictness.said(resource, request, sent, decode(stored), plain=plain)
        warnings += strictness.owned_twice(request, sent)
        with judged.telling(warnings):
            obj = admission.placed(resource, sent, target.namespace, target.name)
            judged.must_be_named(target, sent)
        return obj if plain else strictness.known(resource, obj), warnings

    def _store_update(
        self,
        resource: Resource,
        target: Target,
        request: Request,
        objects: tuple[Json, Json],
        context: tuple[apply.Who, Site, tuple[str, ...]],
    ) -> Answer:
        """Stores an update of `objects` (old, new): optimistic concurrency, admission, ownership, write."""
        (old, obj), (writer, site, warnings) = objects, context
        form = lists.form(resource, request, self._now)
        self._must_be_current(resource, obj["metadata"], old, "patch" if request.method == "PATCH" else "update")
        if target.subresource:
            new = admission.update_status(resource, obj, old, self._checks)
        else:
            new = admission.update(resource, obj, old, site, self._checks)
        apply.owned(resource, request.content_type, (old, obj, new), writer)
        body = self.writes.put(resource, new, old, dry=dry_run(request))
        return Response(form.one(body), warnings=(*warnings, *site.warnings))

    def _respond(self, verb: str, resource: Resource, target: Target, request: Request) -> Answer:
        """A virtual resource (review): the response is computed, nothing is stored."""
        if verb != "create" or target.name or resource.respond is None:
            raise errors.method_not_allowed()
        sent = admission.read_object(resource, body_of(request), target.namespace, "")
        if resource.schema is not None and (problems := resource.schema.validate(sent)):
            raise errors.invalid(resource.kind, resource.group, "", problems)
        return reply(resource.respond(sent, self.site(request.user)), 201)

    def _scale(self, verb: str, resource: Resource, target: Target, request: Request) -> Answer:
        """/scale. A change is an update of the whole object, with the same admission as any update."""
        warnings: tuple[str, ...] = ()
        if verb == "update":
            sent = body_of(request) if request.body[:1] == b"{" else None
            warnings = strictness.of_shape(scale.SHAPE, request, sent)
            with judged.telling(warnings):
                scale.must_be_readable(body_of(request), target.name)
                judged.must_be_named(target, body_of(request))
        with judged.telling(warnings):
            return self._serve_scale(verb, resource, target, request, warnings)

    def _serve_scale(
        self, verb: str, resource: Resource, target: Target, request: Request, warnings: tuple[str, ...]
    ) -> Answer:
        record = self._log.get(resource.place, NamespacedName(target.namespace, target.name))
        if record is None:
            raise errors.not_found(resource.plural, resource.group, target.name)
        if verb not in ("get", "update", "patch") or resource.scale is None:
            raise errors.method_not_allowed()
        old: Json = decode(record.body)
        form = lists.form(scale.form(resource), request, self._now)
        if verb == "get":
            return Response(form.one(encode(scale.view(resource, resource.scale, old))))
        if verb == "update":
            sent = body_of(request)
        else:
            sent = patching.changed(scale.start(resource, resource.scale, old), request, ANY)
            scale.must_still_be_one(sent)
            judged.must_be_named(target, sent)
            warnings = strictness.of_shape(scale.SHAPE, request, sent)
            sent["metadata"] = {**(sent.get("metadata") or {}), "uid": ""}  # a uid in a patch is ignored
        number = scale.wanted(sent, target.name, resource.scale, custom=resource.custom)
        self._must_be_current(resource, sent.get("metadata") or {}, old, "scale")
        obj = scale.applied(resource.scale, old, number)
        site = self.site(request.user)
        new = admission.update(resource, obj, old, site, self._checks)
        if "managedFields" in old["metadata"]:
            apply.tracked(resource, old, new, patching.who(request, "scale", site.stamp))
        body = self.writes.put(resource, new, old, dry=dry_run(request))
        return Response(form.one(encode(scale.view(resource, resource.scale, decode(body)))), warnings=warnings)

    def _must_be_current(self, resource: Resource, meta: Json, old: Json, verb: str) -> None:
        """Optimistic concurrency: raises Refused 409 when resourceVersion or uid differ from the stored object's, 422
        for a missing or invalid resourceVersion."""
        name, current = old["metadata"]["name"], old["metadata"]
        if (uid := meta.get("uid")) and uid != current["uid"] and verb != "patch":  # for a patch, admission reports it
            reason = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current['uid']}"
            raise errors.conflict(resource.plural, resource.group, name, errors.printable(reason))
        version = meta.get("resourceVersion")
        version_optional = not version and verb == "scale"
        version = "" if version == "0" else version
        if not version and (resource.custom or resource.names_version) and not version_optional:
            problem = Problem("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
            raise errors.invalid(resource.plural, resource.group, name, [problem])
        if version and version != current["resourceVersion"]:
            if not version.isascii() or not version.isdigit():
                problem = Problem("metadata.resourceVersion", "Invalid value: must be the version the server gave")
                raise errors.invalid(resource.kind, resource.group, name, [problem])
            raise errors.conflict(resource.plural, resource.group, name, errors.MODIFIED)


def _is_scale(resource: Resource, target: Target) -> bool:
    return target.subresource == "scale" and resource.scale is not None


def _verb(request: Request, target: Target) -> str:
    if target.subresource == "proxy" and request.method in ("HEAD", "OPTIONS"):
        return "get"  # forwarded to the program; authorized as get
    if request.method == "GET":
        if request.flag("watch") and not target.name:
            return "watch"
        return "get" if target.name else "list"
    if request.method == "DELETE":
        return "delete" if target.name else "deletecollection"
    verb = {"POST": "create", "PUT": "update", "PATCH": "patch"}.get(request.method)
    if verb is None:
        raise errors.method_not_allowed()
    return verb
