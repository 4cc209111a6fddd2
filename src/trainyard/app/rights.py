"""What the operator may do: RBAC, from one table of the places in the code that ask the API server for something.

Rules for this file:
- A right is one (API group, resource, verb). It is here because a line of SITES says which code asks it, of which
  resources, and why. tests/manifests runs a life of each kind under exactly these rights and fails when one is missing
  and when one is not used.
- Kinds that let their jobs into pods (GRANTED) are opt-in: their rights stand in a role of their own.
- No secrets, no wildcards. What the operator may list it never needs to get.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from trainyard import kinds
from trainyard.core import Kind
from trainyard.objects import GVK, Json
from trainyard.objects.resources import CONFIG_MAP, JOB, POD, ROLE, SERVICE, STATEFUL_SET

LEASES = ("coordination.k8s.io", "leases")

PATCHED: dict[str, tuple[GVK, ...]] = {
    "MxJob": (SERVICE,),
    "ChainerJob": (STATEFUL_SET, CONFIG_MAP, ROLE),
}
"""Children that are brought to an edited spec by a patch; all others are deleted and made again."""

GRANTED: dict[str, tuple[tuple[str, str, str], ...]] = {
    "ChainerJob": (("", "pods", "get"), ("", "pods/exec", "get"), ("", "pods/exec", "create")),
}
"""What a job's own Role grants to its launcher. RBAC lets nobody grant what he does not hold himself."""


class Right(NamedTuple):
    """One thing that may be done."""

    group: str
    resource: str
    verb: str

    @property
    def name(self) -> str:
        """The resource as kubectl names it: tfjobs.tensorflow.org/status is written tfjobs/status.tensorflow.org."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


class Site(NamedTuple):
    """A place in the code that asks, and of which resources of a kind."""

    where: str
    verbs: tuple[str, ...]
    of: Callable[[Kind], Iterable[tuple[str, str]]]
    why: str


def _job(kind: Kind, subresource: str = "") -> list[tuple[str, str]]:
    return [(group, f"{kind.gvk.plural}{subresource}") for group in (kind.gvk.group, *kind.groups)]


def _stored(kind: Kind) -> list[tuple[str, str]]:
    """Kinds that keep something in the spec."""
    return _job(kind) if kind.has_runtime_id else []


def _children(kind: Kind) -> list[tuple[str, str]]:
    return [(gvk.group, gvk.plural) for gvk in kind.child_resources]


def _made(kind: Kind) -> list[tuple[str, str]]:
    """Children that we make. Pods of batch Jobs and StatefulSets are made by Kubernetes: we only look at them."""
    ours = [gvk for gvk in kind.child_resources if gvk != POD or JOB not in kind.child_resources]
    return [(gvk.group, gvk.plural) for gvk in ours]


def _patched(kind: Kind) -> list[tuple[str, str]]:
    return [(gvk.group, gvk.plural) for gvk in PATCHED.get(kind.gvk.kind, ())]


SITES: tuple[Site, ...] = (
    Site("controller_runtime/reflector.py", ("list", "watch"), _job, "jobs are seen"),
    Site("operator/plan_executor.py, spec", ("patch",), _stored, "the RuntimeId and other defaults are stored, once"),
    Site("operator/plan_executor.py, status", ("patch",), lambda kind: _job(kind, "/status"), "the status is said"),
    Site("operator/plan_executor.py, deletes", ("delete",), _job, "ttlSecondsAfterFinished"),
    Site(
        "objects/meta.py, owner references",
        ("update",),
        lambda kind: _job(kind, "/finalizers"),
        "no request of ours: OwnerReferencesPermissionEnforcement asks for it, see above",
    ),
    Site(
        "controller_runtime/reflector.py", ("list", "watch"), _children, "children, and the pods of children, are seen"
    ),
    Site("operator/plan_executor.py, creates", ("create",), _made, "children are made"),
    Site(
        "operator/plan_executor.py, deletes", ("delete",), _made, "suspend, a new attempt, scaling down, cleanPodPolicy"
    ),
    Site("operator/plan_executor.py, patches", ("patch",), _patched, "children follow an edit of the job"),
    Site("controller_runtime/event_recorder.py", ("create",), lambda kind: [("", "events")], "people are told"),
)
"""Every place that asks for objects of jobs."""

LEASE_SITES: tuple[tuple[str, str], ...] = (
    ("list", "who leads is looked up, and who serves some of the same jobs"),
    ("create", "the first operator makes the lease"),
    ("patch", "it is taken, renewed and released; one that overlaps and has expired is cleared"),
)
"""What leader election asks, of the Leases in the one namespace where all operators of a cluster have theirs."""


def rights(kind: Kind) -> frozenset[Right]:
    """What the operator needs for one kind, under all its API groups."""
    asked = {Right(*resource, verb) for site in SITES for resource in site.of(kind) for verb in site.verbs}
    return frozenset(asked | {Right(*one) for one in GRANTED.get(kind.gvk.kind, ())})


def opt_in(kind: Kind) -> bool:
    return kind.gvk.kind in GRANTED


def plain_rights(chosen: Iterable[Kind]) -> frozenset[Right]:
    """For those of the chosen kinds that need nothing sensitive. The right to say events is in any case here."""
    found = [rights(kind) for kind in chosen if not opt_in(kind)]
    return frozenset({Right("", "events", "create")}).union(*found)


def opted_rights(chosen: Iterable[Kind]) -> frozenset[Right]:
    """What the others need beside that."""
    chosen = tuple(chosen)
    return frozenset().union(*(rights(kind) for kind in chosen if opt_in(kind))) - plain_rights(chosen)


_VERBS = ("get", "list", "watch", "create", "patch", "update", "delete")


def rules(wanted: Iterable[Right]) -> list[Json]:
    """PolicyRules that say exactly this: one for each API group and set of verbs."""
    verbs: dict[tuple[str, str], set[str]] = {}
    for right in wanted:
        verbs.setdefault((right.group, right.resource), set()).add(right.verb)
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (group, resource), names in sorted(verbs.items()):
        found.setdefault((group, tuple(sorted(names, key=_VERBS.index))), []).append(resource)
    return [
        {"apiGroups": [group], "resources": resources, "verbs": list(names)}
        for (group, names), resources in found.items()
    ]


def lease_rules() -> list[Json]:
    """For all leases of a namespace: their names follow from what each operator serves."""
    return rules(Right(*LEASES, verb) for verb, _ in LEASE_SITES)


def pairs(chosen: Iterable[Kind]) -> frozenset[tuple[str, str]]:
    """(resource, verb) of all that the operator holds for these kinds, the lease too; finalizers are counted apart."""
    chosen = tuple(chosen)
    held = plain_rights(chosen) | opted_rights(chosen) | {Right(*LEASES, verb) for verb, _ in LEASE_SITES}
    return frozenset((one.name, one.verb) for one in held if not one.resource.endswith("/finalizers"))


DEFAULT: tuple[Kind, ...] = tuple(kind for kind in kinds.EACH if not opt_in(kind))
"""The kinds that need nothing sensitive."""
