"""The checks: values gathered from the modules of `checks`, in the order of the modules' names."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from trainyard.testing.check_server import checks
from trainyard.testing.check_server.breaks import Break
from trainyard.testing.check_server.subject import Subject

Body = Callable[[Subject], Awaitable[None]]


@dataclass(frozen=True)
class Check:
    """One sentence and its proof. `needs`: "controllers" (those that a bare server lacks), "pods" (it makes pods)."""

    sentence: str
    area: str
    body: Body
    breaks: Break | None = None
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.area}-{self.body.__name__}"


_declared: list[Check] = []


def check(
    sentence: str, *, area: str, breaks: Break | None = None, needs: tuple[str, ...] = ()
) -> Callable[[Body], Body]:
    def declare(body: Body) -> Body:
        _declared.append(Check(sentence, area, body, breaks, needs))
        return body

    return declare


def gathered() -> tuple[Check, ...]:
    """All of them, area by area, and within one in the order in which they are written."""
    for module in sorted(found.name for found in pkgutil.iter_modules(checks.__path__)):
        importlib.import_module(f"{checks.__name__}.{module}")
    return tuple(sorted(_declared, key=lambda one: one.area))
