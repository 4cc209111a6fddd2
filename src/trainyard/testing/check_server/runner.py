"""Runs checks: against the embedded server, against it broken on purpose, and against a real one."""

from __future__ import annotations

from trainyard.server.crd import validation
from trainyard.testing.check_server.catalogue import Check
from trainyard.testing.check_server.subject import Subject, embedded


async def run_embedded(check: Check) -> None:
    """Raises what the check raises."""
    async with embedded(controllers="controllers" in check.needs) as yard:
        await run(check, yard)


async def run(check: Check, yard: Subject) -> None:
    if "pods" in check.needs:
        await yard.furnished()
    await check.body(yard)


async def survives(check: Check) -> bool:
    """Whether the check still holds on a server whose behaviour is switched off: then it proves nothing."""
    if check.breaks is None:
        return True
    async with embedded(controllers="controllers" in check.needs) as yard:
        if "pods" in check.needs:
            await yard.furnished()
        yard.broken = check.breaks
        validation.schema_problems.cache_clear()  # what the whole server has found out about a schema
        with check.breaks.in_place():  # raises what is wrong with the mutation itself
            try:
                await check.body(yard)
            except (Exception, ExceptionGroup):
                return False
            finally:
                validation.schema_problems.cache_clear()
    return True
