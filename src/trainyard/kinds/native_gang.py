"""Gangs that kube-scheduler itself schedules: a PodGroup of scheduling.k8s.io and `schedulingGroup` of the pods.

`--gang-scheduler-name=native`, for every kind (docs/decisions/0028-native-gangs.md). What must stay true:
- A group belongs to one attempt of a gang. Members of an older attempt that still end would count as members of the
  new one, and its pods would start one by one.
- `minCount` is the number of members that have not ended for good. The scheduler does not count the others, and with a
  larger `minCount` it holds the next replacement for ever, without a condition or an event. Nor does it count pods that
  an operator without gangs has made.
- The priority of the group and of all its pods is the same. Otherwise the scheduler binds none of them.
- A user's own `schedulingGroup` stays, and then the job has no group of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from trainyard.api_types.names import key_texts
from trainyard.core import AuxiliaryObject, Config, Job, Kind, Slot
from trainyard.core.names import digest
from trainyard.kinds.gang_members import group_members, living_members, pods_of, start_together
from trainyard.kinds.pods.templates import spec_of
from trainyard.objects import GVK, Json, Problem
from trainyard.objects.extended_resources import pod_requests
from trainyard.objects.labels import PREFIX
from trainyard.objects.meta import annotations_of
from trainyard.objects.resources import NATIVE_POD_GROUP
from trainyard.objects.structs import replace

NATIVE = "native"
"""The value of Config.gang_scheduler."""
TOPOLOGY_KEY = PREFIX + "topology-key"
"""Annotation of a job: the key of a node label. All pods of the gang run on nodes with one value of it, such as those
of one rack. The group of a started attempt keeps the key that it was created with, and has it in the same annotation:
an API server may have dropped the constraint."""


def with_native_gangs(
    kind: Kind,
    min_members: Callable[[Job], int | None] = lambda job: None,
    priority_class: Callable[[Job], str] = lambda job: "",
) -> Kind:
    """The kind, with a PodGroup for each attempt of a job where the operator has `--gang-scheduler-name=native`.

    min_members(job): the number of pods without which the job does not run, None: all. priority_class(job): the
    PriorityClass that the job states beside its templates."""

    def auxiliary(job: Job) -> tuple[AuxiliaryObject, ...]:
        if not _has_own_group(job):
            return kind.auxiliary(job)
        return (_pod_group(job, min_members(job), _priority_class(job, priority_class(job))), *kind.auxiliary(job))

    def mutate_pod_template(template: Json, job: Job, slot: Slot) -> Json:
        pod_template = kind.pods.mutate_pod_template(template, job, slot)
        if _has_own_group(job):
            _join(pod_template["spec"], job, _priority_class(job, priority_class(job)))
        return pod_template

    def uses(config: Config, gvk: GVK) -> bool:
        return config.gang_scheduler == NATIVE if gvk == NATIVE_POD_GROUP else kind.roles.uses(config, gvk)

    table = replace(
        kind.roles,
        child_resources=(*kind.roles.child_resources, NATIVE_POD_GROUP),
        patched_resources=(*kind.roles.patched_resources, NATIVE_POD_GROUP),
        uses=uses,
    )
    return replace(
        kind,
        auxiliary=auxiliary,
        pods=replace(kind.pods, mutate_pod_template=mutate_pod_template),
        roles=table,
        config_problem=lambda job: _config_problem(job, priority_class(job)),
    )


def _join(pod_spec: Json, job: Job, priority_class: str) -> None:
    """Make the pod a member of the job's group. Changes the spec in place."""
    pod_spec["schedulingGroup"] = {"podGroupName": group_name(job)}
    if priority_class:
        pod_spec["priorityClassName"] = pod_spec.get("priorityClassName") or priority_class


def group_name(job: Job) -> str:
    """JOB-N, where N counts the restarts of the whole job: the attempts of a gang, of another job its resumptions and
    its restarts after a stall."""
    attempts = (role.attempt for role in job.status.roles.values())
    together = job.status.resume_count + job.status.restart_causes.get("stall", 0)
    number = max(attempts, default=0) if job.restarts_gang() else together
    return f"{job.key.name}-{number}"


