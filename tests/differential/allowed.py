"""The differences that stay, each with its reason. What is not here is a bug of the embedded server.

DOCUMENTED come from testdata/differential/documented.txt: a line is a pattern, a tab, and the first cell of the row of
docs/compatibility.md that says it to users. The pattern is sought in `told(difference)`, with nothing cut off.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.differential.compare import Allowed, Difference
from tests.differential.generate import APPLY
from trainyard.objects import encode

FILE = Path(__file__).parents[2] / "testdata" / "differential" / "documented.txt"


def _refused(difference: Difference) -> bool:
    return difference.path.split(".")[-1] == "message"


USUAL = (
    Allowed(
        "the sentences that describe columns are Kubernetes' own and are not copied",
        r"body(\.object)?\.columnDefinitions\.description",
    ),
    Allowed("texts for people are compared loosely for now", r"body(\.details\.causes|\.object)?\.message", _refused),
)


def cause_of(difference: Difference) -> str:
    """The whole difference in one line."""
    step = difference.step
    do = "APPLY" if step.type == APPLY else step.do
    values = f"{_text(difference.real)} | {_text(difference.ours)}"
    return f"{do} {step.resource} {difference.path}: {values} (code {difference.code})"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def documented(path: Path = FILE) -> tuple[tuple[str, str], ...]:
    """(pattern, topic) of each line."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return tuple((pattern, topic) for pattern, _, topic in (line.partition("\t") for line in lines))


def _seen(pattern: str) -> Callable[[Difference], bool]:
    sought = re.compile(pattern, re.DOTALL)
    return lambda difference: sought.search(cause_of(difference)) is not None


LAST = "a write without changes"  # from here on the versions differ
DOCUMENTED = tuple(
    Allowed(f"documented: {topic}", ".*", _seen(pattern), topic == LAST) for pattern, topic in documented()
)
ALLOWED = (*USUAL, *DOCUMENTED)
