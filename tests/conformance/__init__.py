"""Conformance checks of a Kubernetes API server, run unchanged on the embedded server and on a real one.

    @check("A create with an existing name fails with 409 AlreadyExists.", area="crud", mutation=answers(409, 201))
    async def existing_name(cluster: Cluster) -> None: ...

Flow: the modules of `checks` register checks -> `CHECKS` collects them -> a runner gives each check a `Cluster` (an
administrator's client, a fresh namespace, raw HTTP) -> the check returns, or raises.

Rules:
- A check never branches on which server it talks to, except during setup.
- Every check is proven able to fail: `mutation` disables the one behaviour in the embedded server, or alters its
  responses, and then the check must raise. A check without a `mutation` fails the tests.
- A check leaves nothing behind: the cluster handle deletes its namespace, cluster-scoped objects and definitions.
"""

from tests.conformance.catalogue import Check, check, collect_checks
from tests.conformance.cluster import Cluster
from tests.conformance.connect import embedded, real
from tests.conformance.mutations import Mutation
from tests.conformance.responses import Response, WatchStream

__all__ = ["CHECKS", "Check", "Cluster", "Mutation", "Response", "WatchStream", "check", "embedded", "real"]

CHECKS = collect_checks()
