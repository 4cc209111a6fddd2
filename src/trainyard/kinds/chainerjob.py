"""ChainerJob, `kubeflow.org/v1alpha1`: a master Job that starts MPI, and a StatefulSet for each set of workers.

Prior art: the chainer-operator README and its behaviour in June 2018, without its defects. MPI reaches the workers
through the API server's exec, with a program of ours and the pod's own account: see files/kubexec.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from trainyard.core import (
    RETRYING_JOB_CARRIER,
    SET_CARRIER,
    AuxiliaryObject,
    Carrier,
    ConditionUpdate,
    Event,
    Job,
    Kind,
    Messages,
    Outcome,
    ParsedSpec,
    Policy,
    Replica,
    Role,
    Slot,
    default_condition_event,
    violations,
)
from trainyard.core.model import Ref
from trainyard.core.names import digest
from trainyard.core.status import MOST_REPLICAS
from trainyard.kinds import columns, mpi
from trainyard.kinds.chainerjob_spec import (
    CONTAINER,
    GPU,
    MASTER,
    RULES,
    ChainerJobSpec,
    named,
    set_name,
    sets_of,
)
from trainyard.kinds.policies import policy_of
from trainyard.kinds.templates import containers_of, copied, spec_of, whole, with_labels_of
from trainyard.objects import GVK, Json, Problem
from trainyard.objects.resources import CONFIG_MAP, JOB, POD, ROLE, ROLE_BINDING, SERVICE_ACCOUNT, STATEFUL_SET
from trainyard.objects.values import replace
from trainyard.schema import Schema, from_struct

LABEL = "chainerjob.kubeflow.org/"


@cache
def _schema() -> Schema:
    return Schema.ours({**from_struct(ChainerJobSpec), "x-kubernetes-preserve-unknown-fields": True})


def read(spec: Json, name: str) -> ParsedSpec:
    """What a ChainerJob spec wants. The limits are the master Job's own, so that the operator counts none (S4)."""
    stored = _schema().default(spec)
    problems = _schema().validate(stored, "spec") + violations(
        RULES, {"metadata": {"name": name}, "spec": stored}, None
    )
    return ParsedSpec(
        roles=_roles(spec),
        policy=_policy(spec),
        spec=spec,
        problems=tuple(problems),
        unknown=tuple(f"spec.{path}" for path in _schema().unknown(spec, but="template")),
    )


def _policy(spec: Json) -> Policy:
    given = policy_of(spec)
    # As documented: once the master is done the workers are scaled to 0 (S3).
    return replace(given, clean=given.clean or "Running", deadline=None, backoff_limit=None)


def _roles(spec: Json) -> tuple[Role, ...]:
    master = spec.get("master")
    roles = []
    if isinstance(master, dict):
        shape = _template(master), slots_of(master), limits_of(spec)
        roles.append(Role(MASTER, 1, 0, shape[0], digest(*shape)))
    for name, one in sets_of(spec).items():
        replicas = whole(one.get("replicas"))
        count = 1 if replicas is None else min(max(replicas, 0), MOST_REPLICAS)
        roles.append(Role(name, count, 0, _template(one), digest(_template(one), slots_of(one))))
    return tuple(roles)


def _template(part: Json) -> Json:
    found = part.get("template")
    return found if isinstance(found, dict) else {}


def slots_of(part: Json) -> int:
    """`mpiConfig.slots`, else the GPUs of the container chainer, else 1 (README)."""
    config = part.get("mpiConfig")
    given = config.get("slots") if isinstance(config, dict) else None
    if (slots := whole(given)) is not None:
        return slots
    for container in named(containers_of(_template(part))):
        if container.get("name") == CONTAINER:
            resources = container.get("resources")
            limits = resources.get("limits") if isinstance(resources, dict) else None
            gpus = str(limits.get(GPU, "")) if isinstance(limits, dict) else ""
            return max(int(gpus), 1) if gpus.isdecimal() and len(gpus) < 10 else 1
    return 1


def limits_of(spec: Json) -> Json:
    """What goes to the master Job: the master's own limits, else the job's."""
    found = {}
    for name in ("backoffLimit", "activeDeadlineSeconds"):
        master = spec.get("master")
        own = master.get(name) if isinstance(master, dict) else None
        value = whole(spec.get(name) if own is None else own)
        if value is not None:
            found[name] = value
    return found


def is_distributed(job: Job) -> bool:
    return any(role.name != MASTER for role in job.roles)


def carrier(role: str) -> Carrier:
    return RETRYING_JOB_CARRIER if role == MASTER else SET_CARRIER


def child_name(job: Job, slot: Slot) -> str:
    return f"{job.key.name}-master" if slot.role == MASTER else set_name(job.key.name, slot.role)


def child_labels(job: Job, slot: Slot) -> dict[str, str]:
    labels = {**job_labels(job), f"{LABEL}role": MASTER if slot.role == MASTER else "workerset"}
    return labels if slot.role == MASTER else {**labels, f"{LABEL}workersetname": slot.role}


def job_labels(job: Job) -> dict[str, str]:
    return {f"{LABEL}name": job.key.name}


def child_meta(job: Job, slot: Slot) -> Json:
    """The Job and the StatefulSets, but not their pods, get the labels of the ChainerJob (docs/rules.md 1.5)."""
    return with_labels_of(job)