def pods_that_start_together(job: Job) -> int:
    """`minCount` of the job's group. `job` is parsed with NATIVE; of one with a group of the user's own, all its
    pods."""
    groups = [auxiliary.body() for auxiliary in job.kind.auxiliary(job) if auxiliary.gvk == NATIVE_POD_GROUP]
    if not groups:
        return sum(living_members(job).values())
    return int(groups[0]["spec"]["schedulingPolicy"]["gang"]["minCount"])


def _pod_group(job: Job, min_members: int | None, priority_class: str) -> AuxiliaryObject:
    is_elastic = min_members is not None and min_members < sum(pods_of(job, slot) for slot in job.slots())
    spec: Json = {
        "schedulingPolicy": {"gang": {"minCount": start_together(group_members(job), min_members)}},
        # Without the others such a job stands still, so a preemption that takes some of its pods takes all.
        "disruptionMode": {"single": {}} if is_elastic else {"all": {}},
    }
    if priority_class:
        spec["priorityClassName"] = priority_class
    metadata: Json = {}
    if key := topology_key(job.obj):
        spec["schedulingConstraints"] = {"topology": [{"key": key}]}
        metadata["annotations"] = {TOPOLOGY_KEY: key}

    def body() -> Json:
        return {
            "apiVersion": NATIVE_POD_GROUP.api_version,
            "kind": NATIVE_POD_GROUP.kind,
            "metadata": metadata,
            "spec": spec,
        }

    return AuxiliaryObject(
        NATIVE_POD_GROUP,
        group_name(job),
        body,
        digest=digest(spec),
        deleted_on_suspend=True,
        deleted_at_end=True,
        # What the operator creates or deletes is sent with it. Only a pod that a controller of Kubernetes creates again
        # in the same second is held until then.
        deferrable=True,
        fixed_fields=frozenset({"disruptionMode", "priorityClassName", "schedulingConstraints"}),
    )


def topology_key(obj: Json) -> str:
    """The annotation TOPOLOGY_KEY of a job or of its group, "" without it."""
    return str(annotations_of(obj).get(TOPOLOGY_KEY) or "")


def _config_problem(job: Job, stated_class: str) -> Problem | None:
    if not _has_own_group(job):
        return None
    if problem := _topology_problem(job):
        return problem
    # With `gangs_need_devices` no priority counts.
    return None if job.config.gangs_need_devices else _priority_problem(job, stated_class)


def _topology_problem(job: Job) -> Problem | None:
    texts = key_texts(key) if (key := topology_key(job.obj)) else []
    return (
        Problem(f"metadata.annotations[{TOPOLOGY_KEY}]", f"{key!r} is no key of a label: {texts[0]}") if texts else None
    )


def _has_own_group(job: Job) -> bool:
    templates = [role.template for role in job.roles]
    if job.config.gang_scheduler != NATIVE or any(spec_of(template).get("schedulingGroup") for template in templates):
        return False
    return not job.config.gangs_need_devices or any(map(_requests_devices, templates))


def _requests_devices(template: object) -> bool:
    return isinstance(template, dict) and bool(pod_requests(template))


def _priority_class(job: Job, stated: str) -> str:
    return next((name for role in job.roles if role.replicas and (name := _class_of(role.template))), stated)


def _class_of(template: object) -> str:
    return str(spec_of(template).get("priorityClassName") or "")


def _priority_problem(job: Job, stated: str) -> Problem | None:
    """Why the job cannot be one gang: its roles have PriorityClasses of their own."""
    classes = {role.name: _class_of(role.template) or stated for role in job.roles if role.replicas}
    if len(set(classes.values())) < 2:
        return None
    texts = ", ".join(f"{name} has {value or 'none'}" for name, value in classes.items())
    return Problem(
        "",
        f"the pods of a gang have one PriorityClass, and {texts}: write the same priorityClassName in each template "
        "(this operator runs with --gang-scheduler-name=native)",
    )
