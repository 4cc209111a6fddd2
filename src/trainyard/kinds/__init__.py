"""The kinds of jobs: one value per file, and the parts that several of them share.

Rules for this room:
- A kind is data and a few pure functions; what is common is in `core`, and nothing here is known to loop, server, node.
- From ALL follow the watches, CRDs, admission, the command line, docs and parametrised tests.
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
"""The same once for every API group that a kind is served under."""


def kind_of(obj: Json) -> Kind | None:
    """The kind of a wire object, None when it is not one of ours."""
    wanted = obj.get("apiVersion"), obj.get("kind")
    return next((kind for kind in ALL if (kind.gvk.api_version, kind.gvk.kind) == wanted), None)


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
