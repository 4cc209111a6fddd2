"""The planted bugs of gangs, elastic jobs, Chainer jobs and TrainJobs; see planted_bugs.py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.core.planted_bugs import (
    CARRIERS,
    CHANGES,
    CLEAN,
    COUNT,
    DECIDE,
    EDITS,
    FAILURES,
    PHASE,
    RESTART,
    RESTARTS,
    Mutant,
    setting,
)
from tests.model.executor_model import ExecutorModel
from tests.model.explorer import InitialState
from tests.model.scenarios import Scenario, chainer, elastic, gang
from tests.model.scenarios_kubeflow import dynamic_tensorflow, jax, pytorch, tensorflow
from tests.model.scenarios_trainjob import ordered_jobs, restarted_jobs
from tests.model.transitions import Bounds
from trainyard.core import (
    RETRYING_JOB_CARRIER,
    STATEFUL_SET_CARRIER,
    ExitAction,
    Kind,
    Plan,
    Replica,
    RestartScope,
    Slot,
    TemplateChange,
)
from trainyard.core.failures import CountedFailures
from trainyard.core.job_state import JobStatus, Outcome
from trainyard.core.kind import Job
from trainyard.core.policies.restart import Restarts
from trainyard.kinds import CHAINERJOB, ELASTICJOB, KUBEFLOW_TFJOB, PYTORCHJOB, TRAINJOB
from trainyard.kinds.policies import policy_of as POLICY_OF
from trainyard.objects.structs import replace

PODS: Any = sys.modules["trainyard.core.carriers.pods"]
ELASTIC: Any = sys.modules["trainyard.kinds.elasticjob.kind"]
KUBEFLOW: Any = sys.modules["trainyard.kinds.kubeflow_v1.lifecycle"]


def played_by(
    scenario: Scenario, trouble: int = 1, policies: dict[str, object] | None = None, kind: Kind | None = None
) -> InitialState:
    """An initial state of that scenario, or of another kind with the same slots."""
    bounds = Bounds(trouble=trouble, edits=trouble, time=1)
    return InitialState(policies or {}, replace(scenario, kind=kind or scenario.kind), bounds=bounds)


def with_lifecycle(kind: Kind, **fields: Any) -> Kind:
    return replace(kind, lifecycle=replace(kind.lifecycle, **fields))


def with_carrier(kind: Kind, carrier: Callable[[str], Any]) -> Kind:
    return replace(kind, roles=replace(kind.roles, carrier=carrier))


def not_a_gang(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Job, "restarts_gang", lambda self: False)


def counted_one_by_one(job: Any, replicas: Any, status: JobStatus) -> CountedFailures:
    with pytest.MonkeyPatch.context() as patch:
        not_a_gang(patch)
        return COUNT(job, replicas, status)  # a module as a value


def counted_for_the_next(job: Any, replicas: Any, status: JobStatus) -> CountedFailures:
    """A failure of a gang, counted for the attempt that begins."""
    moved = [
        msgspec.structs.replace(
            replica, child=msgspec.structs.replace(child, attempt=status.role(replica.slot.role).attempt)
        )
        if (child := replica.child)
        else replica
        for replica in replicas
    ]
    return COUNT(job, moved, status)


OBSERVED = CARRIERS._observed
UNWANTED = CHANGES.stale_deletes
EDITED = CHANGES.auxiliary_changes
COMPUTE_PHASE = PHASE.compute_phase


def restarted_after_a_drain(job: Any, replicas: Any, *rest: Any) -> Restarts:
    """Where a replica was drained, failures are not looked at."""
    drained = [r for r in replicas if r.termination is None or r.termination.disrupted]
    any_drained = any(r.termination and r.termination.disrupted for r in replicas)
    return RESTARTS(job, drained if any_drained else replicas, *rest)


def kept_when_it_ended_well(job: Any, slot: Any, child: Any, pods: Any, pod: Any) -> Any:
    succeeded = child.phase == "Complete" or any(pod.phase == "Succeeded" for pod in pods)
    return Replica(slot, child, "Succeeded") if succeeded else OBSERVED(job, slot, child, pods, pod)


def failure_first(job: Any, replicas: Any, now: float) -> Outcome:
    bad = any(replica.termination and replica.termination.fails_job for replica in replicas)
    return Outcome("Failed", "PermanentFailure", "") if bad else COMPUTE_PHASE(job, replicas, now)


UNFINISHED = DECIDE._unfinished


def counted_beyond(job: Any, owned: Any, observed: Any, now: float) -> Plan:
    """Pods count that the spec does not have any more."""

    def count(job: Any, replicas: Any, status: JobStatus) -> CountedFailures:
        pods = [child for child in owned.by_ref.values() if child.kind == "Pod"]
        removed = [slot for pod in pods if (slot := Slot(pod.role, pod.index)) not in job.slots()]
        more = [job.carrier(slot.role).observe(job, slot, owned) for slot in removed]
        return COUNT(job, [*replicas, *more], status)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FAILURES, "count_failures", count)
        return UNFINISHED(job, owned, observed, now)


def drained_as_failed(job: Any, slot: Any, pod: Any) -> Any:
    return PODS.termination_of(job, slot, pod, pod.uid)


def carried(**fields: Any) -> Callable[[str], Any]:
    """The carriers of a ChainerJob, with another one for its sets."""
    changed = replace(STATEFUL_SET_CARRIER, **fields)
    return lambda role: RETRYING_JOB_CARRIER if role == "master" else changed


BY_THE_JOB_ALONE = replace(
    RETRYING_JOB_CARRIER,
    observe=lambda job, slot, family: RETRYING_JOB_CARRIER.observe(job, slot, replace(family, pods_by_owner={})),
)
"""What its pods say is not listened to."""


def without_sets(job: Any, family: Any) -> list[Any]:
    return [child for child in UNWANTED(job, family) if child.gvk.kind != "StatefulSet"]


def without_removed(job: Any, family: Any) -> list[Any]:
    slots = {job.kind.pods.name(job, slot) for slot in job.slots()}
    return [child for child in UNWANTED(job, family) if child.name in slots]


def with_pods(kind: Kind, **fields: Any) -> Kind:
    return replace(kind, pods=replace(kind.pods, **fields))


LIMITS_OF_ROLES = RESTART._limits_of_roles


def limits_go_on(job: Any, status: JobStatus, roles: Any, exceeded: Any, is_counted: bool) -> Any:
    """A restart counts, and the failures before it stay in the way of the next attempt."""
    return LIMITS_OF_ROLES(job, status, roles, exceeded, is_counted)[0], roles


def no_restart_counts(job: Any, status: JobStatus, roles: Any, exceeded: Any, is_counted: bool) -> Any:
    unlimited = replace(exceeded, is_limited=False) if exceeded else None
    return LIMITS_OF_ROLES(job, status, roles, unlimited, is_counted)


def limits_at_restarts_alone(job: Any, status: JobStatus, roles: Any, exceeded: Any, is_counted: bool) -> Any:
    resumed = status.resume_count > job.status.resume_count
    return (status, roles) if resumed else LIMITS_OF_ROLES(job, status, roles, exceeded, is_counted)


SCALING = ("pass", "unasked", "edit")
MORE = [
    Mutant(
        "a gang restarts only the role that failed",
        "the gang is not of one attempt",
        ("pass", "unasked", "fail", "time"),
        not_a_gang,
        initial_state=played_by(gang()),
    ),
    Mutant(
        "the failures of a gang are counted one by one",
        "counted twice",
        ("pass", "unasked", "fail"),
        setting(FAILURES, "count_failures", counted_one_by_one),
        initial_state=played_by(gang(), trouble=2),
    ),
    Mutant(
        "a gang does not remember the replicas that have run",
        "a gang that had run goes on with another replica",
        ("pass", "unasked", "vanish"),
        setting(RESTART, "_gang", lambda job, replicas, status: ""),
        initial_state=played_by(pytorch()),
    ),
    Mutant(
        "a gang takes a replica that was added for one that was replaced",
        "the gang was made again although it had lost nothing",
        ("pass", "unasked", "edit"),
        setting(RESTART, "_same_size", lambda job, status: True),
        initial_state=played_by(jax(most=3)),
    ),
    Mutant(
        "a failure counts for the attempt that a resume begins",
        "counted twice",
        ("pass", "unasked", "fail", "suspend"),
        setting(FAILURES, "count_failures", counted_for_the_next),
        initial_state=played_by(gang(), trouble=2),
    ),
    Mutant(
        "who ended well stays in a new attempt of the gang",
        "a replica is missing",  # it waits for what stays
        ("pass", "unasked", "fail", "succeed", "time"),
        setting(CARRIERS, "_observed", kept_when_it_ended_well),
        initial_state=played_by(gang()),
    ),
    Mutant(
        "a new attempt does not wait for the pods of older ones",
        "side by side",
        ("pass", "unasked", "fail", "time"),
        setting(CHANGES, "blocking_pods", lambda job, family: []),
        initial_state=played_by(gang()),
    ),
    Mutant(
        "a replica does not wait for the pod of a Job that somebody has deleted",
        "two pods of one replica are alive",
        ("pass", "unasked", "delete job"),
        setting(CHANGES, "blocking_pods", lambda job, family: []),
    ),
    Mutant(
        "a Job of an older attempt goes before its pods",
        "alive",
        ("pass", "unasked", "remember", "mixed pass", "suspend"),
        initial_state=played_by(gang()),
        executor=ExecutorModel(foreground=False),
    ),
    Mutant(
        "a gang is tried again at once",
        "the gang was tried again before its back-off",
        ("pass", "unasked", "fail"),
        setting(RESTART, "retry_at", lambda job, end, before, now: now),
        initial_state=played_by(gang(), trouble=2),
    ),
    Mutant(
        "a failure beats the scheduler's success",
        "although what decides has succeeded",
        ("pass", "unasked", "fail", "succeed"),
        setting(PHASE, "compute_phase", failure_first),
        initial_state=played_by(gang()),
    ),
    Mutant(
        "a worker that was taken out is counted",
        "one that was none",
        (*SCALING, "fail"),
        setting(DECIDE, "_unfinished", counted_beyond),
        initial_state=played_by(elastic(), trouble=2),
    ),
    Mutant(
        "a scale is not followed",
        "a replica is missing",
        SCALING,
        initial_state=played_by(elastic(), kind=with_lifecycle(ELASTICJOB, template_change=TemplateChange.IGNORE)),
    ),
    Mutant(
        "a failed pod is not counted",
        "deleted before it was counted",
        ("pass", "unasked", "fail", "time"),
        setting(FAILURES, "count_failures", lambda job, replicas, status: CountedFailures(status, ())),
        initial_state=played_by(elastic()),
    ),
    Mutant(
        "a worker is tried again at once",
        "a worker was tried again before its back-off",
        ("pass", "unasked", "fail"),
        setting(RESTART, "retry_at", lambda job, end, before, now: now),
        initial_state=played_by(elastic(), trouble=2),
    ),
    Mutant(
        "a resumed job goes to the old rendezvous",
        "a rendezvous that is closed",
        ("pass", "unasked", "suspend"),
        setting(ELASTIC, "rendezvous_arguments", lambda job, slot: [f"--rdzv_id={job.key.name}"]),
        initial_state=played_by(elastic()),
    ),
    Mutant(
        "a drained worker has failed",
        "one that was none",
        ("pass", "unasked", "drain"),
        setting(PODS, "_termination", drained_as_failed),
        initial_state=played_by(elastic()),
    ),
    Mutant(
        "the Services of workers that were taken out stay",
        "the Service stays",
        SCALING,
        setting(CHANGES, "auxiliary_changes", lambda *a: ([], [])),
        initial_state=played_by(elastic()),
    ),
    Mutant(
        "only the first worker has a Service",
        "the Services are not those of the workers",
        SCALING,
        initial_state=played_by(
            elastic(), kind=replace(ELASTICJOB, auxiliary=lambda job: ELASTICJOB.auxiliary(job)[:1])
        ),
    ),
    Mutant(
        "the sets run on at the end",
        "runs on after the end",
        ("pass", "unasked", "succeed"),
        initial_state=played_by(chainer(1), kind=with_carrier(CHAINERJOB, carried(stop=lambda replica, reason: None))),
    ),
    Mutant(
        "the sets are stopped whatever cleanPodPolicy says",
        "although cleanPodPolicy is None",
        ("pass", "unasked", "succeed"),
        setting(CLEAN, "effective_policy", lambda job, reason: "Running"),
        initial_state=played_by(chainer(1), policies={"cleanPodPolicy": "None"}),
    ),
    Mutant(
        "a resume keeps the old set",
        "a StatefulSet is of an older attempt",
        ("pass", "unasked", "suspend"),
        setting(CHANGES, "stale_deletes", without_sets),
        initial_state=played_by(chainer(1)),
    ),
    Mutant(
        "a set that was taken out stays",
        "a replica stays",
        SCALING,
        setting(CHANGES, "stale_deletes", without_removed),
        initial_state=played_by(chainer(1)),
    ),
    Mutant(
        "a set is not brought to its size",
        "has not the size",
        SCALING,
        initial_state=played_by(chainer(1), kind=with_carrier(CHAINERJOB, carried(resume=lambda job, replica: None))),
    ),
    Mutant(
        "an edit of a set holds for later ones",
        "a StatefulSet is not what the spec says",
        SCALING,
        initial_state=played_by(
            chainer(1), kind=with_lifecycle(CHAINERJOB, template_change=TemplateChange.NEW_REPLICAS)
        ),
    ),
    Mutant(
        "the extras are not repaired",
        "is not what the spec says",
        SCALING,
        setting(CHANGES, "auxiliary_changes", lambda *a: (EDITED(*a)[0], [])),
        initial_state=played_by(chainer(1)),
    ),
    Mutant(
        "who was taken out runs on after the end",
        "what the job had given up runs on",
        (*SCALING, "succeed"),
        setting(CLEAN, "is_removed", lambda job, child: False),
        initial_state=played_by(elastic()),
    ),
    Mutant(
        "a set that was taken out is forgotten",
        "a StatefulSet is not what the spec says",
        (*SCALING, "dying pass"),
        setting(EDITS, "removed_roles", lambda job: {}),
        initial_state=played_by(chainer(1), trouble=2),
    ),
    Mutant(
        "a drain shortens the back-off of a gang",
        "a restart was counted that was none, or by two causes",
        ("pass", "unasked", "fail", "drain"),
        setting(RESTART, "plan_restarts", restarted_after_a_drain),
        initial_state=played_by(gang(), trouble=3),
    ),
    Mutant(
        "an edit of the master is followed",
        "what tries again by itself was made again",
        SCALING,
        initial_state=played_by(chainer(1), kind=with_lifecycle(CHAINERJOB, template_change_of={})),
    ),
    Mutant(
        "a suspend deletes a master that has ended well",
        "ended well was deleted",
        ("pass", "unasked", "succeed", "suspend"),
        initial_state=played_by(
            chainer(1),
            kind=with_carrier(CHAINERJOB, lambda role: STATEFUL_SET_CARRIER if role != "master" else BY_THE_JOB_ALONE),
        ),
    ),
    Mutant(
        "a gang of Pods restarts only the replica that failed",
        "a restart that was due was not made",
        ("pass", "unasked", "fail", "time"),
        initial_state=played_by(pytorch(), kind=with_lifecycle(PYTORCHJOB, restart_scope=RestartScope.SLOT)),
    ),
    Mutant(
        "the annotation for what restarts is not read",
        "a restart that was due was not made",
        ("pass", "unasked", "fail", "time"),
        setting(KUBEFLOW, "SCOPES", {}),
        initial_state=played_by(tensorflow(scope="gang")),
    ),
    Mutant(
        "a worker that may fail fails the job",
        "a failure was counted twice, or one that was none",
        ("pass", "unasked", "fail"),
        initial_state=played_by(
            dynamic_tensorflow(), kind=with_lifecycle(KUBEFLOW_TFJOB, on_exit=lambda *exit_of_a_slot: ExitAction.FAIL)
        ),
    ),
    Mutant(
        "a policy in runPolicy is not read",
        "a replica was made again beyond backoffLimit",
        ("pass", "unasked", "fail", "time"),
        setting(sys.modules["trainyard.kinds.kubeflow_v1.spec"], "policy_of", lambda policies: POLICY_OF({})),
        initial_state=played_by(pytorch(), policies={"backoffLimit": 0}),
    ),
    Mutant(
        "a replicated job does not wait for the one that it depends on",
        "a replica was made before what it waits for had succeeded",
        ("pass", "unasked"),
        initial_state=played_by(
            ordered_jobs(), kind=with_pods(TRAINJOB, awaited_successes=lambda job, slot: frozenset())
        ),
    ),
    Mutant(
        "the limit of a replicated job does not begin anew with a restart of all",
        "the gang was made again although it had lost nothing",
        ("pass", "unasked", "fail"),
        setting(RESTART, "_limits_of_roles", limits_go_on),
        initial_state=played_by(restarted_jobs(2)),
    ),
    Mutant(
        "no restart counts towards maxRestarts",
        "beyond backoffLimit",
        ("pass", "unasked", "fail", "time"),
        setting(RESTART, "_limits_of_roles", no_restart_counts),
        initial_state=played_by(restarted_jobs(), trouble=2),
    ),
    Mutant(
        "a resumed gang is restarted for the failure before its suspension",
        "beyond backoffLimit",
        ("pass", "unasked", "fail", "suspend"),
        setting(RESTART, "_limits_of_roles", limits_at_restarts_alone),
        initial_state=played_by(restarted_jobs(), trouble=2),
    ),
]
