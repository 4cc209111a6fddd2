"""The registry of checks: collected from the modules of `checks`, ordered by area."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.conformance import checks
from tests.conformance.cluster import Cluster
from tests.conformance.mutations import Mutation

Body = Callable[[Cluster], Awaitable[None]]


@dataclass(frozen=True)
class Check:
    """A sentence about the API server and the function that verifies it.

    `needs` names what a bare API server lacks: "controllers" (they run), "pods" (the check creates pods),
    "gangs" (PodGroups are served: a real one has them off by default).
    """

    sentence: str
    area: str
    body: Body
    mutation: Mutation | None = None
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.area}-{self.body.__name__}"


_registered: list[Check] = []


def check(
    sentence: str, *, area: str, mutation: Mutation | None = None, needs: tuple[str, ...] = ()
) -> Callable[[Body], Body]:
    """Register the decorated function as a check."""

    def register(body: Body) -> Body:
        _registered.append(Check(sentence, area, body, mutation, needs))
        return body

    return register


def collect_checks() -> tuple[Check, ...]:
    """All checks, sorted by area; within an area in the order of definition."""
    for module in sorted(info.name for info in pkgutil.iter_modules(checks.__path__)):
        importlib.import_module(f"{checks.__name__}.{module}")
    return tuple(sorted(_registered, key=lambda check: check.area))
