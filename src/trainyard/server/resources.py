"""One table: resource -> strategy. What the server knows of a kind is a value of this type, and nothing else.

A strategy is data and a few functions; all have defaults, so that a plain resource is one line. The verbs are the same
for all. A CustomResourceDefinition becomes such a value when it is posted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from trainyard.objects import Json, Problem
from trainyard.schema import Schema

if TYPE_CHECKING:
    from trainyard.server.site import Site

Check = Callable[[Json, Json | None], list[Problem]]


class Column(NamedTuple):
    """A column of `kubectl get`. `cell` takes the object and the time; wide ones have a priority above 0."""

    name: str
    cell: Callable[[Json, float], Any]
    type: str = "string"
    priority: int = 0
    description: str = ""
    format: str = ""


def nothing(new: Json, old: Json | None, site: Site) -> None:
    """Fills in nothing."""


class Scaled(NamedTuple):
    """Where /scale finds its numbers: paths as steps, and a function that writes the selector as text."""

    wanted: tuple[str, ...] = ("spec", "replicas")
    actual: tuple[str, ...] = ("status", "replicas")
    selector: Callable[[Json], str] = lambda obj: ""
    labels: tuple[str, ...] = ()
    """Where the selector is, for custom resources."""


def no_problems(new: Json, old: Json | None) -> list[Problem]:
    return []


def no_fields(obj: Json) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, kw_only=True, eq=False)
class Resource:
    """A resource and its strategy. One is never the same as another, so what follows from it can be kept under it."""

    group: str = ""
    version: str = "v1"
    kind: str
    plural: str
    singular: str = ""
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    store: str = ""
    """Where its objects live in the log. Two versions of one resource share it. Default: plural.group."""

    status: bool = False
    """It has /status; then the main resource ignores changes of the status, and /status all others."""
    born_with_status: bool = False
    """A status sent with the create is kept (nodes register themselves with one)."""
    subresources: tuple[str, ...] = ()
    """Others that it has, for discovery: log, binding."""
    scale: Scaled | None = None
    """It has /scale."""
    respond: Callable[[Json, Site], Json] | None = None
    """It is a question, not an object: a create is answered with this, and nothing is stored."""
    custom: bool = False
    """A custom resource: /status leaves metadata alone, an update must name the version it was made from."""
    names_version: bool = False
    """An update must name the version it was made from, as of a custom resource."""
    generation: bool = False
    """metadata.generation counts the versions of the spec."""
    propagation: str = "Background"
    """What a delete that does not say does with dependents."""
    since: int = 0
    """The log's number when its definition came. A watch cannot start before that."""
    name_rule: str = "subdomain"
    """Which names are legal: subdomain, label, service (a label that starts with a letter)."""
    immutable: tuple[str, ...] = ()
    """Fields of the spec that stay as they were made, as paths: "spec.template"."""

    schema: Schema | None = None
    document: Json | None = None
    """The schema as its author wrote it, for `kubectl explain`."""
    prune: bool = False
    """Fields that the schema does not know are taken away. Built-in resources keep them: newer ones pass through."""
    prepare: Callable[[Json, Json | None, Site], None] = nothing
    """Fills in what the real server fills in; `old` is None on create. It may edit `new`, never `old`."""
    prepare_status: Callable[[Json, Json, Json], None] | None = None
    """The same for what is written over its /status: (new, old, sent). It may edit `new`, nothing else."""
    check_status: Callable[[Json, Json], Iterable[Problem]] | None = None
    """What is wrong with what is written over its /status: (new, old)."""
    unowned: Callable[[Json], Iterable[tuple[str, ...]]] | None = None
    """The fields that the server itself has put into the object: no manager of server-side apply owns them."""
    admit: Callable[[Json, Json | None, Site], None] = nothing
    """What depends on who writes and what else there is. Raises Refused 403, or adds to `new` what a cluster adds."""
    check: Check = no_problems
    rules: Check | None = None
    """The rules of a definition (CEL). A function that the server was given for the kind is asked instead."""
    fields: Callable[[Json], Mapping[str, str]] = no_fields
    """What field selectors may ask for, beside metadata.name and metadata.namespace."""
    field_names: tuple[str, ...] = ()
    grace: Callable[[Json, int | None], int] | None = None
    """Seconds a delete waits for somebody to finish the object's work. None: it goes at once."""
    returned: bool = False
    """A delete is answered with the object that was, not with a Status."""
    columns: Sequence[Column] = ()
    row_conditions: Callable[[Json], list[Json]] | None = None
    """What a table says of a row as a whole: a pod that has ended."""

    read: Callable[[Json], Json] | None = None
    """From the stored form to this version's, when they differ, and back."""
    write: Callable[[Json], Json] | None = None

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def full_name(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def place(self) -> str:
        """The name of its objects' store."""
        return self.store or self.full_name


class Registry:
    """The table. Built-in resources are put in at the start, custom ones as their definitions come and go."""

    def __init__(self, resources: Sequence[Resource]) -> None:
        self._table: dict[tuple[str, str, str], Resource] = {}
        for resource in resources:
            self.add(resource)

    def add(self, resource: Resource) -> None:
        self._table[resource.group, resource.version, resource.plural] = resource

    def remove(self, group: str, plural: str) -> None:
        for key in [key for key in self._table if key[0] == group and key[2] == plural]:
            del self._table[key]

    def built_in(self, group: str, plural: str) -> bool:
        """Whether that is ours whatever a definition says."""
        return any((key[0], key[2]) == (group, plural) and not one.custom for key, one in self._table.items())

    def serves(self, group: str) -> bool:
        """Whether there is anything of that group that no definition has brought."""
        return any(key[0] == group and not one.custom for key, one in self._table.items())

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._table.get((group, version, plural))

    def all(self) -> list[Resource]:
        """In the order in which they came."""
        return list(self._table.values())
