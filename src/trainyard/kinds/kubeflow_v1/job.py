"""Builds the `Kind` of a framework: everything that the kinds of `kubeflow.org/v1` have in common."""

from __future__ import annotations

from functools import partial

from trainyard.core import (
    POD_CARRIER,
    Api,
    Config,
    Job,
    Kind,
    Lifecycle,
    PodRecipe,
    RoleTable,
    Slot,
    StatusShape,
    TemplateChange,
)
from trainyard.kinds.definitions import columns
from trainyard.kinds.kubeflow_v1 import lifecycle, messages, pods, spec
from trainyard.kinds.kubeflow_v1.autoscaling import autoscalers, set_bounds
from trainyard.kinds.kubeflow_v1.conditions import write_conditions
from trainyard.kinds.kubeflow_v1.diagnosis import diagnosis_of
from trainyard.kinds.kubeflow_v1.framework import Framework
from trainyard.kinds.kubeflow_v1.gang import (
    POD_GROUPS,
    fewest_members,
    member_warnings,
    pod_group_of,
    pod_groups,
    priority_class,
)
from trainyard.kinds.native_gang import with_native_gangs
from trainyard.objects import GVK, Problem
from trainyard.objects.resources import HORIZONTAL_POD_AUTOSCALER, POD

GROUP = "kubeflow.org"
STATE = {**columns.STATE, "jsonPath": ".status.conditions[-1:].type"}
DETAILS = ({**columns.READY, "priority": 1}, {**columns.RESTARTS, "priority": 1}, columns.REASON, columns.BLOCKED)


def training_job(framework: Framework) -> Kind:
    """The kind of a framework."""
    kind = Kind(
        api=_api(framework),
        roles=_roles(framework),
        pods=PodRecipe(
            name=framework.object_name,
            labels=framework.labels or partial(pods.pod_labels, framework),
            mutate_pod_template=partial(pods.mutate_pod_template, framework),
            dependencies=framework.dependencies,
            awaited_slots=framework.awaited_slots,
            job_spec_fields=framework.job_spec_fields,
        ),
        lifecycle=_lifecycle(framework),
        status=_status(framework),
        auxiliary=lambda job: (*pod_groups(job), *pods.auxiliary_objects(framework, job), *autoscalers(job)),
        diagnosis=diagnosis_of(framework),
        scripts=framework.scripts,
        further_versions=framework.further_versions,
    )
    return with_native_gangs(kind, fewest_members, priority_class)


def _api(framework: Framework) -> Api:
    rules = spec.rules_of(framework)
    return Api(
        gvk=GVK(GROUP, framework.version, framework.kind, framework.plural),
        singular=framework.kind.lower(),
        spec_type=framework.spec_type,
        read=lambda stored, name: spec.read(framework, rules, stored, name),
        rules=rules,
        rules_after_start=(),
        warnings=member_warnings,
        annotation_problems=partial(lifecycle.annotation_problems, framework),
        notes=_notes,
        own_network=framework.own_network,
        columns=(STATE, columns.AGE, *DETAILS),
        scale=_scale(framework) if framework.scalable else {},
        scale_bounds=set_bounds,
        installed_by_default=False,
        policy_field="runPolicy",
        managers=framework.managers,
        has_versions=framework.has_versions,
        created_in_version=framework.created_in_version,
    )


def _roles(framework: Framework) -> RoleTable:
    patched = (*POD_GROUPS, *((HORIZONTAL_POD_AUTOSCALER,) if framework.elastic else ()))
    workloads = (carrier.gvk for carrier in framework.carriers.values())
    created = tuple(dict.fromkeys((POD, *framework.auxiliary_resources, *workloads)))
    return RoleTable(
        carrier=lambda role: framework.carriers.get(role, POD_CARRIER),
        container=framework.container,
        child_resources=(*created, *patched),
        uses=_uses,
        optional_resources=(HORIZONTAL_POD_AUTOSCALER,) if framework.elastic else (),
        patched_resources=(*patched, *framework.patched_resources),
        adopted_resources=created,
        created_resources=framework.created_resources,
    )


def _lifecycle(framework: Framework) -> Lifecycle:
    return Lifecycle(
        success_sets=partial(lifecycle.success_sets, framework),
        on_exit=partial(lifecycle.on_exit, framework),
        supervised_slots=_all_slots,
        success_grace=partial(lifecycle.success_grace, framework),
        running_slots=partial(lifecycle.running_slots, framework),
        all_run=framework.all_run,
        restart_scope=partial(lifecycle.restart_scope, framework),
        restart_text=f"{framework.restart_text}; {lifecycle.ANNOTATION_TEXT}",
        success_text=lifecycle.success_text(framework),
        default_backoff_limit=None,
        limits_stop_pods=framework.limits_stop_pods,
        worker_slots=framework.worker_slots,
        workers_reached_by_exec=framework.workers_reached_by_exec,
        template_change=TemplateChange.NEW_REPLICAS,
    )


def _status(framework: Framework) -> StatusShape:
    return StatusShape(
        render=partial(messages.render_status, framework),
        source=framework.controller,
        condition_message=partial(messages.condition_message, framework),
        condition_event=partial(messages.condition_event, framework),
        write_events=partial(messages.write_events, framework),
        write_conditions=write_conditions,
    )


def _uses(config: Config, gvk: GVK) -> bool:
    """PodGroups are those of the gang scheduler; without one there are none."""
    return gvk not in POD_GROUPS or gvk == pod_group_of(config.gang_scheduler)


def _notes(job: Job) -> tuple[Problem, ...]:
    """Fields that only a scheduler or an autoscaler of a cluster reads."""
    texts = {
        ("runPolicy", "schedulingPolicy"): "all pods start at once",
        ("elasticPolicy", "metrics"): "no autoscaler runs here, so set the number with `trainyard scale`",
    }
    spec = job.parsed.spec
    return tuple(
        Problem(f"spec.{parent}.{field}", text)
        for (parent, field), text in texts.items()
        if isinstance(spec.get(parent), dict) and spec[parent].get(field)
    )


def _all_slots(job: Job) -> frozenset[Slot]:
    return frozenset(job.slots())


def _scale(framework: Framework) -> dict[str, str]:
    return {
        "specReplicasPath": f".spec.{framework.replicas_field}.Worker.replicas",
        "statusReplicasPath": ".status.replicaStatuses.Worker.active",
        "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
    }
