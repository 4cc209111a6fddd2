"""The kinds of jobs: one `Kind` value per module, and functions that several kinds share.

Rules for this package:
- A kind is data and a few pure functions; logic common to all kinds is in `core`. The modules here do not depend on
  the controller runtime, the server or the node.
- Watches, CRDs, admission, the command line, docs and parametrised tests are all derived from ALL.
"""

from trainyard.core import Kind
from trainyard.kinds.chainerjob import CHAINERJOB
from trainyard.kinds.crds import admit, crd, misspelling_problems, notes, per_api_group, rules_check, warnings
from trainyard.kinds.elasticjob import ELASTICJOB
from trainyard.kinds.mxjob import MXJOB
from trainyard.kinds.pages import kind_page
from trainyard.kinds.tfjob import TFJOB
from trainyard.objects import Json

KINDS: tuple[Kind, ...] = (TFJOB, MXJOB, CHAINERJOB, ELASTICJOB)
"""One value for each kind of job."""

ALL: tuple[Kind, ...] = per_api_group(KINDS)
"""One value for each kind and API group under which the kind is served."""


def kind_of(obj: Json) -> Kind | None:
    """The kind of an API object, None when it is not a job of Trainyard."""
    api_version_and_kind = obj.get("apiVersion"), obj.get("kind")
    return next((kind for kind in ALL if (kind.gvk.api_version, kind.gvk.kind) == api_version_and_kind), None)


__all__ = [
    "ALL",
    "CHAINERJOB",
    "ELASTICJOB",
    "KINDS",
    "MXJOB",
    "TFJOB",
    "admit",
    "crd",
    "kind_of",
    "kind_page",
    "misspelling_problems",
    "notes",
    "per_api_group",
    "rules_check",
    "warnings",
]
