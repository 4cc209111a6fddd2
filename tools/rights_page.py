"""docs/rbac.md: the table of call sites, and the names of the definitions, as a page."""

from __future__ import annotations

from trainyard import kinds
from trainyard.app import rights
from trainyard.app.rights import CallSite, Right
from trainyard.core import Kind

TEXT = """\
# What the operator may do

Written by `make manifests` from the table of call sites in `src/trainyard/app/rights.py`. A test runs the life of a job
of each kind under exactly these rights, and fails when one is missing and when one is not used.

TfJob, MxJob and ElasticJob need {count} pairs of resource and verb, each API group counted. None is about secrets,
exec, roles or service accounts, none has a wildcard. What the operator may list, it never needs to get.

Not counted: `update` of `*/finalizers`, which no request of the operator uses. Clusters with the admission plugin
OwnerReferencesPermissionEnforcement (OpenShift) ask for it when a child's owner reference says `blockOwnerDeletion`, as
those of the operator do.

{plain}

In the namespace `default`, for leader election, on Leases: all operators of a cluster have theirs there, under names
that follow from what they serve (see [operator.md](operator.md#the-lease)):

| verb | for |
|---|---|
{lease}

## ChainerJob

Opt-in, in a role of its own (`...-chainerjob`): `trainyard manifests --kinds all`, `deploy/`, or the chart's
`chainerjob=true`. MPI starts its ranks through the API's exec, so the launcher of each job gets a Role for the pods of
that job alone, and RBAC lets the operator grant only what it holds itself. Where that is too much, install with
`--namespaced`: then it holds in one namespace only.

{opted}

## One namespace

`trainyard manifests --namespace N --namespaced` has Roles and RoleBindings in N and no ClusterRole. The definitions
(CRDs) belong to the cluster all the same, and are installed by somebody who may.

## Names

Short names and categories of the definitions. None is a name of Kubernetes' own; a test asks a real API server.

| resource | kind | short names | categories | columns (`-o wide`) |
|---|---|---|---|---|
{names}

`mxjobs` is one kind in two groups: `kubectl get mxjobs` means `mlkube.io`, write `mxjobs.mxnet.mlkube.io` for the
other. The category `all` is that of the ChainerJob README (`kubectl get all -l ...`).
"""


def page() -> str:
    return TEXT.format(
        count=len(rights.resource_verb_pairs(rights.DEFAULT)),
        plain=_table(rights.plain_rights(kinds.KINDS)),
        lease="\n".join(f"| {verb} | {why} |" for verb, why in rights.LEASE_SITES),
        opted=_table(rights.opt_in_rights(kinds.KINDS)),
        names="\n".join(_names(kind) for kind in kinds.ALL),
    )


def _names(kind: Kind) -> str:
    gvk = kind.gvk
    wide = ", ".join(f"({one['name']})" if one.get("priority") else one["name"] for one in kind.api.columns)
    cells = (f"{gvk.plural}.{gvk.group}", gvk.kind, _words(kind.api.short_names), _words(kind.api.categories), wide)
    return f"| {' | '.join(cells)} |"


def _words(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words) or "none"


def _table(held: frozenset[Right]) -> str:
    """One line for each pair, with who asks and why."""
    lines = ["| resource | verb | asked by | for |", "|---|---|---|---|"]
    for right in sorted(held):
        sites = [site for site in rights.SITES if any(_asks(site, kind, right) for kind in kinds.KINDS)]
        where = "; ".join(dict.fromkeys(f"`{site.where}`" for site in sites)) or "the Role of each job"
        why = "; ".join(dict.fromkeys(site.why for site in sites)) or "granted to the launcher of that job"
        lines.append(f"| {right.name} | {right.verb} | {where} | {why} |")
    return "\n".join(lines)


def _asks(site: CallSite, kind: Kind, right: Right) -> bool:
    return right.verb in site.verbs and (right.group, right.resource) in site.resources(kind)
