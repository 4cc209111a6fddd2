"""The planted bugs of restarts: back-off and progress, causes, `restart-limit`, stalls, a 503; see planted_bugs.py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.core.planted_bugs import DECIDE, FAILURES, RESTART, Mutant, setting
from tests.core.planted_bugs_of_kinds import PODS, drained_as_failed
from tests.model.executor_model import ExecutorModel
from tests.model.explored_jobs import CAUSES, with_limit, with_stalls
from tests.model.explorer import InitialState
from tests.model.scenarios import Scenario, elastic, local, tf
from tests.model.scenarios_kubeflow import pytorch
from tests.model.transitions import Bounds
from trainyard.core.policies.progress import Stalled
from trainyard.core.policies.restart_limit import RestartLimit
from trainyard.objects.structs import replace

LIMIT: Any = sys.modules["trainyard.core.policies.restart_limit"]
PROGRESS: Any = sys.modules["trainyard.core.policies.progress"]
NEXT_ATTEMPTS, PENDING, STALLED = RESTART._next_attempts, DECIDE.pending_restarts, PROGRESS.stalled


def limited_to(count: int, window: float) -> Callable[[object], RestartLimit]:
    return lambda text: RestartLimit(count, window, str(text))


def forgotten_row(*args: Any) -> Any:
    return {name: replace(role, without_progress=0) for name, role in NEXT_ATTEMPTS(*args).items()}


def also_disruptions(job: Any, replicas: Any, restarts: int) -> int:
    return PENDING(job, replicas, restarts) + sum(bool(r.termination and r.termination.disrupted) for r in replicas)


def not_restarted(*args: Any) -> Stalled:
    return Stalled(STALLED(*args).condition)


def by_every_cause(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RESTART, "disruption_cause", lambda reason: "eviction")
    patch.setattr(FAILURES, "disruption_cause", lambda reason: "eviction")


def begun(scenario: Scenario, trouble: int = 3, exits: int = 3, drains: int = 1) -> InitialState:
    return InitialState({}, scenario, bounds=Bounds(trouble, exits=exits, drains=drains, time=2))


MOVES = ("pass", "unasked", "fail", "time")
RESTARTS = [
    Mutant(
        "the first restart waits",
        "a restart that was due was not made",
        MOVES,
        setting(RESTART, "retry_at", lambda job, end, before, now: end.finished_at + 10.0),
        initial_state=begun(pytorch(), 1),
    ),
    Mutant(
        "a restart after progress waits",
        "a restart that was due was not made",
        (*MOVES, "train"),
        setting(RESTART, "made_progress", lambda *args: False),
        initial_state=begun(pytorch(), 2),
    ),
    Mutant(
        "the first restart of a MASTER waits",
        "a restart that was due was not made",
        MOVES,
        setting(RESTART, "retry_at", lambda job, end, before, now: end.finished_at + 10.0),
        initial_state=begun(tf(), 1),
    ),
    Mutant(
        "every attempt makes progress",
        "the gang was tried again before its back-off",
        MOVES,
        setting(RESTART, "made_progress", lambda *args: True),
        initial_state=begun(local(), 2),
    ),
    Mutant(
        "attempts without progress are forgotten",
        "the gang was tried again before its back-off",
        MOVES,
        setting(RESTART, "_next_attempts", forgotten_row),
        initial_state=begun(pytorch(), 2),
    ),
    Mutant(
        "a replica that restarts alone forgets attempts without progress",
        "a worker was tried again before its back-off",
        MOVES,
        setting(FAILURES, "after_attempt", lambda job, replica, role: role),
        initial_state=begun(elastic(1, most=1), 2),
    ),
    Mutant(
        "the back-off does not double",
        "the gang was tried again before its back-off",
        MOVES,
        setting(RESTART, "backoff", lambda attempts: 10.0 if attempts > 1 else 0.0),
        initial_state=begun(pytorch()),
    ),
    Mutant(
        "a disruption makes no back-off",
        "the gang was tried again before its back-off",
        ("pass", "unasked", "drain", "time"),
        setting(RESTART, "retry_at", lambda job, end, before, now: now),
        initial_state=begun(local(), 2, drains=2),
    ),
    Mutant(
        "a gang counts every disruption as an eviction",
        "by another cause",
        ("pass", "unasked", "drain"),
        by_every_cause,
        initial_state=begun(replace(pytorch(), disruptions=CAUSES), 1),
    ),
    Mutant(
        "a replica that restarts alone counts every disruption as an eviction",
        "a cause was counted that was none",
        ("pass", "unasked", "drain"),
        by_every_cause,
        initial_state=begun(replace(elastic(1, most=1), disruptions=CAUSES), 1),
    ),
    Mutant(
        "a disruption is not counted",
        "a restart was not counted by its cause",
        ("pass", "unasked", "drain"),
        setting(RESTART, "_count", lambda causes, cause: None),
        initial_state=begun(pytorch(), 1),
    ),
    Mutant(
        "DisruptionTarget is not looked at",
        "one that was none",
        ("pass", "unasked", "drain"),
        setting(PODS, "_termination", drained_as_failed),
        initial_state=begun(pytorch(), 1),
    ),
    Mutant(
        "the restart beyond restart-limit is made",
        "it goes on beyond restart-limit",
        MOVES,
        setting(DECIDE, "pending_restarts", lambda *args: 0),
        initial_state=begun(with_limit(pytorch(), 0, 100), 1),
    ),
    Mutant(
        "restart-limit is one too high",
        "it goes on beyond restart-limit",
        MOVES,
        setting(LIMIT, "parse_limit", limited_to(2, 100.0)),
        initial_state=begun(with_limit(pytorch(), 1, 100), 2),
    ),
    Mutant(
        "restart-limit has no window",
        "restart-limit was not exceeded",
        (*MOVES, "train"),
        setting(LIMIT, "parse_limit", limited_to(1, 1e9)),
        initial_state=begun(with_limit(pytorch(), 1, 100), 2),
    ),
    Mutant(
        "the window of restart-limit is too short",
        "it goes on beyond restart-limit",
        MOVES,
        setting(LIMIT, "parse_limit", limited_to(1, 5.0)),
        initial_state=begun(with_limit(local(), 1, 100)),
    ),
    Mutant(
        "restart-limit counts disruptions",
        "restart-limit was not exceeded",
        ("pass", "unasked", "drain"),
        setting(DECIDE, "pending_restarts", also_disruptions),
        initial_state=begun(with_limit(pytorch(), 0, 100), 1),
    ),
    Mutant(
        "a stall is not noticed",
        "a job is stalled and does not say so",
        ("pass", "unasked", "stall"),
        setting(PROGRESS, "find_stall", lambda heartbeats: None),
        initial_state=begun(with_stalls(pytorch(), "report"), 1),
    ),
    Mutant(
        "a stalled job is not restarted",
        "a stalled job was not restarted",
        ("pass", "unasked", "stall"),
        setting(PROGRESS, "stalled", not_restarted),
        initial_state=begun(with_stalls(elastic(1, most=1), "restart"), 1),
    ),
    Mutant(
        "a stall is counted by no cause",
        "a restart was not counted by its cause",
        ("pass", "unasked", "stall"),
        setting(RESTART, "_count", lambda causes, cause: None),
        initial_state=begun(with_stalls(pytorch(), "restart"), 1),
    ),
    Mutant(
        "a create whose answer was lost is forgotten",
        "made again",  # and taken for one of the next attempt
        ("pass", "unasked", "failing pass", "suspend", "remember", "mixed pass"),
        executor=ExecutorModel(looks=False),
        initial_state=begun(pytorch(), 1),
    ),
    Mutant(
        "a create whose answer was lost overwrites",
        "a live child was overwritten",
        ("pass", "unasked", "failing pass", "remember", "mixed pass"),
        executor=ExecutorModel(keeps=False),
        initial_state=begun(pytorch(), 0),
    ),
]
