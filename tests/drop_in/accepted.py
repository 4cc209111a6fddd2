"""An entry of the tables of accepted differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.drop_in.compare import Difference, covers


@dataclass(frozen=True, slots=True)
class Accepted:
    """`scenario` and `path` are patterns of KIND/SCENARIO and of a difference's path, as in `covers`. One that is not
    `certain` depends on which of two events the operator sees first."""

    scenario: str
    path: str
    reason: str
    certain: bool = True

    def matches(self, scenario: str, difference: Difference) -> bool:
        return covers(self.scenario, scenario) and covers(self.path, difference.path)


def accepted(scenarios: str, reason: str, *paths: str, certain: bool = True) -> Iterator[Accepted]:
    """An entry for each of the scenarios' patterns, separated by spaces, and each path."""
    return (Accepted(scenario, path, reason, certain) for scenario in scenarios.split() for path in paths)


ABSENT = ("pods/*", "services/*")  # children that only one of the two has
NO_JOB = ("refused", "job")  # one of the two has refused it
COUNTS = "job .status.replicaStatuses.*"
ENDED, FAILED, SUCCEEDED, RUNNING, RESTARTING = (
    "job .status.completionTime",
    "job .status.conditions[Failed]*",
    "job .status.conditions[Succeeded]",
    "job .status.conditions[Running]*",
    "job .status.conditions[Restarting]",
)
