"""The differences from Kubeflow's operators that are meant.

Rules:
- Each entry is hit at least once by the scenarios of its kind; one for all kinds (`*/...`) by those of PyTorchJob, the
  most. An entry that is not hit fails the test: the difference is gone, and so goes the entry.
- `reason` is a line of docs/compatibility.md, or the beginning of one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.drop_in.compare import Difference, covers


@dataclass(frozen=True, slots=True)
class Accepted:
    """`scenario` and `path` are patterns of KIND/SCENARIO and of a difference's path; `*` and `**` are those of `covers`."""

    scenario: str
    path: str
    reason: str

    def matches(self, scenario: str, difference: Difference) -> bool:
        return covers(self.scenario, scenario) and covers(self.path, difference.path)

    def is_checked_by(self, kind: str) -> bool:
        """Whether the scenarios of this kind must hit the entry."""
        named = self.scenario.partition("/")[0]
        return covers(named, kind) if "*" not in named else kind == "pytorchjob"


EVERYWHERE = (
    Accepted("*", "* .metadata.labels.trainyard.dev/*", "labels"),
    Accepted("*", "pods/* .spec.*.terminationMessagePolicy", "terminationMessagePolicy"),
    *(
        Accepted("*", f"job .status.{field}", "fields of the status")
        for field in "cause counted hasRun observedGeneration ready restarts resumes roles state".split()
    ),
    Accepted("*", "pods/* .spec.initContainers[init-pytorch]*", "init container `init-pytorch`"),
    Accepted("*", "events * ExitedWithCode **", "event `ExitedWithCode`"),
    Accepted("*", "events Warning *JobRestarting **", "event of a restart"),
    Accepted("*", "job .status.replicaStatuses.*.selector", "`replicaStatuses`"),
    Accepted("*", "job .status.replicaStatuses", "`replicaStatuses`"),
)
ACCEPTED: tuple[Accepted, ...] = EVERYWHERE


def unaccepted(scenario: str, found: Iterable[Difference], accepted: Iterable[Accepted] = ACCEPTED) -> list[str]:
    """The differences that no entry accepts, a line each."""
    entries = list(accepted)
    return [f"{scenario} {each}" for each in found if not any(entry.matches(scenario, each) for entry in entries)]
