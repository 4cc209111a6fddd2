"""When a job succeeds, which exits are retried, and what restarts with a failed replica (docs/rules.md 4.7, 4.9)."""

from __future__ import annotations

from trainyard.core import ExitAction, Job, RestartScope, Slot
from trainyard.core.annotations import annotation_path
from trainyard.kinds.kubeflow_v1.framework import WORKER, Framework, all_of
from trainyard.objects import Problem
from trainyard.objects.meta import annotations_of

RESTART_SCOPE = "trainyard.dev/restart-scope"
"""Annotation of a job: `replica`, a failed replica restarts alone, as under the Training Operator; `gang`, all restart.
Without it the framework decides."""
ANNOTATION_TEXT = (
    f"the annotation `{RESTART_SCOPE}` of a job overrides that: `replica`, a failed replica is created again alone, as "
    "by the Training Operator; `gang`, all are"
)
SCOPES = {"replica": RestartScope.SLOT, "gang": RestartScope.GANG}
SUCCESS_POLICY, ALL_REPLICAS = "trainyard.dev/success-policy", "AllReplicas"
"""Annotation of a job, and its one value: the job succeeds once all replicas have, and not with its leader. Jobs of
scripts have it, so that a worker that still works when the leader ends is not stopped."""
SUCCESS_GRACE = "trainyard.dev/success-grace-seconds"
"""Annotation of a job: seconds, at most MAX_GRACE, in which replicas that still run after the success may end by
themselves. Elastic jobs of scripts have it: torchrun's agents end a moment after each other, with a traceback if they
are stopped meanwhile."""
MAX_GRACE = 3600
_SUCCESS_TEXT = (
    f"a job with the annotation `{SUCCESS_POLICY}: {ALL_REPLICAS}` succeeds once all its replicas have; with "
    f"`{SUCCESS_GRACE}` replicas that still run at the success have so many seconds to end by themselves"
)
FIRST_RETRYABLE_CODE = 128


def success_sets(framework: Framework, job: Job) -> tuple[frozenset[Slot], ...]:
    """All replicas with the annotation SUCCESS_POLICY, else the framework's own sets for this job."""
    return (frozenset(job.slots()),) if _all_succeed(framework, job) else framework.success_sets(job)


def success_grace(framework: Framework, job: Job) -> float:
    """The annotation SUCCESS_GRACE; 0 without it, if it is no whole number, and with replicas that never end."""
    seconds = _whole_seconds(_annotation(job, SUCCESS_GRACE))
    return 0.0 if seconds is None or _serving_roles(framework, job) else float(min(seconds, MAX_GRACE))


def success_text(framework: Framework) -> str:
    """What the annotations about the success do, for the docs; "" if they never have an effect."""
    if WORKER in framework.serving_roles:
        return ""
    roles = ", ".join(f"`{role}`" for role in framework.roles if role in framework.serving_roles)
    return _SUCCESS_TEXT + (f". Neither has an effect on a job with {roles}" if roles else "")


def annotation_problems(framework: Framework, job: Job) -> tuple[Problem, ...]:
    """Annotations that have no effect, or not the expected one."""
    roles, problems = ", ".join(_serving_roles(framework, job)), []
    scope = annotations_of(job.obj).get(RESTART_SCOPE)
    if scope is not None and scope not in SCOPES:
        text = f"has no effect as {scope!r}: write {' or '.join(SCOPES)}, or leave it out"
        problems.append(Problem(annotation_path(RESTART_SCOPE), text))
    for name in (SUCCESS_POLICY, SUCCESS_GRACE):
        value, text = _annotation(job, name), ""
        if value and roles:
            text = f"has no effect: replicas of {roles} do not end by themselves; leave it out"
        elif name == SUCCESS_POLICY and value not in ("", ALL_REPLICAS):
            text = f"has no effect as {value!r}: write {ALL_REPLICAS}, or leave it out"
        elif name == SUCCESS_GRACE and value and _whole_seconds(value) not in range(MAX_GRACE + 1):
            text = f"is {value!r}: write whole seconds, at most {MAX_GRACE}"
        if text:
            problems.append(Problem(annotation_path(name), text))
    return tuple(problems)


def running_slots(framework: Framework, job: Job) -> frozenset[Slot]:
    """The slots of which one runs while the job is Running: those of the leading role, or all replicas if all of them
    decide on the success."""
    if framework.all_run or _all_succeed(framework, job):
        return frozenset(job.slots())
    return all_of(framework.leading_role(job), job)


def _all_succeed(framework: Framework, job: Job) -> bool:
    return _annotation(job, SUCCESS_POLICY) == ALL_REPLICAS and not _serving_roles(framework, job)


def _whole_seconds(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 6 else None


def _serving_roles(framework: Framework, job: Job) -> list[str]:
    """The roles of the job whose replicas do not end by themselves."""
    return [role.name for role in job.roles if role.replicas and role.name in framework.serving_roles]


def _annotation(job: Job, name: str) -> str:
    value: object = annotations_of(job.obj).get(name)
    return value if isinstance(value, str) else ""


def restart_scope(framework: Framework, job: Job) -> RestartScope:
    """The annotation RESTART_SCOPE, or the framework's own scope for this job."""
    annotated = SCOPES.get(_annotation(job, RESTART_SCOPE))
    return annotated or framework.restart_scope(job)


def on_exit(framework: Framework, job: Job, slot: Slot, code: int, reason: str) -> ExitAction:
    """The effect of a failed Pod. The kubelet restarts containers under OnFailure and Always, so such a Pod fails only
    when it cannot go on, for example because it is evicted; an unknown code counts as retryable."""
    policy = framework.restart_policy_of(slot.role, framework.replica_spec(job, slot.role))
    if policy == "ExitCode":
        return ExitAction.RETRY if code < 0 or code >= FIRST_RETRYABLE_CODE else ExitAction.FAIL
    if policy == "Never":
        return ExitAction.IGNORE if framework.ignores_failure(job, slot) else ExitAction.FAIL
    return ExitAction.FAIL if framework.in_place_failure_is_final else ExitAction.RETRY
