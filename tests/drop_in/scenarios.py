"""All scenarios of the drop-in test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from tests.drop_in.jobs import JAXJOB, MPIJOB, PADDLEJOB, PYTORCHJOB, TFJOB, XGBOOSTJOB, JobKind
from tests.drop_in.scenario import Scenario, unique
from tests.drop_in.scenarios_common import common
from tests.drop_in.scenarios_converted import converted
from tests.drop_in.scenarios_examples import examples
from tests.drop_in.scenarios_kinds import jax, paddle, tensorflow, xgboost
from tests.drop_in.scenarios_mpi import mpi, mpi_v2
from tests.drop_in.scenarios_pytorch import pytorch
from tests.drop_in.scenarios_trainjob import trainjobs

SHORT = frozenset((
    "defaults", "ports-own-number", "containers-sidecar-first", "env-own", "template-metadata",
    "template-restart-policy", "template-host-network", "name-taken-pod", "roles-lower-case", "roles-unknown",
    "roles-empty", "containers-other-name", "name-not-a-dns-label", "replicas-none", "replicas-zero-workers",
    "replicas-two-leaders", "roles-leader-only", "roles-workers-only", "managed-by-foreign",
    "restart-never-1-worker", "restart-onfailure-1-worker", "restart-exitcode-1-worker",
    "restart-exitcode-137-worker", "restart-default", "evicted-never", "clean-all-success",
    "clean-running-success", "clean-all-failure", "suspend-at-creation", "suspend-while-running", "scale-up",
    "scale-down", "ttl-ten", "deadline-then-touched", "backoff-limit-1-container-restarts",
    "gang-volcano-success", "gang-volcano-policy", "gang-scheduler-plugins-success",
))  # fmt: skip
"""The common scenarios of every kind but PyTorchJob, which has all: the operator's code for them is shared."""


def short(kind: JobKind) -> Iterator[Scenario]:
    leader = next(iter(kind.roles)).lower()
    for scenario in common(kind):
        if scenario.name in SHORT or (scenario.name.startswith("restart-") and scenario.name.endswith(f"-{leader}")):
            yield scenario


@cache
def own_scenarios() -> tuple[Scenario, ...]:
    """All but the operators' examples."""
    kinds = [scenario for kind in (TFJOB, XGBOOSTJOB, PADDLEJOB, JAXJOB, MPIJOB) for scenario in short(kind)]
    own = (*pytorch(), *tensorflow(), *xgboost(), *paddle(), *jax(), *mpi(), *mpi_v2(), *trainjobs(), *converted())
    return unique((*common(PYTORCHJOB), *kinds, *own))


def all_scenarios(folders: Sequence[str] = ("*",)) -> tuple[Scenario, ...]:
    """With the examples of the kinds whose folder a shell pattern matches. Raises BuildError: these are in the
    operators' modules."""
    return unique((*own_scenarios(), *examples(folders)))
