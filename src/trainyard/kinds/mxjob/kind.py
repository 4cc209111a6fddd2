"""MxJob, `mlkube.io/v1beta1` and `mxnet.mlkube.io/v1beta1`: SCHEDULER, SERVER, WORKER as batch Jobs, DMLC variables.

Prior art: the MxJob README and the behaviour of deepinsight/mxnet-operator in October 2017, without its defects. In
dist mode the job is a gang (rules.md S33): a lost replica cannot rejoin in MXNet, and the others wait for it forever.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from trainyard.core import (
    JOB_CARRIER,
    Api,
    AuxiliaryObject,
    Job,
    Kind,
    Lifecycle,
    Outcome,
    ParsedSpec,
    PodRecipe,
    RestartScope,
    RoleTable,
    Slot,
    StatusShape,
    with_aliases,
)
from trainyard.core.names import digest
from trainyard.kinds import replica_list
from trainyard.kinds.mxjob.scripts import SCRIPTS
from trainyard.kinds.mxjob.spec import (
    CONTAINER,
    DIST,
    FIELD_ALIASES,
    LOCAL,
    PORT,
    RULES,
    RULES_AFTER_START,
    SCHEDULER,
    SERVER,
    WORKER,
    MxJobSpec,
)
from trainyard.kinds.native_gang import with_native_gangs
from trainyard.kinds.pods.accelerators import add_accelerators
from trainyard.kinds.pods.services import headless_service
from trainyard.kinds.pods.templates import append_env, containers_of, copy_template, labels_metadata_of
from trainyard.kinds.policies import policy_of
from trainyard.kinds.spec_problems import spec_problems, unknown_fields
from trainyard.objects import GVK, Json, Problem
from trainyard.objects.labels import ATTEMPT
from trainyard.objects.resources import JOB, POD, SERVICE

_rules = with_aliases(RULES, FIELD_ALIASES)


def read(spec: Json, name: str) -> ParsedSpec:
    """The ParsedSpec of an MxJob. In local mode it has one WORKER: more are a problem, and 0 counts as 1 (S19)."""
    defaulted = replica_list.with_defaults(spec, _with_defaults)
    roles = replica_list.roles_of(defaulted, "mxReplicaType", "PsRootPort")
    if spec.get("jobMode") == LOCAL:
        roles = tuple(role.resized(1) for role in roles)
    return ParsedSpec(
        roles=roles,
        policy=policy_of(spec),
        spec=defaulted,
        problems=spec_problems(MxJobSpec, _rules, spec, name),
        unknown=unknown_fields(MxJobSpec, spec),
    )


def _with_defaults(item: Json) -> Json:
    replicas, port = item.get("replicas"), item.get("PsRootPort")
    return {
        **item,
        "replicas": 1 if replicas is None else replicas,
        "PsRootPort": PORT if port is None else port,
        "mxReplicaType": item.get("mxReplicaType") or WORKER,
    }


def is_dist(job: Job) -> bool:
    """Whether the job is distributed (jobMode: dist), and therefore a gang."""
    return job.parsed.spec.get("jobMode") == DIST


def child_name(job: Job, slot: Slot) -> str:
    """The name of the Job of a slot."""
    return f"{job.key.name}-{slot.role.lower()}-{job.runtime_id}-{slot.index}"


def job_labels(job: Job) -> dict[str, str]:
    """The labels of all objects of the job."""
    return {"mxnet.mlkube.io": "", "runtime_id": job.runtime_id, "mx_job_name": job.key.name}


def child_labels(job: Job, slot: Slot) -> dict[str, str]:
    """The labels of the Job of a slot, and of its pod."""
    return {**job_labels(job), "job_type": slot.role, "task_index": str(slot.index)}


def mutate_pod_template(template: Json, job: Job, slot: Slot) -> Json:
    """A copy of the template with accelerators and, in dist mode, the DMLC variables (rules.md II.6)."""
    pod_template = copy_template(template)
    for container in containers_of(pod_template):
        if container.get("name") != CONTAINER:
            continue
        add_accelerators(pod_template, container, job.config.accelerators)
        if is_dist(job):
            append_env(container, *_dmlc_variables(job, slot, container))
    return pod_template


def _dmlc_variables(job: Job, slot: Slot, container: Json) -> list[tuple[str, str]]:
    roles = {role.name: role for role in job.roles}
    counts = {name: str(roles[name].replicas if name in roles else 0) for name in (SERVER, WORKER)}
    variables = [
        ("DMLC_PS_ROOT_PORT", str(roles[SCHEDULER].port if SCHEDULER in roles else PORT)),
        ("DMLC_PS_ROOT_URI", child_name(job, Slot(SCHEDULER, 0))),
        ("DMLC_NUM_SERVER", counts[SERVER]),
        ("DMLC_NUM_WORKER", counts[WORKER]),
        ("DMLC_ROLE", slot.role.lower()),
    ]
    env = container.get("env")
    user_names = [entry.get("name") for entry in env if isinstance(entry, dict)] if isinstance(env, list) else []
    # MXNet 1.9 resolves a host name only if this is set; otherwise it parses the URI as an IP address (S33).
    return variables if "DMLC_USE_KUBERNETES" in user_names else [*variables, ("DMLC_USE_KUBERNETES", "1")]


def subdomain(job: Job) -> str:
    """The headless Service in a distributed job; "" in a local one, which has none."""
    return f"mxjob-{job.runtime_id}" if is_dist(job) else ""


def auxiliary_objects(job: Job) -> tuple[AuxiliaryObject, ...]:
    """The headless Service of a job in dist mode."""
    if not is_dist(job):
        return ()
    ports = {f"ps-root-port-{role.port}": role.port for role in job.roles if role.name == SCHEDULER}
    # Pods of the previous attempt have the same host names and may still be terminating: the Service excludes them.
    attempt_labels = {ATTEMPT: str(job.status.role(SCHEDULER).attempt)}
    body = partial(headless_service, job, job_labels(job), ports, attempt_labels)
    return (AuxiliaryObject(SERVICE, subdomain(job), body, digest=digest(ports, attempt_labels)),)


def success_slots(job: Job) -> frozenset[Slot]:
    """The slot whose success is the job's: the SCHEDULER in dist mode, the WORKER in local mode."""
    return frozenset({Slot(SCHEDULER if is_dist(job) else WORKER, 0)})


