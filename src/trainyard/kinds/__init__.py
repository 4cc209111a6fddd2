"""The kinds of jobs: one `Kind` value per module, and functions that several kinds share.

Rules for this package:
- A kind is data and a few pure functions; logic common to all kinds is in `core`. The modules here do not depend on
  the controller runtime, the server or the node.
- Watches, CRDs, admission, the command line, docs and parametrised tests are all derived from MODULES.
- A kind's module is imported when the kind is used: a command that reads one manifest needs one kind, and all of them
  take a tenth of the time of `trainyard lint`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainyard.kinds.definitions.crds import (
    admit,
    crd,
    crds,
    misspelling_problems,
    notes,
    per_api_group,
    reviewers,
    rules_check,
    shipped_objects,
    template_checks,
    template_kinds,
    warnings,
)
from trainyard.kinds.definitions.pages import kind_page

if TYPE_CHECKING:
    from trainyard.core import Kind
    from trainyard.objects import Json

MODULES = {
    "TFJOB": "tfjob.kind",
    "MXJOB": "mxjob.kind",
    "CHAINERJOB": "chainerjob.kind",
    "ELASTICJOB": "elasticjob.kind",
    "KUBEFLOW_TFJOB": "kubeflow_v1.tfjob",
    "PYTORCHJOB": "kubeflow_v1.pytorchjob",
    "XGBOOSTJOB": "kubeflow_v1.xgboostjob",
    "PADDLEJOB": "kubeflow_v1.paddlejob",
    "JAXJOB": "kubeflow_v1.jaxjob",
    "MPIJOB": "kubeflow_v1.mpijob",
    "TRAINJOB": "trainjob.kind",
}
"""The kinds of jobs: the name of the `Kind` value in this package -> its module. The module is named as the kind in
lower case, or stands in a package of that name; the value in it is named as the kind in upper case."""

KINDS: tuple[Kind, ...]
"""One value for each kind of job."""
ALL: tuple[Kind, ...]
"""One value for each kind and API group under which the kind is served."""
TFJOB: Kind
MXJOB: Kind
CHAINERJOB: Kind
ELASTICJOB: Kind
KUBEFLOW_TFJOB: Kind
PYTORCHJOB: Kind
XGBOOSTJOB: Kind
PADDLEJOB: Kind
JAXJOB: Kind
MPIJOB: Kind
TRAINJOB: Kind


def __getattr__(name: str) -> Any:
    """A kind, KINDS or ALL, when it is first used (PEP 562)."""
    if name in MODULES:
        return _kind(MODULES[name])
    if name in ("KINDS", "ALL"):
        return _kinds() if name == "KINDS" else _all()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _kind(module: str) -> Kind:
    kind: Kind = getattr(import_module(f"{__name__}.{module}"), _kind_name(module).upper())
    return kind


@cache
def _served(module: str) -> tuple[Kind, ...]:
    """The kind of the module, once for each API group."""
    return per_api_group((_kind(module),))


def _kinds() -> tuple[Kind, ...]:
    return tuple(map(_kind, MODULES.values()))


def _all() -> tuple[Kind, ...]:
    return tuple(kind for module in MODULES.values() for kind in _served(module))


def _kind_name(module: str) -> str:
    """The name of the kind, in lower case."""
    return module.removesuffix(".kind").rpartition(".")[2]


def all_versions() -> list[Kind]:
    """One value for each API version of the kinds in ALL."""
    return [version for kind in _all() for version in kind.versions]


def kinds_named(name: str, candidates: Iterable[Kind] | None = None) -> tuple[Kind, ...]:
    """The candidates (None: all kinds) with that name: TfJob, tfjob, tfjobs, a short name, or tfjobs.tensorflow.org.
    `tfjob` names two: TfJob of tensorflow.org and TFJob of kubeflow.org."""
    name, _, group = name.lower().partition(".")
    return tuple(
        kind
        for kind in (_all() if candidates is None else candidates)
        if name in (kind.gvk.kind.lower(), kind.api.singular, kind.gvk.plural, *kind.api.short_names)
        and (not group or group in (kind.gvk.group, *kind.api.groups))
    )


def kind_named(name: str) -> Kind | None:
    """The kind that an option names, None when there is none. `TFJob` is the kind of kubeflow.org; `tfjob` is that of
    tensorflow.org, the older one, so that `tfjob.kubeflow.org` names that of kubeflow.org in lower case."""
    exact = [kind for kind in _kinds() if kind.gvk.kind == name]
    return next(iter((*exact, *kinds_named(name, _kinds()))), None)


def unique_name(kind: Kind) -> str:
    """The singular name, with the group after it where an earlier kind has the same name: tfjob.kubeflow.org."""
    first = next(earlier for earlier in _kinds() if earlier.api.singular == kind.api.singular)
    return kind.api.singular if first.gvk.kind == kind.gvk.kind else f"{kind.api.singular}.{kind.gvk.group}"


def shares_name(kind: Kind) -> bool:
    """Whether an earlier kind has the same name in another group. kubectl without a group would take one for the
    other."""
    return "." in unique_name(kind)


def kind_of(obj: Json) -> Kind | None:
    """The kind of an API object, in its API version; None when it is not a job of Trainyard."""
    api_version_and_kind = obj.get("apiVersion"), obj.get("kind")
    name = str(obj.get("kind")).lower()
    candidates = (kind for module in MODULES.values() if _kind_name(module) == name for kind in _served(module))
    versions = (version for kind in candidates for version in kind.versions)
    matching = (kind for kind in versions if (kind.gvk.api_version, kind.gvk.kind) == api_version_and_kind)
    kind = next(matching, None)
    return kind.version_of(obj) if kind else None


__all__ = [
    "ALL",
    "CHAINERJOB",
    "ELASTICJOB",
    "JAXJOB",
    "KINDS",
    "KUBEFLOW_TFJOB",
    "MPIJOB",
    "MXJOB",
    "PADDLEJOB",
    "PYTORCHJOB",
    "TFJOB",
    "TRAINJOB",
    "XGBOOSTJOB",
    "admit",
    "all_versions",
    "crd",
    "crds",
    "kind_named",
    "kind_of",
    "kind_page",
    "kinds_named",
    "misspelling_problems",
    "notes",
    "per_api_group",
    "reviewers",
    "rules_check",
    "shares_name",
    "shipped_objects",
    "template_checks",
    "template_kinds",
    "unique_name",
    "warnings",
]
