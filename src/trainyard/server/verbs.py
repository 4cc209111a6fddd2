"""The verbs: each request is executed as one synchronous function call. The path of a request is http -> verbs -> log.

Rules for this file:
- No await: no other task runs between a read of the log and the append. This is the server's only lock.
- A verb never asks which resource it serves: all that differs is in the resource's value (model/resources.py).
- Authorization comes first: to a user without permission, existing and missing objects look the same.
- A write goes through preflight (options, decoding), admission (defaults, validation) and writes (the log). Each
  returns a value; Warnings travel in it.
- A write that changes nothing appends nothing, so that a controller does not trigger itself forever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from trainyard.api_types.schemas import ANY
from trainyard.objects import Json, NamespacedName, Problem, decode, encode
from trainyard.server.auth import authorization
from trainyard.server.auth.rbac import Attributes
from trainyard.server.auth.tokens import TokenAuthority
from trainyard.server.builtin import unsupported_resources
from trainyard.server.crd.definitions import Definitions
from trainyard.server.model import errors
from trainyard.server.model.context import ClusterIPAllocator, RequestContext
from trainyard.server.model.paths import Target, parse
from trainyard.server.model.requests import Answer, Request, Response, decode_body, is_dry_run, reply
from trainyard.server.model.resources import Registry, Resource, ScalePaths
from trainyard.server.model.users import User
from trainyard.server.patch import apply, dispatch
from trainyard.server.patch.apply import FieldManager
from trainyard.server.registry import (
    admission,
    deletion,
    discovery,
    field_validation,
    lists,
    metadata,
    preflight,
    scale,
    subresources,
)
from trainyard.server.registry.admission import Decoded, Result
from trainyard.server.registry.writes import Writes
from trainyard.server.storage.log import RevisionLog
from trainyard.views.device_metrics import CONTENT_TYPE

NOT_FOUND_PAGE = Response(b"404 page not found\n", 404, "text/plain", {"Content-Type": "text/plain; charset=utf-8"})
_NAME_ATTEMPTS = 8  # attempts to find a free name for generateName


class Verbs:
    """The API of one cluster. `answer` raises `StatusError` when the answer is a Status."""

    def __init__(
        self, log: RevisionLog, registry: Registry, checks: admission.Checks, now: Callable[[], float], key: bytes = b""
    ) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._log, self._registry, self._checks, self._now = log, registry, checks, now
        self._addresses = ClusterIPAllocator()
        log.follow(self._addresses.on_entry)
        log.follow(Definitions(registry).on_entry)
        self.writes = Writes(log, registry)
        self.tokens = TokenAuthority(log, now, key)
        self.has_tls_listener = False
        """Pods can reach this server (TLS listener), so they get tokens."""
        self.metrics: Callable[[], str] | None = None
        """The Prometheus metrics of the path /metrics, which is not served without them."""

    def context(self, user: User) -> RequestContext:
        """The context of one request of this user, at the present time."""
        return RequestContext(
            self._now(), self._addresses, self._log, user, self.has_tls_listener, user_of_token=self.tokens.validate
        )

    def answer(self, request: Request) -> Answer:
        """Execute the request: authorization, lookup of the resource, verb. Raises StatusError."""
        target = parse(request.path)
        if target is None:
            return self._discovery(request)
        if not request.user.is_admin:
            authorization.require_allowed(
                self._log, request.user, authorization.attributes_of(_verb(request, target), target, request)
            )
        resource = self._registry.find(target.group, target.version, target.plural)
        if resource is None and (unsupported := unsupported_resources.not_served_error(target.group, target.plural)):
            raise unsupported
        if resource is None and not self._registry.has_built_in(target.group):
            return NOT_FOUND_PAGE
        if resource is None or (target.namespace and not resource.namespaced) or "/" in target.name:
            raise errors.path_not_found()
        if target.name in (".", ".."):
            raise errors.bad_request(f"Name parameter invalid: \"{target.name}\": may not be '{target.name}'")
        verb = _verb(request, target)
        if verb in ("update", "patch") and not target.name:
            raise errors.method_not_allowed()
        self._count(verb, resource, target)
        return self._dispatch(verb, resource, target, request)

    def _count(self, verb: str, resource: Resource, target: Target) -> None:
        """Count the request. Unknown subresources must not add counters."""
        known = ("status", "scale", *resource.subresources)
        name = f"{target.plural}/{target.subresource}" if target.subresource in known else target.plural
        self.counts[verb, name] += 1

    def _discovery(self, request: Request) -> Answer:
        if not request.user.is_admin:
            verbs = {"GET": "get", "HEAD": "head"}
            verb = verbs.get(request.method, request.method.lower())
            authorization.require_allowed(self._log, request.user, Attributes(verb, path=request.path))
        answer: Answer | None = discovery.respond(self._registry, request)
        if request.path == "/metrics" and self.metrics is not None:
            answer = Response(self.metrics().encode(), content_type=CONTENT_TYPE)
        if answer is None:
            return NOT_FOUND_PAGE
        if request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()
        return answer

    def _dispatch(  # noqa: PLR0911  (a verb, a return)
        self, verb: str, resource: Resource, target: Target, request: Request
    ) -> Answer:
        if resource.review or resource.computed:
            return self._compute(verb, resource, target, request)
        if target.subresource == "scale" and resource.scale and target.name:
            preflight.check_request(resource, target, request, self._now)
            return self._scale(verb, resource, resource.scale, target, request)
        if target.subresource == "status" and not resource.status:
            raise errors.path_not_found()
        preflight.check_request(resource, target, request, self._now)
        if target.subresource and target.subresource != "status":
            return subresources.serve(
                subresources.ServerParts(self.writes, self.tokens, self.context(request.user)),
                resource,
                target,
                request,
            )
        if verb == "get":
            return self._get(resource, target, request)
        if verb in ("list", "watch"):
            answer = lists.watch if verb == "watch" else lists.list_objects
            return answer(self._log, resource, target, request, self._now)
        if target.namespace == "" and resource.namespaced:
            raise errors.method_not_allowed()
        if verb == "deletecollection" and not resource.deletes_collection:
            raise errors.method_not_allowed()
        if verb == "create":
            return self._create(resource, target, request)
        if verb in ("update", "patch"):
            return self._update(resource, target, request, verb)
        if target.subresource:
            raise errors.method_not_allowed()
        if verb == "delete":
            return deletion.delete(self.writes, resource, target, request, self.context(request.user))
        return deletion.delete_collection(self.writes, resource, target, request, self.context(request.user))

    def _get(self, resource: Resource, target: Target, request: Request) -> Answer:
        representation = lists.representation(resource, request, self._now)
        record = self._log.get(resource.storage_key, NamespacedName(target.namespace, target.name))
        if record is None:
            raise errors.not_found(resource.plural, resource.group, target.name)
        return Response(representation.encode_object(record.body))

    def _create(self, resource: Resource, target: Target, request: Request) -> Answer:
        if target.name:
            raise errors.method_not_allowed()
        decoded = preflight.decode_object(resource, target, request)
        new = self._admit_new(resource, target, request, decoded)
        return self._store(resource, request, new, None, 201)

    def _create_by_apply(self, resource: Resource, target: Target, request: Request, manager: FieldManager) -> Answer:
        """Server-side apply of an object that does not exist: creates it."""
        config = dispatch.apply_configuration(resource, request)
        apply.require_typed(resource, config)
        preflight.require_name(target, config)
        config["metadata"].pop("creationTimestamp", None)  # it may have any type; the server sets its own
        obj = field_validation.without_unknown_fields(
            resource, admission.read_object(resource, config, target.namespace, target.name)
        )
        owned = apply.create_applied(resource, obj, manager)
        new = self._admit_new(resource, target, request, Decoded(owned))
        if owned["metadata"]["managedFields"]:
            new.object["metadata"]["managedFields"] = owned["metadata"]["managedFields"]
        return self._store(resource, request, new, None, 201)

    def _admit_new(self, resource: Resource, target: Target, request: Request, decoded: Decoded) -> Result:
        """The object that a create stores. Raises StatusError."""
        meta = decoded.object["metadata"]
        self.writes.require_creatable(target.namespace, resource, meta.get("name") or "")
        if not meta.get("name") and (prefix := meta.get("generateName")):
            meta["name"] = _generate_name(self._log, resource, target.namespace, prefix)
        context = self.context(request.user)
        new = admission.create(resource, decoded, context, self._checks)
        new = admission.reviewed(self._registry, resource, new, None, context)
        if meta.get("resourceVersion"):
            raise errors.StatusError(500, "", "resourceVersion should not be set on objects to be created")
        if self._log.get(resource.storage_key, NamespacedName(target.namespace, meta["name"])) is not None:
            raise errors.already_exists(resource.plural, resource.group, meta["name"])
        return new

    def _update(self, resource: Resource, target: Target, request: Request, verb: str) -> Answer:
        decoded = preflight.decode_object(resource, target, request) if verb == "update" else None
        if verb == "patch" and request.content_type != dispatch.APPLY:
            decode_body(request, request.content_type)
        context = self.context(request.user)
        manager = dispatch.field_manager(request, target.subresource, context.timestamp)
        record = self._log.get(resource.storage_key, NamespacedName(target.namespace, target.name))
        if record is None and dispatch.creates_by_apply(request, target.subresource):
            return self._create_by_apply(resource, target, request, manager)
        if record is None:
            raise errors.not_found(resource.plural, resource.group, target.name)
        old: Json = decode(record.body)
        if decoded is None:
            decoded = self._patched(resource, target, request, record.body, manager)
        self._must_be_current(resource, decoded.object["metadata"], old, verb)
        if target.subresource:
            new = admission.update_status(resource, decoded, old)
        else:
            new = admission.update(resource, decoded, old, context, self._checks)
            new = admission.reviewed(self._registry, resource, new, old, context)
        apply.set_managed_fields(resource, request.content_type, (old, decoded.object, new.object), manager)
        return self._store(resource, request, new, old)

    def _patched(
        self, resource: Resource, target: Target, request: Request, stored: bytes, manager: FieldManager
    ) -> Decoded:
        """The patched object. Raises StatusError."""
        sent = dispatch.patched_object(resource, stored, request, manager)
        plain, error = admission.decodability(resource, sent)
        if error:
            raise errors.patch_invalid(error)
        warnings: tuple[str, ...] = ()
        if request.content_type != dispatch.APPLY:  # apply itself has refused undeclared fields
            warnings = field_validation.field_warnings(resource, request, sent, decode(stored), plain=plain)
        obj = admission.with_identity(resource, sent, target.namespace, target.name)
        preflight.require_name(target, sent)
        return Decoded(obj if plain else field_validation.without_unknown_fields(resource, obj), plain, warnings)

    def _store(self, resource: Resource, request: Request, new: Result, old: Json | None, code: int = 200) -> Answer:
        """Write the object and answer with it in the representation that the client accepts."""
        representation = lists.representation(resource, request, self._now)
        body = self.writes.put(resource, new.object, old, dry=is_dry_run(request))
        return Response(representation.encode_object(body), code, warnings=new.warnings)

    def _compute(self, verb: str, resource: Resource, target: Target, request: Request) -> Answer:
        """Computed objects, or a review: the response is computed, nothing is stored."""
        if resource.computed:
            preflight.check_request(resource, target, request, self._now)
            return lists.read_computed(resource, verb, target, request, self.context(request.user))
        if verb != "create" or target.name or resource.review is None:
            raise errors.method_not_allowed()
        sent = admission.read_object(resource, decode_body(request), target.namespace, "")
        if problems := list(admission.type_problems(resource, sent)):
            raise errors.invalid(resource.kind, resource.group, "", problems)
        return reply(resource.review(sent, self.context(request.user)), 201)

    def _scale(self, verb: str, resource: Resource, paths: ScalePaths, target: Target, request: Request) -> Answer:
        """/scale. A change is an update of the whole object, with the same admission as any update."""
        sent, warnings = preflight.decode_scale(target, request) if verb == "update" else (None, ())
        record = self._log.get(resource.storage_key, NamespacedName(target.namespace, target.name))
        if record is None:
            raise errors.not_found(resource.plural, resource.group, target.name)
        if verb not in ("get", "update", "patch"):
            raise errors.method_not_allowed()
        old: Json = decode(record.body)
        representation = lists.representation(scale.RESOURCE, request, self._now)
        if verb == "get":
            return Response(representation.encode_object(encode(scale.view(paths, old))))
        if sent is None:
            sent = dispatch.apply_patch(scale.patch_base(paths, old), request, ANY)
            scale.require_scale(sent)
            preflight.require_name(target, sent)
            warnings = field_validation.schema_warnings(scale.SHAPE, request, sent)
            sent["metadata"] = {**(sent.get("metadata") or {}), "uid": ""}  # a uid in a patch is ignored
        number = scale.requested_replicas(sent, target.name)
        self._must_be_current(resource, sent.get("metadata") or {}, old, "scale")
        obj, context = scale.with_replicas(paths, old, number), self.context(request.user)
        new = admission.update(resource, Decoded(obj, plain=True), old, context, self._checks).object
        if "managedFields" in old["metadata"]:
            apply.track_update(resource, old, new, dispatch.field_manager(request, "scale", context.timestamp))
        body = self.writes.put(resource, new, old, dry=is_dry_run(request))
        return Response(representation.encode_object(encode(scale.view(paths, decode(body)))), warnings=warnings)

    def _must_be_current(self, resource: Resource, meta: Json, old: Json, verb: str) -> None:
        """Optimistic concurrency: raises StatusError 409 when resourceVersion or uid differ from the stored object's,
        422 for a missing or invalid resourceVersion."""
        name, current = old["metadata"]["name"], old["metadata"]
        if (uid := meta.get("uid")) and uid != current["uid"] and verb != "patch":  # for a patch, admission reports it
            reason = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current['uid']}"
            raise errors.conflict(resource.plural, resource.group, name, errors.printable(reason))
        version = meta.get("resourceVersion")
        version_optional = not version and verb == "scale"
        version = "" if version == "0" else version
        if not version and resource.requires_version and not version_optional:
            problem = Problem("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
            raise errors.invalid(resource.plural, resource.group, name, [problem])
        if version and version != current["resourceVersion"]:
            if not version.isascii() or not version.isdigit():
                problem = Problem("metadata.resourceVersion", "Invalid value: must be the version the server gave")
                raise errors.invalid(resource.kind, resource.group, name, [problem])
            raise errors.conflict(resource.plural, resource.group, name, errors.MODIFIED)


def _generate_name(log: RevisionLog, resource: Resource, namespace: str, prefix: str) -> str:
    """A free name for generateName; after _NAME_ATTEMPTS possibly one in use."""
    for _ in range(_NAME_ATTEMPTS):
        name = metadata.generate_name(prefix)
        if log.get(resource.storage_key, NamespacedName(namespace, name)) is None:
            break
    return name


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
