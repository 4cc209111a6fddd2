"""Runs a check on the embedded server, on a mutated embedded server, or on a real cluster."""

from __future__ import annotations

from tests.conformance.catalogue import Check
from tests.conformance.cluster import Cluster
from tests.conformance.connect import embedded
from trainyard.server.crd import validation


async def run_embedded(check: Check) -> None:
    """Run the check on a fresh embedded server. Raises what the check raises."""
    async with embedded(controllers="controllers" in check.needs) as cluster:
        await run(check, cluster)


async def run(check: Check, cluster: Cluster) -> None:
    if "pods" in check.needs:
        await cluster.wait_until_pods_allowed()
    await check.body(cluster)


async def passes_under_mutation(check: Check) -> bool:
    """Whether the check still passes on a server with its mutation: then the check proves nothing."""
    if check.mutation is None:
        return True
    async with embedded(controllers="controllers" in check.needs) as cluster:
        if "pods" in check.needs:
            await cluster.wait_until_pods_allowed()
        cluster.mutation = check.mutation
        validation.schema_problems.cache_clear()  # holds results of unmutated validation
        with check.mutation.applied():  # raises if the mutation itself is wrong
            try:
                await check.body(cluster)
            except (Exception, ExceptionGroup):
                return False
            finally:
                validation.schema_problems.cache_clear()
    return True
