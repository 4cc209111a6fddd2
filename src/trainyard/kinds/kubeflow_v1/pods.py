"""Names, labels, ports and variables of the pods, and the Service of each replica (docs/rules.md 4.3, 4.4)."""

from __future__ import annotations

from functools import partial

from trainyard.core import AuxiliaryObject, Job, Slot
from trainyard.kinds.kubeflow_v1.framework import Framework, replica_name
from trainyard.kinds.kubeflow_v1.gang import pod_groups, schedule_in_gang
from trainyard.kinds.kubeflow_v1.spec import lacks_own_port, main_container, service_ports
from trainyard.kinds.pods.templates import append_to_list, containers_of, copy_template
from trainyard.objects import Json, Ref
from trainyard.objects.resources import SERVICE

PREFIX = "training.kubeflow.org/"
JOB_NAME, OPERATOR_NAME, REPLICA_TYPE, REPLICA_INDEX, JOB_ROLE = (
    f"{PREFIX}{name}" for name in ("job-name", "operator-name", "replica-type", "replica-index", "job-role")
)


def job_labels(framework: Framework, job: Job) -> dict[str, str]:
    """The labels of every child of the job."""
    return {JOB_NAME: job.key.name, OPERATOR_NAME: framework.controller}


def replica_labels(framework: Framework, job: Job, slot: Slot) -> dict[str, str]:
    """The labels of a replica's Pod and Service, which are the Service's selector, too."""
    labels = {**job_labels(framework, job), REPLICA_TYPE: slot.role.lower()}
    return labels if slot.role in framework.single_roles else {**labels, REPLICA_INDEX: str(slot.index)}


def pod_labels(framework: Framework, job: Job, slot: Slot) -> dict[str, str]:
    """The labels of a Pod; the master, or the replica that leads in its place, has one more."""
    is_master = framework.is_master or _leads
    role = {JOB_ROLE: "master"} if is_master(job, slot) else {}
    return {**replica_labels(framework, job, slot), **role}


def _leads(job: Job, slot: Slot) -> bool:
    return slot in job.running_slots() and (slot.role != "Worker" or slot.index == 0)


def mutate_pod_template(framework: Framework, template: Json, job: Job, slot: Slot) -> Json:
    """A copy of the template with the kind's port, its variables and the restartPolicy of the role."""
    pod_template = copy_template(template)
    _add_port(framework, pod_template)
    variables = framework.environment(job, slot)
    for container in containers_of(pod_template):
        if variables and (not framework.main_container_only or container.get("name") == framework.container):
            append_to_list(container, "env", *variables)
    framework.mutate(pod_template, job, slot)
    schedule_in_gang(pod_template, job, slot)
    policy = framework.restart_policy_of(slot.role, framework.replica_spec(job, slot.role))
    pod_template["spec"]["restartPolicy"] = "Never" if policy == "ExitCode" else policy
    return pod_template


def _add_port(framework: Framework, template: Json) -> None:
    container = main_container(framework, template)
    if container and lacks_own_port(framework, template):
        append_to_list(container, "ports", {"name": framework.port_name, "containerPort": framework.port})


def auxiliary_objects(framework: Framework, job: Job) -> tuple[AuxiliaryObject, ...]:
    """The objects beside the pods and the PodGroup."""
    return services(framework, job) if framework.auxiliary is None else framework.auxiliary(job)


def services(framework: Framework, job: Job) -> tuple[AuxiliaryObject, ...]:
    """A headless Service for each replica, so that other replicas can resolve its name. It lives as long as its Pod."""
    all_services: tuple[AuxiliaryObject, ...] = job.cached_of_spec("services", partial(_services, framework))
    return all_services


def _services(framework: Framework, job: Job) -> tuple[AuxiliaryObject, ...]:
    groups = tuple(group.ref for group in pod_groups(job))
    return tuple(_service(framework, job, slot, groups) for slot in job.slots())


def _service(framework: Framework, job: Job, slot: Slot, groups: tuple[Ref, ...]) -> AuxiliaryObject:
    def body() -> Json:
        role = job.role(slot.role)
        labels = replica_labels(framework, job, slot)
        return {
            "apiVersion": SERVICE.api_version,
            "kind": SERVICE.kind,
            "metadata": {"labels": labels},
            "spec": {
                "clusterIP": "None",
                "selector": dict(labels),
                "ports": service_ports(framework, (role.template if role else None) or {}),
            },
        }

    return AuxiliaryObject(
        SERVICE,
        replica_name(job, slot.role, slot.index),
        body,
        depends_on=groups,
        slot=slot,
        deleted_with_slot=True,
        deleted_on_suspend=True,
    )


def variable(name: str, value: object) -> Json:
    """One entry of `env`."""
    return {"name": name, "value": str(value)}
