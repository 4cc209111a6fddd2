"""The registry: resource -> strategy. A `Resource` contains everything that is specific to a kind.

A strategy is data and a few functions; all have defaults, so that a simple resource is one line. The verbs are the same
for all. A CustomResourceDefinition is converted to such values when it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from trainyard.objects import Json, NamespacedName, Problem, decode
from trainyard.objects.review import Reviewer
from trainyard.schema import Schema

if TYPE_CHECKING:
    from trainyard.server.model.context import RequestContext
    from trainyard.server.model.errors import StatusError
    from trainyard.server.model.store import ObjectReader

Check = Callable[[Json, Json | None], list[Problem]]
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
"""The storage key of CustomResourceDefinitions."""


class Column(NamedTuple):
    """A printer column. `cell` takes (object, current time in seconds); columns of `-o wide` have a priority above
    0."""

    name: str
    cell: Callable[[Json, float], Any]
    type: str = "string"
    priority: int = 0
    description: str = ""
    format: str = ""


def no_mutation(new: Json, old: Json | None, context: RequestContext) -> None:
    """Change nothing: the default of `prepare` and `admit`."""


class ScalePaths(NamedTuple):
    """The paths of the scale subresource as steps, and a function that returns the selector as text."""

    spec_replicas: tuple[str, ...] = ("spec", "replicas")
    status_replicas: tuple[str, ...] = ("status", "replicas")
    selector: Callable[[Json], str] = lambda obj: ""
    selector_path: tuple[str, ...] = ()
    """The path of the selector, for custom resources."""


class PodPort(NamedTuple):
    """A port of a pod, and whether it speaks TLS."""

    pod: Json
    port: int
    secure: bool = False


class ProxyName(NamedTuple):
    """The parts of a name in a proxy request: scheme, object and port."""

    scheme: str
    name: str
    port: str


class ComputedObjects(NamedTuple):
    """The objects of a resource that is only read: get and list. `not_found` makes the 404 for a name without one."""

    objects: Callable[[RequestContext], Sequence[Json]]
    not_found: Callable[[NamespacedName, RequestContext], StatusError]


def _no_problems(new: Json, old: Json | None) -> list[Problem]:
    return []


def _no_warnings(new: Json, old: Json | None) -> Iterable[str]:
    return ()


def _no_fields(obj: Json) -> Mapping[str, str]:
    return {}


class Resource(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """A resource and its strategy. Compared by identity, so that it can be a cache key."""

    group: str = ""
    version: str = "v1"
    kind: str
    plural: str
    singular: str = ""
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    storage_name: str = ""
    """The storage key of its objects in the log. Versions of one resource share it. Default: plural.group."""

    status: bool = False
    """It has /status; then the main endpoint ignores changes of the status, and /status all other changes."""
    status_on_create: bool = False
    """A create stores the status of the request (nodes register with one)."""
    subresources: tuple[str, ...] = ()
    """Further subresources: log, binding."""
    alternatives: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Subresources that kubectl asks for and this server lacks -> what to do instead."""
    proxy_port: Callable[[ObjectReader, Json, ProxyName], PodPort] | None = None
    """The pod port to which the subresource `proxy` of an object forwards; None without that subresource."""
    scale: ScalePaths | None = None
    """The paths of /scale; None without /scale."""
    computed: ComputedObjects | None = None
    """For virtual resources that are only read: its objects. Nothing is stored."""
    review: Callable[[Json, RequestContext], Json] | None = None
    """For virtual resources (reviews): a create returns the result of this function; nothing is stored."""
    definition: str = ""
    """The name of its CustomResourceDefinition; "" for a built-in resource."""
    contents: Literal["", "namespace", "definition"] = ""
    """Its objects contain others, which are deleted with them: a namespace all of its objects, a definition the custom
    objects."""
    protected_names: tuple[str, ...] = ()
    """Objects that cannot be deleted."""
    requires_type_meta: bool = False
    """Request bodies must have apiVersion and kind; otherwise they may be left out."""
    requires_version: bool = False
    """An update needs a resourceVersion."""
    status_keeps_metadata: bool = False
    """An update of /status does not change metadata."""
    any_finalizer: bool = False
    """Finalizers need no domain."""
    deletes_collection: bool = True
    """A DELETE without a name deletes all selected objects."""
    strategic_merge: bool = True
    """It takes strategic merge patches."""
    lists_type_meta: bool = False
    """The items of a list have apiVersion and kind, and its metadata has `continue` even when it is empty."""
    generation: bool = False
    """metadata.generation grows with each change of the spec."""
    propagation: str = "Background"
    """The default propagation policy of a delete."""
    created_revision: int = 0
    """The revision of its CRD's creation. A watch cannot start before it."""
    name_rule: str = "subdomain"
    """The syntax of names: subdomain, label, service (a label that starts with a letter), path."""
    immutable: tuple[str, ...] = ()
    """Paths of immutable fields: "spec.template"."""

    decode_new: Callable[[bytes], Any] = decode
    """Decodes the JSON of a create. Raises ValueError."""
    schema: Schema | None = None
    prune: bool = False
    """Fields that the schema does not declare are pruned. Off for built-in resources, which keep fields of newer
    versions."""
    prepare: Callable[[Json, Json | None, RequestContext], None] = no_mutation
    """Mutates `new` as kube-apiserver's strategy does (PrepareForCreate, PrepareForUpdate); `old` is None on create and
    must not be changed."""
    prepare_status: Callable[[Json, Json, Json], None] | None = None
    """The same for updates of /status: (new, old, sent). It may only change `new`."""
    check_status: Callable[[Json, Json], Iterable[Problem]] | None = None
    """The validation of updates of /status: (new, old)."""
    unowned: Callable[[Json], Iterable[tuple[str, ...]]] | None = None
    """The paths of fields that the server has set: no manager of server-side apply owns them."""
    admit: Callable[[Json, Json | None, RequestContext], None] = no_mutation
    """Admission that depends on the user and on other objects. It may change `new`. Raises StatusError 403."""
    check: Check = _no_problems
    warnings: Callable[[Json, Json | None], Iterable[str]] = _no_warnings
    """The Warnings about an accepted write: (new, old or None on create)."""
    fields: Callable[[Json], Mapping[str, str]] = _no_fields
    """The selectable fields of an object, besides metadata.name and metadata.namespace."""
    field_names: tuple[str, ...] = ()
    grace_period: Callable[[Json, int | None], int] | None = None
    """The grace period of a delete in seconds: (object, requested seconds). None: objects are removed at once."""
    lifetime_seconds: float = 0
    """Objects are deleted when they are older than that; 0: never."""
    max_objects: int = 0
    """The oldest ones beyond that number are deleted, because this process holds them in memory; 0: any number."""
    returns_deleted: bool = False
    """A delete returns the deleted object, not a Status."""
    columns: Sequence[Column] = ()
    row_conditions: Callable[[Json], list[Json]] | None = None
    """The conditions of a table row: a pod that has completed."""

    from_storage: Callable[[Json], Json] | None = None
    """Conversion from the storage version to this version; `to_storage` is the reverse. None when they are the same."""
    to_storage: Callable[[Json], Json] | None = None

    @cached_property
    def api_version(self) -> str:
        """`GROUP/VERSION`; only the version in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def full_name(self) -> str:
        """`PLURAL.GROUP`, as kubectl writes it; only the plural in the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def storage_key(self) -> str:
        """The storage key of its objects."""
        return self.storage_name or self.full_name


