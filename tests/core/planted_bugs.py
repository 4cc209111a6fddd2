"""The planted bugs: each breaks the decision or the shell in one way, and must be caught by the rule it names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

import msgspec
import pytest

from trainyard.core import RETRYING_JOB_CARRIER, SET_CARRIER, Plan, Replica, Seen, Slot
from trainyard.core.job import Job, Memory, Verdict
from trainyard.testing import scenes
from trainyard.testing.casts import Cast, chainer, elastic, gang
from trainyard.testing.moves import Bounds
from trainyard.testing.obeying import Shell
from trainyard.testing.scenes import ALWAYS, LIVING, VIEWS
from trainyard.testing.worlds import Scene

DECIDE: Any = sys.modules["trainyard.core.decide"]
CHANGES: Any = sys.modules["trainyard.core.changes"]
CARRIERS: Any = sys.modules["trainyard.core.carriers.jobs"]
PODS: Any = sys.modules["trainyard.core.carriers.pods"]
ELASTIC: Any = sys.modules["trainyard.kinds.elasticjob"]
POLICY: Any = sys.modules["trainyard.core.policy"]
JUDGE: Any = sys.modules["trainyard.core.judge"]


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


def judged_again(job: Any, family: Any, now: float) -> Plan:
    return DECIDE._Pass(job, Seen(), family, now).plan()  # type: ignore[no-any-return]  # a module as a value


def made_after_the_end(job: Any, family: Any, now: float) -> Plan:
    return Plan(job.memory.wire, creates=tuple(CHANGES.missing(job, family)))


COUNT = DECIDE._Pass._count
AGAIN = DECIDE._Pass._again
BEGIN = DECIDE._Pass._begin


END = CARRIERS._end


def drain_is_permanent(job: Any, slot: Any, child: Any, pod: Any) -> Any:
    found = END(job, slot, child, pod)
    return replace(found, permanent=True) if found and found.disrupted else found


def counted_again(self: Any, memory: Memory) -> Memory:
    return COUNT(self, replace(memory, counted=()))  # type: ignore[no-any-return]  # a module as a value


def forgotten(self: Any, memory: Memory) -> Memory:
    visible = {uid for replica in self.replicas for uid in replica.failed}
    found = COUNT(self, memory)
    return replace(found, counted=tuple(uid for uid in found.counted if uid in visible))


def unscheduled(self: Any, memory: Memory, verdict: Verdict) -> Memory:
    kept = list(self.whens)
    found = AGAIN(self, memory, verdict)
    self.whens = kept
    return found  # type: ignore[no-any-return]  # a module as a value


def resumed_as_before(self: Any) -> Memory:
    found, before = BEGIN(self), self.job.memory
    roles = {name: replace(role, attempt=before.role(name).attempt) for name, role in found.roles.items()}
    return replace(found, roles=roles)


def suspended_and_forgotten(self: Any) -> Memory:
    return replace(BEGIN(self), roles={}) if self.job.policy.suspend else BEGIN(self)  # type: ignore[no-any-return]


def swept_blindly(job: Any, family: Any, clean: str, reason: str) -> tuple[list[Any], list[Any]]:
    children = CHANGES._slot_children(job, family)
    replicas = [Replica(Slot(c.role, c.index), c, "") for c in children]
    return [w for r in replicas if (w := job.carrier(r.slot.role).stop(r, reason))], []


# --- the other kinds


def played_by(cast: Cast, trouble: int = 1, policies: dict[str, object] | None = None, **kind: Any) -> Scene:
    """A scene of that cast, of a kind with other fields."""
    bounds = Bounds(trouble=trouble, edits=trouble, time=1)
    return Scene(policies or {}, replace(cast, kind=replace(cast.kind, **kind)), bounds=bounds)


def not_a_gang(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Job, "whole_again", lambda self: False)


def counted_one_by_one(self: Any, memory: Memory) -> Memory:
    with pytest.MonkeyPatch.context() as patch:
        not_a_gang(patch)
        return COUNT(self, memory)  # type: ignore[no-any-return]  # a module as a value


def counted_for_the_next(self: Any, memory: Memory) -> Memory:
    """A failure of a gang, counted for the attempt that begins."""
    kept = self.replicas
    self.replicas = [
        one._replace(child=msgspec.structs.replace(one.child, attempt=memory.role(one.slot.role).attempt))
        if one.child
        else one
        for one in kept
    ]
    found = COUNT(self, memory)
    self.replicas = kept
    return found  # type: ignore[no-any-return]  # a module as a value


OBSERVED = CARRIERS._observed
UNWANTED = CHANGES.unwanted
EDITED = CHANGES.edited
JUDGED = JUDGE.judge


def again_after_a_drain(self: Any, memory: Memory, verdict: Verdict) -> Memory:
    """Where one was drained, nobody looks at who failed."""
    kept = self.replicas
    if any(one.end and one.end.disrupted for one in kept):
        self.replicas = [one for one in kept if one.end is None or one.end.disrupted]
    found = AGAIN(self, memory, verdict)
    self.replicas = kept
    return found  # type: ignore[no-any-return]  # a module as a value


def kept_when_it_ended_well(job: Any, slot: Any, child: Any, pods: Any, pod: Any) -> Any:
    well = child.phase == "Complete" or any(one.phase == "Succeeded" for one in pods)
    return Replica(slot, child, "Succeeded") if well else OBSERVED(job, slot, child, pods, pod)


def failure_first(job: Any, replicas: Any, *rest: Any) -> Verdict:
    bad = any(one.end and one.end.permanent for one in replicas)
    return Verdict("Failed", "PermanentFailure", "") if bad else JUDGED(job, replicas, *rest)  # type: ignore[no-any-return]  # a module as a value


def counted_beyond(self: Any, memory: Memory) -> Memory:
    """Pods count that the spec does not have any more."""
    job, kept = self.job, self.replicas
    pods = [one for one in self.family.by_ref.values() if one.kind == "Pod"]
    beyond = [Slot(one.role, one.index) for one in pods if Slot(one.role, one.index) not in job.slots()]
    self.replicas = [*kept, *(job.carrier(slot.role).observe(job, slot, self.family) for slot in beyond)]
    found = COUNT(self, memory)
    self.replicas = kept
    return found  # type: ignore[no-any-return]  # a module as a value


def drained_as_failed(job: Any, slot: Any, pod: Any) -> Any:
    return PODS.end_of(job, slot, pod, pod.uid)


def carried(**fields: Any) -> Callable[[str], Any]:
    """The carriers of a ChainerJob, with another one for its sets."""
    changed = replace(SET_CARRIER, **fields)
    return lambda role: RETRYING_JOB_CARRIER if role == "master" else changed


BY_THE_JOB_ALONE = replace(
    RETRYING_JOB_CARRIER,
    observe=lambda job, slot, family: RETRYING_JOB_CARRIER.observe(job, slot, replace(family, pods={})),
)
"""What its pods say is not listened to."""


def without_sets(job: Any, family: Any) -> list[Any]:
    return [one for one in UNWANTED(job, family) if one.gvk.kind != "StatefulSet"]


def without_removed(job: Any, family: Any) -> list[Any]:
    slots = {job.kind.child_name(job, slot) for slot in job.slots()}
    return [one for one in UNWANTED(job, family) if one.name in slots]


SCALING = ("pass", "unasked", "edit")
MORE = [
    Mutant(
        "a gang restarts only the role that failed",
        "the gang is not of one attempt",
        ("pass", "unasked", "fail", "time"),
        not_a_gang,
        scene=played_by(gang()),
    ),
    Mutant(
        "the failures of a gang are counted one by one",
        "counted twice",
        ("pass", "unasked", "fail"),
        setting(DECIDE._Pass, "_count", counted_one_by_one),
        scene=played_by(gang(), trouble=2),
    ),
    Mutant(
        "a failure counts for the attempt that a resume begins",
        "counted twice",
        ("pass", "unasked", "fail", "suspend"),
        setting(DECIDE._Pass, "_count", counted_for_the_next),
        scene=played_by(gang(), trouble=2),
    ),
    Mutant(
        "who ended well stays in a new attempt of the gang",
        "side by side",
        ("pass", "unasked", "fail", "succeed", "time"),
        setting(CARRIERS, "_observed", kept_when_it_ended_well),
        scene=played_by(gang()),
    ),
    Mutant(
        "an old attempt of a gang is deleted one by one",
        "side by side",
        ("pass", "unasked", "fail", "time"),
        setting(CHANGES, "unwanted", lambda job, family: UNWANTED(job, family)[:1]),
        scene=played_by(gang()),
    ),
    Mutant(
        "a gang is tried again at once",
        "the gang was tried again before its back-off",
        ("pass", "unasked", "fail"),
        setting(POLICY, "retry_at", lambda job, end, failures, again, now: now),
        scene=played_by(gang()),
    ),
    Mutant(
        "a failure beats the scheduler's success",
        "although what decides has succeeded",
        ("pass", "unasked", "fail", "succeed"),
        setting(JUDGE, "judge", failure_first),
        scene=played_by(gang()),
    ),
    Mutant(
        "a worker that was taken out is counted",
        "one that was none",
        (*SCALING, "fail"),
        setting(DECIDE._Pass, "_count", counted_beyond),
        scene=played_by(elastic(), trouble=2),
    ),
    Mutant(
        "a scale is not followed", "a replica is missing", SCALING, scene=played_by(elastic(), follows=lambda role: "")
    ),
    Mutant(
        "a failed pod is not counted",
        "deleted before it was counted",
        ("pass", "unasked", "fail", "time"),
        setting(DECIDE._Pass, "_count", lambda self, memory: memory),
        scene=played_by(elastic()),
    ),
    Mutant(
        "a worker is tried again at once",
        "a worker was tried again before its back-off",
        ("pass", "unasked", "fail"),
        setting(POLICY, "retry_at", lambda job, end, failures, again, now: now),
        scene=played_by(elastic()),
    ),
    Mutant(
        "a resumed job goes to the old rendezvous",
        "a rendezvous that is closed",
        ("pass", "unasked", "suspend"),
        setting(ELASTIC, "rendezvous", lambda job: [f"--rdzv_id={job.key.name}"]),
        scene=played_by(elastic()),
    ),
    Mutant(
        "a drained worker has failed",
        "one that was none",
        ("pass", "unasked", "drain"),
        setting(PODS, "_end", drained_as_failed),
        scene=played_by(elastic()),
    ),
    Mutant(
        "the Services of workers that were taken out stay",
        "the Service stays",
        SCALING,
        setting(CHANGES, "edited", lambda *a: ([], [])),
        scene=played_by(elastic()),
    ),
    Mutant(
        "only the first worker has a Service",
        "the Services are not those of the workers",
        SCALING,
        scene=played_by(elastic(), extras=lambda job: ELASTIC.extras(job)[:1]),
    ),
    Mutant(
        "the sets run on at the end",
        "runs on after the end",
        ("pass", "unasked", "succeed"),
        scene=played_by(chainer(1), carrier=carried(stop=lambda replica, reason: None)),
    ),
    Mutant(
        "the sets are stopped whatever cleanPodPolicy says",
        "although cleanPodPolicy is None",
        ("pass", "unasked", "succeed"),
        setting(CHANGES, "cleaning", lambda job, reason: "Running"),
        scene=played_by(chainer(1), policies={"cleanPodPolicy": "None"}),
    ),
    Mutant(
        "a resume keeps the old set",
        "a StatefulSet is of an older attempt",
        ("pass", "unasked", "suspend"),
        setting(CHANGES, "unwanted", without_sets),
        scene=played_by(chainer(1)),
    ),
    Mutant(
        "a set that was taken out stays",
        "a replica stays",
        SCALING,
        setting(CHANGES, "unwanted", without_removed),
        scene=played_by(chainer(1)),
    ),
    Mutant(
        "a set is not brought to its size",
        "has not the size",
        SCALING,
        scene=played_by(chainer(1), carrier=carried(resume=lambda job, replica: None)),
    ),
    Mutant(
        "an edit of a set holds for later ones",
        "a StatefulSet is not what the spec says",
        SCALING,
        scene=played_by(chainer(1), follows=lambda role: "" if role == "master" else "later"),
    ),
    Mutant(
        "the extras are not repaired",
        "is not what the spec says",
        SCALING,
        setting(CHANGES, "edited", lambda job, family: (EDITED(job, family)[0], [])),
        scene=played_by(chainer(1)),
    ),
    Mutant(
        "who was taken out runs on after the end",
        "what the job had given up runs on",
        (*SCALING, "succeed"),
        setting(CHANGES, "_given_up", lambda job, child: False),
        scene=played_by(elastic()),
    ),
    Mutant(
        "a set that was taken out is forgotten",
        "a StatefulSet is not what the spec says",
        (*SCALING, "dying pass"),
        setting(DECIDE._Pass, "_given_up", lambda self: {}),
        scene=played_by(chainer(1), trouble=2),
    ),
    Mutant(
        "a drain shortens the back-off of a gang",
        "the gang was tried again before its back-off",
        ("pass", "unasked", "fail", "drain"),
        setting(DECIDE._Pass, "_again", again_after_a_drain),
        scene=played_by(gang(), trouble=2),
    ),
    Mutant(
        "an edit of the master is followed",
        "what tries again by itself was made again",
        SCALING,
        scene=played_by(chainer(1), follows=lambda role: "again"),
    ),
    Mutant(
        "a suspend deletes a master that has ended well",
        "ended well was deleted",
        ("pass", "unasked", "succeed", "suspend"),
        scene=played_by(
            chainer(1),
            carrier=lambda role: SET_CARRIER if role != "master" else BY_THE_JOB_ALONE,
        ),
    ),
]

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
        "older attempts are not deleted", "a replica", (*ALWAYS, "fail"), setting(CHANGES, "unwanted", lambda *a: [])
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
        setting(CARRIERS, "_end", drain_is_permanent),
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
        setting(POLICY, "expires_at", lambda job, end: None),
        policies={"ttlSecondsAfterFinished": 5},
    ),
    Mutant(
        "the limit is one too high",
        "beyond backoffLimit",
        (*ALWAYS, "fail"),
        setting(JUDGE, "over_limit", lambda *a: ""),
        policies={"backoffLimit": 0},
    ),
    Mutant(
        "a stopped job runs on",
        "runs on after the end",
        (*ALWAYS, "fail"),
        setting(CHANGES, "cleaning", lambda job, reason: job.policy.clean),
        policies={"backoffLimit": 0},
    ),
    Mutant(
        "nothing is swept",
        "a pod runs in a suspended job",
        (*ALWAYS, "suspend"),
        setting(CHANGES, "sweep", lambda *a: ([], [])),
    ),
    Mutant(
        "what has ended well is swept", "ended well", (*ALWAYS, "suspend"), setting(CHANGES, "sweep", swept_blindly)
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
        setting(DECIDE._Pass, "_refused", lambda self, memory: None),
        scene=scenes.foreign(),
    ),
    *MORE,
]
