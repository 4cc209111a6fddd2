"""The planted bugs: each breaks the decision or the shell in one way, and must be caught by the rule it names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from trainyard.core import Observed, Plan, Replica, Slot
from trainyard.core.job import JobStatus, Outcome
from trainyard.objects.values import replace
from trainyard.testing import scenes
from trainyard.testing.obeying import Shell
from trainyard.testing.scenes import ALWAYS, LIVING, VIEWS
from trainyard.testing.worlds import Scene

DECIDE: Any = sys.modules["trainyard.core.decide"]
CHANGES: Any = sys.modules["trainyard.core.changes"]
CARRIERS: Any = sys.modules["trainyard.core.carriers.jobs"]
POLICY: Any = sys.modules["trainyard.core.policy"]
JUDGE: Any = sys.modules["trainyard.core.phase"]


class Mutant(NamedTuple):
    """A planted bug, where it is looked for, and the rule it must break."""

    name: str
    rule: str
    moves: tuple[str, ...]
    patch: Callable[[pytest.MonkeyPatch], None] = lambda patch: None
    shell: Shell = Shell()
    policies: dict[str, object] = {}  # noqa: RUF012  # never changed
    trouble: int = 1
    scene: Scene | None = None


def setting(module: ModuleType, name: str, value: object) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(module, name, value)


def judged_again(job: Any, family: Any, seen: Any, now: float) -> Plan:
    return DECIDE._Pass(job, Observed(), family, now).plan()  # type: ignore[no-any-return]  # a module as a value


def made_after_the_end(job: Any, family: Any, seen: Any, now: float) -> Plan:
    return Plan(job.status.wire, creates=tuple(CHANGES.missing_creates(job, family)))


COUNT = DECIDE._Pass._count
AGAIN = DECIDE._Pass._again
BEGIN = DECIDE._Pass._begin


END = CARRIERS._termination


def drain_is_permanent(job: Any, slot: Any, child: Any, pod: Any) -> Any:
    found = END(job, slot, child, pod)
    return replace(found, fails_job=True) if found and found.disrupted else found


def counted_again(self: Any, memory: JobStatus) -> JobStatus:
    return COUNT(self, replace(memory, counted_failures=()))  # type: ignore[no-any-return]  # a module as a value


def forgotten(self: Any, memory: JobStatus) -> JobStatus:
    visible = {uid for replica in self.replicas for uid in replica.failed_attempts}
    found = COUNT(self, memory)
    return replace(found, counted_failures=tuple(uid for uid in found.counted_failures if uid in visible))


def unscheduled(self: Any, memory: JobStatus, verdict: Outcome) -> JobStatus:
    kept = list(self.whens)
    found = AGAIN(self, memory, verdict)
    self.whens = kept
    return found  # type: ignore[no-any-return]  # a module as a value


def resumed_as_before(self: Any) -> JobStatus:
    found, before = BEGIN(self), self.job.status
    roles = {name: replace(role, attempt=before.role(name).attempt) for name, role in found.roles.items()}
    return replace(found, roles=roles)


def suspended_and_forgotten(self: Any) -> JobStatus:
    return replace(BEGIN(self), roles={}) if self.job.policy.suspend else BEGIN(self)  # type: ignore[no-any-return]


def swept_blindly(job: Any, family: Any, clean: str, reason: str, resumes: bool = False) -> tuple[list[Any], list[Any]]:
    children = CHANGES._slot_children(job, family)
    replicas = [Replica(Slot(c.role, c.index), c, "") for c in children]
    return [w for r in replicas if (w := job.carrier(r.slot.role).stop(r, reason))], []


WITH_VIEWS = (*ALWAYS, *VIEWS)
MUTANTS = [
    # the sketch's eight
    Mutant("no fence", "made while suspended", (*WITH_VIEWS, "suspend"), shell=Shell(fence="never")),
    Mutant(
        "the fence only when the status changes",
        "made while suspended",
        (*WITH_VIEWS, "suspend"),
        shell=Shell(fence="on change"),
    ),
    Mutant(
        "delete by name, not by uid",
        "a running child of the current attempt was deleted",
        (*WITH_VIEWS, "fail", "suspend", "time"),
        shell=Shell(by_uid=False),
    ),
    Mutant("create over AlreadyExists", "a live child was overwritten", WITH_VIEWS, shell=Shell(keeps=False)),
    Mutant(
        "older attempts are not deleted",
        "a replica",
        (*ALWAYS, "fail"),
        setting(CHANGES, "stale_deletes", lambda *a: []),
    ),
    Mutant("a finished job is judged again", "the job left", ALWAYS, setting(DECIDE, "_after_the_end", judged_again)),
    Mutant(
        "the attempt is not written down",
        "a replica",
        (*ALWAYS, "fail"),
        setting(DECIDE._Pass, "_again", lambda self, memory, verdict: memory),
    ),
    Mutant(
        "children are made after the end",
        "a child was made after the end",
        (*ALWAYS, "delete job"),
        setting(DECIDE, "_after_the_end", made_after_the_end),
    ),
    # the issue's
    Mutant(
        "a delete without propagation", "a pod was left behind", (*ALWAYS, "suspend"), shell=Shell(background=False)
    ),
    Mutant(
        "a spec patch without version",
        "the spec patch took back",
        (*WITH_VIEWS, "edit early"),
        shell=Shell(versioned=False),
    ),
    Mutant(
        "a failure counted twice",
        "a failure was counted twice",
        (*ALWAYS, "fail"),
        setting(DECIDE._Pass, "_count", counted_again),
    ),
    Mutant(
        "a drain judged permanent",
        "nothing permanent happened",
        (*ALWAYS, "drain"),
        setting(CARRIERS, "_termination", drain_is_permanent),
    ),
    Mutant("a fresh job with stale children", "made again", WITH_VIEWS, shell=Shell(waits=False)),
    # more
    Mutant(
        "what is not visible is not remembered",
        "a failure was counted twice",
        (*LIVING, "fail"),
        setting(DECIDE._Pass, "_count", forgotten),
    ),
    Mutant(
        "the back-off is not waited for",
        "back-off",
        (*ALWAYS, "fail"),
        setting(POLICY, "retry_at", lambda job, end, failures, again, now: now),
    ),
    Mutant(
        "the back-off is not scheduled", "a replica", (*ALWAYS, "fail"), setting(DECIDE._Pass, "_again", unscheduled)
    ),
    Mutant(
        "the deadline is not scheduled",
        "outlives its deadline",
        ALWAYS,
        setting(POLICY, "deadline_at", lambda job, start: None),
        policies={"activeDeadlineSeconds": 30},
    ),
    Mutant(
        "the time to live is not scheduled",
        "outlives its time to live",
        ALWAYS,
        setting(POLICY, "ttl_expires_at", lambda job, end: None),
        policies={"ttlSecondsAfterFinished": 5},
    ),
    Mutant(
        "the limit is one too high",
        "beyond backoffLimit",
        (*ALWAYS, "fail"),
        setting(JUDGE, "backoff_limit_exceeded", lambda *a: ""),
        policies={"backoffLimit": 0},
    ),
    Mutant(
        "a stopped job runs on",
        "runs on after the end",
        (*ALWAYS, "fail"),
        setting(CHANGES, "effective_clean_policy", lambda job, reason: job.policy.clean),
        policies={"backoffLimit": 0},
    ),
    Mutant(
        "nothing is swept",
        "a pod runs in a suspended job",
        (*ALWAYS, "suspend"),
        setting(CHANGES, "clean_pods", lambda *a: ([], [])),
    ),
    Mutant(
        "what has ended well is swept",
        "ended well",
        (*ALWAYS, "suspend"),
        setting(CHANGES, "clean_pods", swept_blindly),
    ),
    Mutant(
        "a resume goes on with the old attempt",
        "a resume without a new attempt",
        (*ALWAYS, "fail", "suspend"),
        setting(DECIDE._Pass, "_begin", resumed_as_before),
        trouble=2,
    ),
    Mutant(
        "a suspend forgets the attempts",
        "a failure was never counted",
        (*ALWAYS, "fail", "suspend"),
        setting(DECIDE._Pass, "_begin", suspended_and_forgotten),
        trouble=2,
    ),
    Mutant(
        "a foreign object is overwritten",
        "not ours",
        ("pass", "unasked"),
        shell=Shell(keeps=False),
        scene=scenes.foreign(),
    ),
    Mutant(
        "a name conflict is not said",
        "a replica is missing",
        ("pass", "unasked"),
        setting(DECIDE._Pass, "_refused", lambda self, verdict, memory: None),
        scene=scenes.foreign(),
    ),
]
