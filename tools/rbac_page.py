"""docs/rbac.md: the table of call sites, and the names of the definitions, as a page."""

from __future__ import annotations

from trainyard import kinds
from trainyard.app.install import operator_rbac
from trainyard.app.install.operator_rbac import CallSite, Permission
from trainyard.core import Kind

TEXT = """\
# What the operator may do

Written by `make manifests` from the table of call sites in `src/trainyard/app/install/operator_rbac.py`. A test runs a
job of each kind with exactly these permissions, and fails if one is missing or unused.

TfJob, MxJob and ElasticJob need {count} pairs of resource and verb, counted for each API group, without secrets,
exec, roles, service accounts and wildcards. The operator lists and watches, and never needs `get`.

Not counted is `update` of `*/finalizers`, which no request of the operator uses. Clusters with the admission plugin
OwnerReferencesPermissionEnforcement (OpenShift) require it, because the owner references of children have
`blockOwnerDeletion`.

{plain}

For leader election the operator needs permissions on Leases in the namespace `default`, where all operators of a
cluster have their Leases, with names that list the kinds and the namespace they serve (see
[operator.md](operator.md#the-lease)):

| verb | for |
|---|---|
{lease}

## Jobs with Roles

The permissions for kinds whose jobs have Roles and ServiceAccounts of their own (ChainerJob, MPIJob of `v1`) are a
separate role (`...-jobs-with-roles`) of `trainyard manifests --kinds all`, of `deploy/`, and of the chart with
`chainerjob=true` or with such a kind in `kinds`. MPI starts its ranks through the API's exec. So the launcher of each
job gets a Role for the pods of that job, and RBAC allows the operator to grant only permissions that it has itself.
With `--namespaced` it has them in one namespace only.

{opted}

## Users

The ClusterRoles `trainyard-edit` and `trainyard-view` grant rights on jobs of all kinds to users. They are aggregated:
Kubernetes adds their rules to its ClusterRoles `admin`, `edit` and `view`, and the Kubeflow platform to its
`kubeflow-admin`, `kubeflow-edit` and `kubeflow-view`. So whoever is bound to one of these in a namespace has there:

| resource | `admin`, `edit` | `view` |
|---|---|---|
| jobs of each kind | {edit} | {view} |
| `*/status` | get | get |
| `*/scale` of {scaled} | get, patch, update | get |

They are in `deploy/definitions/user-roles.yaml`, `config/definitions`, `trainyard manifests --part definitions`, and,
with the name of the release's operator, in the chart (`rbac.userRoles`). An uninstall of the operator keeps them
beside the CRDs, except that of the chart.

## One namespace

`trainyard manifests --namespace N --namespaced` has Roles and RoleBindings in N and no ClusterRole. The CRDs are
cluster-scoped all the same, and an administrator of the cluster must install them. Such an operator cannot read
ClusterTrainingRuntimes: TrainJobs there refer to a TrainingRuntime.

## Names

Short names and categories of the CRDs. None is a name of a built-in resource; a test compares with a real API server.

| resource | kind | short names | categories | columns (`-o wide`) |
|---|---|---|---|---|
{names}

`mxjobs` is one kind in two groups: `kubectl get mxjobs` means `mlkube.io`, write `mxjobs.mxnet.mlkube.io` for the
other. The category `all` is that of the ChainerJob README (`kubectl get all -l ...`).
"""


def page() -> str:
    return TEXT.format(
        count=len(operator_rbac.resource_verb_pairs(operator_rbac.DEFAULT)),
        plain=_table(operator_rbac.default_permissions(kinds.KINDS)),
        lease="\n".join(f"| {verb} | {why} |" for verb, why in operator_rbac.LEASE_CALLS),
        opted=_table(operator_rbac.opt_in_permissions(kinds.KINDS)),
        edit=", ".join(operator_rbac.USER_VERBS["edit"]),
        view=", ".join(operator_rbac.USER_VERBS["view"]),
        scaled=_words(tuple(dict.fromkeys(kind.gvk.plural for kind in kinds.ALL if kind.api.scale))),
        names="\n".join(_names(kind) for kind in kinds.ALL),
    )


def _names(kind: Kind) -> str:
    gvk = kind.gvk
    wide = ", ".join(f"({column['name']})" if column.get("priority") else column["name"] for column in kind.api.columns)
    cells = (f"{gvk.plural}.{gvk.group}", gvk.kind, _words(kind.api.short_names), _words(kind.api.categories), wide)
    return f"| {' | '.join(cells)} |"


def _words(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words) or "none"


def _table(held: frozenset[Permission]) -> str:
    """One line for each pair, with its call sites and reasons."""
    lines = ["| resource | verb | used in | for |", "|---|---|---|---|"]
    for permission in sorted(held):
        call_sites = operator_rbac.CALL_SITES
        sites = [site for site in call_sites if any(_needs(site, kind, permission) for kind in kinds.KINDS)]
        where = "; ".join(dict.fromkeys(f"`{site.where}`" for site in sites)) or "the Role of each job"
        why = "; ".join(dict.fromkeys(site.why for site in sites)) or "granted to the launcher of that job"
        lines.append(f"| {permission.name} | {permission.verb} | {where} | {why} |")
    return "\n".join(lines)


def _needs(site: CallSite, kind: Kind, permission: Permission) -> bool:
    return permission.verb in site.verbs and (permission.group, permission.resource) in site.resources(kind)
