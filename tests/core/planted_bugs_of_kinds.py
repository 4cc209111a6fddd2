"""The planted bugs of gangs, elastic jobs and Chainer jobs; see planted_bugs.py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from planted_bugs import AGAIN, CARRIERS, CHANGES, COUNT, DECIDE, JUDGE, POLICY, Mutant, setting

from trainyard.core import RETRYING_JOB_CARRIER, SET_CARRIER, Replica, Slot
from trainyard.core.job import Job, JobStatus, Outcome
from trainyard.objects.values import replace
from trainyard.testing.casts import Cast, chainer, elastic, gang
from trainyard.testing.moves import Bounds
from trainyard.testing.obeying import Shell
from trainyard.testing.worlds import Scene

PODS: Any = sys.modules["trainyard.core.carriers.pods"]
ELASTIC: Any = sys.modules["trainyard.kinds.elasticjob"]


def played_by(cast: Cast, trouble: int = 1, policies: dict[str, object] | None = None, **kind: Any) -> Scene:
    """A scene of that cast, of a kind with other fields."""
    bounds = Bounds(trouble=trouble, edits=trouble, time=1)
    return Scene(policies or {}, replace(cast, kind=replace(cast.kind, **kind)), bounds=bounds)


def not_a_gang(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Job, "restarts_gang", lambda self: False)


def counted_one_by_one(self: Any, memory: JobStatus) -> JobStatus:
    with pytest.MonkeyPatch.context() as patch:
        not_a_gang(patch)
        return COUNT(self, memory)  # type: ignore[no-any-return]  # a module as a value


def counted_for_the_next(self: Any, memory: JobStatus) -> JobStatus:
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
UNWANTED = CHANGES.stale_deletes
EDITED = CHANGES.auxiliary_changes
JUDGED = JUDGE.compute_phase


def again_after_a_drain(self: Any, memory: JobStatus, verdict: Outcome) -> JobStatus:
    """Where one was drained, nobody looks at who failed."""
    kept = self.replicas
    if any(one.termination and one.termination.disrupted for one in kept):
        self.replicas = [one for one in kept if one.termination is None or one.termination.disrupted]
    found = AGAIN(self, memory, verdict)
    self.replicas = kept
    return found  # type: ignore[no-any-return]  # a module as a value


def kept_when_it_ended_well(job: Any, slot: Any, child: Any, pods: Any, pod: Any) -> Any:
    well = child.phase == "Complete" or any(one.phase == "Succeeded" for one in pods)
    return Replica(slot, child, "Succeeded") if well else OBSERVED(job, slot, child, pods, pod)


def failure_first(job: Any, replicas: Any, *rest: Any) -> Outcome:
    bad = any(one.termination and one.termination.fails_job for one in replicas)
    return Outcome("Failed", "PermanentFailure", "") if bad else JUDGED(job, replicas, *rest)  # type: ignore[no-any-return]  # a module as a value


def counted_beyond(self: Any, memory: JobStatus) -> JobStatus:
    """Pods count that the spec does not have any more."""
    job, kept = self.job, self.replicas
    pods = [one for one in self.family.by_ref.values() if one.kind == "Pod"]
    beyond = [Slot(one.role, one.index) for one in pods if Slot(one.role, one.index) not in job.slots()]
    self.replicas = [*kept, *(job.carrier(slot.role).observe(job, slot, self.family) for slot in beyond)]
    found = COUNT(self, memory)
    self.replicas = kept
    return found  # type: ignore[no-any-return]  # a module as a value


def drained_as_failed(job: Any, slot: Any, pod: Any) -> Any:
    return PODS.termination_of(job, slot, pod, pod.uid)


def carried(**fields: Any) -> Callable[[str], Any]:
    """The carriers of a ChainerJob, with another one for its sets."""
    changed = replace(SET_CARRIER, **fields)
    return lambda role: RETRYING_JOB_CARRIER if role == "master" else changed


BY_THE_JOB_ALONE = replace(
    RETRYING_JOB_CARRIER,
    observe=lambda job, slot, family: RETRYING_JOB_CARRIER.observe(job, slot, replace(family, pods_by_owner={})),
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
        "a replica is missing",  # it waits for what stays
        ("pass", "unasked", "fail", "succeed", "time"),
        setting(CARRIERS, "_observed", kept_when_it_ended_well),
        scene=played_by(gang()),
    ),
    Mutant(
        "a new attempt does not wait for the pods of older ones",
        "side by side",
        ("pass", "unasked", "fail", "time"),
        setting(CHANGES, "older_pods", lambda job, family: []),
        scene=played_by(gang()),
    ),
    Mutant(
        "a replica does not wait for the pod of a Job that somebody has deleted",
        "two pods of one replica are alive",
        ("pass", "unasked", "delete job"),
        setting(CHANGES, "older_pods", lambda job, family: []),
    ),
    Mutant(
        "a Job of an older attempt goes before its pods",
        "alive",
        ("pass", "unasked", "remember", "mixed pass", "suspend"),
        scene=played_by(gang()),
        shell=Shell(foreground=False),
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
        setting(JUDGE, "compute_phase", failure_first),
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
        "a scale is not followed",
        "a replica is missing",
        SCALING,
        scene=played_by(elastic(), on_template_change=lambda role: ""),
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
        setting(ELASTIC, "rendezvous", lambda job, slot: [f"--rdzv_id={job.key.name}"]),
        scene=played_by(elastic()),
    ),
    Mutant(
        "a drained worker has failed",
        "one that was none",
        ("pass", "unasked", "drain"),
        setting(PODS, "_termination", drained_as_failed),
        scene=played_by(elastic()),
    ),
    Mutant(
        "the Services of workers that were taken out stay",
        "the Service stays",
        SCALING,
        setting(CHANGES, "auxiliary_changes", lambda *a: ([], [])),
        scene=played_by(elastic()),
    ),
    Mutant(
        "only the first worker has a Service",
        "the Services are not those of the workers",
        SCALING,
        scene=played_by(elastic(), auxiliary_objects=lambda job: ELASTIC.extras(job)[:1]),
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
        setting(CHANGES, "effective_clean_policy", lambda job, reason: "Running"),
        scene=played_by(chainer(1), policies={"cleanPodPolicy": "None"}),
    ),
    Mutant(
        "a resume keeps the old set",
        "a StatefulSet is of an older attempt",
        ("pass", "unasked", "suspend"),
        setting(CHANGES, "stale_deletes", without_sets),
        scene=played_by(chainer(1)),
    ),
    Mutant(
        "a set that was taken out stays",
        "a replica stays",
        SCALING,
        setting(CHANGES, "stale_deletes", without_removed),
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
        scene=played_by(chainer(1), on_template_change=lambda role: "" if role == "master" else "later"),
    ),
    Mutant(
        "the extras are not repaired",
        "is not what the spec says",
        SCALING,
        setting(CHANGES, "auxiliary_changes", lambda *a: (EDITED(*a)[0], [])),
        scene=played_by(chainer(1)),
    ),
    Mutant(
        "who was taken out runs on after the end",
        "what the job had given up runs on",
        (*SCALING, "succeed"),
        setting(CHANGES, "_is_removed", lambda job, child: False),
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
        scene=played_by(chainer(1), on_template_change=lambda role: "again"),
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
