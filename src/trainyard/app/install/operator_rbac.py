"""The RBAC permissions of the operator, from one table of the places in the code that send requests to the API server.

Rules for this file:
- A permission is one (API group, resource, verb). Each has a line of CALL_SITES with the code that uses it, the
  resources, and the reason. tests/manifests runs the life cycle of each kind with exactly these permissions and fails
  when one is missing and when one is not used.
- Kinds whose jobs access pods or have Secrets (JOB_GRANTS) are opt-in: their permissions are in a role of their own.
- No wildcards. A resource that the operator lists needs no `get`. Secrets are only created, for MPIJob and TrainJob. An
  object that shows another controller is read by its name alone (RESOURCE_NAMES).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from trainyard import kinds
from trainyard.core import Kind
from trainyard.objects import Json
from trainyard.objects.resources import JOB, POD

LEASES = ("coordination.k8s.io", "leases")

EXEC_GRANTS = (("", "pods", "get"), ("", "pods/exec", "get"), ("", "pods/exec", "create"))
JOB_GRANTS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "ChainerJob": EXEC_GRANTS,
    "MPIJob": EXEC_GRANTS,
    "TrainJob": (),
}
"""The permissions that a job's own Role grants to its launcher. RBAC allows a client to grant only permissions that it
has. A TrainJob has no such Role, but the operator creates the Secret with the keys of its MPI."""


class Permission(NamedTuple):
    """One RBAC permission."""

    group: str
    resource: str
    verb: str

    @property
    def name(self) -> str:
        """The resource as kubectl names it: tfjobs.tensorflow.org/status is written tfjobs/status.tensorflow.org."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


class CallSite(NamedTuple):
    """A place in the code that sends requests; `resources` returns the (API group, resource) pairs for a kind."""

    where: str
    verbs: tuple[str, ...]
    resources: Callable[[Kind], Iterable[tuple[str, str]]]
    why: str


def _job_resources(kind: Kind, subresource: str = "") -> list[tuple[str, str]]:
    return [(group, f"{kind.gvk.plural}{subresource}") for group in (kind.gvk.group, *kind.api.groups)]


def _jobs_with_stored_defaults(kind: Kind) -> list[tuple[str, str]]:
    """The jobs of kinds whose defaults (the RuntimeId) are stored in the spec."""
    return _job_resources(kind) if kind.api.has_runtime_id else []


def _template_resources(kind: Kind) -> list[tuple[str, str]]:
    """The resources of the objects that have the templates of the kind's jobs."""
    return [(item.gvk.group, item.gvk.plural) for item in kinds.template_kinds(kind)]


def _other_controller(kind: Kind) -> list[tuple[str, str]]:
    """The resource of the object by which another controller of the kind is recognised."""
    other = kind.api.other_controller
    return [(other.gvk.group, other.gvk.plural)] if other else []


RESOURCE_NAMES: dict[tuple[str, str], list[str]] = {
    (other.gvk.group, other.gvk.plural): [other.object_name]
    for kind in kinds.KINDS
    if (other := kind.api.other_controller)
}
"""The names of the objects of a resource to which a permission is limited."""


def _jobs_with_ttl(kind: Kind) -> list[tuple[str, str]]:
    """The jobs that the operator deletes. Where templates are in another object, a TTL is in it, too, and ends the pods
    alone."""
    return [] if kind.template_source else _job_resources(kind)


def _child_resources(kind: Kind) -> list[tuple[str, str]]:
    return [(gvk.group, gvk.plural) for version in kind.versions for gvk in version.roles.child_resources]


def _created_children(kind: Kind) -> list[tuple[str, str]]:
    """The children that the operator creates and reads. Pods of batch Jobs and StatefulSets are created by Kubernetes:
    the operator only watches them, and adopts none."""
    return [
        (gvk.group, gvk.plural)
        for version in kind.versions
        for gvk in version.roles.child_resources
        if gvk != POD or JOB not in version.roles.child_resources or gvk in version.roles.adopted_resources
    ]


def _created_only(kind: Kind) -> list[tuple[str, str]]:
    return [(gvk.group, gvk.plural) for version in kind.versions for gvk in version.roles.created_resources]


def _patched_children(kind: Kind) -> list[tuple[str, str]]:
    return [
        (gvk.group, gvk.plural)
        for version in kind.versions
        for gvk in (*version.roles.patched_resources, *version.roles.adopted_resources)
    ]


CALL_SITES: tuple[CallSite, ...] = (
    CallSite("controller_runtime/reflector.py", ("list", "watch"), _job_resources, "watch of jobs"),
    CallSite(
        "operator/plan_executor.py, spec",
        ("patch",),
        _jobs_with_stored_defaults,
        "stores the RuntimeId and other defaults, once",
    ),
    CallSite(
        "operator/plan_executor.py, status",
        ("patch",),
        lambda kind: _job_resources(kind, "/status"),
        "the status of jobs",
    ),
    CallSite("operator/plan_executor.py, deletes", ("delete",), _jobs_with_ttl, "ttlSecondsAfterFinished"),
    CallSite("operator/operator.py", ("get",), _template_resources, "the runtime of a TrainJob, once"),
    CallSite(
        "app/other_controllers.py",
        ("get",),
        _other_controller,
        "looks for Kubeflow Trainer: only the object of that name",
    ),
    CallSite(
        "objects/meta.py, owner references",
        ("update",),
        lambda kind: _job_resources(kind, "/finalizers"),
        "no request: OwnerReferencesPermissionEnforcement requires it, see above",
    ),
    CallSite(
        "controller_runtime/reflector.py",
        ("list", "watch"),
        _child_resources,
        "watch of children and their pods",
    ),
    CallSite("operator/plan_executor.py, creates", ("create",), _created_children, "creation of children"),
    CallSite("operator/plan_executor.py, creates", ("create",), _created_only, "the ssh key of an MPIJob, never read"),
    CallSite(
        "operator/plan_executor.py, deletes",
        ("delete",),
        _created_children,
        "suspend, a new attempt, scaling down, cleanPodPolicy",
    ),
    CallSite(
        "operator/plan_executor.py, patches",
        ("patch",),
        _patched_children,
        "updates of children after an edit of the job, labels on those of an earlier operator",
    ),
    CallSite("controller_runtime/event_recorder.py", ("create", "patch"), lambda kind: [("", "events")], "events"),
)
"""Every place in the code that sends requests for jobs and their children."""