class Registry:
    """The table of resources. Built-in ones are added at the start, custom ones with their CRDs."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._table: dict[tuple[str, str, str], Resource] = {}
        self.preferred_groups: tuple[str, ...] = ()  # groups of CRDs that are first in discovery, in this order
        self.reviewers: Mapping[tuple[str, str], Reviewer] = {}  # admission webhooks by (group, kind)
        for resource in resources:
            self.add(resource)

    def add(self, resource: Resource) -> None:
        """Serve the resource; replaces one of the same group, version and plural."""
        self._table[resource.group, resource.version, resource.plural] = resource

    def remove(self, group: str, plural: str) -> None:
        """Stop serving all versions of a resource."""
        for key in [key for key in self._table if key[0] == group and key[2] == plural]:
            del self._table[key]

    def built_in(self, group: str, plural: str) -> bool:
        """Whether that is a built-in resource, which no CRD can replace."""
        return any(
            (key[0], key[2]) == (group, plural) and not resource.definition for key, resource in self._table.items()
        )

    def has_built_in(self, group: str) -> bool:
        """Whether the group has a built-in resource."""
        return any(key[0] == group and not resource.definition for key, resource in self._table.items())

    def container(self, contents: Literal["namespace", "definition"]) -> Resource:
        """The resource whose objects have these contents."""
        return next(resource for resource in self._table.values() if resource.contents == contents)

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource of a request path, None when it is not served."""
        return self._table.get((group, version, plural))

    def all(self) -> list[Resource]:
        """All resources in the order in which they were added."""
        return list(self._table.values())