def supervised_slots(job: Job) -> frozenset[Slot]:
    """In dist mode the exit of any replica ends the attempt."""
    return frozenset(job.slots()) if is_dist(job) else success_slots(job)


def render_status(job: Job, outcome: Outcome, counts: Mapping[str, Mapping[str, int]]) -> Json:
    """The status fields of docs/rules.md II.4: `reason` and `state` are left out when they are empty."""
    phase, state = replica_list.PHASES[outcome.phase]
    return {
        "phase": phase,
        **({"reason": outcome.message} if state == "Failed" else {}),
        "controlPaused": job.status.stored.get("controlPaused") is True,
        **({"state": state} if state else {}),
        "replicaStatuses": replica_list.replica_statuses(counts, "Mx_replica_type"),
    }


def warnings(job: Job) -> tuple[Problem, ...]:
    """Warnings about numbers of replicas with which MXNet does not run as written."""
    problems = []
    items = replica_list.items_of(job.parsed.spec)
    if job.parsed.spec.get("jobMode") == LOCAL and any(item.get("replicas") != 1 for item in items):
        text = "in local mode there is one WORKER, even with replicas: 0; write replicas: 1"
        problems.append(Problem("spec.replicaSpecs[].replicas", text))
    for item in items if is_dist(job) else ():
        if item.get("mxReplicaType") in (SERVER, WORKER) and item.get("replicas") == 0:
            text = "MXNet waits for ever without one; write at least 1"
            problems.append(Problem(f"spec.replicaSpecs[{item['mxReplicaType']}].replicas", text))
    return (*problems, *replica_list.policy_warnings(job))


MXJOB = with_native_gangs(
    Kind(
        api=Api(
            gvk=GVK("mlkube.io", "v1beta1", "MxJob", "mxjobs"),
            groups=("mxnet.mlkube.io",),
            singular="mxjob",
            spec_type=MxJobSpec,
            read=read,
            rules=RULES,
            rules_after_start=RULES_AFTER_START,
            warnings=warnings,
            columns=replica_list.COLUMNS,
            field_aliases=FIELD_ALIASES,
            has_runtime_id=True,
        ),
        roles=RoleTable(
            carrier=lambda role: JOB_CARRIER,
            container=CONTAINER,
            child_resources=(JOB, POD, SERVICE),
            patched_resources=(SERVICE,),
        ),
        pods=PodRecipe(
            name=child_name,
            labels=child_labels,
            metadata=lambda job, slot: labels_metadata_of(job),
            subdomain=subdomain,
            mutate_pod_template=mutate_pod_template,
        ),
        lifecycle=Lifecycle(
            success_sets=lambda job: (success_slots(job),),
            supervised_slots=supervised_slots,
            on_exit=replica_list.on_exit,
            restart_scope=RestartScope.GANG,
        ),
        status=StatusShape(render=render_status, legacy_outcome=replica_list.legacy_outcome),
        auxiliary=auxiliary_objects,
        scripts=SCRIPTS,
    ),
)
