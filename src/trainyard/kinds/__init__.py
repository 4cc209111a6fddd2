"""The kinds of jobs: one `Kind` value per module, and functions that several kinds share.

Rules for this package:
- A kind is data and a few pure functions; logic common to all kinds is in `core`. The modules here do not depend on
  the controller runtime, the server or the node.
- Watches, CRDs, admission, the command line, docs and parametrised tests are all derived from ALL.
"""

from collections.abc import Iterable

from trainyard.core import Kind
from trainyard.kinds.chainerjob import CHAINERJOB
from trainyard.kinds.crds import admit, crd, crds, misspelling_problems, notes, per_api_group, rules_check, warnings
from trainyard.kinds.elasticjob import ELASTICJOB
from trainyard.kinds.kubeflow_v1.jaxjob import JAXJOB
from trainyard.kinds.kubeflow_v1.mpijob import MPIJOB
from trainyard.kinds.kubeflow_v1.paddlejob import PADDLEJOB
from trainyard.kinds.kubeflow_v1.pytorchjob import PYTORCHJOB
from trainyard.kinds.kubeflow_v1.tfjob import TFJOB as KUBEFLOW_TFJOB
from trainyard.kinds.kubeflow_v1.xgboostjob import XGBOOSTJOB
from trainyard.kinds.mxjob import MXJOB
from trainyard.kinds.pages import kind_page
from trainyard.kinds.tfjob import TFJOB
from trainyard.objects import Json

KINDS: tuple[Kind, ...] = (
    TFJOB,
    MXJOB,
    CHAINERJOB,
    ELASTICJOB,
    KUBEFLOW_TFJOB,
    PYTORCHJOB,
    XGBOOSTJOB,
    PADDLEJOB,
    JAXJOB,
    MPIJOB,
)
"""One value for each kind of job."""

ALL: tuple[Kind, ...] = per_api_group(KINDS)
"""One value for each kind and API group under which the kind is served."""


def all_versions() -> list[Kind]:
    """One value for each API version of the kinds in ALL."""
    return [version for kind in ALL for version in kind.versions]


def kinds_named(name: str, candidates: Iterable[Kind] = ALL) -> tuple[Kind, ...]:
    """The candidates with that name: TfJob, tfjob, tfjobs, a short name, or tfjobs.tensorflow.org. `tfjob` names two:
    TfJob of tensorflow.org and TFJob of kubeflow.org."""
    name, _, group = name.lower().partition(".")
    return tuple(
        kind
        for kind in candidates
        if name in (kind.gvk.kind.lower(), kind.api.singular, kind.gvk.plural, *kind.api.short_names)
        and (not group or group in (kind.gvk.group, *kind.api.groups))
    )


def kind_named(name: str) -> Kind | None:
    """The kind that an option names, None when there is none. `TFJob` is the kind of kubeflow.org; `tfjob` is that of
    tensorflow.org, the older one, so that `tfjob.kubeflow.org` names that of kubeflow.org in lower case."""
    exact = [kind for kind in KINDS if kind.gvk.kind == name]
    return next(iter((*exact, *kinds_named(name, KINDS))), None)


def unique_name(kind: Kind) -> str:
    """The singular name, with the group after it where an earlier kind has the same name: tfjob.kubeflow.org."""
    first = next(earlier for earlier in KINDS if earlier.api.singular == kind.api.singular)
    return kind.api.singular if first.gvk.kind == kind.gvk.kind else f"{kind.api.singular}.{kind.gvk.group}"


def shares_name(kind: Kind) -> bool:
    """Whether an earlier kind has the same name in another group. kubectl without a group would take one for the
    other."""
    return "." in unique_name(kind)


def kind_of(obj: Json) -> Kind | None:
    """The kind of an API object, in its API version; None when it is not a job of Trainyard."""
    api_version_and_kind = obj.get("apiVersion"), obj.get("kind")
    versions = (kind for kind in all_versions() if (kind.gvk.api_version, kind.gvk.kind) == api_version_and_kind)
    kind = next(versions, None)
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
    "rules_check",
    "shares_name",
    "unique_name",
    "warnings",
]
