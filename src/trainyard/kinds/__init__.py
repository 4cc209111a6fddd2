"""The kinds of jobs: one `Kind` value per module, and functions that several kinds share.

Rules for this package:
- A kind is data and a few pure functions; logic common to all kinds is in `core`. The modules here do not depend on
  the controller runtime, the server or the node.
- Watches, CRDs, admission, the command line, docs and parametrised tests are all derived from REGISTRY.
- A kind's module is imported when the kind is used: a command that reads one manifest needs one kind, one that lists
  jobs needs the kinds of the jobs that there are. All of them take a fifth of the time of `trainyard get`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainyard.kinds.registry import REGISTRY, KindNames
from trainyard.objects.structs import replace

if TYPE_CHECKING:
    from trainyard.core import Kind
    from trainyard.kinds.definitions.crds import (
        admit,
        crd,
        crds,
        misspelling_problems,
        notes,
        reviewers,
        rules_check,
        shipped_objects,
        template_checks,
        template_kinds,
        warnings,
    )
    from trainyard.kinds.definitions.pages import kind_page
    from trainyard.objects import Json

_FUNCTIONS = {
    "admit": "crds",
    "crd": "crds",
    "crds": "crds",
    "misspelling_problems": "crds",
    "notes": "crds",
    "reviewers": "crds",
    "rules_check": "crds",
    "shipped_objects": "crds",
    "template_checks": "crds",
    "template_kinds": "crds",
    "warnings": "crds",
    "kind_page": "pages",
}
"""Functions of this package -> their module in `definitions`, imported with the first of them: what lists jobs needs
none."""

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
    """A kind, KINDS, ALL or a function of `definitions`, when it is first used (PEP 562)."""
    if name in REGISTRY:
        return _kind(REGISTRY[name].module)
    if name in ("KINDS", "ALL"):
        return _kinds() if name == "KINDS" else _all()
    if name in _FUNCTIONS:
        return getattr(import_module(f"{__name__}.definitions.{_FUNCTIONS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _kind(module: str) -> Kind:
    kind: Kind = getattr(import_module(f"{__name__}.{module}"), _kind_name(module).upper())
    return kind


@cache
def _served(module: str) -> tuple[Kind, ...]:
    """The kind of the module, once for each API group."""
    return per_api_group((_kind(module),))


def per_api_group(kinds: Iterable[Kind]) -> tuple[Kind, ...]:
    """Each kind once for each API group under which it is served."""
    return tuple(
        replace(kind, api=replace(kind.api, gvk=replace(kind.gvk, group=group), groups=()))
        for kind in kinds
        for group in (kind.gvk.group, *kind.api.groups)
    )


def _kinds() -> tuple[Kind, ...]:
    return tuple(_kind(names.module) for names in REGISTRY.values())


def _all() -> tuple[Kind, ...]:
    return tuple(kind for names in REGISTRY.values() for kind in _served(names.module))


def _kind_name(module: str) -> str:
    """The name of the kind, in lower case."""
    return module.removesuffix(".kind").rpartition(".")[2]


def all_names() -> tuple[KindNames, ...]:
    """The names of the kinds in ALL, in the same order. No kind is imported."""
    return tuple(
        replace(names, gvk=replace(names.gvk, group=group), groups=())
        for names in REGISTRY.values()
        for group in (names.gvk.group, *names.groups)
    )


def all_versions() -> list[Kind]:
    """One value for each API version of the kinds in ALL."""
    return [version for kind in _all() for version in kind.versions]


def matching_names(name: str) -> tuple[KindNames, ...]:
    """The kinds with that name: TfJob, tfjob, tfjobs, a short name, or tfjobs.tensorflow.org. `tfjob` names two: TfJob
    of tensorflow.org and TFJob of kubeflow.org."""
    name, _, group = name.lower().partition(".")
    return tuple(
        names
        for names in all_names()
        if name in (names.singular, names.gvk.plural, *names.short_names) and group in ("", names.gvk.group)
    )


def kinds_named(name: str) -> tuple[Kind, ...]:
    """The kinds that `matching_names` names."""
    return tuple(
        kind for names in matching_names(name) for kind in _served(names.module) if kind.gvk.group == names.gvk.group
    )


def kind_named(name: str) -> Kind | None:
    """The kind that an option names, None when there is none. `TFJob` is the kind of kubeflow.org; `tfjob` is that of
    tensorflow.org, the older one, so that `tfjob.kubeflow.org` names that of kubeflow.org in lower case."""
    exact = [names for names in REGISTRY.values() if names.gvk.kind == name]
    return next((_kind(names.module) for names in (*exact, *matching_names(name))), None)


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
    modules = (names.module for names in REGISTRY.values() if names.gvk.kind == obj.get("kind"))
    candidates = (kind for module in modules for kind in _served(module))
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
    "REGISTRY",
    "TFJOB",
    "TRAINJOB",
    "XGBOOSTJOB",
    "KindNames",
    "admit",
    "all_names",
    "all_versions",
    "crd",
    "crds",
    "kind_named",
    "kind_of",
    "kind_page",
    "kinds_named",
    "matching_names",
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