def dress(template: Json, job: Job, slot: Slot) -> Json:
    """The template with the job's account and, in a distributed job, all that MPI needs."""
    fresh = copied(template)
    fresh["spec"]["containers"] = named(containers_of(fresh))
    fresh["spec"]["serviceAccountName"] = mpi.account(job)
    if not is_distributed(job):
        return fresh
    mpi.equip(fresh, job)
    if slot.role == MASTER:
        mpi.wait_for_workers(fresh, _slots(job, MASTER))
    return fresh


def _slots(job: Job, role: str) -> int:
    spec = job.parsed.spec
    part = spec.get("master") if role == MASTER else sets_of(spec).get(role)
    return slots_of(part) if isinstance(part, dict) else 1


def extras(job: Job) -> tuple[AuxiliaryObject, ...]:
    sets = [
        mpi.WorkerSet(set_name(job.key.name, role.name), role.replicas, _slots(job, role.name))
        for role in job.roles
        if role.name != MASTER
    ]
    # A master that was made beside workers mounts the files, and is tried again by its Job after the last set has gone.
    started_with_sets = any(name != MASTER for name in job.status.roles)
    return mpi.objects(job, job_labels(job), sets, files=bool(sets) or started_with_sets)


def needs(job: Job, slot: Slot) -> tuple[Ref, ...]:
    """A set needs the account and the files. The master, which has rights, needs all that bears the job's name."""
    early = job.blocking_objects()
    if slot.role != MASTER:
        return tuple(ref for ref in early if not job.auxiliary_objects[ref].depends_on)
    sets = (Ref(STATEFUL_SET.kind, set_name(job.key.name, role.name)) for role in job.roles if role.name != MASTER)
    return (*early, *sets)


def report(job: Job, verdict: Outcome, tally: Mapping[str, Mapping[str, int]]) -> Json:
    """A batch JobStatus: the counts are of the master's pods (docs/rules.md 1.4)."""
    states = tally.get(MASTER, {})
    lives = not verdict.finished and verdict.phase != "Suspended" and (states.get("Running") or states.get("Starting"))
    counts = {
        "active": 1 if lives else 0,
        "succeeded": states.get("Succeeded", 0),
        "failed": job.status.role(MASTER).failures,
    }
    state = "Failed" if verdict.phase == "Invalid" else verdict.phase
    return {"state": state, **{name: count for name, count in counts.items() if count}}


def word(job: Job, said: ConditionUpdate, replicas: Sequence[Replica]) -> ConditionUpdate:
    """The old operator's texts first (docs/rules.md 1.9, S7)."""
    if said.type != "NameConflict":
        return said
    name = said.message.partition(":")[0].rpartition(" ")[2]
    text = f'Resource "{name}" already exists and is not managed by ChainerJob; {said.message}'
    return said._replace(message=text)


def announce(job: Job, said: ConditionUpdate) -> Event | None:
    if said.type == "Created":
        return Event("Normal", "Synced", "ChainerJob synced successfully")
    event = default_condition_event(said)
    if said.type == "NameConflict":
        return event._replace(reason="ErrResourceExists")
    if said.reason == "InvalidSpec" and said.message.startswith("backend:"):
        return event._replace(reason="FailedSynced")
    return event


def warn(job: Job) -> tuple[Problem, ...]:
    found = []
    for role in job.parsed.roles:
        spec = spec_of(role.template)
        place = "spec.master.template.spec" if role.name == MASTER else f"spec.workerSets.{role.name}.template.spec"
        policy, taken = spec.get("restartPolicy"), ("Never", "OnFailure") if role.name == MASTER else ("Always",)
        if policy and policy not in taken:
            instead = "OnFailure" if role.name == MASTER else "Always"
            found.append(Problem(f"{place}.restartPolicy", f"{policy} cannot be had here; {instead} is used"))
        if spec.get("serviceAccountName"):
            text = f"is replaced by {job.key.name}-launcher, which may reach the workers"
            found.append(Problem(f"{place}.serviceAccountName", text))
    return tuple(found)


CHAINERJOB = Kind(
    gvk=GVK("kubeflow.org", "v1alpha1", "ChainerJob", "chainerjobs"),
    singular="chainerjob",
    short_names=("chj", "chjs", "chjob", "chjobs"),
    categories=("all",),
    spec_type=ChainerJobSpec,
    container=CONTAINER,
    carrier=carrier,
    child_resources=(JOB, POD, STATEFUL_SET, CONFIG_MAP, SERVICE_ACCOUNT, ROLE, ROLE_BINDING),
    read=read,
    child_name=child_name,
    child_labels=child_labels,
    child_metadata=child_meta,
    job_limits=lambda job, slot: limits_of(job.parsed.spec),
    mutate_pod_template=dress,
    success_slots=lambda job: frozenset({Slot(MASTER, 0)}),
    exit_fails_job=lambda job, code, reason: True,
    render_status=report,
    auxiliary_objects=extras,
    dependencies=needs,
    on_template_change=lambda role: "" if role == MASTER else "again",
    warnings=warn,
    default_backoff_limit=None,
    messages=Messages(
        "chainer-job-controller",
        word,
        announce,
        condition_aliases={"Succeeded": "Complete"},
        extra_timestamps=("lastProbeTime",),
    ),
    rules=RULES,
    columns=(columns.STATE, columns.READY, columns.RESTARTS, columns.AGE, columns.REASON, columns.BLOCKED),
)