LEASE_CALLS: tuple[tuple[str, str], ...] = (
    ("list", "finds the leader, and operators that serve some of the same jobs"),
    ("create", "the first operator creates the Lease"),
    ("patch", "acquires, renews and releases the Lease; clears an expired one that overlaps"),
)
"""(verb, reason) of leader election, for the Leases of all operators of a cluster, which are in one namespace."""


def permissions_of(kind: Kind) -> frozenset[Permission]:
    """The permissions that the operator needs for one kind, in all its API groups."""
    used = {
        Permission(*resource, verb) for site in CALL_SITES for resource in site.resources(kind) for verb in site.verbs
    }
    return frozenset(used | {Permission(*grant) for grant in JOB_GRANTS.get(kind.gvk.kind, ())})


def is_opt_in(kind: Kind) -> bool:
    """Whether the kind needs sensitive permissions, so that its permissions are in a role of their own."""
    return kind.gvk.kind in JOB_GRANTS


def default_permissions(served: Iterable[Kind]) -> frozenset[Permission]:
    """The permissions for those of the served kinds that are not opt-in. Writing events is always among them."""
    needed = [permissions_of(kind) for kind in served if not is_opt_in(kind)]
    return frozenset(Permission("", "events", verb) for verb in ("create", "patch")).union(*needed)


def opt_in_permissions(served: Iterable[Kind]) -> frozenset[Permission]:
    """The permissions that the opt-in kinds need in addition."""
    served = tuple(served)
    return frozenset().union(*(permissions_of(kind) for kind in served if is_opt_in(kind))) - default_permissions(
        served
    )


_VERBS = ("get", "list", "watch", "create", "patch", "update", "delete", "deletecollection")


def rules(permissions: Iterable[Permission]) -> list[Json]:
    """PolicyRules that grant exactly these permissions: one for each API group, set of verbs, and RESOURCE_NAMES."""
    verbs: dict[tuple[str, str], set[str]] = {}
    for permission in permissions:
        verbs.setdefault((permission.group, permission.resource), set()).add(permission.verb)
    resources_of: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (group, resource), names in sorted(verbs.items()):
        only = tuple(RESOURCE_NAMES.get((group, resource), ()))
        resources_of.setdefault((group, tuple(sorted(names, key=_VERBS.index)), only), []).append(resource)
    return [
        {"apiGroups": [group], "resources": resources, "verbs": list(names)}
        | ({"resourceNames": [*only]} if only else {})
        for (group, names, only), resources in resources_of.items()
    ]


def user_permissions(chosen: Iterable[Kind], verbs: tuple[str, ...]) -> frozenset[Permission]:
    """The rights of a user on jobs of these kinds: `verbs` on the jobs and on the objects of namespaces that have their
    templates, the same without lists and deletes on their scale, and `get` on their status, which only the operator
    writes. Templates of the whole cluster are the administrator's: users read them."""
    granted: set[Permission] = set()
    for kind in chosen:
        granted |= {Permission(*resource, verb) for resource in _job_resources(kind) for verb in verbs}
        granted |= {Permission(*resource, "get") for resource in _job_resources(kind, "/status")}
        for item in kinds.template_kinds(kind):
            item_verbs = verbs if item.namespaced else USER_VERBS["view"]
            granted |= {Permission(item.gvk.group, item.gvk.plural, verb) for verb in item_verbs}
        if kind.api.scale:
            scale_verbs = {"get", "patch", "update"} & set(verbs)
            granted |= {
                Permission(*resource, verb) for resource in _job_resources(kind, "/scale") for verb in scale_verbs
            }
    return frozenset(granted)


def lease_rules() -> list[Json]:
    """For all Leases of a namespace, since the name of a Lease depends on the kinds and the namespace of its
    operator."""
    return rules(Permission(*LEASES, verb) for verb, _ in LEASE_CALLS)


def resource_verb_pairs(served: Iterable[Kind]) -> frozenset[tuple[str, str]]:
    """(resource, verb) of all permissions of the operator for these kinds and the lease; without finalizers, which no
    request uses."""
    served = tuple(served)
    granted = (
        default_permissions(served)
        | opt_in_permissions(served)
        | {Permission(*LEASES, verb) for verb, _ in LEASE_CALLS}
    )
    return frozenset(
        (permission.name, permission.verb) for permission in granted if not permission.resource.endswith("/finalizers")
    )


USER_VERBS: dict[str, tuple[str, ...]] = {"edit": _VERBS, "view": ("get", "list", "watch")}
"""What users may do with jobs, by the ClusterRole of Kubernetes that gets these rights. `admin` has those of `edit`."""

DEFAULT: tuple[Kind, ...] = tuple(kind for kind in kinds.KINDS if kind.api.installed_by_default and not is_opt_in(kind))
"""The kinds that an installation serves when none are named."""
