"""The kinds of jobs: one value per file, and the parts that several of them share.

Rules for this room:
- A kind is data and a few pure functions; what is common is in `core`, and nothing here is known to loop, server, node.
- From ALL follow the watches, CRDs, admission, the command line, docs and parametrised tests.
"""

from trainyard.core import Kind
from trainyard.kinds.crds import check, crd
from trainyard.kinds.tfjob import TFJOB

ALL: tuple[Kind, ...] = (TFJOB,)

__all__ = ["ALL", "TFJOB", "check", "crd"]
