"""The kinds of jobs: one `Kind` value per module, and functions that several kinds share.

Rules for this package:
- A kind is data and a few pure functions; logic common to all kinds is in `core`. The modules here do not depend on
  the controller runtime, the server or the node.
- Watches, CRDs, admission, the command line, docs and parametrised tests are all derived from ALL.
"""

from trainyard.core import Kind
from trainyard.kinds.chainerjob import CHAINERJOB
from trainyard.kinds.crds import admit, check, crd, misspelt, notes, served, warnings
from trainyard.kinds.elasticjob import ELASTICJOB
from trainyard.kinds.mxjob import MXJOB
from trainyard.kinds.pages import page
from trainyard.kinds.tfjob import TFJOB
from trainyard.objects import Json

EACH: tuple[Kind, ...] = (TFJOB, MXJOB, CHAINERJOB, ELASTICJOB)
"""One value for each kind of job."""

ALL: tuple[Kind, ...] = served(EACH)
"""One value for each kind and API group under which the kind is served."""


def kind_of(obj: Json) -> Kind | None:
    """The kind of an API object, None when it is not a job of Trainyard."""
    api_version_and_kind = obj.get("apiVersion"), obj.get("kind")
    return next((kind for kind in ALL if (kind.gvk.api_version, kind.gvk.kind) == api_version_and_kind), None)


__all__ = [
    "ALL",
    "CHAINERJOB",
    "EACH",
    "ELASTICJOB",
    "MXJOB",
    "TFJOB",
    "admit",
    "check",
    "crd",
    "kind_of",
    "misspelt",
    "notes",
    "page",
    "served",
    "warnings",
]
