"""The planted bugs: each breaks the decision or the executor in one way, and must be caught by the rule it names."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from tests.model import explored_jobs as explored_jobs
from tests.model.executor_model import ExecutorModel
from tests.model.explored_jobs import ALWAYS, LIVING, VIEWS
from tests.model.explorer import InitialState
from trainyard.core import Observed, Plan, Replica, Slot
from trainyard.core.blocked import Blocks
from trainyard.core.failures import CountedFailures
from trainyard.core.job_state import JobStatus
from trainyard.core.policies.restart import Restarts
from trainyard.objects.structs import replace


def _module(name: str) -> Any:
    return import_module(f"trainyard.core.{name}")


DECIDE, CHANGES, CARRIERS, PHASE = map(_module, ("decide", "changes", "carriers.jobs", "phase"))
FAILURES, BLOCKED, EDITS = map(_module, ("failures", "blocked", "edits"))
RESTART, SUSPEND, DEADLINE, TTL = (_module(f"policies.{name}") for name in ("restart", "suspend", "deadline", "ttl"))
BACKOFF, CLEAN = _module("policies.backoff_limit"), _module("policies.clean_pod_policy")


class Mutant(NamedTuple):
    """A planted bug, where it is looked for, and the rule it must break."""

    name: str
    rule: str
    transitions: tuple[str, ...]
    patch: Callable[[pytest.MonkeyPatch], None] = lambda patch: None
    executor: ExecutorModel = ExecutorModel()
    policies: dict[str, object] = {}  # noqa: RUF012  # never changed
    trouble: int = 1
    initial_state: InitialState | None = None


def setting(module: ModuleType, name: str, value: object) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(module, name, value)


def decided_again(job: Any, owned: Any, observed: Any, now: float) -> Plan:
    return DECIDE._unfinished(job, owned, Observed(), now)  # a module as a value


def created_after_the_end(job: Any, owned: Any, observed: Any, now: float) -> Plan:
    return Plan(job.status.stored, creates=tuple(CHANGES.missing_creates(job, owned)))


COUNT = FAILURES.count_failures
RESTARTS = RESTART.plan_restarts
NEXT_STATUS = SUSPEND.next_status
TERMINATION = CARRIERS._termination


def drain_fails_job(job: Any, slot: Any, child: Any, pod: Any) -> Any:
    termination = TERMINATION(job, slot, child, pod)
    return replace(termination, fails_job=True) if termination and termination.disrupted else termination


def counted_again(job: Any, replicas: Any, status: JobStatus) -> CountedFailures:
    return COUNT(job, replicas, replace(status, counted_failures=()))


def forgotten(job: Any, replicas: Any, status: JobStatus) -> CountedFailures:
    visible = {uid for replica in replicas for uid in replica.failed_attempts}
    counted: CountedFailures = COUNT(job, replicas, status)
    keys = tuple(uid for uid in counted.status.counted_failures if uid in visible)
    return replace(counted, status=replace(counted.status, counted_failures=keys))


def unscheduled(*args: Any) -> Restarts:
    return replace(RESTARTS(*args), wakeups=())


def not_restarted(job: Any, replicas: Any, owned: Any, status: JobStatus, *rest: Any) -> Restarts:
    return Restarts(status, (), "", ())


def resumed_as_before(job: Any, now: float, is_queued: bool = False) -> JobStatus:
    status, before = NEXT_STATUS(job, now), job.status
    roles = {name: replace(role, attempt=before.role(name).attempt) for name, role in status.roles.items()}
    return replace(status, roles=roles)


def suspended_and_forgotten(job: Any, now: float, is_queued: bool = False) -> JobStatus:
    status = NEXT_STATUS(job, now)
    return replace(status, roles={}) if job.policy.suspend else status


def swept_blindly(job: Any, family: Any, clean: str, reason: str, resumes: bool = False) -> tuple[list[Any], list[Any]]:
    children = CHANGES.slot_children(job, family)
    unread: Any = ""
    replicas = [Replica(Slot(c.role, c.index), c, unread) for c in children]
    return [w for r in replicas if (w := job.carrier(r.slot.role).stop(r, reason))], []


WITH_VIEWS = (*ALWAYS, *VIEWS)
MUTANTS = [
    # the sketch's eight
    Mutant("no fence", "made while suspended", (*WITH_VIEWS, "suspend"), executor=ExecutorModel(fence="never")),
    Mutant(
        "the fence only when the status changes",
        "made while suspended",
        (*WITH_VIEWS, "suspend"),
        executor=ExecutorModel(fence="on change"),
    ),
    Mutant(
        "delete by name, not by uid",
        "a running child of the current attempt was deleted",
        (*WITH_VIEWS, "fail", "suspend", "time"),
        executor=ExecutorModel(by_uid=False),
    ),
    Mutant(
        "create over AlreadyExists", "a live child was overwritten", WITH_VIEWS, executor=ExecutorModel(keeps=False)
    ),
    Mutant(
        "older attempts are not deleted",
        "a replica",
        (*ALWAYS, "fail"),
        setting(CHANGES, "stale_deletes", lambda *a: []),
    ),
    Mutant("a finished job is judged again", "the job left", ALWAYS, setting(DECIDE, "_finished", decided_again)),
    Mutant(
        "the attempt is not written down",
        "a restart that was due was not made",
        (*ALWAYS, "fail"),
        setting(RESTART, "plan_restarts", not_restarted),
    ),
    Mutant(
        "children are made after the end",
        "a child was made after the end",
        (*ALWAYS, "delete job"),
        setting(DECIDE, "_finished", created_after_the_end),
    ),
    # the issue's
    Mutant(
        "a delete without propagation",
        "a pod was left behind",
        (*ALWAYS, "suspend"),
        executor=ExecutorModel(background=False),
    ),
    Mutant(
        "a spec patch without version",
        "the spec patch took back",
        (*WITH_VIEWS, "edit early"),
        executor=ExecutorModel(versioned=False),
    ),
    Mutant(
        "a failure counted twice",
        "a failure was counted twice",
        (*ALWAYS, "fail"),
        setting(FAILURES, "count_failures", counted_again),
    ),
    Mutant(
        "a drain judged permanent",
        "nothing permanent happened",
        (*ALWAYS, "drain"),
        setting(CARRIERS, "_termination", drain_fails_job),
    ),
    Mutant("a fresh job with stale children", "made again", WITH_VIEWS, executor=ExecutorModel(waits=False)),
    # more
    Mutant(
        "what is not visible is not remembered",
        "a failure was counted twice",
        (*LIVING, "fail"),
        setting(FAILURES, "count_failures", forgotten),
    ),
    Mutant(
        "the back-off is not waited for",
        "back-off",
        (*ALWAYS, "fail"),
        setting(RESTART, "retry_at", lambda job, end, before, now: now),
        trouble=2,
    ),
    Mutant(
        "the back-off is not scheduled",
        "a replica",
        (*ALWAYS, "fail"),
        setting(RESTART, "plan_restarts", unscheduled),
        trouble=2,
    ),
    Mutant(
        "the deadline is not scheduled",
        "outlives its deadline",
        ALWAYS,
        setting(DEADLINE, "expires_at", lambda job, start: None),
        policies={"activeDeadlineSeconds": 30},
    ),
    Mutant(
        "the time to live is not scheduled",
        "outlives its time to live",
        ALWAYS,
        setting(TTL, "expires_at", lambda job, end: None),
        policies={"ttlSecondsAfterFinished": 5},
    ),
    Mutant(
        "the limit is one too high",
        "beyond backoffLimit",
        (*ALWAYS, "fail"),
        setting(BACKOFF, "exceeded", lambda *a: ""),
        policies={"backoffLimit": 0},
    ),
    Mutant(
        "a stopped job runs on",
        "runs on after the end",
        (*ALWAYS, "fail"),
        setting(CLEAN, "effective_policy", lambda job, reason: job.policy.clean_pod_policy),
        policies={"backoffLimit": 0},
    ),
    Mutant(
        "nothing is swept",
        "a pod runs in a suspended job",
        (*ALWAYS, "suspend"),
        setting(CLEAN, "clean_pods", lambda *a, **more: ([], [])),
    ),
    Mutant(
        "what has ended well is swept",
        "ended well",
        (*ALWAYS, "suspend"),
        setting(CLEAN, "clean_pods", swept_blindly),
    ),
    Mutant(
        "a resume goes on with the old attempt",
        "a resume without a new attempt",
        (*ALWAYS, "fail", "suspend"),
        setting(SUSPEND, "next_status", resumed_as_before),
        trouble=2,
    ),
    Mutant(
        "a suspend forgets the attempts",
        "a failure was never counted",
        (*ALWAYS, "fail", "suspend"),
        setting(SUSPEND, "next_status", suspended_and_forgotten),
        trouble=2,
    ),
    Mutant(
        "a foreign object is overwritten",
        "not ours",
        ("pass", "unasked"),
        executor=ExecutorModel(keeps=False),
        initial_state=explored_jobs.foreign(),
    ),
    Mutant(
        "a name conflict is not said",
        "a replica is missing",
        ("pass", "unasked"),
        setting(BLOCKED, "find_blocks", lambda *args: Blocks(None, [], ())),
        initial_state=explored_jobs.foreign(),
    ),
]
